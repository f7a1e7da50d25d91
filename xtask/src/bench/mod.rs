//! `cargo xtask bench`: Packhorse, the kernel's limit and similar programs, side by side.
//!
//! Absolute times say more about the machine than about the program, so what counts is the
//! ratio to a limit program of our own ([`crate::limit`]) that was measured in the same
//! round, a second before or after. A benchmark returns a [`report::Section`]: a table of
//! what was measured, and the targets to compare it with.

mod cold;
mod deciding;
mod distinct;
mod environment;
mod experiments;
mod fairness;
mod fake_machine;
mod figures;
mod gap;
mod gate;
mod grid;
mod idle;
mod interleave;
mod machine;
mod million;
mod node;
mod outgrown;
mod packing;
mod preload;
mod process;
mod python;
mod report;
mod run;
mod slurm;
mod spawn;
mod statistics;
mod sweep;
mod unknown;

pub use packing::{SimulateArgs, simulate};
pub use run::{BenchArgs, run};
