//! Whether a lab can be started on this machine.

use std::env;
use std::path::{Path, PathBuf};

use crate::settings::SlurmVersion;

/// Where programs are looked for: what a user's PATH lacks is in the folders for root.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The name of the root folder of Slurm 24.11, in the target folder.
pub const ROOT_24_11: &str = "slurm-24.11";

/// The root folder to run in, or none for this machine's; or what is missing.
pub fn root_of(version: SlurmVersion) -> Result<Option<PathBuf>, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("Slurm is started by root only".to_owned());
    }
    for program in ["unshare", "nsenter", "mount", "ip"] {
        find(program)?;
    }
    match version {
        SlurmVersion::Host => {
            for program in ["munged", "slurmctld", "slurmd", "sbatch"] {
                find(program)?;
            }
            Ok(None)
        }
        SlurmVersion::V24_11 => {
            let root = target().map(|target| target.join(ROOT_24_11));
            let root = root.filter(|root| root.join("usr/sbin/slurmctld").exists());
            let hint = "no root folder of Slurm 24.11 (cargo xtask test makes it)";
            root.map(Some).ok_or_else(|| hint.to_owned())
        }
    }
}

fn find(program: &str) -> Result<(), String> {
    if env::split_paths(PATH).any(|folder| folder.join(program).exists()) {
        return Ok(());
    }
    Err(format!("no {program} (cargo xtask test installs it)"))
}

/// The target folder that the test was built into: `TARGET/PROFILE/deps/TEST`, or one folder
/// higher for a program.
fn target() -> Option<PathBuf> {
    let exe = env::current_exe().ok()?;
    let profile = exe.parent()?;
    let profile = if profile.ends_with("deps") { profile.parent()? } else { profile };
    profile.parent().map(Path::to_owned)
}
