//! Sharing the GPUs of a Slurm node, through the real binary: by itself, with commands that
//! stand in for Slurm's, and in a real Slurm.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod fake_slurm;
mod lab;

mod concurrent;
mod counting;
mod devices;
mod faults;
mod from_nothing;
mod giving;
mod installing;
mod restarts;
mod rules;
mod servers;
mod shares;
mod unordered;
