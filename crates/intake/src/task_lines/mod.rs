//! Tasks, one JSON object per line, as the bytes arrive.
//!
//! ```text
//! {"command": "python prepare.py", "name": "prep"}
//! {"command": ["python", "train.py", "--lr", "0.1"], "after": ["prep"], "gpus": 0.5, "vram": "9G"}
//! ```
//!
//! A line is a [`TaskSpec`] as serde writes it. Blank lines are skipped; there are
//! no comments, because JSON has none. A line with a mistake is not handed out,
//! and the others are.
//!
//! [`TaskSpec`]: packhorse_model::TaskSpec

mod diagnosis;
mod error;
mod members;
mod reader;
#[cfg(test)]
mod tests;

pub use error::TaskLineProblem;
pub(crate) use members::example;
pub(crate) use reader::read_line;
