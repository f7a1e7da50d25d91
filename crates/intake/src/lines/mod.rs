//! Commands, one per line, as the bytes arrive.
//!
//! ```text
//! # a comment, skipped like blank lines
//! python prepare.py
//! #packhorse gpus=0.5 retries=2 timeout=2h
//! python train.py --lr 0.1 \
//!     --epochs 90
//! ```
//!
//! A backslash at the end of a line joins it to the next, as in a shell. A
//! directive `#packhorse KEY=VALUE …` says what the next command needs: `gpus`,
//! their memory as `vram` and their `model`, `cores`, `cpu`, `ram`, `priority`,
//! `retries`, `timeout`, `grace`, its `folder`, an environment variable as
//! `env=NAME=VALUE` (once for each), where its `results` and its `log` go, the
//! Python modules to `preload`, the `signature` that its memory is remembered by,
//! a `name`, and the names of earlier tasks that it comes `after`. A command whose
//! directive is wrong is not handed out: half of what was asked for may be the
//! wrong half.
//!
//! With [`Separator::Null`] every item is a command exactly as it is.

mod directive;
mod error;
mod reader;
mod separator;
#[cfg(test)]
mod tests;

pub use error::{LineError, LineProblem};
pub(crate) use reader::LineReader;
pub use separator::Separator;
