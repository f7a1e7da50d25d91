//! Behaviour that people see, through the real binary.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod support;

mod again;
mod csv;
mod dropin;
mod edges;
mod gpus;
mod intake;
mod leftovers;
mod live;
mod logs;
mod machine;
mod memory;
mod mps;
mod output;
mod placing;
mod run;
mod signals;
mod sweep;
mod window;
