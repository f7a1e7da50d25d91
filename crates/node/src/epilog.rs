//! After a job: what it had is free again.

use std::path::Path;

use crate::config::Config;
use crate::facts::JobFacts;
use crate::heal::Healer;
use crate::prolog::Trouble;
use crate::queue::AnswerNeed;
use crate::servers::{is_used, settle};
use crate::state::State;

/// Does what an epilog has to do. Whether the job had anything. `program` is Packhorse
/// itself.
pub fn epilog(file: &Path, facts: &JobFacts, program: &Path) -> Result<bool, Trouble> {
    if facts.percent.is_none() {
        return Ok(false);
    }
    // Without a configuration there is no job that was given anything by it: they stay
    // where they are until there is one again.
    let config = Config::read(file)?;
    let state = State::open(&config.state)?;
    let (before, unused) = {
        let lock = state.lock()?;
        let before = state.job(facts.job);
        state.remove_job(&lock, facts.job);
        let server = before.as_ref().and_then(|job| job.server.clone());
        let unused = match server {
            Some(server) if !is_used(&state.jobs(None)?.0, &server) => Some(server),
            _ => None,
        };
        (before, unused)
    };
    let healer =
        Healer { config: &config, state: &state, node: facts.node.as_deref(), except: None };
    let (_, left) = healer.heal(AnswerNeed::Recent);
    settle(&state, unused.iter().chain(&left), file, program);
    Ok(before.is_some())
}
