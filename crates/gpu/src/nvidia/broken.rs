//! What NVML's errors mean to a person.

use nvml_wrapper::error::NvmlError;

use crate::BrokenDriver;

/// Why the driver does not work, and what to do about it.
pub(super) fn broken(error: &NvmlError) -> BrokenDriver {
    let (reason, hint) = match error {
        NvmlError::DriverNotLoaded => (
            "its library is installed, but its kernel module is not loaded".to_owned(),
            Some("load it with `modprobe nvidia`; in a container, start it with access to GPUs"),
        ),
        NvmlError::LibRmVersionMismatch => (
            "its library and its kernel module have different versions".to_owned(),
            Some("it was updated while in use: reboot, or reload its kernel modules"),
        ),
        NvmlError::NoPermission => (
            "this user may not talk to it".to_owned(),
            Some("look at the permissions of /dev/nvidiactl"),
        ),
        other => (other.to_string(), None),
    };
    BrokenDriver { reason, hint: hint.map(str::to_owned) }
}

/// Why a device cannot even be found.
pub(super) fn not_found(error: &NvmlError) -> String {
    lost(error).map_or_else(|| error.to_string(), str::to_owned)
}

/// Why one device does not work, if this error means that it does not.
pub(super) fn lost(error: &NvmlError) -> Option<&'static str> {
    match error {
        NvmlError::GpuLost => Some("it has fallen off the bus; a reboot may bring it back"),
        NvmlError::ResetRequired => Some("it must be reset (nvidia-smi --gpu-reset)"),
        NvmlError::IrqIssue => Some("its interrupts do not arrive"),
        NvmlError::InsufficientPower => Some("its power cables are not attached properly"),
        _ => None,
    }
}
