//! Every form that work comes in, turned into commands, as it arrives.
//!
//! ```text
//!  bytes of a file, a pipe, a fifo ──▶ Lines ──▶ Entry (command, line, options)
//!  template + parameters ──▶ Sweep ──▶ one command an index, in grid or shuffled order
//! ```
//!
//! Both stream: a line is there as soon as its newline is, and a grid of ten
//! million combinations takes no more memory than one of ten.
//!
//! What this crate promises: no bytes make it panic, an error says where it is
//! and what to write instead, and one bad line does not stop the others. What
//! it never does: read or run anything itself, or print.

mod excerpt;
#[doc(hidden)]
pub mod fuzz;
pub mod lines;
mod nearest;
pub mod sweep;

pub use excerpt::Colour;
