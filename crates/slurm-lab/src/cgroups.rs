//! Nodes that hold their jobs to what they were given, by cgroups.

use std::path::Path;
use std::process::Command;

use crate::settings::Cgroups;

/// What `cgroup.conf` says.
pub fn cgroup_conf(cgroups: Cgroups) -> Option<String> {
    let version = match cgroups {
        Cgroups::None => return None,
        Cgroups::Version1 => "1",
        Cgroups::Version2 => "2\nIgnoreSystemd=yes",
    };
    Some(format!(
        "CgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\nCgroupPlugin=cgroup/v{version}\n"
    ))
}

/// The words before a node's own, which give it cgroups; and what they need in the folder.
pub fn prefix(cgroups: Cgroups, folder: &Path, node: &str) -> Vec<String> {
    let version = match cgroups {
        Cgroups::None => return Vec::new(),
        Cgroups::Version1 => "1",
        Cgroups::Version2 => "2",
    };
    let preload = folder.join("etc/version_2_only.so");
    if cgroups == Cgroups::Version2 && !preload.exists() {
        compile(&preload);
    }
    let lab = folder.file_name().unwrap_or_default().to_string_lossy();
    let words = ["sh", "-c", include_str!("cgroups.sh"), "cgroups", version];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.extend([format!("{lab}.{node}"), preload.display().to_string()]);
    words
}

/// There is a C compiler wherever there is a Rust compiler, which links with it.
fn compile(library: &Path) {
    let source = library.with_extension("c");
    fs_err::write(&source, include_str!("version_2_only.c")).expect("the folder is writable");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    let status = compiler.arg(library).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "cc failed");
}
