//! Grid files: parameters and the values to test, as YAML, TOML, JSON or a Python literal.
//!
//! ```text
//!  text ──▶ GridValue: every value with its place, its spelling and what it is to Python
//!       ──▶ Sections: scheduler_config, global_config, test_config, command, …
//!       ──▶ Grid: a test by its place: parameters, folder name, TaskSpec
//! ```
//!
//! ```
//! use packhorse_intake::grid::Grid;
//! use packhorse_model::GridLanguage;
//!
//! let text = "test_config: [{method: [GAN, ALI], lr: [1e-3]}]\ncommand: python train.py";
//! let grid = Grid::read(text, GridLanguage::Yaml, None)?;
//! assert_eq!(grid.len(), 2);
//! assert_eq!(grid.folder(1), "results/lr-0.001,method-ALI,");
//! assert_eq!(grid.test(1).command.to_text(), "python train.py --method ALI --lr 1e-3");
//! # Ok::<(), packhorse_intake::grid::GridFileError>(())
//! ```
//!
//! Folders are named as Python prints values, and commands are given what was written.
//! Nothing is expanded: a test is computed from its place, and names are compared by their
//! hashes, so that memory does not grow with the grid.

mod brackets;
pub(crate) mod colons;
pub(crate) mod command;
mod config;
mod duplicates;
#[expect(clippy::module_inception, reason = "it is what the module is about")]
mod grid;
pub(crate) mod json_text;
mod literal;
pub(crate) mod names;
mod number;
mod only;
pub(crate) mod print;
pub(crate) mod problem;
pub(crate) mod pyyaml;
mod quotes;
pub(crate) mod same_names;
pub(crate) mod source_text;
#[cfg(test)]
mod tests;
mod text_literal;
mod toml_file;
mod unprintable;
pub(crate) mod value;
pub(crate) mod yaml;

pub use command::CommandProblem;
pub use config::{SchedulerConfig, TooManyTests};
pub use grid::{Grid, GridFileError, GridSelection};
pub use only::{Condition, OnlyError};
pub use problem::{GridError, GridProblem};
pub use same_names::NameReport;
