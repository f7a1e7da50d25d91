use std::io;

use serde::{Deserialize, Serialize};

/// What an NVML function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Code {
    /// It worked.
    Success = 0,
    /// `nvmlInit` was not called.
    Uninitialized = 1,
    /// A pointer, handle or number that makes no sense.
    InvalidArgument = 2,
    /// This device cannot do that.
    NotSupported = 3,
    /// This user may not do that.
    NoPermission = 4,
    /// There is no such thing.
    NotFound = 6,
    /// The caller's buffer is too small.
    InsufficientSize = 7,
    /// The kernel module is not there.
    DriverNotLoaded = 9,
    /// The driver did not answer in time.
    Timeout = 10,
    /// The driver is older than the function.
    FunctionNotFound = 13,
    /// The device has fallen off the bus.
    GpuIsLost = 15,
    /// The device must be reset first.
    ResetRequired = 16,
    /// Library and kernel module are of different versions.
    LibRmVersionMismatch = 18,
    /// A structure of a version that the driver does not know.
    ArgumentVersionMismatch = 25,
    /// Anything else.
    Unknown = 999,
}

impl From<io::Error> for Code {
    /// A state that cannot be read is a driver in an unknown condition.
    fn from(_: io::Error) -> Self {
        Self::Unknown
    }
}
