use std::ffi::CStr;
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
    const TEXTS: [(Self, &CStr); 16] = [
        (Self::Success, c"Success"),
        (Self::Uninitialized, c"Uninitialized"),
        (Self::InvalidArgument, c"Invalid Argument"),
        (Self::NotSupported, c"Not Supported"),
        (Self::NoPermission, c"Insufficient Permissions"),
        (Self::NotFound, c"Not Found"),
        (Self::InsufficientSize, c"Insufficient Size"),
        (Self::DriverNotLoaded, c"Driver Not Loaded"),
        (Self::Timeout, c"Timeout"),
        (Self::FunctionNotFound, c"Function Not Found"),
        (Self::GpuIsLost, c"GPU is lost"),
        (Self::ResetRequired, c"GPU requires reset"),
        (
            Self::OperatingSystem,
            c"The operating system has blocked the request",
        ),
        (
            Self::LibRmVersionMismatch,
            c"Driver/library version mismatch",
        ),
        (Self::ArgumentVersionMismatch, c"Argument version mismatch"),
        (Self::Unknown, c"Unknown Error"),
    ];

    /// What `nvmlErrorString` says of the code with this number; every number that is
    /// none is unknown.
    pub(crate) fn text(number: u32) -> &'static CStr {
        let known = Self::TEXTS.iter().find(|(code, _)| *code as u32 == number);
        known.map_or(c"Unknown Error", |(_, text)| text)
    }
}

impl From<io::Error> for Code {
    /// A state that cannot be read is a driver in an unknown condition.
    fn from(_: io::Error) -> Self {
        Self::Unknown
    }
}
