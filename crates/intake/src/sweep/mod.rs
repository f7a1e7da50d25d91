//! A template and the values of its parameters → one command per combination.
//!
//! ```
//! use packhorse_intake::sweep::{Sweep, SweepLanguage};
//! use packhorse_model::SweepSpec;
//!
//! let spec = SweepSpec {
//!     template: "train --lr {lr} --bs {bs}".into(),
//!     parameters: vec![
//!         ("lr".into(), vec!["log:0.001..0.1:3".into()]),
//!         ("bs".into(), vec!["32".into(), "64".into()]),
//!     ],
//!     ..SweepSpec::default()
//! };
//! let sweep = Sweep::new(&spec, SweepLanguage::Packhorse)?;
//! assert_eq!(sweep.len(), 6);
//! assert_eq!(sweep.command(5).as_deref(), Some(b"train --lr 0.1 --bs 64".as_slice()));
//! # Ok::<(), packhorse_intake::sweep::SweepError>(())
//! ```
//!
//! Nothing is ever expanded: a combination is computed from its index, and a
//! shuffled order is a permutation that is computed too. So the first ten of
//! 10^12 combinations, shuffled, come at once, and memory does not grow with
//! the grid.

mod axis;
mod cursor;
mod decimal;
mod error;
mod grid;
mod logarithmic;
mod parameter;
mod permutation;
pub(crate) mod pieces;
mod range;
#[cfg(test)]
mod tests;

pub use cursor::SweepCommands;
pub use error::{ParameterProblem, SweepError, SweepWriteError, TemplateError, TemplateProblem};
pub use grid::{Sweep, SweepLanguage};
