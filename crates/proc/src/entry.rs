use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fs_err as fs;

/// The folder of one process.
#[derive(Clone, Debug)]
pub struct ProcEntry {
    folder: PathBuf,
}

/// What `stat` tells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// What it does: `R` running, `S` sleeping, `T` stopped, `Z` ended and not
    /// reaped.
    pub state: u8,
    /// Its parent; 0 if that is out of sight.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    pub session: u32,
    /// When it was started, in clock ticks since boot. Together with its number
    /// it says which process it is.
    pub start_time: u64,
    /// How it ended, as `wait` packs it, if it has and we may know.
    pub exit_code: Option<i32>,
}

impl ProcStat {
    /// Whether it was stopped, as by Ctrl-Z.
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Whether it has ended and nobody has reaped it.
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Reads the line. The second field is the program's name in brackets, which
    /// may hold spaces and brackets itself.
    fn parse(line: &[u8]) -> Option<Self> {
        let name_end = line.iter().rposition(|&byte| byte == b')')?;
        let rest = str::from_utf8(&line[name_end + 1..]).ok()?;
        // The state is the third field of the line and the first one here.
        let mut fields = rest.split_ascii_whitespace();
        let mut stat = Self {
            state: *fields.next()?.as_bytes().first()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            start_time: fields.nth(15)?.parse().ok()?,
            exit_code: None,
        };
        if stat.has_ended() {
            stat.exit_code = fields.nth(29).and_then(|code| code.parse().ok());
        }
        Some(stat)
    }
}

impl ProcEntry {
    /// The process of this number.
    pub fn of(pid: u32) -> Self {
        Self { folder: Path::new("/proc").join(pid.to_string()) }
    }

    /// Its state, relations and start time. An error of the kind `InvalidData`
    /// says that there is such a process and that its line is not understood.
    pub fn stat(&self) -> io::Result<ProcStat> {
        let path = self.folder.join("stat");
        ProcStat::parse(&fs::read(&path)?).ok_or_else(|| unreadable(&path))
    }

    /// The variables it was started with, each as `NAME=VALUE` with a final zero.
    /// Empty for one that has ended.
    pub fn environment(&self) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join("environ"))
    }

    /// The words it was started with, each with a final zero. Empty for one that
    /// has ended, and for the kernel's own threads.
    pub fn command_line(&self) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join("cmdline"))
    }

    /// The short name of its program, at most 15 bytes.
    pub fn command_name(&self) -> io::Result<Vec<u8>> {
        let mut name = fs::read(self.folder.join("comm"))?;
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        Ok(name)
    }

    /// The user whose process it is to anybody who looks at it: root for a
    /// program that nobody may look into.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(fs::metadata(&self.folder)?.uid())
    }

    /// The user that the files belong to which it makes.
    pub fn effective_user(&self) -> io::Result<u32> {
        let path = self.folder.join("status");
        effective_user_in(&fs::read(&path)?).ok_or_else(|| unreadable(&path))
    }

    /// What its descriptors are, as the links in its `fd` folder call it: `pipe:[1234]`.
    pub fn open_files(&self) -> impl Iterator<Item = PathBuf> {
        let links = fs::read_dir(self.folder.join("fd")).into_iter().flatten().flatten();
        links.filter_map(|link| fs::read_link(link.path()).ok())
    }
}

fn unreadable(path: &Path) -> io::Error {
    let message = format!("cannot parse `{}`", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn effective_user_in(status: &[u8]) -> Option<u32> {
    let ids = field(status, b"Uid:")?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a line of `status` says.
fn field<'a>(status: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    str::from_utf8(value).ok()
}

/// Whether every thread of this process other than the calling one has a signal
/// blocked, so that it never goes to any of them.
pub fn is_blocked_elsewhere(signal: i32) -> bool {
    let me = rustix::thread::gettid().to_string();
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return false;
    };
    threads.flatten().all(|thread| {
        thread.file_name() == *me || {
            let status = fs::read(thread.path().join("status")).unwrap_or_default();
            let blocked = field(&status, b"SigBlk:");
            let blocked = blocked.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
            blocked.is_some_and(|set| set >> (signal - 1) & 1 == 1)
        }
    })
}

/// The value of a variable in what [`ProcEntry::environment`] gives.
pub fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let rest = entry.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })
}

/// A process and its ancestors, the nearest first. Only the number itself if the
/// process is gone.
pub fn ancestry(pid: u32) -> impl Iterator<Item = u32> {
    let first = Some(pid).filter(|&pid| pid != 0);
    std::iter::successors(first, |&pid| {
        let parent = ProcEntry::of(pid).stat().ok()?.parent;
        (parent != 0).then_some(parent)
    })
}

/// Tells this boot of the machine from others.
pub fn boot_id() -> io::Result<String> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id.clone());
    }
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(ID.get_or_init(|| id.trim_end().to_owned()).clone())
}

/// The numbers of all processes that we can see.
pub fn pids() -> impl Iterator<Item = u32> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"7 (a) R (b) S 1 2 3 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8642 1 2 3 \
        4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 256\n";

    #[test]
    fn a_programs_name_does_not_mislead() {
        let stat = ProcStat::parse(LINE).unwrap();
        assert_eq!((stat.state, stat.parent), (b'S', 1));
        assert_eq!((stat.group, stat.session), (2, 3));
        assert_eq!((stat.start_time, stat.exit_code), (8642, None));
        assert_eq!(ProcStat::parse(b"7 (a) S 1 7"), None);
        let status = b"Name:\tUid: 5 6\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t0\t0\t0\t0\n";
        assert_eq!(effective_user_in(status), Some(2));
    }

    #[test]
    fn an_ended_process_that_nobody_has_reaped_tells_its_status() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let handle =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let mut poll = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut poll, None).unwrap();
        let stat = ProcEntry::of(child.id()).stat().unwrap();
        assert!(stat.has_ended());
        assert_eq!(stat.exit_code, Some(3 << 8));
        assert_eq!(stat.parent, std::process::id());
        child.wait().unwrap();
    }

    #[test]
    fn we_can_be_looked_up() {
        let me = ProcEntry::of(std::process::id());
        assert!(!me.command_line().unwrap().is_empty());
        assert!(!me.command_name().unwrap().ends_with(b"\n"));
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(me.effective_user().unwrap(), uid);
        assert_eq!(me.owner().unwrap(), uid);
        assert!(!me.stat().unwrap().is_stopped());
        let path = std::env::var("PATH").unwrap();
        let environment = me.environment().unwrap();
        assert_eq!(variable(&environment, "PATH"), Some(path.as_bytes()));
        assert_eq!(variable(&environment, "PAT"), None);
        assert!(pids().any(|pid| pid == std::process::id()));
        assert_eq!(ancestry(std::process::id()).last(), ancestry(1).next());
        assert_eq!(ProcEntry::of(u32::MAX).owner().ok(), None);
    }

    #[test]
    fn a_signal_that_another_thread_may_get_is_not_blocked_elsewhere() {
        // The test harness has a thread of its own, which blocks nothing once it has
        // started ours.
        while is_blocked_elsewhere(17) {}
        let status = b"Name:\tx\nSigBlk:\t0000000000010002\nSigIgn:\t0\n";
        assert_eq!(field(status, b"SigBlk:"), Some("\t0000000000010002"));
    }
}
