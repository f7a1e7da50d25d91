//! NVIDIA's devices, through NVML.

mod broken;
mod device;
mod member;
mod xids;

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::driver::Detail;
use crate::{BrokenDriver, Device, GpuConfig, GpuError};
use broken::broken;
use device::DeviceReader;
pub(crate) use member::MemberReader;
pub(crate) use xids::watch_xids;

/// The name under which the driver installs NVML.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Whether there is an NVML library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvmlLibrary {
    /// There is none, or the configuration says to use none.
    Absent,
    /// There is one, but it cannot be loaded.
    Unusable,
    /// There is one, so there may be a driver that hangs.
    Present,
}

/// NVIDIA's driver.
#[derive(Debug)]
pub struct Nvidia {
    // Boxed: it has a pointer for each of some 400 functions.
    nvml: Box<Nvml>,
    sysfs: PathBuf,
}

impl Nvidia {
    /// Looks for the library without calling the driver.
    pub(crate) fn library(config: &GpuConfig) -> NvmlLibrary {
        if let Some(library) = &config.nvml_library {
            return if library == Path::new("none") {
                NvmlLibrary::Absent
            } else {
                NvmlLibrary::Present
            };
        }
        if is_nowhere(LIBRARY) {
            return NvmlLibrary::Absent;
        }
        // SAFETY: NVML does nothing on load but wait for `nvmlInit`.
        match unsafe { libloading::Library::new(LIBRARY) } {
            Ok(library) => {
                // It is left open, since it is used next.
                std::mem::forget(library);
                NvmlLibrary::Present
            }
            Err(error) if is_absent(LIBRARY, &error_text(&error)) => NvmlLibrary::Absent,
            Err(_) => NvmlLibrary::Unusable,
        }
    }

    /// Loads and initialises NVML. `None`: this machine does not have it.
    pub(crate) fn load(config: &GpuConfig) -> Result<Option<Self>, GpuError> {
        let named = config.nvml_library.as_deref();
        if named == Some(Path::new("none")) {
            return Ok(None);
        }
        if named.is_none() && is_nowhere(LIBRARY) {
            return Ok(None);
        }
        let path = named.unwrap_or(Path::new(LIBRARY));
        let reason = match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => {
                return Ok(Some(Self { nvml: Box::new(nvml), sysfs: config.sysfs.clone() }));
            }
            Err(NvmlError::LibloadingError(error)) => error_text(&error),
            // A library without `nvmlInit` is not NVML at all.
            Err(NvmlError::FailedToLoadSymbol(reason)) if named.is_some() => reason,
            Err(error) => return Err(broken(&error).into()),
        };
        match named {
            Some(path) => Err(GpuError::Library { path: path.to_owned(), reason }),
            None if is_absent(LIBRARY, &reason) => Ok(None),
            None => Err(BrokenDriver { reason, hint: None }.into()),
        }
    }

    /// Whether there is any device. True if the driver cannot tell: it will say why
    /// when it is asked for its devices.
    pub(crate) fn has_devices(&self) -> bool {
        !matches!(self.nvml.device_count(), Ok(0))
    }

    /// Every device.
    pub(crate) fn devices(&self, detail: Detail) -> Result<Vec<Device>, BrokenDriver> {
        let count = self.nvml.device_count().map_err(|error| broken(&error))?;
        let mut reader = DeviceReader::new(self, detail);
        Ok((0..count).map(|index| reader.device(index)).collect())
    }
}

/// What the loader knows of libraries.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Whether the loader would surely not find the library. To ask it takes longer: it tries
/// some ninety places, one after the other, before it gives up.
fn is_nowhere(library: &str) -> bool {
    std::env::var_os("LD_LIBRARY_PATH").is_none() && !is_installed(library)
}

/// Whether a library is where the loader looks for it, or may be.
fn is_installed(library: &str) -> bool {
    let Ok(cache) = fs_err::read(LOADER_CACHE) else {
        return true;
    };
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let is_in = |folder: &str| {
        let mut below = ["", &triple].into_iter();
        below.any(|below| Path::new(folder).join(below).join(library).exists())
    };
    contains(&cache, library.as_bytes())
        || ["/lib", "/usr/lib", "/lib64", "/usr/lib64"].into_iter().any(is_in)
}

/// Whether these bytes stand somewhere among others. By the C library, which skips most of
/// them: this comes before the first task.
fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let ((all, length), (part, part_length)) =
        ((bytes.as_ptr().cast(), bytes.len()), (wanted.as_ptr().cast(), wanted.len()));
    // SAFETY: each pointer is to as many bytes as it says, and both outlive the call.
    let found = unsafe { libc::memmem(all, length, part, part_length) };
    !found.is_null()
}

/// What the loader said, which is the innermost source of the error.
fn error_text(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), error_text)
}

/// Whether the loader did not find the library at all, as opposed to finding it
/// broken or something that it needs missing.
fn is_absent(library: &str, reason: &str) -> bool {
    reason.starts_with(library) && reason.contains("No such file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(library: &str) -> String {
        match Nvml::builder().lib_path(library.as_ref()).init() {
            Err(NvmlError::LibloadingError(error)) => error_text(&error),
            other => panic!("{library} loaded: {other:?}"),
        }
    }

    #[test]
    fn a_library_that_is_not_installed_is_absent() {
        let name = "libpackhorse-none.so.1";
        assert!(is_absent(name, &load(name)));
        let named = |library: &str| GpuConfig {
            nvml_library: Some(library.into()),
            ..GpuConfig::default()
        };
        assert_eq!(Nvidia::library(&named("none")), NvmlLibrary::Absent);
        assert_eq!(Nvidia::library(&named(name)), NvmlLibrary::Present);
    }

    #[test]
    fn what_the_loader_would_find_is_known_without_it() {
        assert!(is_installed("libc.so.6"));
        assert!(!is_installed("libpackhorse-none.so.1"));
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_not_absent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(LIBRARY);
        fs_err::write(&file, "no library").unwrap();
        let name = file.to_str().unwrap();
        assert!(!is_absent(name, &load(name)));
        // Found, but something that it needs is not.
        let reason = "libneeded.so.2: cannot open shared object file: No such file or directory";
        assert!(!is_absent(LIBRARY, reason));
    }
}
