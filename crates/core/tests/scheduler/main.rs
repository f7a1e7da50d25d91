//! What the scheduler decides, told by its effects.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, as it should"
)]

mod dependencies;
mod explain;
mod lab;
mod model;
mod nonsense;
mod order;
mod placement;
mod pools;
mod properties;
mod reservation;
mod retries;
