//! Describes the machine in general terms: enough to judge the figures, but nothing that
//! tells whose it is.

use anyhow::{Context, Result};

use super::process::field;

/// One sentence: cores, memory, kernel.
pub fn describe() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let meminfo = fs_err::read_to_string("/proc/meminfo")?;
    let kilobytes = field(&meminfo, "MemTotal").context("/proc/meminfo has no MemTotal")?;
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    // Only the version: the rest of a release is often a site's own name.
    let version: Vec<&str> = release.split(['.', '-']).take(2).collect();
    Ok(format!(
        "Machine: {cores} cores, {} GB of memory, Linux {}.",
        kilobytes.div_ceil(1 << 20),
        version.join(".")
    ))
}
