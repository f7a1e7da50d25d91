//! From what a person wrote after `--gpus` to the units that tasks are given.
//!
//! [`Selection::parse`] knows the writing only, [`resolve`] holds it against
//! what there is. Ids reach `CUDA_VISIBLE_DEVICES` as they were written: what
//! is checked here is whether they mean something, and not the same twice.

mod error;
mod ids;
mod parse;
mod resolve;
mod unit;

pub use error::SelectError;
pub use parse::{Selection, looks_like_gpu_list};
pub use resolve::{Visible, resolve};
pub use unit::{Member, Unit, visibility};
