//! Whether a job has processes on this machine, by Slurm's cgroups.

use std::path::{Path, PathBuf};

/// Slurm's own folders among the cgroups. They have no fixed names.
#[derive(Debug)]
pub struct SlurmCgroups {
    version_1: Vec<PathBuf>,
    version_2: Vec<PathBuf>,
}

impl SlurmCgroups {
    /// Looks for them.
    pub fn find() -> Self {
        let is_slurm = |name: &str| name.starts_with("slurm");
        let is_scope = |name: &str| name.ends_with("slurmstepd.scope");
        let mut version_1 = folders("/sys/fs/cgroup/freezer", is_slurm);
        version_1.extend(folders("/sys/fs/cgroup/devices", is_slurm));
        Self { version_1, version_2: folders("/sys/fs/cgroup/system.slice", is_scope) }
    }

    /// Whether there are processes of the job here. Empty folders of version 1 can stay behind
    /// for ever.
    pub fn has_processes(&self, uid: u32, job: u32) -> bool {
        let below_user = format!("uid_{uid}/job_{job}");
        let below = format!("job_{job}");
        let of_users = self.version_1.iter().map(|slurm| slurm.join(&below_user));
        let of_scopes = self.version_2.iter().map(|scope| scope.join(&below));
        of_users.chain(of_scopes).any(|folder| is_alive(&folder))
    }
}

fn folders(root: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_wanted))
        .map(|entry| entry.path())
        .collect()
}

/// Whether a process is in this folder or below it.
fn is_alive(folder: &Path) -> bool {
    let processes = fs_err::read(folder.join("cgroup.procs"));
    if processes.is_ok_and(|processes| !processes.is_empty()) {
        return true;
    }
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .any(|entry| is_alive(&entry.path()))
}
