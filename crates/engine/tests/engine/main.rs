//! Inputs go in, actions come out: nothing is started, and no file is read.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod arriving;
mod backlog;
mod collateral;
mod evidence;
mod groups;
mod health;
mod kinds;
mod lab;
mod ladder;
mod leases;
mod lingering;
mod looking;
mod metrics;
mod mps;
mod mps_checks;
mod outbox;
mod outgrowing;
mod plain;
mod probes;
mod properties;
mod resume;
mod runs;
mod stopping;
mod tenancy;
mod time_budget;
mod unknown;
mod withdrawing;
