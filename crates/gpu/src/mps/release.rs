use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use packhorse_proc::{ProcEntry, variable};

use super::{Daemon, PIPE_VARIABLE};

/// The variable that is in the environment of every attempt.
const TASK_VARIABLE: &str = "PACKHORSE_TASK";

/// Takes an attempt's processes off the devices of these daemons, so that killing them
/// does no harm to other clients: a client that is killed while it computes takes its
/// server with it.
///
/// `leader` is the attempt's first process, which must not have been reaped yet, and
/// `belongs` tells which processes are the attempt's. Errors are ignored: a client that
/// cannot be released is going to be killed anyway.
pub fn release_clients<'a>(
    daemons: impl IntoIterator<Item = &'a Daemon>,
    leader: u32,
    belongs: impl Fn(u32) -> bool,
) {
    let environment = ProcEntry::of(leader).environment().unwrap_or_default();
    // Each command is a process of its own, and there may be many attempts to end: an
    // attempt without a daemon in its environment has no clients, and one with a daemon
    // has none elsewhere.
    let used = |daemon: &&Daemon| may_use(&environment, daemon.pipes());
    for daemon in daemons.into_iter().filter(used) {
        for server in daemon.servers().unwrap_or_default() {
            let clients = daemon.clients(server).unwrap_or_default();
            for client in clients.into_iter().filter(|&client| belongs(client)) {
                let _ = daemon.terminate_client(server, client);
            }
        }
    }
}

/// Whether an attempt may use the daemon with these pipes, by the environment that its
/// leader was started with.
fn may_use(environment: &[u8], pipes: &Path) -> bool {
    match variable(environment, PIPE_VARIABLE) {
        Some(used) => used == pipes.as_os_str().as_bytes(),
        // Without this, the leader has overwritten its environment, or runs as another user.
        None => variable(environment, TASK_VARIABLE).is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_environment_that_can_be_read_rules_a_daemon_out() {
        let may_use = |text: &str, pipes: &str| may_use(text.as_bytes(), Path::new(pipes));
        let a = "PACKHORSE_TASK=1.1\0CUDA_MPS_PIPE_DIRECTORY=/run/a\0";
        assert!(may_use(a, "/run/a"));
        assert!(!may_use(a, "/run/b"));
        let none = "PACKHORSE_TASK=1.1\0CUDA_MPS_PIPE_DIRECTORY2=b\0";
        assert!(!may_use(none, "b"));
        assert!(may_use("python: worker 3", "/run/a"));
        assert!(may_use("", "/run/a"));
    }
}
