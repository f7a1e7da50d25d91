//! From what somebody wrote after `--gpus` to the units that tasks are given.
//!
//! [`Selection::parse`] only knows the syntax; [`resolve()`] looks the ids up among the
//! devices that exist. Ids reach `CUDA_VISIBLE_DEVICES` as they were written: this
//! only checks that each means a device, and that none is named twice.

mod error;
mod ids;
mod parse;
mod resolve;
mod suitable;
mod unit;

pub use error::SelectError;
pub use parse::{Selection, looks_like_gpu_list};
pub use resolve::{ResolvedSelection, VisibleDevices, resolve};
pub use unit::{Unit, UnitMember, visibility};
