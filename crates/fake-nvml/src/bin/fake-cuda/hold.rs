//! What to wait for: time, or a test.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_fake_nvml::wait_for;

/// When to let go of the memory.
#[derive(Debug, PartialEq, Eq)]
pub enum Hold {
    /// After some time.
    For(Duration),
    /// When all writers have closed this fifo.
    UntilClosed(PathBuf),
    /// When this file is there.
    UntilExists(PathBuf),
}

/// Waits.
pub fn hold(hold: &Hold) -> io::Result<()> {
    match hold {
        Hold::For(time) => {
            pause(*time);
            Ok(())
        }
        Hold::UntilClosed(fifo) => {
            let mut ignored = [0; 4096];
            let mut fifo = fs_err::File::open(fifo)?;
            while fifo.read(&mut ignored)? > 0 {}
            Ok(())
        }
        Hold::UntilExists(file) => until_exists(file),
    }
}

/// Work that takes time.
#[expect(
    clippy::disallowed_methods,
    reason = "a program that takes a while is what is pretended"
)]
pub fn pause(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// Waits until the file is there.
pub fn until_exists(file: &Path) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let look = || Ok(file.exists().then_some(()));
    match wait_for(folder, None, look)? {
        Some(()) => Ok(()),
        None => Err(io::Error::other(format!("{} is gone", folder.display()))),
    }
}
