//! Beginning and end.

use super::call::{init, shutdown};

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
