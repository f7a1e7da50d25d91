use std::os::unix::ffi::OsStrExt as _;

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
    let used = UsedDaemon::from_environment(&environment);
    // Each command is a process of its own, and there may be many attempts to end: an
    // attempt without a daemon in its environment has no clients, and one with a daemon
    // has none elsewhere.
    for daemon in daemons.into_iter().filter(|daemon| used.may_be(daemon)) {
        for server in daemon.servers().unwrap_or_default() {
            let clients = daemon.clients(server).unwrap_or_default();
            for client in clients.into_iter().filter(|&client| belongs(client)) {
                let _ = daemon.terminate_client(server, client);
            }
        }
    }
}

/// The daemon that an attempt uses, by the environment that its leader was started with.
#[derive(Debug, PartialEq, Eq)]
enum UsedDaemon {
    /// The one with these pipes.
    Pipes(Vec<u8>),
    /// None.
    None,
    /// The leader has overwritten its environment, or runs as another user.
    Unknown,
}

impl UsedDaemon {
    fn from_environment(environment: &[u8]) -> Self {
        match variable(environment, PIPE_VARIABLE) {
            Some(pipes) => Self::Pipes(pipes.to_vec()),
            None if variable(environment, TASK_VARIABLE).is_some() => Self::None,
            None => Self::Unknown,
        }
    }

    fn may_be(&self, daemon: &Daemon) -> bool {
        match self {
            Self::Pipes(pipes) => daemon.pipes().as_os_str().as_bytes() == pipes,
            Self::None => false,
            Self::Unknown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_environment_that_can_be_read_rules_a_daemon_out() {
        let used = |text: &str| UsedDaemon::from_environment(text.as_bytes());
        let pipes = UsedDaemon::Pipes(b"/run/a".to_vec());
        assert_eq!(
            used("PACKHORSE_TASK=1.1\0CUDA_MPS_PIPE_DIRECTORY=/run/a\0"),
            pipes
        );
        assert_eq!(
            used("PACKHORSE_TASK=1.1\0CUDA_MPS_PIPE_DIRECTORY2=b\0"),
            UsedDaemon::None
        );
        assert_eq!(used("python: worker 3"), UsedDaemon::Unknown);
        assert_eq!(used(""), UsedDaemon::Unknown);
    }
}
