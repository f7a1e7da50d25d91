//! What a daemon says about itself.

use crate::Percent;

/// The state of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonStatus {
    /// The daemon's process, if it is known.
    pub pid: Option<u32>,
    /// Its servers. There are none before the first client.
    pub servers: Vec<MpsServer>,
    /// The share of the GPU's threads that clients get by default.
    pub threads: Option<Percent>,
}

/// A server, which uses the GPU on behalf of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpsServer {
    /// Its process, which itself holds some memory of the GPU.
    pub pid: u32,
    /// Its state in small letters, such as `active`. `fault`: a client has made it fail, it
    /// waits for its clients to end, and takes no new ones.
    pub state: String,
    /// Its clients' processes.
    pub clients: Vec<u32>,
}

/// Parses a list of processes, one per line. `None`: it is something else.
pub(super) fn pids(answer: &str) -> Option<Vec<u32>> {
    let lines = answer.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.map(|line| line.parse().ok()).collect()
}

/// Parses `ACTIVE`.
pub(super) fn server_state(answer: &str) -> String {
    let answer = answer.trim().to_ascii_lowercase();
    let says = |state: &&str| answer.split_whitespace().any(|word| word == *state);
    let known = ["fault", "active", "initializing"].into_iter().find(says);
    known.map_or(answer.clone(), str::to_owned)
}

/// Parses `100.0`.
pub(super) fn percent(answer: &str) -> Option<Percent> {
    let whole = answer.trim().split('.').next()?;
    let number: u8 = whole.parse().ok()?;
    (number <= 100).then_some(Percent(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_no_lists_are_not_read_as_empty_ones() {
        assert_eq!(pids(""), Some(vec![]));
        assert_eq!(pids("12\n 345 \n"), Some(vec![12, 345]));
        assert_eq!(pids("Server 12 not found\n"), None);
        assert_eq!(pids("12\nwarning\n"), None);
    }

    #[test]
    fn a_server_with_a_fault_is_told_apart() {
        assert_eq!(server_state("ACTIVE\n"), "active");
        assert_eq!(server_state("Server status: FAULT\n"), "fault");
        assert_eq!(server_state("INITIALIZING"), "initializing");
        assert_eq!(server_state("INACTIVE\n"), "inactive");
    }

    #[test]
    fn percentages_have_a_fraction_that_nobody_needs() {
        assert_eq!(percent("100.0\n"), Some(Percent(100)));
        assert_eq!(percent("33"), Some(Percent(33)));
        assert_eq!(percent("250.0"), None);
        assert_eq!(percent("lots"), None);
    }
}
