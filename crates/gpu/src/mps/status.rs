//! What a daemon says of itself.

use crate::Percent;

/// How a daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The daemon's process, where it is known.
    pub pid: Option<u32>,
    /// Its servers. There is none before the first client comes.
    pub servers: Vec<Server>,
    /// The share of the GPU's threads that clients get who ask for nothing else.
    pub threads: Option<Percent>,
}

/// A server, which has the GPU and does its clients' work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its process. It holds some memory of the GPU itself.
    pub pid: u32,
    /// How it is.
    pub state: ServerState,
    /// Its clients' processes.
    pub clients: Vec<u32>,
}

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It begins.
    Initializing,
    /// It works.
    Active,
    /// A client's error has hit it: it waits for its clients to end, and takes
    /// no new ones.
    Fault,
    /// Something else, in the daemon's words.
    Other(String),
}

/// Reads a list of processes, one a line. `None`: it is something else.
pub(super) fn pids(answer: &str) -> Option<Vec<u32>> {
    let lines = answer.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.map(|line| line.parse().ok()).collect()
}

/// Reads `ACTIVE`.
pub(super) fn server_state(answer: &str) -> ServerState {
    let words = answer.trim();
    let says = |word: &str| {
        words
            .split_whitespace()
            .any(|w| w.eq_ignore_ascii_case(word))
    };
    if says("FAULT") {
        ServerState::Fault
    } else if says("ACTIVE") {
        ServerState::Active
    } else if says("INITIALIZING") {
        ServerState::Initializing
    } else {
        ServerState::Other(words.to_owned())
    }
}

/// Reads `100.0`.
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
        assert_eq!(server_state("ACTIVE\n"), ServerState::Active);
        assert_eq!(server_state("Server status: FAULT\n"), ServerState::Fault);
        assert_eq!(server_state("INITIALIZING"), ServerState::Initializing);
        let other = ServerState::Other("INACTIVE".to_owned());
        assert_eq!(server_state("INACTIVE\n"), other);
    }

    #[test]
    fn percentages_have_a_fraction_that_nobody_needs() {
        assert_eq!(percent("100.0\n"), Some(Percent(100)));
        assert_eq!(percent("33"), Some(Percent(33)));
        assert_eq!(percent("250.0"), None);
        assert_eq!(percent("lots"), None);
    }
}
