//! The real Slurm that tests run: the machine's own, and a newer one in a folder.
//!
//! Nothing of it is ever started here: `crates/slurm-lab` does that, for one test at a time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use fs_err::File;
use packhorse_test_parts::slurm_24_11;

use crate::debian::{POLICY, deny_services, mirror};
use crate::setup::install;

/// The release of Debian that has Slurm 24.11.
const SUITE: &str = "trixie";

/// What is installed there.
const PACKAGES_24_11: &str = "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins";

/// The file in a root folder with the recipe that it was made by.
const RECIPE: &str = "etc/packhorse-recipe";

/// The versions of Slurm that are here: this machine's own, and the one in the folder.
pub fn versions() -> Vec<String> {
    let roots = [PathBuf::from("/"), slurm_24_11()];
    roots.iter().filter_map(|root| version_in(root)).collect()
}

/// The version of the Slurm in a root folder: its headers say it, which are all that a machine
/// needs that plugins are built on; without them, its daemon.
fn version_in(root: &Path) -> Option<String> {
    let folders = ["usr/include", "usr/local/include", "opt/slurm/include"];
    let headers = folders.map(|folder| root.join(folder).join("slurm/slurm_version.h"));
    let mut headers = headers.iter().filter_map(|header| {
        let text = fs_err::read_to_string(header).ok()?;
        version_of_header(&text)
    });
    headers.next().or_else(|| version_of_daemon(root))
}

/// 22.05.8 for the line `#define SLURM_VERSION_NUMBER 0x160508`.
fn version_of_header(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("#define") && words.next() == Some("SLURM_VERSION_NUMBER");
        let number = words.next().filter(|_| is_it)?.strip_prefix("0x")?;
        let number = u32::from_str_radix(number, 16).ok()?;
        let (major, minor, micro) = (number >> 16, number >> 8 & 0xff, number & 0xff);
        Some(format!("{major}.{minor:02}.{micro}"))
    })
}

fn version_of_daemon(root: &Path) -> Option<String> {
    let slurmd = root.join("usr/sbin/slurmd");
    let mut command = if root == Path::new("/") {
        Command::new(slurmd)
    } else {
        let mut command = Command::new("chroot");
        command.arg(root).arg("/usr/sbin/slurmd");
        command
    };
    let output = command.arg("-V").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().last()?;
    let is_version = version.starts_with(|c: char| c.is_ascii_digit());
    is_version.then(|| version.to_owned())
}

/// Whether there is a root folder with Slurm 24.11.
pub fn root_24_11_is_there() -> bool {
    let made_by = fs_err::read_to_string(slurm_24_11().join(RECIPE));
    made_by.is_ok_and(|made_by| made_by == recipe())
}

/// Makes a root folder with Slurm 24.11.
///
/// It is made beside its place and moved there when it is complete. That takes less than a
/// minute, and some 150 MB; the next time it is there.
pub fn make_root_24_11() -> Result<()> {
    let root = slurm_24_11();
    let part = root.with_extension("11.part");
    for folder in [&root, &part] {
        if folder.exists() {
            fs_err::remove_dir_all(folder)?;
        }
    }
    make_root(&part)?;
    fs_err::rename(&part, &root)?;
    Ok(())
}

/// What a root folder is made of and how. If that changes, it is made again.
fn recipe() -> String {
    format!("{SUITE}\n{PACKAGES_24_11}\n{INSIDE}")
}

/// What is done in the new root folder. A lab lays its own over `/etc/hosts`. Only programs
/// and settings are of use: what is elsewhere is removed.
const INSIDE: &str = "apt-get update --quiet=2 \
    && apt-get install --quiet=2 --yes --no-install-recommends $PACKAGES \
    && touch /etc/hosts \
    && rm -rf /var/cache /var/lib/apt /usr/share/doc /usr/share/man /usr/share/locale";

fn make_root(part: &Path) -> Result<()> {
    // In namespaces of its own, so that what it mounts and starts ends with it.
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command
    };
    let log_path = part.with_extension("log");
    let log = File::create(&log_path)?;
    let quietly = |command: &mut Command| -> Result<()> {
        command.stdout(log.file().try_clone()?);
        command.stderr(log.file().try_clone()?);
        let what = "Slurm 24.11 in target/ (once, a minute)";
        install(command, what).with_context(|| format!("see {}", log_path.display()))
    };

    let mut debootstrap = unshare();
    debootstrap.args(["debootstrap", "--variant=minbase", SUITE]);
    quietly(debootstrap.arg(part).arg(mirror()))?;

    deny_services(&part.join(POLICY.trim_start_matches('/')))?;
    // The machine may need settings of its own to reach its mirror.
    for settings in fs_err::read_dir("/etc/apt/apt.conf.d")? {
        let settings = settings?.path();
        let name = settings.file_name().unwrap_or_default();
        if name.to_string_lossy().starts_with("99") {
            fs_err::copy(&settings, part.join("etc/apt/apt.conf.d").join(name))?;
        }
    }
    let mut packages = unshare();
    packages.arg("chroot").arg(part).args(["sh", "-c", INSIDE]);
    packages.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    packages.env("PACKAGES", PACKAGES_24_11);
    packages.env("DEBIAN_FRONTEND", "noninteractive");
    quietly(&mut packages)?;

    fs_err::write(part.join(RECIPE), recipe())?;
    fs_err::remove_file(&log_path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_alone_are_enough_to_build_a_plugin_for() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(version_in(root.path()), None);
        let folder = root.path().join("opt/slurm/include/slurm");
        fs_err::create_dir_all(&folder).unwrap();
        let text = "#ifndef X\n#define SLURM_VERSION_NUMBER 0x180b05\n";
        fs_err::write(folder.join("slurm_version.h"), text).unwrap();
        assert_eq!(version_in(root.path()).as_deref(), Some("24.11.5"));
    }
}
