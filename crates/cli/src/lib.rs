//! The command line: arguments → settings → commands → the other crates.
//!
//! - [`args`]: what can be typed.
//! - [`commands`]: what it means, one file a command.
//! - [`report`]: what is seen of a run.
//! - `dropin`: the names of the originals.
//!
//! Everything that can be checked is checked before the first task starts;
//! what is wrong then is one message and exit status 2.

pub mod args;
mod commands;
mod dropin;
mod limits;
mod program;
mod report;
mod stdout;
mod terminal;
mod wording;

pub use program::main;
pub(crate) use program::{complain, complain_as_it_is, usage};
