//! Starting an attempt: the words to execute, the pipes, the environment, and
//! what there is to say when it cannot be started.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use packhorse_model::{Command, Outcome, OutputMode, ProcessEvent, printable};
use packhorse_proc::MARK_HOME;
use packhorse_trust::{ensure_private_folder, write_private};
use rustix::event::epoll;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::argv::plain_words;
use crate::attempt::{LeaderOrigin, RunningAttempt};
use crate::deferred::{StartResult, never_started};
use crate::log::{Log, LogScan};
use crate::metric_scanner::MetricScanner;
use crate::pipes::Pipes;
use crate::process_tree::{MARK_ATTEMPT, MARK_TASK};
use crate::spawn::{AwaitExec, Child, SpawnBuffer, Stdio};
use crate::supervisor::{BUFFER, Slot, TOKEN_LEADER, TOKEN_STDERR, TOKEN_STDOUT};
use crate::{Job, Supervisor};

/// The kernel takes no word or variable of this length (`MAX_ARG_STRLEN`, with its final zero).
const LONGEST_VARIABLE: usize = 128 * 1024 - 1;

/// Why an attempt was not started.
pub(crate) enum Failure {
    /// It cannot be.
    Final(String),
    /// The machine is short of something that an attempt's end gives back.
    Later(String),
}

impl Failure {
    /// Sorts what the system said.
    fn new(doing: &str, error: &io::Error) -> Self {
        use rustix::io::Errno;
        let errno = Errno::from_io_error(error);
        let message = match errno {
            // With the limit that is in the way.
            Some(Errno::AGAIN) => {
                format!("cannot {doing}: {}", packhorse_proc::explain_start(Errno::AGAIN.into()))
            }
            _ => format!("cannot {doing}: {error}"),
        };
        match errno {
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => Self::Later(message),
            _ => Self::Final(message),
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Final(message)
    }
}

/// One argument of an `execve` may be 128 KiB long (32 pages), its NUL included.
const LONGEST_WORD: usize = 128 * 1024;

impl Supervisor {
    /// Starts an attempt, or asks for it to be forked.
    pub(crate) fn try_start(&mut self, job: &Job) -> Result<StartResult, Failure> {
        if self.by_task.contains_key(&job.task) {
            return Err("it is running already".to_owned().into());
        }
        let started = Instant::now();
        let slot = self
            .take_slot(job.output)
            .map_err(|error| Failure::new("make pipes for its output", &error))?;
        let launched = self.launch(slot, job).inspect_err(|_| {
            // It may be tried again in another slot.
            self.slots[slot].log.close();
            self.free.insert(slot);
        })?;
        let Some(child) = launched else {
            return Ok(StartResult::Waiting);
        };
        self.insert_attempt(slot, attempt_of(job, child, started));
        Ok(StartResult::Running)
    }

    pub(crate) fn insert_attempt(&mut self, slot: usize, mut attempt: RunningAttempt) {
        // Now, since before the first start it would only take time.
        self.buffer.resize(BUFFER, 0);
        attempt.unknown_before = self.unknown_found;
        self.deadlines.change(slot, None, attempt.deadline);
        self.by_leader.insert(attempt.leader, slot);
        self.by_task.insert(attempt.task, slot);
        self.slots[slot].attempt = Some(attempt);
    }

    /// Starts what is asked for. `None`: it is to be forked, and not there yet.
    fn launch(&mut self, slot: usize, job: &Job) -> Result<Option<Child>, Failure> {
        let Slot { buffer, log, .. } = &mut self.slots[slot];
        lay_out_command(job, buffer)?;
        lay_out_environment(job, buffer)?;
        buffer.folder = folder_of(job)?;
        buffer.pin_to(&job.cores);
        log.begin(&job.log);
        if let Some(own) = job.own_log.as_deref().filter(|_| job.output != OutputMode::Inherit)
            && let Some(backup) = log.claim(own)?
            && self.first_backup.is_none()
        {
            let backup = self.first_backup.insert(backup);
            let [own, backup] = [own, backup].map(Path::to_string_lossy);
            let message = format!(
                "{} is the log of an earlier run: it is called {} now, and so are others \
                 like it",
                printable(&own),
                printable(&backup)
            );
            self.ready.push(ProcessEvent::Trouble { task: job.task, message });
        }
        if job.output == OutputMode::File {
            log.open().map_err(|error| Failure::new("open its log", &error))?;
        }
        if !job.preload.is_empty() && self.ask_for_fork(slot, job) {
            return Ok(None);
        }
        self.execute(slot, AwaitExec::No).map(Some)
    }

    /// Starts an attempt once more whose first process did not come to its program:
    /// it was taken away or changed since we last started it. This time we wait
    /// for what comes of it.
    pub(crate) fn start_again(&mut self, slot: usize) {
        let failed = self.execute(slot, AwaitExec::Yes);
        // What it has for its output is still the attempt's.
        let mut log = std::mem::replace(&mut self.slots[slot].log, Log::new());
        let Some(mut attempt) = self.take_attempt(slot) else {
            return;
        };
        match failed {
            Ok(child) => {
                attempt.leader = child.pid;
                attempt.handle = child.handle;
                attempt.is_watched_for_edges = false;
                self.slots[slot].log = log;
                self.insert_attempt(slot, attempt);
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                log.close();
                self.free.insert(slot);
                let (outcome, message) = (Outcome::NotStarted, Some(message));
                self.ready.push(never_started(attempt.task, attempt.number, outcome, message));
                self.start_deferred();
            }
        }
    }

    /// Starts what is laid out in the slot. A program that could be started before
    /// is not waited for, unless that is wanted.
    fn execute(&mut self, slot: usize, wait: AwaitExec) -> Result<Child, Failure> {
        use rustix::io::Errno;
        for fresh in [false, true] {
            let buffer = &mut *self.slots[slot].buffer;
            let path = buffer.environment.own_value(b"PATH");
            let Some((file, executed)) = self.programs.find(&buffer.program, path) else {
                break;
            };
            buffer.file = file;
            let wait = if executed { wait } else { AwaitExec::Yes };
            let error = match self.spawn(slot, wait) {
                Ok(child) => {
                    if !executed {
                        self.programs.set_executed();
                    }
                    return Ok(child);
                }
                Err(error) => error,
            };
            let buffer = &mut *self.slots[slot].buffer;
            let doing = format!("start {}", String::from_utf8_lossy(&buffer.program));
            match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => {
                    self.programs.forget();
                    // It may have moved since we looked.
                    if !fresh && !buffer.program.contains(&b'/') {
                        continue;
                    }
                    let here = buffer.folder.as_deref().unwrap_or_default();
                    let [here, file] = [here, &buffer.file].map(CStr::to_bytes);
                    if Path::new(OsStr::from_bytes(here)).join(OsStr::from_bytes(file)).exists() {
                        return Err(format!("cannot {doing}: its interpreter is missing").into());
                    }
                    break;
                }
                // A script without `#!`: a shell would run it, so we do.
                Some(Errno::NOEXEC) => {
                    self.programs.forget();
                    buffer.argv.replace_first(&[b"sh", buffer.file.to_bytes()]);
                    buffer.file = c"/bin/sh".into();
                    let result = self.spawn(slot, AwaitExec::Yes);
                    return result.map_err(|error| Failure::new(&doing, &error));
                }
                Some(Errno::TOOBIG) => {
                    let longest = buffer.environment.all().max_by_key(|entry| entry.len());
                    let longest = longest.filter(|entry| entry.len() >= LONGEST_VARIABLE);
                    let what = match longest {
                        Some(entry) => {
                            let name = entry.split(|&byte| byte == b'=').next();
                            let name = String::from_utf8_lossy(name.unwrap_or_default());
                            format!("the {} bytes of the variable {name}", entry.len())
                        }
                        None => format!("its {} bytes of arguments", buffer.argv.length()),
                    };
                    return Err(format!("{what} are more than the kernel takes").into());
                }
                _ => return Err(Failure::new(&doing, &error)),
            }
        }
        Err(not_found(&self.slots[slot].buffer.program).into())
    }

    fn spawn(&mut self, slot: usize, wait: AwaitExec) -> io::Result<Child> {
        let with_handle = self.uses_handles();
        let stdio = self.stdio(slot);
        let buffer = &mut self.slots[slot].buffer;
        buffer.limit_descriptors(self.descriptor_limit.for_children());
        // SAFETY: a slot's buffer is boxed, and not touched until its attempt's
        // leader was waited for: see `Slot`.
        let child = unsafe { buffer.spawn(stdio, wait, with_handle)? };
        if let Some(handle) = &child.handle
            && let Err(error) = self.watch(handle.as_fd(), TOKEN_LEADER | slot as u64)
        {
            let _ = pidfd_send_signal(handle, Signal::KILL);
            let _ = waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED);
            return Err(error);
        }
        Ok(child)
    }

    /// What the process of a slot's attempt reads and writes.
    pub(crate) fn stdio(&self, slot: usize) -> Stdio {
        let Slot { pipes, output, log, .. } = &self.slots[slot];
        let [input, ..] = self.inherit;
        match (output, pipes) {
            (OutputMode::Log | OutputMode::Lines, Some(pipes)) => pipes.stdio,
            (OutputMode::File, _) => [input, log.descriptor(), log.descriptor()],
            _ => self.inherit,
        }
    }

    /// Reports a process's end under a token, once. The handle would become readable
    /// again when the process is reaped, and it is still watched if we have closed it
    /// but a child that has not executed its program has a copy.
    pub(crate) fn watch(&self, handle: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            handle,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
        )?)
    }

    pub(crate) fn take_slot(&mut self, output: OutputMode) -> io::Result<usize> {
        let slot = self.free.first().copied().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            if output == OutputMode::File {
                self.descriptor_limit.ensure(slot + 1)?;
            }
            self.slots.push(Slot {
                attempt: None,
                waiting: None,
                pipes: None,
                output,
                log: Log::new(),
                metrics: MetricScanner::default(),
                log_scan: LogScan::default(),
                buffer: SpawnBuffer::new(&self.inheritance),
            });
            self.free.insert(slot);
        }
        if self.slots[slot].pipes.is_none() && output.is_piped() {
            let others = self.slots.iter().filter(|slot| slot.pipes.is_some());
            let attempts = others.count() + 1;
            self.descriptor_limit.ensure(attempts)?;
            let token = slot as u64;
            self.slots[slot].pipes = Some(Pipes::new(
                &self.epoll,
                self.dev_null.as_fd(),
                [TOKEN_STDOUT | token, TOKEN_STDERR | token],
            )?);
        }
        self.slots[slot].output = output;
        self.free.remove(&slot);
        Ok(slot)
    }
}

/// The attempt that a job is for, whose leader is there.
pub(crate) fn attempt_of(job: &Job, leader: Child, started: Instant) -> RunningAttempt {
    let mut attempt = RunningAttempt::new(job.task, job.attempt, leader, LeaderOrigin::Started);
    attempt.started = started;
    attempt.grace = job.grace;
    attempt.hold_end = job.hold_end;
    attempt.deadline = job.time_limit.and_then(|limit| started.checked_add(limit));
    attempt
}

/// What to say of a program that is nowhere.
fn not_found(program: &[u8]) -> String {
    let what = if program.contains(&b'/') { "no such file" } else { "command not found" };
    // `-- "python train.py"`: what was meant as a line came as one word.
    let advice = if program.iter().any(u8::is_ascii_whitespace) {
        " (this is one word: leave out its quotes, or put `sh -c` before it)"
    } else {
        ""
    };
    format!("{what}: {}{advice}", String::from_utf8_lossy(program))
}

/// Lays out the words to execute, and which program.
fn lay_out_command(job: &Job, buffer: &mut SpawnBuffer) -> Result<(), String> {
    let SpawnBuffer { argv, program, .. } = buffer;
    argv.clear();
    program.clear();
    let parts = match &*job.command {
        Command::Words(words) => &words[..],
        Command::Line(line) => std::slice::from_ref(line),
    };
    if parts.iter().any(|part| part.contains(&0)) {
        return Err("the command has a NUL byte in it".to_owned());
    }
    match &*job.command {
        Command::Words(words) => words.iter().for_each(|word| argv.add(word)),
        Command::Line(line) => {
            let Some(words) = plain_words(line) else {
                program.extend_from_slice(b"/bin/sh");
                argv.add(b"sh");
                if line.len() < LONGEST_WORD {
                    argv.add(b"-c");
                    argv.add(line);
                } else {
                    argv.add(script(job, line)?.as_bytes());
                }
                return Ok(());
            };
            words.for_each(|word| argv.add(word));
        }
    }
    program.extend_from_slice(argv.first());
    if program.is_empty() {
        return Err("the command is empty".to_owned());
    }
    Ok(())
}

/// A line too long for one argument goes into a file beside its log.
fn script(job: &Job, line: &[u8]) -> Result<OsString, String> {
    let path = job.log.with_extension("sh");
    path.parent()
        .map_or(Ok(()), ensure_private_folder)
        .and_then(|()| write_private(&path, line))
        .map_err(|error| format!("cannot write its {} bytes to a script: {error}", line.len()))?;
    // It may run in another folder.
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok(path.into_os_string())
}

/// Lays out the variables of its own, the marks last: they are what its processes
/// are known by.
fn lay_out_environment(job: &Job, buffer: &mut SpawnBuffer) -> Result<(), String> {
    let environment = &mut buffer.environment;
    environment.clear();
    for (name, value) in &job.environment {
        let [name, value] = [name, value].map(|text| text.as_bytes());
        // Not with the crate `memchr`, which asks the processor first what it can do. That
        // takes a virtual machine longer than all of this.
        if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'=')) {
            let name = name.escape_ascii();
            return Err(format!("no variable can be called `{name}`"));
        }
        if value.contains(&0) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("the value of {name} has a NUL byte in it"));
        }
        if name != MARK_HOME.as_bytes() {
            environment.add_bytes(name, value);
        }
    }
    environment.add(MARK_TASK.as_bytes(), job.task);
    environment.add(MARK_ATTEMPT.as_bytes(), job.attempt);
    Ok(())
}

/// The folder an attempt runs in, if it is not ours.
fn folder_of(job: &Job) -> Result<Option<CString>, String> {
    let Some(folder) = &job.folder else {
        return Ok(None);
    };
    if !folder.is_dir() {
        return Err(format!("no such folder: {}", folder.display()));
    }
    CString::new(folder.as_os_str().as_bytes())
        .map(Some)
        .map_err(|_| "the folder's name has a NUL byte in it".to_owned())
}
