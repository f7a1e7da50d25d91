//! A cgroup of our own, for what runs for a job outside of Slurm's: its MPS server.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::confine::{CgroupVersion, mount_point, read, write_rule};
use crate::{DeviceRule, bpf};

/// A cgroup in which only some devices can be opened.
#[derive(Clone, Debug)]
pub struct ServerCgroup {
    version: CgroupVersion,
    folder: PathBuf,
}

impl ServerCgroup {
    /// The one with this name, which may not be there yet. `None`: no cgroups decide on devices
    /// here.
    pub fn named(name: &Path) -> io::Result<Option<Self>> {
        let mounts = read("/proc/self/mounts")?;
        let mut versions = [CgroupVersion::One, CgroupVersion::Two].into_iter();
        Ok(versions.find_map(|version| {
            let folder = mount_point(&mounts, version)?.join(name);
            Some(Self { version, folder })
        }))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it, or has it hold to other rules.
    pub fn make(&self, rules: &[DeviceRule]) -> io::Result<()> {
        // Nobody else may make one beside it, which would have no rules.
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o755).create(&self.folder)?;
        match self.version {
            CgroupVersion::One => rules.iter().try_for_each(|rule| {
                let verb = if rule.allowed { "allow" } else { "deny" };
                write_rule(&self.folder.join(format!("devices.{verb}")), rule)
            }),
            CgroupVersion::Two => bpf::attach(&self.folder, rules),
        }
    }

    pub fn processes(&self) -> Vec<i32> {
        let list = self.folder.join(PROCESSES);
        let text = read(&list.display().to_string()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills all of them at once, where the kernel can: from 5.14 on, with version 2.
    pub fn kill(&self) -> bool {
        let file = OpenOptions::new().write(true).open(self.folder.join("cgroup.kill"));
        file.and_then(|mut file| file.write_all(b"1")).is_ok()
    }

    /// Removes it. A group with processes stays.
    pub fn remove(&self) {
        // If it stays for another reason, it is there for the next server of this name.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The processes of a cgroup, and where one is written to that joins it.
const PROCESSES: &str = "cgroup.procs";

/// Has this process, and all that it starts from now on, join the cgroup in this folder.
pub fn join(folder: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(folder.join(PROCESSES))?;
    file.write_all(b"0")
}
