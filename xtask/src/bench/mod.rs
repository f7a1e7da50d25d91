//! `cargo xtask bench`: us, the kernel's limit and our peers, side by side.
//!
//! Absolute times say more about the machine than about the program, so what
//! counts is the ratio to a limit program of our own ([`crate::limit`]) that was
//! measured in the same round, a second before or after. A benchmark returns a
//! [`report::Section`]: a table of what was measured, and the targets it is
//! held to.

mod cold;
mod contest;
mod figures;
mod gap;
mod gate;
mod idle;
mod machine;
mod million;
mod packing;
mod process;
mod report;
mod run;
mod spawn;
mod stage;
mod sweep;
mod waiting;

pub use run::{Args, run};
