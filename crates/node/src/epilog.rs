//! After a job: what it had is free again.

use std::path::Path;

use crate::config::{Config, ConfigError};
use crate::facts::JobFacts;
use crate::heal::{Urgency, forget_the_gone};
use crate::prolog::Trouble;
use crate::servers;
use crate::slurm::Slurm;
use crate::state::State;

/// Does what an epilog has to do. Whether the job had anything. `program` is Packhorse
/// itself.
pub fn epilog(file: &Path, facts: &JobFacts, program: &Path) -> Result<bool, Trouble> {
    if facts.percent.is_none() {
        return Ok(false);
    }
    // Without a configuration there is no job that was given anything by it: they stay
    // where they are until there is one again.
    let config = Config::read(file).map_err(|error: ConfigError| Trouble::from(error))?;
    let state = State::open(&config.state)?;
    let before = {
        let lock = state.lock()?;
        let before = state.job(facts.job);
        state.remove_job(&lock, facts.job);
        before
    };
    let slurm = Slurm::new(&config.scontrol);
    let gone = forget_the_gone(&state, &slurm, facts.node.as_deref(), None, Urgency::Usual);
    for job in before.iter().chain(&gone) {
        if let Some(server) = &job.server {
            servers::settle(&state, server, file, program);
        }
    }
    Ok(before.is_some())
}
