//! The parts of a machine that tests need, and how each is looked for.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::found::{find, target, test_python};

/// Something that a test needs besides a Rust toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Debian's Slurm, which tests start in namespaces of its own.
    Slurm,
    /// Slurm 24.11 in a folder below `target`.
    Slurm24,
    /// A Python environment with the original programs.
    Python,
    /// A Python that can `import torch`.
    Torch,
    /// podman with crun, and bubblewrap.
    Podman,
    /// The rights of root.
    Root,
    /// The right to run processes as two other users.
    TwoUsers,
}

impl Part {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 7] = [
        Self::Slurm,
        Self::Slurm24,
        Self::Python,
        Self::Torch,
        Self::Podman,
        Self::Root,
        Self::TwoUsers,
    ];

    /// Its name in `PACKHORSE_SKIP`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Slurm24 => "slurm-24",
            Self::Python => "python",
            Self::Torch => "torch",
            Self::Podman => "podman",
            Self::Root => "root",
            Self::TwoUsers => "two-users",
        }
    }

    /// What of it is missing here. Tests must not mistake a part that is broken for one that
    /// is there, so this looks at what they will use.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Slurm => not_root().or_else(|| {
                missing_program(&["unshare", "nsenter", "ip", "munged", "slurmctld", "slurmd"])
            }),
            Self::Slurm24 => not_root().or_else(|| {
                let root = target().join("slurm-24.11/usr/sbin/slurmctld");
                (!root.exists()).then(|| format!("no {}", root.display()))
            }),
            Self::Python => {
                let python = test_python();
                (!python.exists()).then(|| format!("no {}", python.display()))
            }
            Self::Torch => {
                let mut python = Command::new("/usr/bin/python3");
                let python = python.args(["-c", "import torch"]).stderr(Stdio::null());
                let works = python.status().is_ok_and(|status| status.success());
                (!works).then(|| "/usr/bin/python3 cannot import torch".to_owned())
            }
            Self::Podman => missing_program(&["podman", "crun", "bwrap"]),
            Self::Root => not_root(),
            Self::TwoUsers => not_root().or_else(cannot_become_others),
        }
    }
}

fn not_root() -> Option<String> {
    (!rustix::process::geteuid().is_root()).then(|| "these tests do not run as root".to_owned())
}

/// In a user namespace that maps root alone there is nobody else to be.
fn cannot_become_others() -> Option<String> {
    let map = fs_err::read_to_string(Path::new("/proc/self/uid_map")).unwrap_or_default();
    let ids = map.lines().filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    (ids.sum::<u64>() < 65_536).then(|| "this user namespace has no other users".to_owned())
}

fn missing_program(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|program| find(program).is_none());
    missing.map(|program| format!("no {program}"))
}
