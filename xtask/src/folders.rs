//! Where the workspace is, and where its builds go.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The workspace's root.
pub fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The target folder that this program was built into, wherever `CARGO_TARGET_DIR` says.
pub fn target() -> Result<PathBuf> {
    let exe = env::current_exe().context("cannot tell where xtask itself is")?;
    let target = exe.ancestors().nth(2);
    Ok(target.with_context(|| format!("{} is in no target folder", exe.display()))?.to_owned())
}

/// The cargo that runs us, in the workspace's root.
pub fn cargo() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace());
    command
}
