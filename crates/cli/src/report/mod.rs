//! What a person or a program sees of a run.
//!
//! Observers know a run by its events alone. One of them is chosen when it starts: [`Live`]
//! on a terminal, [`Plain`] lines off it, [`Json`] for programs, [`Legacy`] for those who
//! call us by the original's name.

mod json;
mod legacy;
mod live;
mod output;
mod plain;
mod progress;
mod sink;
mod tally;

pub use json::Json;
pub use legacy::Legacy;
pub use live::Live;
pub use plain::Plain;
pub use progress::Progress;
pub use sink::Sink;
