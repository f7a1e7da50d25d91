//! Debian's packages: what tests need of them, and how they are installed.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use packhorse_test_parts::{Part, find};

use crate::setup::{install, missing, python_with_venv, show};

/// What tests need, by the part that it belongs to: a program on the PATH, or a file, that tells
/// that a package is there; and the package.
const PACKAGES: &[(Part, &[(&str, &str)])] = &[
    (Part::Programs, &[("git", "git"), ("ps", "procps"), ("tmux", "tmux")]),
    (
        Part::Slurm,
        &[
            ("/usr/sbin/munged", "munge"),
            ("/usr/sbin/slurmctld", "slurmctld"),
            ("/usr/sbin/slurmd", "slurmd"),
            ("/usr/bin/sbatch", "slurm-client"),
            ("/etc/slurm/plugstack.conf", "slurm-wlm-basic-plugins"),
            ("/usr/include/slurm/spank.h", "libslurm-dev"),
            ("/usr/sbin/debootstrap", "debootstrap"),
            ("/usr/bin/nsenter", "util-linux"),
            ("/sbin/ip", "iproute2"),
        ],
    ),
    (
        Part::Podman,
        &[("podman", "podman"), ("crun", "crun"), ("bwrap", "bubblewrap"), ("newuidmap", "uidmap")],
    ),
    (Part::Torch, &[("/usr/lib/python3/dist-packages/torch", "python3-torch")]),
];

/// The program that Debian's packages ask before they start a service.
pub const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The packages that tests of the wanted parts need and that are not here.
pub fn absent(is_wanted: impl Fn(Part) -> bool) -> Vec<(Part, Vec<&'static str>)> {
    let is_absent = |file: &str| {
        if file.starts_with('/') { !Path::new(file).exists() } else { find(file).is_none() }
    };
    let mut absent = Vec::new();
    for (part, packages) in PACKAGES.iter().filter(|(part, _)| is_wanted(*part)) {
        let packages: Vec<_> = packages.iter().filter(|(file, _)| is_absent(file)).collect();
        // Torch may be elsewhere, too.
        if !packages.is_empty() && (*part != Part::Torch || part.missing().is_some()) {
            absent.push((*part, packages.into_iter().map(|(_, package)| *package).collect()));
        }
    }
    if is_wanted(Part::Python) && python_with_venv().is_none() {
        absent.push((Part::Python, vec!["python3-venv"]));
    }
    absent
}

/// Makes sure that a program is installed, from this package.
pub fn program(program: &str, package: &str) -> Result<()> {
    if find(program).is_some() {
        return Ok(());
    }
    apt(&[package])
}

fn apt_command(packages: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["install", "--quiet=2", "--yes", "--no-install-recommends"]);
    command.args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Fails where packages cannot be installed, with what would do it.
pub fn can_install(packages: &[&str]) -> Result<()> {
    let what = packages.join(" ");
    if find("apt-get").is_none() {
        let hint = format!("no apt-get here: install what Debian calls {what}");
        return Err(missing(&what, hint));
    }
    if !rustix::process::geteuid().is_root() {
        let hint = format!("run as root: {}", show(&apt_command(packages)));
        return Err(missing(&what, hint));
    }
    Ok(())
}

/// Installs packages, where that is possible and permitted.
pub fn apt(packages: &[&str]) -> Result<()> {
    static UPDATED: AtomicBool = AtomicBool::new(false);
    can_install(packages)?;
    let what = packages.join(" ");
    let _policy = NoServices::begin()?;
    install(&mut apt_command(packages), &what).or_else(|problem| {
        if UPDATED.swap(true, Ordering::Relaxed) {
            return Err(problem);
        }
        // A fresh image has no package lists, and an old one has stale ones.
        let mut update = Command::new("apt-get");
        install(update.args(["update", "--quiet=2"]), "Debian's package lists")?;
        install(&mut apt_command(packages), &what)
    })
}

/// Where this machine gets its Debian packages from.
pub fn mirror() -> String {
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(SITE)"]);
    // Other sources, such as that of security updates, have other labels.
    targets.args(["Label: Debian", "Created-By: Packages"]);
    let output = targets.stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    // Lists that were never fetched say nothing.
    let first = text.lines().next().unwrap_or("http://deb.debian.org/debian");
    first.to_owned()
}

/// Keeps packages from starting services until it is dropped.
struct NoServices {
    /// The machine's own policy, moved aside.
    before: Option<PathBuf>,
}

impl NoServices {
    fn begin() -> Result<Self> {
        let before = Path::new(POLICY).with_extension("before-packhorse");
        // If it is there already, a set-up was killed before it could put it back.
        if Path::new(POLICY).exists() && !before.exists() {
            fs_err::rename(POLICY, &before)?;
        }
        let guard = Self { before: before.exists().then_some(before) };
        deny_services(Path::new(POLICY))?;
        Ok(guard)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        let done = match &self.before {
            Some(before) => fs_err::rename(before, POLICY),
            None => fs_err::remove_file(POLICY),
        };
        if let Err(error) = done {
            println!("{POLICY} keeps services from starting, and could not be put back: {error}");
        }
    }
}

/// Writes the program that answers packages that no service may be started.
pub fn deny_services(policy: &Path) -> Result<()> {
    fs_err::write(policy, "#!/bin/sh\nexit 101\n")?;
    fs_err::set_permissions(policy, Permissions::from_mode(0o755))?;
    Ok(())
}
