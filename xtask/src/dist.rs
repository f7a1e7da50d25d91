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
const SHELLS: [(&str, &str); 3] =
    [("bash", "packhorse.bash"), ("zsh", "_packhorse"), ("fish", "packhorse.fish")];

/// Makes a wheel, and a tarball with the binary, its manual pages and completions, and the
/// plugins for Slurm.
pub fn run() -> Result<ExitCode> {
    let dist = target()?.join("dist");
    if dist.exists() {
        fs_err::remove_dir_all(&dist)?;
    }
    fs_err::create_dir_all(&dist)?;
    done(cargo().args(["build", "--release", "--locked", "--package", "packhorse-cli"]))?;
    done(&mut maturin(&builder_ready()?, "release", &dist))?;
    let plugins = plugins()?;
    tarball(&target()?.join("release/packhorse"), &dist, &plugins)?;
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
        build.args(["build", "--release", "--locked", "--package", "packhorse-spank"]);
        build.arg("--target-dir").arg(&folder);
        done(build.env("PACKHORSE_SLURM_VERSION", &version))?;
        plugins.push((version, folder.join("release/libpackhorse_spank.so")));
    }
    if plugins.is_empty() {
        println!("no Slurm is installed here: no plugin for Slurm nodes is made");
    }
    Ok(plugins)
}

/// Makes a tarball of a binary and plugins that were built, in this folder. Returns the file.
fn tarball(built: &Path, dist: &Path, plugins: &[(String, PathBuf)]) -> Result<PathBuf> {
    let arch = std::env::consts::ARCH;
    let name = format!("packhorse-{}-{arch}-linux", env!("CARGO_PKG_VERSION"));
    let folder = dist.join(&name);
    fs_err::create_dir_all(folder.join("bin"))?;
    let binary = folder.join("bin/packhorse");
    fs_err::copy(built, &binary)?;
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
    done(Command::new(&binary).arg("man").arg(folder.join("man/man1")))?;
    let completions = folder.join("completions");
    fs_err::create_dir_all(&completions)?;
    for (shell, file) in SHELLS {
        let output = Command::new(&binary).args(["completions", shell]).output()?;
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
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0"]);
    tar.args(["--numeric-owner", "--mtime=1980-01-01", "--file"]);
    done(tar.arg(&archive).arg("--directory").arg(dist).arg(&name))?;
    fs_err::remove_dir_all(&folder)?;
    Ok(archive)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| show(command))?;
    if !status.success() {
        bail!("failed ({status}): {}", show(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::test::BUILD;

    fn said(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_tarball_has_all_that_belongs_to_the_binary() {
        // It is there already when all tests are run.
        done(cargo().args(BUILD.split(' ')).arg("--quiet")).unwrap();
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().nth(2).unwrap().join("packhorse");
        let folder = tempfile::tempdir().unwrap();
        // As the one that is given away is, and six times as small.
        let stripped = folder.path().join("packhorse");
        done(Command::new("strip").arg("-o").arg(&stripped).arg(built)).unwrap();
        let plugin = folder.path().join("libpackhorse_spank.so");
        fs_err::write(&plugin, "a plugin").unwrap();
        let plugins = [("24.11.5".to_owned(), plugin)];
        let [first, second] = ["first", "second"].map(|name| {
            let dist = folder.path().join(name);
            fs_err::create_dir(&dist).unwrap();
            tarball(&stripped, &dist, &plugins).unwrap()
        });
        let same = fs_err::read(&first).unwrap() == fs_err::read(&second).unwrap();
        assert!(same, "the same files give the same archive");

        let list = said(Command::new("tar").arg("--list").arg("--file").arg(&first));
        let root = first.file_name().unwrap().to_str().unwrap();
        let root = root.strip_suffix(".tar.gz").unwrap();
        let files: BTreeSet<&str> = list
            .lines()
            .filter(|line| !line.ends_with('/'))
            .map(|line| line.strip_prefix(root).unwrap().trim_start_matches('/'))
            .collect();
        for file in [
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
            "bin/packhorse",
            "bin/simple_gpu_scheduler",
            "bin/simple_hypersearch",
            "completions/_packhorse",
            "completions/packhorse.bash",
            "completions/packhorse.fish",
            "man/man1/packhorse.1",
            "man/man1/packhorse-run.1",
            "slurm/24.11/libpackhorse_spank.so",
        ] {
            assert!(files.contains(file), "{file}: {list}");
        }
        let kinds = ["LICENSE-", "README.md", "bin/", "completions/", "man/man1/", "slurm/"];
        let is_known = |file: &&str| kinds.iter().any(|kind| file.starts_with(kind));
        assert!(files.iter().all(is_known), "{list}");

        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(&first);
        done(tar.arg("--directory").arg(folder.path())).unwrap();
        let bin = folder.path().join(root).join("bin");
        let version = said(Command::new(bin.join("packhorse")).arg("--version"));
        assert_eq!(version, format!("packhorse {}\n", env!("CARGO_PKG_VERSION")));
        let mut search = Command::new(bin.join("simple_hypersearch"));
        let combinations = said(search.args(["train {lr}", "-p", "lr", "1", "2"]));
        let lines: BTreeSet<&str> = combinations.lines().collect();
        assert_eq!(lines, BTreeSet::from(["train 1", "train 2"]));
        // What completes words knows the commands of today.
        let bash = folder.path().join(root).join("completions/packhorse.bash");
        assert!(fs_err::read_to_string(bash).unwrap().contains("resume"));
    }
}
