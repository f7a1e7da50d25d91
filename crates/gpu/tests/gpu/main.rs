//! Telemetry and selection, against a pretended driver through the real NVML
//! path and against a pretended sysfs.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

mod amd;
mod faults;
mod machine;
mod mps;
mod nvidia;
mod sampler;
mod select;
