//! Where the parts are that `cargo xtask test` installs.

use std::env;
use std::path::{Path, PathBuf};

/// The folder that cargo builds into: a test is `TARGET/PROFILE/deps/TEST`, and a program is
/// one folder higher.
pub fn target() -> PathBuf {
    let exe = env::current_exe().expect("the kernel knows this program's path");
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let profile = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    profile.and_then(Path::parent).expect("tests are built below a target folder").to_owned()
}

/// The root folder of Slurm 24.11.
pub fn slurm_24_11() -> PathBuf {
    target().join("slurm-24.11")
}

/// The virtual environment with the original programs and NVIDIA's bindings to NVML.
pub(crate) fn test_venv() -> PathBuf {
    target().join("test-venv")
}

/// The file in a complete virtual environment that lists the requirements it was made for.
pub const VENV_STAMP: &str = "packhorse-requirements.txt";

/// The folder of the original programs.
pub fn originals() -> PathBuf {
    test_venv().join("bin")
}

/// A Python that has the originals and NVIDIA's bindings to NVML.
pub fn test_python() -> PathBuf {
    originals().join("python")
}

/// Looks a program up on the PATH, and where only root has it on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
