//! Where the parts are that `cargo xtask test` installs.

use std::env;
use std::path::{Path, PathBuf};

/// The folder that cargo builds into: a test is `TARGET/PROFILE/deps/TEST`.
pub fn target() -> PathBuf {
    let test = env::current_exe().expect("the kernel knows this program's path");
    let folder = test.ancestors().find(|folder| folder.ends_with("deps"));
    let profile = folder.and_then(Path::parent).or_else(|| test.parent());
    profile.and_then(Path::parent).expect("tests are built below a target folder").to_owned()
}

/// The folder of the original programs and of a Python that can import them.
pub fn originals() -> PathBuf {
    target().join("test-venv/bin")
}

/// A Python that has the originals and NVIDIA's bindings to NVML.
pub fn test_python() -> PathBuf {
    originals().join("python")
}

/// Looks a program up on the PATH, and where only root has it on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
