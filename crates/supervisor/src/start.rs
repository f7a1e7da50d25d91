//! Starting an attempt: the words to execute, the pipes, the environment, and
//! what there is to say when it cannot be started.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use packhorse_model::{AttemptEnd, Command, Outcome, OutputMode, ProcessEvent};
use rustix::event::epoll;
use rustix::process::{WaitId, WaitIdOptions};

use crate::argv::{Argv, plain_words};
use crate::attempt::{LeaderOrigin, RunningAttempt};
use crate::log::Log;
use crate::pipes::Pipes;
use crate::process_tree::{MARK_ATTEMPT, MARK_HOME, MARK_TASK};
use crate::spawn::{AwaitExec, Child, SpawnBuffer};
use crate::supervisor::{Slot, TOKEN_LEADER, TOKEN_STDERR, TOKEN_STDOUT};
use crate::{Job, Supervisor};

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
        let message = format!("cannot {doing}: {error}");
        match Errno::from_io_error(error) {
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
    /// Starts an attempt.
    pub(crate) fn try_start(&mut self, job: &Job) -> Result<(), Failure> {
        if self.by_task.contains_key(&job.task) {
            return Err("it is running already".to_owned().into());
        }
        let started = Instant::now();
        let slot = self
            .take_slot_making_room(job.output)
            .map_err(|error| Failure::new("make pipes for its output", &error))?;
        match self.launch(slot, job) {
            Ok(child) => {
                let mut attempt =
                    RunningAttempt::new(job.task, job.attempt, child.pid, LeaderOrigin::Started);
                attempt.handle = Some(child.handle);
                attempt.started = started;
                attempt.grace = job.grace;
                attempt.show_output = job.output == OutputMode::Lines;
                attempt.hold_end = job.hold_end;
                attempt.deadline = job.time_limit.and_then(|limit| started.checked_add(limit));
                self.insert_attempt(slot, attempt);
                Ok(())
            }
            Err(failure) => {
                self.free.insert(slot);
                Err(failure)
            }
        }
    }

    pub(crate) fn insert_attempt(&mut self, slot: usize, mut attempt: RunningAttempt) {
        attempt.unknown_before = self.unknown_found;
        self.deadlines.change(slot, None, attempt.deadline);
        self.by_leader.insert(attempt.leader, slot);
        self.by_task.insert(attempt.task, slot);
        self.slots[slot].attempt = Some(attempt);
    }

    fn launch(&mut self, slot: usize, job: &Job) -> Result<Child, Failure> {
        let Slot { buffer, log, .. } = &mut self.slots[slot];
        lay_out_command(job, buffer)?;
        lay_out_environment(job, buffer)?;
        buffer.folder = folder_of(job)?;
        buffer.pin_to(&job.cores);
        log.begin(&job.log, job.own_log.as_deref());
        let logged = job.output != OutputMode::Inherit;
        self.slots[slot].logged = logged;
        self.execute(slot, AwaitExec::No)
    }

    /// Starts an attempt once more whose first process did not come to its program:
    /// it was taken away or changed since we last started it. This time we wait
    /// for what comes of it.
    pub(crate) fn start_again(&mut self, slot: usize, events: &mut Vec<ProcessEvent>) {
        let failed = self.execute(slot, AwaitExec::Yes);
        let Some(mut attempt) = self.take_attempt(slot) else {
            return;
        };
        match failed {
            Ok(child) => {
                attempt.leader = child.pid;
                attempt.handle = Some(child.handle);
                self.insert_attempt(slot, attempt);
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                self.free.insert(slot);
                events.push(ProcessEvent::Ended(AttemptEnd {
                    task: attempt.task,
                    attempt: attempt.number,
                    outcome: Outcome::NotStarted,
                    message: Some(message),
                    took: Duration::ZERO,
                }));
                self.start_deferred(events);
            }
        }
    }

    /// Starts what is laid out in the slot. A program that could be started before
    /// is not waited for, unless that is wanted.
    fn execute(&mut self, slot: usize, wait: AwaitExec) -> Result<Child, Failure> {
        // Taken out while it is used, and put back for the next try.
        let program = std::mem::take(&mut self.slots[slot].buffer.program);
        let result = self.execute_program(slot, &program, wait);
        self.slots[slot].buffer.program = program;
        result
    }

    fn execute_program(
        &mut self,
        slot: usize,
        program: &[u8],
        wait: AwaitExec,
    ) -> Result<Child, Failure> {
        use rustix::io::Errno;
        let name = || String::from_utf8_lossy(program).into_owned();
        let slash = program.contains(&b'/');
        for fresh in [false, true] {
            let Slot { buffer, .. } = &mut self.slots[slot];
            let path = buffer.environment.own_value(b"PATH");
            let Some((file, executed)) = self.programs.find(program, path) else {
                break;
            };
            buffer.file.set(file);
            let wait = if executed { wait } else { AwaitExec::Yes };
            let spawned = self.spawn(slot, wait);
            let Slot { buffer, .. } = &mut self.slots[slot];
            let path = buffer.environment.own_value(b"PATH");
            let error = match spawned {
                Ok(child) => {
                    if !executed {
                        self.programs.set_executed(program, path);
                    }
                    return Ok(child);
                }
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // It may have moved since we looked.
                Some(Errno::NOENT) if !fresh && !slash => self.programs.forget(program, path),
                Some(Errno::NOENT) => {
                    self.programs.forget(program, path);
                    let here = buffer.folder.as_deref().map_or(&b""[..], CStr::to_bytes);
                    let file = OsStr::from_bytes(buffer.file.as_bytes());
                    if Path::new(OsStr::from_bytes(here)).join(file).exists() {
                        let message =
                            format!("cannot start {}: its interpreter is missing", name());
                        return Err(message.into());
                    }
                    break;
                }
                // A script without `#!`: a shell would run it, so we do.
                Some(Errno::NOEXEC) => {
                    self.programs.forget(program, path);
                    buffer.argv.replace_first(&[b"sh", buffer.file.as_bytes()]);
                    buffer.file.set(c"/bin/sh");
                    let result = self.spawn(slot, AwaitExec::Yes);
                    return result
                        .map_err(|error| Failure::new(&format!("start {}", name()), &error));
                }
                Some(Errno::TOOBIG) => {
                    let length = buffer.argv.length();
                    let message =
                        format!("its {length} bytes of arguments are more than the kernel takes");
                    return Err(message.into());
                }
                _ => return Err(Failure::new(&format!("start {}", name()), &error)),
            }
        }
        let what = if slash {
            "no such file"
        } else {
            "command not found"
        };
        // `-- "python train.py"`: what was meant as a line came as one word.
        let advice = if program.iter().any(u8::is_ascii_whitespace) {
            " (this is one word: leave out its quotes, or put `sh -c` before it)"
        } else {
            ""
        };
        Err(format!("{what}: {}{advice}", name()).into())
    }

    fn spawn(&mut self, slot: usize, wait: AwaitExec) -> io::Result<Child> {
        match self.spawn_watched(slot, wait) {
            // The handle of the process was one descriptor too many.
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.descriptor_limit.raise()?;
                self.spawn_watched(slot, wait)
            }
            other => other,
        }
    }

    fn spawn_watched(&mut self, slot: usize, wait: AwaitExec) -> io::Result<Child> {
        let Slot {
            buffer,
            pipes,
            logged,
            ..
        } = &mut self.slots[slot];
        let stdio = match pipes {
            Some(pipes) if *logged => pipes.stdio,
            _ => self.inherit,
        };
        buffer.limit_descriptors(self.descriptor_limit.for_children());
        // SAFETY: a slot's buffer is boxed, and not touched until its attempt's
        // leader was waited for: see `Slot`.
        let child = unsafe { buffer.spawn(stdio, wait)? };
        if let Err(error) = self.watch(child.handle.as_fd(), TOKEN_LEADER | slot as u64) {
            let _ =
                rustix::process::pidfd_send_signal(&child.handle, rustix::process::Signal::KILL);
            let _ =
                rustix::process::waitid(WaitId::PidFd(child.handle.as_fd()), WaitIdOptions::EXITED);
            return Err(error);
        }
        Ok(child)
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

    /// Many tasks at once need more descriptors than a process may open by
    /// default; how many it may open in the end is the administrator's choice.
    fn take_slot_making_room(&mut self, output: OutputMode) -> io::Result<usize> {
        match self.take_slot(output) {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.descriptor_limit.raise()?;
                self.take_slot(output)
            }
            other => other,
        }
    }

    pub(crate) fn take_slot(&mut self, output: OutputMode) -> io::Result<usize> {
        let slot = if let Some(&slot) = self.free.first() {
            slot
        } else {
            self.slots.push(Slot {
                attempt: None,
                pipes: None,
                logged: false,
                log: Log::new(),
                buffer: SpawnBuffer::new(&self.inheritance),
            });
            let slot = self.slots.len() - 1;
            self.free.insert(slot);
            slot
        };
        if self.slots[slot].pipes.is_none() && output != OutputMode::Inherit {
            self.descriptor_limit.ensure(self.slots.len())?;
            let token = slot as u64;
            self.slots[slot].pipes = Some(Pipes::new(
                &self.epoll,
                self.dev_null.as_fd(),
                [TOKEN_STDOUT | token, TOKEN_STDERR | token],
            )?);
        }
        self.free.remove(&slot);
        Ok(slot)
    }
}

/// Lays out the words to execute, and which program.
fn lay_out_command(job: &Job, buffer: &mut SpawnBuffer) -> Result<(), String> {
    let SpawnBuffer { argv, program, .. } = buffer;
    argv.clear();
    program.clear();
    match &*job.command {
        Command::Words(words) => {
            if words.iter().any(|word| word.contains(&0)) {
                return Err("the command has a NUL byte in it".to_owned());
            }
            let first = words.first().filter(|program| !program.is_empty());
            program.extend_from_slice(first.ok_or_else(|| "the command is empty".to_owned())?);
            for word in words {
                argv.add(word);
            }
        }
        Command::Line(line) => {
            if line.contains(&0) {
                return Err("the command has a NUL byte in it".to_owned());
            }
            let Some(words) = plain_words(line) else {
                program.extend_from_slice(b"/bin/sh");
                return lay_out_shell(job, line, argv);
            };
            for word in words {
                if program.is_empty() {
                    program.extend_from_slice(word);
                }
                argv.add(word);
            }
        }
    }
    Ok(())
}

fn lay_out_shell(job: &Job, line: &[u8], argv: &mut Argv) -> Result<(), String> {
    argv.add(b"sh");
    if line.len() < LONGEST_WORD {
        argv.add(b"-c");
        argv.add(line);
    } else {
        argv.add(script(job, line)?.as_bytes());
    }
    Ok(())
}

/// A line too long for one argument goes into a file beside its log.
fn script(job: &Job, line: &[u8]) -> Result<OsString, String> {
    let path = job.log.with_extension("sh");
    path.parent()
        .map_or(Ok(()), fs_err::create_dir_all)
        .and_then(|()| fs_err::write(&path, line))
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
        if name.is_empty() || memchr::memchr2(0, b'=', name).is_some() {
            let name = name.escape_ascii();
            return Err(format!("no variable can be called `{name}`"));
        }
        if memchr::memchr(0, value).is_some() {
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
