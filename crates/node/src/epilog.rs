//! After a job: what it had is free again.

use std::path::Path;

use packhorse_orders::JobOrders;

use crate::config::Config;
use crate::facts::JobFacts;
use crate::heal::Healer;
use crate::prolog::Trouble;
use crate::queue::AnswerNeed;
use crate::servers;
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
            Some(server) if !is_used(&state, &server)? => Some(server),
            _ => None,
        };
        (before, unused)
    };
    let healer = Healer {
        config: &config,
        state: &state,
        node: facts.node.as_deref(),
        except: None,
    };
    let (_, gone) = healer.heal(AnswerNeed::Recent);
    let left = gone.iter().filter_map(|job| job.server.as_ref());
    for server in unused.iter().chain(left) {
        servers::settle(&state, server, file, program);
    }
    Ok(before.is_some())
}

/// Whether a job has this MPS server.
fn is_used(state: &State, server: &str) -> Result<bool, Trouble> {
    let (jobs, _) = state.jobs(None)?;
    let uses = |job: &JobOrders| job.server.as_deref() == Some(server);
    Ok(jobs.iter().any(uses))
}
