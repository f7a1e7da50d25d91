//! An NVIDIA driver for machines without one.
//!
//! Two things in one package:
//!
//! - a **shared library** with as much of NVML's C interface as Packhorse needs,
//!   true enough for NVIDIA's own Python module. What it reports is read anew at each call from the folder named by
//!   the environment variable [`STATE_VARIABLE`], so a test can change the
//!   machine while a program looks at it;
//! - a **kit** for tests to furnish that folder: [`FakeState`], [`FakeDevice`],
//!   [`FakeProcess`] and the faults that real drivers have.
//!
//! The program `fake-cuda` behaves as a CUDA program does towards the same
//! folder: it takes memory on its visible devices, and dies of too little. The
//! program `fake-mps-control` stands in for `nvidia-cuda-mps-control`, with a
//! server that `fake-cuda` attaches to.
//!
//! ```text
//!  STATE/driver.json                 faults of the whole driver
//!        devices/INDEX.json          one device, its MIG instances, its faults
//!        processes/UUID/PID.json     memory held on a device or MIG instance
//!        events/NUMBER.json          what happened, for those who wait for events
//!        hung/INDEX                  while it is there, calls for a device hang
//!        hung/INDEX.called           one hangs
//!        mps/UUID                    appears to make an MPS server die
//!        lock                        held while somebody takes memory
//! ```
//!
//! Files are only ever replaced by rename: a reader sees the old or the new
//! one, never half of it. A process's memory counts while the process lives, as
//! with a real driver; nobody has to tidy up after a kill.
//!
//! The kit panics when it cannot write its folder: a test without its machine
//! has nothing to test. The shared library never panics across the border.

mod active;
mod built;
mod code;
mod device;
mod driver;
mod event;
mod ffi;
pub mod mps;
mod process;
mod state;
mod trouble;
mod visible;
mod wait;

pub use active::Active;
pub use built::{fake_cuda_path, fake_mps_control_path, library_path};
pub use code::Code;
pub use device::{FakeComputeMode, FakeDevice, FakeMig, FakeUnit, Faults, Growth, Lost, Mig};
pub use driver::FakeDriver;
pub use process::{FakeProcess, ProcessKind};
pub use state::{DeviceFull, FakeState, STATE_VARIABLE};
pub use visible::visible_devices;
pub use wait::{wait_for, wait_until_exists, wait_until_gone};
