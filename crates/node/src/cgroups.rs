//! Whether a job has processes on this machine, by Slurm's cgroups.

use std::path::Path;

/// Whether there are processes of the job here. Slurm's folders have no fixed names, and empty
/// ones of cgroup version 1 can stay behind for ever.
pub fn has_processes(uid: u32, job: u32) -> bool {
    let below_user = format!("uid_{uid}/job_{job}");
    let below = format!("job_{job}");
    let any = |root: &str, folder: &dyn Fn(&str) -> bool, path: &str| {
        let entries = fs_err::read_dir(root).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_str().is_some_and(folder))
            .any(|entry| is_alive(&entry.path().join(path)))
    };
    let is_slurm = |name: &str| name.starts_with("slurm");
    let is_scope = |name: &str| name.ends_with("slurmstepd.scope");
    ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/devices"]
        .iter()
        .any(|root| any(root, &is_slurm, &below_user))
        || any("/sys/fs/cgroup/system.slice", &is_scope, &below)
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
