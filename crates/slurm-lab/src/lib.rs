//! A real Slurm for one test: `munged`, `slurmctld` and several `slurmd`, private to it.
//!
//! ```no_run
//! use packhorse_slurm_lab::{LabSettings, SlurmLab};
//!
//! let lab = SlurmLab::start(LabSettings::default());
//! let output = lab.output(lab.command("sbatch").args(["--parsable", "--wrap", "hostname"]));
//! lab.wait_for_job(output.trim(), "COMPLETED");
//! ```
//!
//! ```text
//! test ─ pipe ─▶ keeper        this machine's namespaces; removes everything at the end
//!   │              └ holder    mount, uts, ipc and network namespaces of the lab
//!   ├ command()    ─ enters those: a machine to log in to. Its process is the program itself.
//!   ├ slurmctld    ─ and munged: enter those, in a pid namespace of their own
//!   └ slurmd n1…   ─ enters those, each in its own pid, mount and uts namespaces: a node.
//!                    Killing the first process of the namespace is a power failure.
//! ```
//!
//! What it promises:
//! - Any number of labs run at the same time: each has its own network, so that ports and
//!   names never clash, and everything it writes is in one folder.
//! - That folder, and every other path of this machine, has the same path inside. Only with
//!   [`SlurmVersion::V24_11`] are `/usr` (but not `/usr/local`) and `/etc` another Debian's.
//! - Nodes have their own host names, processes and `/dev/shm`. They share the disk, as nodes
//!   of a cluster share a network file system.
//! - When the lab is dropped, or its process ends in whatever way, nothing is left behind:
//!   the keeper reads a pipe which then ends, kills all that is in the network namespace,
//!   and removes the folder.
//! - If the test panics, the ends of Slurm's logs are shown.
//!
//! It needs the part [`SlurmVersion::part`] of the machine, and panics where that is missing.
//! Nothing here is for users of Packhorse.

mod cgroups;
mod conf;
mod keeper;
mod lab;
mod lost_jobs;
mod node;
mod settings;

pub use lab::SlurmLab;
pub use settings::{Cgroups, CpuBinding, LabSettings, SlurmVersion};
