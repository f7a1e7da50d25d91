//! The parts of a machine that tests need, and how each is looked for.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};

use crate::found::{VENV_STAMP, find, slurm_24_11, test_python, test_venv};

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
    /// The right to make user namespaces.
    Namespaces,
    /// The right to make cgroups of version 1.
    Cgroups1,
    /// The right to make cgroups of version 2.
    Cgroups2,
    /// Two cores, so that tasks can have different ones.
    Cores,
    /// Small programs that a bare system lacks.
    Programs,
}

/// Small programs that tests use, and that a bare system lacks.
const PROGRAMS: [&str; 3] = ["git", "ps", "tmux"];

impl Part {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 12] = [
        Self::Slurm,
        Self::Slurm24,
        Self::Python,
        Self::Torch,
        Self::Podman,
        Self::Root,
        Self::TwoUsers,
        Self::Namespaces,
        Self::Cgroups1,
        Self::Cgroups2,
        Self::Cores,
        Self::Programs,
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
            Self::Namespaces => "namespaces",
            Self::Cgroups1 => "cgroups-1",
            Self::Cgroups2 => "cgroups-2",
            Self::Cores => "cores",
            Self::Programs => "programs",
        }
    }

    /// What this machine lacks for the part, if anything. Tests must not mistake a part that is broken for one that
    /// is there, so this looks at what they will use.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Slurm => not_a_lab()
                .or_else(|| missing_program(&["munged", "slurmctld", "slurmd", "sbatch"])),
            Self::Slurm24 => {
                not_a_lab().or_else(|| missing_file(&slurm_24_11().join("usr/sbin/slurmctld")))
            }
            Self::Python => missing_program(&["python3"])
                // It is written last.
                .or_else(|| missing_file(&test_venv().join(VENV_STAMP)))
                // It is a link, which may dangle after an update of Python.
                .or_else(|| missing_file(&test_python())),
            Self::Torch => fails(Command::new("/usr/bin/python3").args(["-c", "import torch"])),
            Self::Podman => missing_program(&["podman", "crun", "bwrap"]),
            Self::Root => not_root(),
            Self::TwoUsers => not_root().or_else(cannot_become_others),
            Self::Namespaces => fails(Command::new("unshare").args(["--map-root-user", "true"])),
            Self::Cgroups1 => not_root().or_else(|| unwritable(&["/sys/fs/cgroup/freezer"])),
            Self::Cgroups2 => not_root().or_else(|| {
                unwritable(&["/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"])
            }),
            Self::Cores => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                (cores < 2).then(|| "there is only one core".to_owned())
            }
            Self::Programs => missing_program(&PROGRAMS),
        }
    }
}

fn not_root() -> Option<String> {
    (!rustix::process::geteuid().is_root()).then(|| "these tests do not run as root".to_owned())
}

/// What every version of Slurm needs.
fn not_a_lab() -> Option<String> {
    let namespaces = ["--mount", "--net", "--pid", "--fork", "true"];
    not_root()
        .or_else(|| missing_program(&["unshare", "nsenter", "mount", "ip"]))
        .or_else(|| fails(Command::new("unshare").args(namespaces)))
}

/// A user namespace that maps root alone has no other users.
fn cannot_become_others() -> Option<String> {
    let map = fs_err::read_to_string(Path::new("/proc/self/uid_map")).unwrap_or_default();
    let ids = map.lines().filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    (ids.sum::<u64>() < 65_536).then(|| "this user namespace has no other users".to_owned())
}

fn missing_program(programs: &[&str]) -> Option<String> {
    let missing = programs.iter().find(|program| find(program).is_none());
    missing.map(|program| format!("no {program}"))
}

fn missing_file(file: &Path) -> Option<String> {
    (!file.exists()).then(|| format!("no {}", file.display()))
}

/// Why none of these files can be written to, if so.
fn unwritable(files: &[&str]) -> Option<String> {
    let is_writable = |file: &&str| access(*file, Access::WRITE_OK).is_ok();
    let file = files.first().filter(|_| !files.iter().any(is_writable))?;
    Some(format!("{file} is not there, or cannot be written to"))
}

/// The last line that a command writes if it fails.
fn fails(command: &mut Command) -> Option<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Some(said.lines().last().map_or_else(|| format!("{program} fails"), str::to_owned))
        }
        Err(error) => Some(format!("no {program}: {error}")),
    }
}
