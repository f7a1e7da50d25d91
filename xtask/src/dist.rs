//! `cargo xtask dist`: what can be given away, in `target/dist`.
//!
//! The wheel's tag says on which systems it runs; maturin finds that out by looking at which
//! of libc's symbols the binary uses. The oldest system it is built on is the oldest it
//! runs on.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::folders::{cargo, target, workspace};
use crate::python::{builder_ready, maturin};
use crate::setup::show;
use crate::slurm;

/// The shells that there are completions for.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "packhorse.bash"),
    ("zsh", "_packhorse"),
    ("fish", "packhorse.fish"),
];

/// Makes a wheel, and a tarball with the binary, its manual pages and completions, and the
/// plugins for Slurm.
pub fn run() -> Result<ExitCode> {
    let dist = target()?.join("dist");
    if dist.exists() {
        fs_err::remove_dir_all(&dist)?;
    }
    fs_err::create_dir_all(&dist)?;
    done(cargo().args([
        "build",
        "--release",
        "--locked",
        "--package",
        "packhorse-cli",
    ]))?;
    done(&mut maturin(&builder_ready()?, "release", &dist))?;
    let plugins = plugins()?;
    tarball(&dist, &plugins)?;
    for file in fs_err::read_dir(&dist)? {
        let file = file?;
        let length = file.metadata()?.len();
        println!("{:>9} bytes  {}", length, file.path().display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The SPANK plugin for each release of Slurm that is found here: Slurm loads no other.
fn plugins() -> Result<Vec<(String, PathBuf)>> {
    let mut plugins = Vec::new();
    for version in slurm::versions() {
        let folder = target()?.join("plugins").join(&version);
        let mut build = cargo();
        build.args([
            "build",
            "--release",
            "--locked",
            "--package",
            "packhorse-spank",
        ]);
        build.arg("--target-dir").arg(&folder);
        done(build.env("PACKHORSE_SLURM_VERSION", &version))?;
        plugins.push((version, folder.join("release/libpackhorse_spank.so")));
    }
    if plugins.is_empty() {
        println!("no Slurm is installed here: no plugin for Slurm nodes is made");
    }
    Ok(plugins)
}

fn tarball(dist: &Path, plugins: &[(String, PathBuf)]) -> Result<()> {
    let arch = std::env::consts::ARCH;
    let name = format!("packhorse-{}-{arch}-linux", env!("CARGO_PKG_VERSION"));
    let folder = dist.join(&name);
    fs_err::create_dir_all(folder.join("bin"))?;
    let binary = folder.join("bin/packhorse");
    fs_err::copy(target()?.join("release/packhorse"), &binary)?;
    for (version, plugin) in plugins {
        // Slurm takes any of the same release: 24.11 for 24.11.5.
        let release: Vec<&str> = version.split('.').take(2).collect();
        let place = folder.join("slurm").join(release.join("."));
        fs_err::create_dir_all(&place)?;
        fs_err::copy(plugin, place.join("libpackhorse_spank.so"))?;
    }
    // It acts as what it is called.
    for original in ["simple_gpu_scheduler", "simple_hypersearch"] {
        symlink("packhorse", folder.join("bin").join(original))?;
    }
    done(
        Command::new(&binary)
            .arg("man")
            .arg(folder.join("man/man1")),
    )?;
    let completions = folder.join("completions");
    fs_err::create_dir_all(&completions)?;
    for (shell, file) in SHELLS {
        let output = Command::new(&binary)
            .args(["completions", shell])
            .output()?;
        if !output.status.success() {
            bail!("no completions for {shell}: {}", output.status);
        }
        fs_err::write(completions.join(file), output.stdout)?;
    }
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs_err::copy(workspace().join(file), folder.join(file))?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // The same files give the same archive, whoever makes it.
    tar.args([
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
    ]);
    tar.args(["--numeric-owner", "--mtime=1980-01-01", "--file"]);
    done(tar.arg(&archive).arg("--directory").arg(dist).arg(&name))?;
    fs_err::remove_dir_all(&folder)?;
    Ok(())
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| show(command))?;
    if !status.success() {
        bail!("failed ({status}): {}", show(command));
    }
    Ok(())
}
