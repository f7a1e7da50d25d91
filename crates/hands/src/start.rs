//! Starting an attempt: the words to execute, the pipes, the environment, the
//! cores, and what there is to say when it cannot be started.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt::{Display, Write as _};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use packhorse_model::{Command, CoreId, Outcome};
use rustix::process::Pid;
use rustix::thread::CpuSet;

use crate::arguments::Words;
use crate::attempt::Attempt;
use crate::family::{MARK_ATTEMPT, MARK_TASK};
use crate::pipes::Pipes;
use crate::spawn::{Cradle, Pace};
use crate::supervisor::{Slot, TOKEN_STDERR, TOKEN_STDOUT};
use crate::words::plain_words;
use crate::{Ended, Hands, Happening, Job, Output};

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

impl Hands {
    /// Starts an attempt.
    pub(crate) fn try_start(&mut self, job: Job<'_>) -> Result<(), Failure> {
        let started = Instant::now();
        let (slot, leader) = self.spawn_leader(job)?;
        self.leaders.insert(leader, slot);
        self.by_task.insert(job.task, slot);
        self.slots[slot].attempt = Some(Attempt::new(&job, leader, started));
        Ok(())
    }

    fn spawn_leader(&mut self, job: Job<'_>) -> Result<(usize, Pid), Failure> {
        let slot = self
            .take_slot_making_room()
            .map_err(|error| Failure::new("make pipes for its output", &error))?;
        match self.launch(slot, &job) {
            Ok(pid) => Ok((slot, pid)),
            Err(failure) => {
                self.free.insert(slot);
                Err(failure)
            }
        }
    }

    fn launch(&mut self, slot: usize, job: &Job<'_>) -> Result<Pid, Failure> {
        let mut words = std::mem::take(&mut self.slots[slot].cradle.words);
        let program = self.prepare(job, &mut words);
        let cradle = &mut self.slots[slot].cradle;
        cradle.words = words;
        cradle.program = program?;
        cradle.folder = folder_of(job)?;
        cradle.cores.clear();
        cradle.cores.extend_from_slice(job.cores);
        cradle.environment.clear();
        let mut text = String::new();
        for (mark, value) in [
            (MARK_TASK, &job.task as &dyn Display),
            (MARK_ATTEMPT, &job.attempt),
        ] {
            text.clear();
            // Writing to a string cannot fail.
            let _ = write!(text, "{value}");
            cradle.environment.add(mark, OsStr::new(&text));
        }
        for (name, value) in job.environment {
            cradle.environment.add(name, OsStr::new(value));
        }
        self.execute(slot, Pace::GoOn)
    }

    /// Starts an attempt once more whose first process did not come to its program:
    /// it was taken away or changed since we last started it. This time we wait
    /// for what comes of it.
    pub(crate) fn start_again(&mut self, slot: usize, happenings: &mut Vec<Happening>) {
        match self.execute(slot, Pace::Wait) {
            Ok(leader) => {
                self.leaders.insert(leader, slot);
                if let Some(attempt) = &mut self.slots[slot].attempt {
                    attempt.leader = leader;
                }
            }
            Err(Failure::Later(message) | Failure::Final(message)) => {
                let Some(attempt) = self.slots[slot].attempt.take() else {
                    return;
                };
                self.by_task.remove(&attempt.task);
                self.free.insert(slot);
                happenings.push(Happening::Ended(Ended {
                    task: attempt.task,
                    attempt: attempt.number,
                    outcome: Outcome::NotStarted,
                    message: Some(message),
                    took: Duration::ZERO,
                }));
                self.start_deferred(happenings);
            }
        }
    }

    /// Lays out the words to execute, and says which program.
    fn prepare(&self, job: &Job<'_>, laid: &mut Words) -> Result<Vec<u8>, String> {
        laid.clear();
        match job.command {
            Command::Words(words) => {
                if words.iter().any(|word| word.contains(&0)) {
                    return Err("the command has a NUL byte in it".to_owned());
                }
                for word in words {
                    laid.add(word);
                }
                words
                    .first()
                    .filter(|program| !program.is_empty())
                    .cloned()
                    .ok_or_else(|| "the command is empty".to_owned())
            }
            Command::Line(line) => {
                if line.contains(&0) {
                    return Err("the command has a NUL byte in it".to_owned());
                }
                if let Some(words) = plain_words(line) {
                    for word in &words {
                        laid.add(word);
                    }
                    return Ok(words[0].to_owned());
                }
                laid.add(b"sh");
                if line.len() < LONGEST_WORD {
                    laid.add(b"-c");
                    laid.add(line);
                } else {
                    laid.add(self.script(job, line)?.as_encoded_bytes());
                }
                Ok(b"/bin/sh".to_vec())
            }
        }
    }

    /// A line too long for one argument goes into a file beside its log.
    fn script(&self, job: &Job<'_>, line: &[u8]) -> Result<OsString, String> {
        let path =
            crate::log_path(&self.settings.log_folder, job.task, job.attempt).with_extension("sh");
        fs_err::create_dir_all(&self.settings.log_folder)
            .and_then(|()| fs_err::write(&path, line))
            .map_err(|error| {
                format!("cannot write its {} bytes to a script: {error}", line.len())
            })?;
        Ok(path.into_os_string())
    }

    /// Starts what is laid out in the slot. A program that could be started before
    /// is not waited for, if `pace` says so.
    fn execute(&mut self, slot: usize, pace: Pace) -> Result<Pid, Failure> {
        use rustix::io::Errno;
        let program = self.slots[slot].cradle.program.clone();
        let name = || String::from_utf8_lossy(&program).into_owned();
        let slash = program.contains(&b'/');
        let pace = match pace {
            Pace::GoOn if self.programs.is_proven(&program) => Pace::GoOn,
            _ => Pace::Wait,
        };
        for fresh in [false, true] {
            let Some(file) = self.programs.find(&program) else {
                break;
            };
            let error = match self.spawn(slot, file.clone(), pace) {
                Ok(pid) => {
                    self.programs.prove(&program);
                    return Ok(pid);
                }
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                // It may have moved since we looked.
                Some(Errno::NOENT) if !fresh && !slash => self.programs.forget(&program),
                Some(Errno::NOENT) => {
                    self.programs.forget(&program);
                    let folder = self.slots[slot].cradle.folder.as_deref();
                    let here = folder.map_or(&b""[..], CStr::to_bytes);
                    let file =
                        Path::new(OsStr::from_bytes(here)).join(OsStr::from_bytes(file.as_bytes()));
                    if file.exists() {
                        let message =
                            format!("cannot start {}: its interpreter is missing", name());
                        return Err(message.into());
                    }
                    break;
                }
                // A script without `#!`: a shell would run it, so we do.
                Some(Errno::NOEXEC) => {
                    self.programs.forget(&program);
                    let words = &mut self.slots[slot].cradle.words;
                    words.replace_first(&[b"sh", file.as_bytes()]);
                    let result = self.spawn(slot, c"/bin/sh".to_owned(), Pace::Wait);
                    return result
                        .map_err(|error| Failure::new(&format!("start {}", name()), &error));
                }
                Some(Errno::TOOBIG) => {
                    let length = self.slots[slot].cradle.words.length();
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

    fn spawn(&mut self, slot: usize, file: CString, pace: Pace) -> io::Result<Pid> {
        let Slot { cradle, pipes, .. } = &mut self.slots[slot];
        let stdio = match pipes {
            Some(pipes) => &pipes.stdio,
            None => &self.inherit,
        };
        pin(&cradle.cores);
        // SAFETY: a slot's cradle is boxed, and neither it nor the pipes are
        // touched until its attempt's leader was waited for: see `Slot`.
        let result = unsafe { cradle.spawn(file, stdio, pace) };
        if !cradle.cores.is_empty() {
            let _ = rustix::thread::sched_setaffinity(None, &self.affinity);
        }
        if let Ok(pid) = result {
            self.files.restore_for(pid);
        }
        result
    }

    /// Many tasks at once need more descriptors than a process may open by
    /// default; how many it may open in the end is the administrator's choice.
    fn take_slot_making_room(&mut self) -> io::Result<usize> {
        match self.take_slot() {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.files.raise()?;
                self.take_slot()
            }
            other => other,
        }
    }

    fn take_slot(&mut self) -> io::Result<usize> {
        let slot = if let Some(&slot) = self.free.first() {
            slot
        } else {
            self.slots.push(Slot {
                attempt: None,
                pipes: None,
                cradle: Cradle::new(self.environment.clone(), self.signals.original()),
            });
            let slot = self.slots.len() - 1;
            self.free.insert(slot);
            slot
        };
        if self.slots[slot].pipes.is_none() && self.settings.output != Output::Inherit {
            self.files.ensure(self.slots.len())?;
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

/// The folder an attempt runs in, if it is not ours.
fn folder_of(job: &Job<'_>) -> Result<Option<CString>, String> {
    let Some(folder) = job.folder else {
        return Ok(None);
    };
    if !folder.is_dir() {
        return Err(format!("no such folder: {}", folder.display()));
    }
    CString::new(folder.as_os_str().as_bytes())
        .map(Some)
        .map_err(|_| "the folder's name has a NUL byte in it".to_owned())
}

/// Pins this thread, and so what it starts next.
fn pin(cores: &[CoreId]) {
    if cores.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    for core in cores {
        let core = core.0 as usize;
        if core < CpuSet::MAX_CPU {
            set.set(core);
        }
    }
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
