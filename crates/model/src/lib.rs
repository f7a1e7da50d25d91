//! The words of Packhorse as types.
//!
//! Every other crate speaks in these: a [`Task`] with its [`Request`] comes in
//! through a door, the core gives each of its attempts a [`Placement`], and it
//! ends in exactly one [`Outcome`].
//!
//! There is no logic here beyond reading and printing a value the way people
//! write it, and no input or output at all.

mod command;
mod exit;
mod id;
mod outcome;
mod placement;
mod quantity;
mod request;

pub use command::{Command, Task};
pub use exit::Exit;
pub use id::{CoreId, DeviceId, NodeId, ParseIdError, RunId, TaskId};
pub use outcome::Outcome;
pub use placement::{Granted, Placement};
pub use quantity::{Bytes, Milli, ParseQuantityError, parse_duration};
pub use request::{GpuRequest, MemoryRequest, Models, Priority, Request};
