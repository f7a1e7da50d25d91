//! Which devices a task can open, by the cgroups that Slurm has put it in.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::{DeviceRule, bpf};

/// How a task is held to its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// By the device controller of cgroup version 1, in this folder.
    Version1(PathBuf),
    /// By a device program of cgroup version 2, in this folder.
    Version2(PathBuf),
    /// Not at all: Slurm has put the task in no cgroup of its job.
    None,
}

/// Lets the tasks of a job open the devices that `rules` allow and no others that they name.
/// Devices that they do not name stay as they were.
///
/// Slurm's folders are found by the process of a step, `slurmstepd` itself: their names differ
/// between versions and builds of Slurm. All tasks of the job that there are on this machine
/// are gone through: with cgroups of version 1, Slurm takes from all of them what it did not
/// give itself whenever a step begins.
///
/// That process must have all its tasks: its own folder is held to the rules too, since what it
/// runs for its user there is the user's as well (`srun --task-epilog`). Slurm could not give
/// another task its devices after that.
pub fn confine(process: u32, job: u32, rules: &[DeviceRule]) -> io::Result<Confinement> {
    let Some(found) = find(process, job)? else {
        return Ok(Confinement::None);
    };
    found.hold(&found.job, rules)?;
    Ok(match found.version {
        CgroupVersion::One => Confinement::Version1(found.job),
        CgroupVersion::Two => Confinement::Version2(found.job),
    })
}

/// The same for the step of the process alone: the job's other steps stay as they are.
pub fn confine_step(process: u32, job: u32, rules: &[DeviceRule]) -> io::Result<()> {
    match find(process, job)? {
        Some(found) => found.hold(found.step.as_ref().unwrap_or(&found.job), rules),
        None => Ok(()),
    }
}

/// Whether a process of a job can be held to devices: Slurm has put it in a cgroup of its job.
/// It may be in a container by now, where the cgroups themselves are not to be seen.
pub fn is_confinable(process: u32, job: u32) -> bool {
    let cgroups = read(&format!("/proc/{process}/cgroup"));
    cgroups.is_ok_and(|cgroups| paths_of(&cgroups, job).into_iter().any(|(_, it)| it.is_some()))
}

/// Where Slurm keeps a job.
struct DeviceCgroup {
    version: CgroupVersion,
    job: PathBuf,
    step: Option<PathBuf>,
}

impl DeviceCgroup {
    /// Holds the users' processes in this folder and below to the rules.
    fn hold(&self, top: &Path, rules: &[DeviceRule]) -> io::Result<()> {
        match self.version {
            CgroupVersion::One => version_1(top, self.step.as_deref(), rules),
            CgroupVersion::Two => version_2(top, self.step.as_deref(), rules),
        }
    }
}

/// The cgroup of a job that decides on devices, if this process is in it.
fn find(process: u32, job: u32) -> io::Result<Option<DeviceCgroup>> {
    let cgroups = read(&format!("/proc/{process}/cgroup"))?;
    let mounts = read("/proc/self/mounts")?;
    let mounted = |(version, paths): (CgroupVersion, Option<JobPath<'_>>)| {
        let (job, step) = paths?;
        let job = mounted(&mounts, version, job)?;
        let step = step.map(|step| job.join(step));
        Some(DeviceCgroup { version, job, step })
    };
    Ok(paths_of(&cgroups, job).into_iter().find_map(mounted))
}

/// A job's path in a hierarchy, and the name of a step's folder there.
type JobPath<'c> = (&'c str, Option<&'c str>);

/// Those of a process that may decide on devices, version 1 first.
fn paths_of(cgroups: &str, job: u32) -> [(CgroupVersion, Option<JobPath<'_>>); 2] {
    let is_devices = |names: &str| names.split(',').any(|name| name == "devices");
    [
        (CgroupVersion::One, paths_in(cgroups, job, is_devices)),
        (CgroupVersion::Two, paths_in(cgroups, job, str::is_empty)),
    ]
}

/// The job's path in the hierarchy whose controllers are these, if the process is there in it;
/// and the name of its step's folder there.
fn paths_in(cgroups: &str, job: u32, is_wanted: impl Fn(&str) -> bool) -> Option<JobPath<'_>> {
    let name = format!("/job_{job}");
    cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let end = path.find(&name)? + name.len();
        let is_whole = matches!(path.as_bytes().get(end), None | Some(b'/'));
        let step = path[end..].split('/').nth(1);
        (is_wanted(controllers) && is_whole).then(|| (&path[..end], step))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupVersion {
    One,
    Two,
}

/// The folder of a path, wherever its hierarchy is mounted.
fn mounted(mounts: &str, version: CgroupVersion, path: &str) -> Option<PathBuf> {
    let path = path.trim_start_matches('/');
    let mut folders = mount_points(mounts, version).map(|point| Path::new(point).join(path));
    folders.find(|folder| folder.is_dir())
}

/// Where the hierarchy that decides on devices is mounted.
pub(crate) fn mount_point(mounts: &str, version: CgroupVersion) -> Option<&Path> {
    let sign = match version {
        CgroupVersion::One => "devices.deny",
        CgroupVersion::Two => "cgroup.controllers",
    };
    let mut points = mount_points(mounts, version).map(Path::new);
    // Another may be mounted over it.
    points.find(|point| point.join(sign).exists())
}

fn mount_points(mounts: &str, version: CgroupVersion) -> impl Iterator<Item = &str> {
    mounts.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, kind, options, ..] = fields[..] else {
            return None;
        };
        let is_ours = match version {
            CgroupVersion::One => {
                kind == "cgroup" && options.split(',').any(|option| option == "devices")
            }
            CgroupVersion::Two => kind == "cgroup2",
        };
        is_ours.then_some(point)
    })
}

/// What a folder has, its parents must have: allowed from the job down. Denied only where
/// processes of users are, since Slurm itself goes on with the folders above.
fn version_1(top: &Path, step: Option<&Path>, rules: &[DeviceRule]) -> io::Result<()> {
    for folder in folders(top) {
        let is_users = is_users(&folder) || Some(folder.as_path()) == step;
        let write = |rule: &DeviceRule| match rule.allowed {
            true => write_rule(&folder.join("devices.allow"), rule),
            false if is_users => write_rule(&folder.join("devices.deny"), rule),
            false => Ok(()),
        };
        let written = rules.iter().try_for_each(write);
        // A step may end meanwhile.
        if folder.is_dir() {
            written?;
        }
    }
    Ok(())
}

/// The program of a folder decides for all below it that have none of their own. What Slurm
/// runs for a user is in the folders of the step that are not its tasks'.
fn version_2(top: &Path, step: Option<&Path>, rules: &[DeviceRule]) -> io::Result<()> {
    let is_held =
        |folder: &PathBuf| is_users(folder) || (step.is_some() && folder.parent() == step);
    for folder in folders(top).into_iter().filter(is_held) {
        let attached = bpf::attach(&folder, rules);
        if folder.is_dir() {
            attached.map_err(|error| at(&folder, &error))?;
        }
    }
    Ok(())
}

/// Whether processes of users are put there: tasks, and what logs in to a job's node.
fn is_users(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("task_") || name == "step_extern")
}

/// A folder and all below it, parents first.
fn folders(top: &Path) -> Vec<PathBuf> {
    let mut folders = vec![top.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let Ok(entries) = folder.read_dir() else {
            next += 1;
            continue;
        };
        let entries = entries.flatten();
        let below: Vec<PathBuf> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        folders.extend(below);
        next += 1;
    }
    folders
}

pub(crate) fn write_rule(file: &Path, rule: &DeviceRule) -> io::Result<()> {
    // The kernel takes one rule a write.
    let text = format!("c {}:{} rwm", rule.major, rule.minor);
    let opened = OpenOptions::new().write(true).open(file);
    opened
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .map_err(|error| at(file, &error))
}

pub(crate) fn read(path: &str) -> io::Result<String> {
    let path = Path::new(path);
    let text = OpenOptions::new().read(true).open(path).and_then(io::read_to_string);
    text.map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CGROUPS: &str = "11:freezer:/slurm_n1/uid_0/job_5/step_0\n\
                           4:cpu,devices:/slurm_n1/uid_0/job_5/step_0/task_0\n\
                           0::/system.slice/n1_slurmstepd.scope/job_6/step_0/user/task_0\n";

    #[test]
    fn a_path_is_the_jobs_own_or_none() {
        let devices = |names: &str| names.split(',').any(|name| name == "devices");
        let found = Some(("/slurm_n1/uid_0/job_5", Some("step_0")));
        assert_eq!(paths_in(CGROUPS, 5, devices), found);
        assert_eq!(paths_in(CGROUPS, 55, devices), None);
        assert_eq!(paths_in("4:devices:/job_55/x\n", 5, devices), None);
        assert_eq!(paths_in(CGROUPS, 5, str::is_empty), None);
        assert!(paths_in(CGROUPS, 6, str::is_empty).is_some());
    }

    #[test]
    fn a_task_that_is_in_no_cgroup_of_its_job_is_left_alone() {
        let rule = DeviceRule { major: 195, minor: 0, allowed: false };
        let found = confine(std::process::id(), 4_000_000_000, &[rule]).unwrap();
        assert_eq!(found, Confinement::None);
        assert!(!is_confinable(std::process::id(), 4_000_000_000));
    }
}
