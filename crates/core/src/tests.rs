//! What the scheduler decides, told by its effects.

mod adoption;
mod backfill;
mod check;
mod cores;
mod dependencies;
mod explain;
mod lab;
mod ladder;
mod memory;
mod model;
mod nonsense;
mod order;
mod outside;
mod placement;
mod pool_changes;
mod pools;
mod properties;
mod reservation;
mod retries;
mod runs;
