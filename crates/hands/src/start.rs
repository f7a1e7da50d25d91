//! Starting an attempt: the words to execute, the pipes, the environment, the
//! cores, and what there is to say when it cannot be started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd as _;

use packhorse_model::{Command, CoreId};
use rustix::process::Pid;
use rustix::thread::CpuSet;

use crate::family::{MARK_ATTEMPT, MARK_TASK};
use crate::pipes::Pipes;
use crate::spawn::spawn;
use crate::supervisor::{Slot, TOKEN_STDERR, TOKEN_STDOUT};
use crate::words::plain_words;
use crate::{Hands, Job, Output};

/// One argument of an `execve` may be 128 KiB long (32 pages), its NUL included.
const LONGEST_WORD: usize = 128 * 1024;

impl Hands {
    pub(crate) fn try_start(&mut self, job: Job<'_>) -> Result<(usize, Pid), String> {
        let program = self.prepare(&job)?;
        let slot = self
            .take_slot_making_room()
            .map_err(|error| format!("cannot make pipes for its output: {error}"))?;
        self.environment.clear();
        self.environment
            .add(MARK_TASK, OsStr::new(&job.task.to_string()));
        self.environment
            .add(MARK_ATTEMPT, OsStr::new(&job.attempt.to_string()));
        for (name, value) in job.environment {
            self.environment.add(name, OsStr::new(value));
        }
        pin(job.cores);
        let result = self.execute(slot, &program, &job);
        if !job.cores.is_empty() {
            let _ = rustix::thread::sched_setaffinity(None, &self.affinity);
        }
        match result {
            Ok(pid) => {
                self.files.restore_for(pid);
                Ok((slot, pid))
            }
            Err(message) => {
                self.free.insert(slot);
                Err(message)
            }
        }
    }

    /// Lays out the words to execute, and says which program.
    fn prepare(&mut self, job: &Job<'_>) -> Result<Vec<u8>, String> {
        self.words.clear();
        match job.command {
            Command::Words(words) => {
                if words.iter().any(|word| word.contains(&0)) {
                    return Err("the command has a NUL byte in it".to_owned());
                }
                for word in words {
                    self.words.add(word);
                }
                words
                    .first()
                    .cloned()
                    .ok_or_else(|| "the command is empty".to_owned())
            }
            Command::Line(line) => {
                if line.contains(&0) {
                    return Err("the command has a NUL byte in it".to_owned());
                }
                if let Some(words) = plain_words(line) {
                    for word in &words {
                        self.words.add(word);
                    }
                    return Ok(words[0].to_owned());
                }
                self.words.add(b"sh");
                if line.len() < LONGEST_WORD {
                    self.words.add(b"-c");
                    self.words.add(line);
                } else {
                    self.words.add(self.script(job, line)?.as_encoded_bytes());
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

    fn execute(&mut self, slot: usize, program: &[u8], job: &Job<'_>) -> Result<Pid, String> {
        let stdio = match &self.slots[slot].pipes {
            Some(pipes) => &pipes.stdio,
            None => &self.inherit,
        };
        let name = || String::from_utf8_lossy(program).into_owned();
        let not_found = || {
            if program.contains(&b'/') {
                format!("no such file: {}", name())
            } else {
                format!("command not found: {}", name())
            }
        };
        for fresh in [false, true] {
            let file = self.programs.find(program).ok_or_else(not_found)?;
            let result = spawn(
                file,
                &mut self.words,
                &mut self.environment,
                stdio,
                &self.attributes,
            );
            let error = match result {
                Ok(pid) => return Ok(pid),
                Err(error) => error,
            };
            match rustix::io::Errno::from_io_error(&error) {
                // It may have moved since we looked; or its interpreter is missing.
                Some(rustix::io::Errno::NOENT) if !fresh => self.programs.forget(program),
                Some(rustix::io::Errno::NOENT) => return Err(not_found()),
                // A script without `#!`: a shell would run it, so we do.
                Some(rustix::io::Errno::NOEXEC) => {
                    let file = file.clone();
                    self.words.replace_first(&[b"sh", file.as_bytes()]);
                    return spawn(
                        c"/bin/sh",
                        &mut self.words,
                        &mut self.environment,
                        stdio,
                        &self.attributes,
                    )
                    .map_err(|error| format!("cannot start {}: {error}", name()));
                }
                Some(rustix::io::Errno::TOOBIG) => {
                    let length = match job.command {
                        Command::Line(line) => line.len(),
                        Command::Words(words) => words.iter().map(|word| word.len() + 1).sum(),
                    };
                    return Err(format!(
                        "its {length} bytes of arguments are more than the kernel takes"
                    ));
                }
                _ => return Err(format!("cannot start {}: {error}", name())),
            }
        }
        Err(not_found())
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
            self.slots.push(Slot::default());
            let slot = self.slots.len() - 1;
            self.free.insert(slot);
            slot
        };
        if self.slots[slot].pipes.is_none() && self.settings.output != Output::Inherit {
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
