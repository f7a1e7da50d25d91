use std::ffi::CStr;

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
    /// The kernel or a cgroup is in the way.
    OperatingSystem = 17,
    /// Library and kernel module are of different versions.
    LibRmVersionMismatch = 18,
    /// A structure of a version that the driver does not know.
    ArgumentVersionMismatch = 25,
    /// Anything else.
    Unknown = 999,
}

impl Code {
    const ALL: [Self; 16] = [
        Self::Success,
        Self::Uninitialized,
        Self::InvalidArgument,
        Self::NotSupported,
        Self::NoPermission,
        Self::NotFound,
        Self::InsufficientSize,
        Self::DriverNotLoaded,
        Self::Timeout,
        Self::FunctionNotFound,
        Self::GpuIsLost,
        Self::ResetRequired,
        Self::OperatingSystem,
        Self::LibRmVersionMismatch,
        Self::ArgumentVersionMismatch,
        Self::Unknown,
    ];

    /// The code with this number; every other number is unknown.
    pub(crate) fn from_number(number: u32) -> Self {
        Self::ALL
            .into_iter()
            .find(|code| *code as u32 == number)
            .unwrap_or(Self::Unknown)
    }

    /// What `nvmlErrorString` says of it.
    pub(crate) const fn text(self) -> &'static CStr {
        match self {
            Self::Success => c"Success",
            Self::Uninitialized => c"Uninitialized",
            Self::InvalidArgument => c"Invalid Argument",
            Self::NotSupported => c"Not Supported",
            Self::NoPermission => c"Insufficient Permissions",
            Self::NotFound => c"Not Found",
            Self::InsufficientSize => c"Insufficient Size",
            Self::DriverNotLoaded => c"Driver Not Loaded",
            Self::Timeout => c"Timeout",
            Self::FunctionNotFound => c"Function Not Found",
            Self::GpuIsLost => c"GPU is lost",
            Self::ResetRequired => c"GPU requires reset",
            Self::OperatingSystem => c"The operating system has blocked the request",
            Self::LibRmVersionMismatch => c"Driver/library version mismatch",
            Self::ArgumentVersionMismatch => c"Argument version mismatch",
            Self::Unknown => c"Unknown Error",
        }
    }
}
