//! Every form that work comes in, turned into commands, as it arrives.
//!
//! ```text
//!  bytes of a file, a pipe, a fifo ──▶ Lines ──▶ Entry (command, line, options)
//!  template + parameters ──▶ Sweep ──▶ one command an index, in grid or shuffled order
//!  bytes of a CSV file ──▶ csv::read ──▶ Row (folder, words, epochs, line, options)
//!
//!  a command ──▶ signature ──▶ what its memory is remembered by
//!            ──▶ Probe ──────▶ a short run of it
//! ```
//!
//! The first two stream: a line is there as soon as its newline is, and a grid
//! of ten million combinations takes no more memory than one of ten. A table is
//! read as a whole, because all of it is checked before any of it starts.
//!
//! What this crate promises: no bytes make it panic, an error says where it is
//! and what to write instead, and one bad line does not stop the others. What
//! it never does: run anything, or print. It touches files in the CSV door only:
//! to see whether what a row names is there, and to take finished rows out.

pub mod csv;
mod excerpt;
#[doc(hidden)]
pub mod fuzz;
pub mod lines;
mod mistake;
mod nearest;
pub mod probe;
mod shell;
pub mod signature;
pub mod sweep;
mod vram;

pub use excerpt::{Colour, Weight};
pub use mistake::{Mistake, Problem};
pub use vram::Vram;
