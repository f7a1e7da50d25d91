//! A supervisor in a folder of its own, and what to ask it.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use packhorse_model::{
    AttemptEnd, Command, CoreId, Outcome, OutputMode, ProcessEvent, RunId, TaskId,
};
use packhorse_proc::ProcEntry;
use packhorse_supervisor::{Children, EndNotice, Job, StartResult, Supervisor, SupervisorSettings};
use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;

/// A job with everything in it.
pub struct Wanted {
    pub command: Command,
    pub environment: Vec<(OsString, OsString)>,
    pub cores: Vec<CoreId>,
    pub time_limit: Option<Duration>,
    pub grace: Duration,
    pub output: OutputMode,
    pub folder: Option<PathBuf>,
    pub preload: Vec<String>,
    pub own_log: Option<PathBuf>,
    pub hold_end: bool,
    pub attempt: u32,
}

/// A line for the shell, or for no shell.
pub fn line(line: impl AsRef<[u8]>) -> Wanted {
    Wanted {
        command: Command::Line(line.as_ref().to_owned()),
        environment: Vec::new(),
        cores: Vec::new(),
        time_limit: None,
        grace: Duration::from_hours(1),
        output: OutputMode::Log,
        folder: None,
        preload: Vec::new(),
        own_log: None,
        hold_end: false,
        attempt: 1,
    }
}

pub fn task(number: u32) -> TaskId {
    TaskId::new(RunId(1), number)
}

pub struct World {
    folder: TempDir,
    pub supervisor: Supervisor,
    /// What has been told, and not waited for.
    pub events: Vec<ProcessEvent>,
    /// Readable when SIGCHLD has come, if the supervisor needs to know.
    sigchld: Option<OwnedFd>,
}

/// Both ways to notice the end of a child, where all children are the supervisor's.
pub const ALL_CHILDREN: [Children; 2] =
    [Children::All(EndNotice::Handle), Children::All(EndNotice::Sigchld)];

pub fn settings(children: Children, home_mark: &str) -> SupervisorSettings {
    SupervisorSettings {
        environment: Vec::new(),
        hidden: Vec::new(),
        home_mark: home_mark.to_owned(),
        signal_mask: None,
        children,
    }
}

impl World {
    /// With a supervisor that lets other children be: tests may run side by side
    /// in one process.
    pub fn new() -> Self {
        Self::with(Children::Marked)
    }

    pub fn with(children: Children) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().to_str().unwrap();
        let sigchld = children == Children::All(EndNotice::Sigchld);
        let sigchld = sigchld.then(hear_sigchld);
        let supervisor = Supervisor::new(settings(children, mark)).unwrap();
        Self { folder, supervisor, events: Vec::new(), sigchld }
    }

    /// Where tasks run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn home_mark(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs_err::write(self.path(name), text).unwrap();
    }

    /// A program of the person's own.
    pub fn program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(name, text);
        fs_err::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    fn log_path(&self, number: u32, attempt: u32) -> PathBuf {
        self.path("logs").join(format!("{number}.{attempt}.log"))
    }

    pub fn log(&self, number: u32, attempt: u32) -> String {
        let path = self.log_path(number, attempt);
        fs_err::read_to_string(path).unwrap_or_default()
    }

    pub fn start(&mut self, number: u32, wanted: &Wanted) -> StartResult {
        let log = self.log_path(number, wanted.attempt);
        let here = self.folder.path();
        self.supervisor.start(Job {
            task: task(number),
            attempt: wanted.attempt,
            command: wanted.command.clone().into(),
            folder: Some(wanted.folder.as_deref().unwrap_or(here).into()),
            preload: wanted.preload.clone(),
            environment: wanted.environment.clone(),
            cores: wanted.cores.clone(),
            time_limit: wanted.time_limit,
            grace: wanted.grace,
            output: wanted.output,
            log,
            own_log: wanted.own_log.clone(),
            hold_end: wanted.hold_end,
        })
    }

    /// Waits until something is told.
    pub fn wait(&mut self) {
        let mut descriptors = vec![PollFd::new(&self.supervisor, PollFlags::IN)];
        descriptors.extend(self.sigchld.iter().map(|it| PollFd::new(it, PollFlags::IN)));
        while poll(&mut descriptors, None) == Err(rustix::io::Errno::INTR) {}
        if let Some(sigchld) = &self.sigchld {
            let _ = rustix::io::read(sigchld, &mut [0; 8]);
        }
        self.supervisor.drain(&mut self.events).unwrap();
    }

    /// Waits for an event, and takes it out.
    pub fn wait_for(&mut self, is_it: impl Fn(&ProcessEvent) -> bool) -> ProcessEvent {
        loop {
            if let Some(at) = self.events.iter().position(&is_it) {
                return self.events.remove(at);
            }
            self.wait();
        }
    }

    /// Waits for the end of a task's attempt.
    pub fn end_of(&mut self, number: u32) -> AttemptEnd {
        let is_it = |event: &ProcessEvent| matches!(event, ProcessEvent::Ended(end) if end.task == task(number));
        let ProcessEvent::Ended(end) = self.wait_for(is_it) else { unreachable!() };
        end
    }

    pub fn outcome_of(&mut self, number: u32) -> Outcome {
        self.end_of(number).outcome
    }

    pub fn run(&mut self, number: u32, wanted: &Wanted) -> AttemptEnd {
        self.start(number, wanted);
        self.end_of(number)
    }

    /// The troubles that a task has been told to have.
    pub fn troubles(&self, number: u32) -> Vec<&str> {
        let troubles = self.events.iter().filter_map(|event| match event {
            ProcessEvent::Trouble { task: of, message } if *of == task(number) => {
                Some(message.as_str())
            }
            _ => None,
        });
        troubles.collect()
    }
}

/// Takes SIGCHLD over, whichever thread it comes to: the first one belongs to the test
/// harness. The descriptor is readable when it has come.
fn hear_sigchld() -> OwnedFd {
    static HEARD: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn heard(_: libc::c_int) {
        let one = 1_u64.to_ne_bytes();
        let heard = HEARD.load(Ordering::Relaxed);
        // SAFETY: `write` may be called in a signal handler, and reads one number.
        unsafe { libc::write(heard, one.as_ptr().cast(), one.len()) };
    }
    let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
    let counter = rustix::event::eventfd(0, flags).unwrap();
    HEARD.store(counter.as_raw_fd(), Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = heard;
    // SAFETY: the handler does nothing that a handler must not do.
    unsafe { libc::signal(libc::SIGCHLD, handler as libc::sighandler_t) };
    counter
}

/// What somebody says through a fifo.
pub fn receive(fifo: &Path) -> String {
    fs_err::read_to_string(fifo).unwrap()
}

/// Lets somebody go on who reads from a fifo.
pub fn release(fifo: &Path) {
    drop(fs_err::OpenOptions::new().write(true).open(fifo).unwrap());
}

/// Whether a process is there and has not ended.
pub fn is_alive(pid: &str) -> bool {
    let stat = ProcEntry::of(pid.trim().parse().unwrap()).stat();
    stat.is_ok_and(|stat| !stat.has_ended())
}

const ALONE: &str = "SUPERVISOR_TEST_ALONE";

/// Whether this is a process with nothing in it but the test of this name; else it
/// is started, and has to succeed. For tests of what concerns a whole process.
pub fn alone(name: &str) -> bool {
    alone_after(name, |_| {})
}

/// As [`alone`], with a chance to change how that process is started. It leads a
/// process group.
pub fn alone_after(name: &str, change: impl FnOnce(&mut std::process::Command)) -> bool {
    if std::env::var_os(ALONE).is_some_and(|test| test == name) {
        // Whoever ends a test that hangs does not know of us.
        let end = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(end)).unwrap();
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ALONE, name).process_group(0);
    change(&mut command);
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {text}{errors}", done.status);
    assert!(text.contains("1 passed"), "no test is called {name}: {text}");
    false
}
