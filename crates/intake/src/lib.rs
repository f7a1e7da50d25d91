//! Every form that work comes in, turned into tasks as it arrives.
//!
//! ```text
//!  bytes of a file, a pipe, a fifo ──▶ TaskReader ──▶ Entry (line, TaskSpec)
//!  template + parameters ──▶ Sweep ──▶ one command per index, in grid or shuffled order
//!  bytes of a CSV file ──▶ csv::read ──▶ Row (line, TaskSpec, words, epochs)
//!  text of a grid file ──▶ Grid ──▶ one TaskSpec per place, with a folder for results
//!  text of an experiment file ──▶ Experiments ──▶ one TaskSpec per repetition
//!
//!  a command ──▶ signature ──────▶ what its memory is remembered by
//!            ──▶ probe_command ──▶ a short run of it
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
mod entry;
mod excerpt;
pub mod experiments;
pub mod grid;
mod input_error;
pub mod lines;
mod names;
mod nearest;
pub mod probe;
mod reader;
mod shell;
pub mod signature;
mod spec_problem;
mod splitter;
pub mod sweep;
pub mod task_lines;

pub use entry::Entry;
pub use excerpt::{Colour, Severity};
pub use input_error::{InputError, InputProblem};
pub use nearest::{did_you_mean, nearest};
pub use reader::{TaskLanguage, TaskReader};
pub use spec_problem::{SpecProblem, check_values};
pub use splitter::LONGEST as LONGEST_LINE;
