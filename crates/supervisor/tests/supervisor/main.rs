//! The supervisor with real processes.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod adopting;
mod embedding;
mod ending;
mod leftovers;
mod output;
mod preload_trouble;
mod preloading;
mod signals;
mod starting;
mod support;
