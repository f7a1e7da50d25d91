//! Which GPUs there are, what state they are in, and who uses them.
//!
//! ```text
//!  GpuConfig ──▶ Driver::detect ──▶ Nvidia (NVML) ┐
//!                                   Amd (sysfs)   ├─▶ devices()    Vec<Device>, to show
//!                                   Broken, None  ┘   inventory()  Inventory, to choose from
//!                                                                      │
//!  --gpus 0+1 2+3 ──▶ Selection::parse ──▶ resolve ◀───────────────────┘
//!                                             └─▶ Vec<Unit>, each given to tasks as a whole
//!                                                      │
//!  Sampler::start ◀────────────────────────────────────┘
//!     └─▶ during a run: memory, processes, health and Xids of each unit
//! ```
//!
//! [`call_driver`] calls a driver that may never return. Use it for every call
//! until there is a [`Sampler`].
//!
//! [`mps`] controls the daemons that let several programs compute on one GPU at
//! the same time.
//!
//! Promises:
//!
//! - a machine without a GPU is a normal machine: having no driver is no error;
//! - one lost GPU does not hide the others;
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
mod process;
mod sampler;
mod select;
pub mod short_command;
mod thread;
mod timeout;
mod xid;

pub use amd::Amd;
pub use config::GpuConfig;
pub use cores::parse_list as parse_core_list;
pub use device::{
    Celsius, ComputeMode, Device, DeviceMemory, GpuProcess, Health, MigInstance, Milliwatts,
    Percent, Vendor,
};
pub use driver::{Driver, Inventory};
pub use error::{BrokenDriver, GpuError};
pub use nvidia::Nvidia;
pub use sampler::{DeviceReading, DeviceSample, ProcessMemory, Sampler, SamplerReport};
pub use select::{
    ResolvedSelection, SelectError, Selection, Unit, UnitMember, VisibleDevices,
    looks_like_gpu_list, resolve, visibility,
};
pub use timeout::call_driver;
pub use xid::Xid;
