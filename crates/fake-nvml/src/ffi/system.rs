//! Beginning, end, versions.

use std::ffi::{c_char, c_int};

use super::call::{init, shutdown};
use super::nvml;
use super::pointers::Pointer;
use crate::Code;

/// As in NVML's manual.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    init("nvmlInit_v2")
}

/// As in NVML's manual. The flags only spare the real one some work.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> u32 {
    init("nvmlInitWithFlags")
}

/// As in NVML's manual.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> u32 {
    shutdown()
}

/// As in NVML's manual.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    Code::text(code).as_ptr()
}

nvml!(nvmlSystemGetDriverVersion: fn(version: Pointer<c_char>, length: u32) |call| {
    version.put_text(&call.driver.driver_version, length)
});

nvml!(nvmlSystemGetNVMLVersion: fn(version: Pointer<c_char>, length: u32) |call| {
    version.put_text(&call.driver.nvml_version, length)
});

nvml!(nvmlSystemGetCudaDriverVersion | nvmlSystemGetCudaDriverVersion_v2:
fn(version: Pointer<c_int>) |call| {
    version.put(call.driver.cuda_version)
});
