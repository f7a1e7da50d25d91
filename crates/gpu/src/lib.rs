//! What GPUs there are, how they are, and who is on them.
//!
//! ```text
//!  Config ──▶ Driver::detect ──▶ Nvidia (NVML) ┐
//!                                Amd (sysfs)   ├─▶ devices()    Vec<Device>, to look at
//!                                Broken, None  ┘   inventory()  Inventory, to choose from
//!                                                                   │
//!  --gpus 0+1 2+3 ──▶ Selection::parse ──▶ resolve ◀────────────────┘
//!                                             └─▶ Vec<Unit>, each to be given to tasks
//!                                                      │
//!  Watch::start ◀──────────────────────────────────────┘
//!     └─▶ while a run lasts: memory, processes, health and Xids of each unit
//! ```
//!
//! [`ask`] puts questions to a driver that may never answer: to be used for all of
//! them before there is a [`Watch`].
//!
//! [`mps`] controls the daemons with which several programs compute on one GPU
//! at the same time.
//!
//! Promises:
//!
//! - a machine without a GPU is a normal machine: no driver is no error;
//! - one GPU that is lost does not hide the others;
//! - a reading that a device does not have is `None`, never an invented zero;
//! - free memory is what the driver says is free, never a difference.
//!
//! It never decides who gets a device, and never prints.

mod amd;
mod config;
mod cores;
mod device;
mod driver;
mod error;
pub mod mps;
mod nvidia;
mod patience;
mod people;
mod quiet;
mod select;
mod watch;
mod xid;

pub use amd::Amd;
pub use config::{
    Config, DRIVER_PATIENCE_VARIABLE, MPS_CONTROL_VARIABLE, NVML_LIBRARY_VARIABLE, SYSFS_VARIABLE,
};
pub use device::{
    Celsius, Device, Health, Memory, MigInstance, Milliwatts, Percent, Process, Vendor,
};
pub use driver::{Driver, Inventory};
pub use error::{BrokenDriver, GpuError};
pub use nvidia::Nvidia;
pub use patience::ask;
pub use select::{
    Member, SelectError, Selection, Unit, Visible, looks_like_gpu_list, resolve, visibility,
};
pub use watch::{Held, Reading, Report, Sample, Watch};
pub use xid::Xid;
