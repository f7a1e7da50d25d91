//! What limits the number of processes and threads.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::pids;

/// What is known of the limit of processes and threads that is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProcessLimit {
    /// A cgroup's own, or that of one above.
    Cgroup { folder: PathBuf, most: u64 },
    /// `ulimit -u`.
    User { most: u64 },
    /// None that is seen from here. `most` is that of `ulimit -u`, if it holds for this user.
    Unseen { most: Option<u64> },
}

impl fmt::Display for ProcessLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup { folder, most } => write!(
                f,
                "all {most} processes and threads that `{}` allows are there\n\
                 hint: allow more: `--pids-limit` of podman and docker, `podPidsLimit` of a \
                 kubelet, `TasksMax` of systemd",
                folder.join("pids.max").display()
            ),
            Self::User { most } => write!(
                f,
                "the limit on this user's processes and threads is {most}\n\
                 hint: end some of them; `ulimit -u` shows and raises the limit"
            ),
            Self::Unseen { most } => {
                f.write_str("a limit on processes and threads that is not seen from here\nhint: ")?;
                if let Some(most) = most {
                    write!(f, "`ulimit -u` is {most}; ")?;
                }
                f.write_str("`pids.max` of the container or `kernel.threads-max` may be lower")
            }
        }
    }
}

/// The error of starting a process or thread, with the limit that is in the way where one is.
pub fn explain_start(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return error;
    }
    io::Error::new(error.kind(), format!("{error}: {}", reached_limit()))
}

fn reached_limit() -> ProcessLimit {
    let read = |path: &str| fs_err::read_to_string(path).unwrap_or_default();
    let folders = pids_folders(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    let number = |folder: &Path, file| {
        let text = fs_err::read_to_string(folder.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let cgroup = folders.into_iter().find_map(|folder| {
        // `max` is no number.
        let (most, current) = (number(&folder, "pids.max")?, number(&folder, "pids.current")?);
        (current >= most).then_some(ProcessLimit::Cgroup { folder, most })
    });
    cgroup.unwrap_or_else(|| {
        let user = rustix::process::getuid();
        // Root is not held to the limit.
        let most = getrlimit(Resource::Nproc).current.filter(|_| !user.is_root());
        let threads_of = |pid: u32| {
            let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
            threads_in(&status, user.as_raw())
        };
        user_limit(most, || pids().filter_map(threads_of).sum())
    })
}

/// What is in the way of a user with so many threads, with this limit on them.
fn user_limit(most: Option<u64>, threads: impl FnOnce() -> u64) -> ProcessLimit {
    match most {
        // Some may have ended since.
        Some(most) if threads() + most / 8 + 1 >= most => ProcessLimit::User { most },
        most => ProcessLimit::Unseen { most },
    }
}

/// How many threads the process has that this is the `status` of, if it is one of this user.
fn threads_in(status: &str, user: u32) -> Option<u64> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
    };
    let owner: u32 = field("Uid:")?.parse().ok()?;
    (owner == user).then(|| field("Threads:")?.parse().ok()).flatten()
}

/// The folders of this process's cgroup and those above, as far as they are seen, in the
/// hierarchy that counts processes: a version 1 one of its own, or that of version 2.
fn pids_folders(cgroups: &str, mounts: &str) -> Vec<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == "pids");
    let own = |is_wanted: &dyn Fn(&str) -> bool| {
        let mut lines = cgroups.lines();
        lines.find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_wanted(controllers).then_some(path)
        })
    };
    let (path, kind) = match own(&has) {
        Some(path) => (path, "cgroup"),
        None => match own(&str::is_empty) {
            Some(path) => (path, "cgroup2"),
            None => return Vec::new(),
        },
    };
    let mount = mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let is_it = system.next()? == kind && (kind == "cgroup2" || system.nth(1).is_some_and(has));
        let mut fields = mount.split(' ').skip(3);
        is_it.then_some((fields.next()?, fields.next()?))
    });
    let Some((root, point)) = mount else {
        return Vec::new();
    };
    // In a container a part of the hierarchy may be mounted, and the path be the whole one.
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
    let below = below.strip_prefix("/").unwrap_or(below);
    let leaf = Path::new(point).join(below);
    leaf.ancestors().take_while(|folder| folder.starts_with(point)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_that_counts_processes_is_found_in_both_versions() {
        let hybrid = "30 1 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let of_container = "30 1 0:26 /pod/x /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n";
        let unified = "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        for (cgroups, mounts, folders) in [
            (
                "8:pids:/a/b\n0::/c\n",
                hybrid,
                &["/sys/fs/cgroup/pids/a/b", "/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/pids"][..],
            ),
            ("8:cpu,pids:/pod/x\n", of_container, &["/sys/fs/cgroup/pids"]),
            ("0::/a\n", unified, &["/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
            ("0::/\n", unified, &["/sys/fs/cgroup"]),
            ("", unified, &[]),
            ("0::/\n", "", &[]),
        ] {
            let found = pids_folders(cgroups, mounts);
            let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
            assert_eq!(found, folders, "{cgroups}");
        }
    }

    #[test]
    fn the_users_own_limit_is_blamed_only_if_it_is_about_reached() {
        for (most, threads, named) in [
            (Some(1), 1, true),
            (Some(3), 2, true),
            (Some(100), 99, true),
            (Some(100), 30, false),
            (Some(60_000), 12, false),
        ] {
            let limit = user_limit(most, || threads);
            assert_eq!(matches!(limit, ProcessLimit::User { .. }), named, "{most:?} {threads}");
        }
        let text = user_limit(Some(100), || 30).to_string();
        assert!(text.contains("`ulimit -u` is 100; `pids.max` of the container"), "{text}");
        let of_root = user_limit(None, || unreachable!()).to_string();
        assert!(!of_root.contains("ulimit"), "{of_root}");
    }

    #[test]
    fn threads_are_counted_by_the_real_user() {
        let status = "Name:\tThreads: 9\nUid:\t7\t8\t8\t8\nThreads:\t5\n";
        assert_eq!((threads_in(status, 7), threads_in(status, 8)), (Some(5), None));
    }

    #[test]
    fn an_error_of_another_kind_stays_as_it_is() {
        let error = explain_start(io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }
}
