//! Asking for attempts to be forked, and what comes of it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use packhorse_model::{AttemptEnd, Command, Outcome, OutputMode, ProcessEvent, Stream, TaskId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::command::{PythonCommand, PythonTarget};
use super::key::PythonKey;
use super::python::MOST_IN_FLIGHT;
use crate::argv::plain_words;
use crate::spawn::Child;
use crate::start::attempt_of;
use crate::supervisor::TOKEN_LEADER;
use crate::{Job, Supervisor};

/// An attempt that has been asked for.
pub(crate) struct WaitingStart {
    pub(super) job: Job,
    started: Instant,
    deadline: Option<Instant>,
    python: u32,
    /// What the fork is to become.
    request: Vec<u8>,
    /// The number of the request that has been sent, and the gate that its process waits
    /// at: it goes on when a byte comes through, and ends when this is closed.
    sent: Option<(u64, OwnedFd)>,
    /// A Python has died over it.
    is_second: bool,
}

impl Supervisor {
    /// Has the attempt that is laid out in a slot forked from a Python with its modules,
    /// if that can be. Else it is told once why it is started as ever.
    pub(crate) fn ask_for_fork(&mut self, slot: usize, job: &Job) -> bool {
        match self.prepare_fork(slot, job) {
            Ok((python, request)) => {
                let started = Instant::now();
                let deadline = job.time_limit.and_then(|limit| started.checked_add(limit));
                self.slots[slot].buffer.forget_error();
                self.slots[slot].waiting = Some(WaitingStart {
                    job: job.clone(),
                    started,
                    deadline,
                    python,
                    request,
                    sent: None,
                    is_second: false,
                });
                self.by_task.insert(job.task, slot);
                self.deadlines.change(slot, None, deadline);
                self.queue_request(slot, python);
                true
            }
            Err(reason) => {
                self.tell_once(job.task, format!("nothing is preloaded for it: {reason}"));
                false
            }
        }
    }

    /// The Python to fork from, which is started if there is none, and what to ask it for.
    fn prepare_fork(&mut self, slot: usize, job: &Job) -> Result<(u32, Vec<u8>), String> {
        if let Command::Line(line) = &*job.command
            && plain_words(line).is_none()
        {
            return Err("its command line is the shell's".to_owned());
        }
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let folder = match &job.folder {
            Some(folder) => here.join(folder),
            None => here,
        };
        let buffer = &mut *self.slots[slot].buffer;
        let words: Vec<&[u8]> = buffer.argv.words().collect();
        let command = PythonCommand::parse(&words)?;
        let search = command.search_folder(&folder)?;
        let path = buffer.environment.own_value(b"PATH");
        let Some((file, _)) = self.programs.find(&buffer.program, path) else {
            return Err("there is no such Python".to_owned());
        };
        let environment = &buffer.environment;
        let key =
            PythonKey::new(file, words[0], &command, &job.preload, search, &folder, environment);
        let request = request(&command, &words, &key.search, &folder, job);
        let mut request = request.join(&0);
        for entry in buffer.environment.all() {
            request.push(0);
            request.extend_from_slice(entry);
        }
        let python = match self.pythons.find(&key) {
            Some(python) => python,
            None => self.start_python(&key, &folder)?,
        };
        Ok((python, request))
    }

    fn queue_request(&mut self, slot: usize, id: u32) {
        self.pythons.requested += 1;
        if let Some(python) = self.pythons.list.get_mut(&id) {
            python.last_used = self.pythons.requested;
            python.queue.push_back(slot);
        }
        self.send_requests(id);
    }

    /// Sends what it can be asked now.
    pub(super) fn send_requests(&mut self, id: u32) {
        while let Some(python) = self.pythons.list.get_mut(&id)
            && python.is_ready
            && !python.is_ending
            && python.in_flight < MOST_IN_FLIGHT
            && let Some(slot) = python.queue.pop_front()
        {
            match self.send_request(slot, id) {
                Ok(()) => {}
                Err(Errno::AGAIN) if self.has_in_flight(id) => {
                    if let Some(python) = self.pythons.list.get_mut(&id) {
                        python.queue.push_front(slot);
                    }
                    return;
                }
                // It is gone: its end is about to be noticed.
                Err(Errno::PIPE | Errno::CONNRESET) => return,
                Err(error) => self.not_forked(slot, error),
            }
        }
    }

    fn send_request(&mut self, slot: usize, id: u32) -> Result<(), Errno> {
        let [input, output, errors] = self.stdio(slot);
        let flags = SocketFlags::CLOEXEC;
        let (gate, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (Some(waiting), Some(python)) =
            (&mut self.slots[slot].waiting, self.pythons.list.get_mut(&id))
        else {
            return Ok(());
        };
        self.pythons.requested += 1;
        let number = self.pythons.requested;
        let input = input.unwrap_or_default();
        let numbers = [input, output.unwrap_or(1), errors.unwrap_or(2)];
        // SAFETY: they are the slot's or the supervisor's own, or the program's output,
        // and stay open during the call.
        let stdio = numbers.map(|number| unsafe { BorrowedFd::borrow_raw(number) });
        let sent = python.request(number, &waiting.request, theirs.as_fd(), stdio);
        sent.map_err(|error| error_number(&error))?;
        python.in_flight += 1;
        waiting.sent = Some((number, gate));
        self.pythons.requests.insert(number, slot);
        Ok(())
    }

    /// The slots whose attempts wait for a Python.
    pub(super) fn waiting_for(&self, id: u32) -> impl Iterator<Item = usize> + use<'_> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(slot, it)| {
            let waiting = it.waiting.as_ref()?;
            (waiting.python == id).then_some(slot)
        })
    }

    /// A process has been forked, is our child, and waits at its gate.
    pub(super) fn forked(&mut self, request: u64, pid: Pid) {
        self.spared.retain(|&spared| spared != pid);
        self.unknown.remove(&pid);
        let handle = pidfd_open(pid, PidfdFlags::empty());
        let Some(slot) = self.pythons.requests.remove(&request) else {
            // It is shut out. Somebody has to reap it.
            if let Ok(handle) = handle
                && !self.orphans.contains_key(&pid)
            {
                self.watch_straggler(pid, handle, None);
            }
            return;
        };
        self.orphans.remove(&pid);
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => return self.not_forked(slot, error),
        };
        if self.watch(handle.as_fd(), TOKEN_LEADER | slot as u64).is_err() {
            return self.not_forked(slot, Errno::NOMEM);
        }
        let Some(waiting) = self.slots[slot].waiting.take() else {
            return;
        };
        let leader = Child { pid, handle: Some(handle) };
        self.insert_attempt(slot, attempt_of(&waiting.job, leader, waiting.started));
        if let Some((_, gate)) = &waiting.sent {
            // One that was killed meanwhile has an end like any other.
            let _ = send(gate, b"!", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        self.ready
            .push(ProcessEvent::Started { task: waiting.job.task, attempt: waiting.job.attempt });
    }

    /// What was asked for was not forked, or was killed before it did anything.
    pub(super) fn not_forked(&mut self, slot: usize, error: Errno) {
        let is_short = matches!(error, Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE);
        if is_short && self.running() > 1 {
            // Whatever ends gives something back.
            if let Some(waiting) = self.take_waiting(slot) {
                self.deferred.jobs.push_back(waiting.job);
            }
            return;
        }
        if error == Errno::SRCH && self.ask_again(slot) {
            return;
        }
        let message = format!("it cannot be forked: {}", std::io::Error::from(error));
        self.end_waiting(slot, Outcome::NotStarted, Some(message));
    }

    /// Asks for an attempt a second time, of the same Python or another one.
    pub(super) fn ask_again(&mut self, slot: usize) -> bool {
        let Some(waiting) = &mut self.slots[slot].waiting else {
            return true;
        };
        if std::mem::replace(&mut waiting.is_second, true) {
            return false;
        }
        if let Some((request, _)) = waiting.sent.take() {
            self.pythons.requests.remove(&request);
        }
        let job = waiting.job.clone();
        let Ok((python, request)) = self.prepare_fork(slot, &job) else {
            return false;
        };
        if let Some(waiting) = &mut self.slots[slot].waiting {
            waiting.python = python;
            waiting.request = request;
        }
        self.queue_request(slot, python);
        true
    }

    /// A Python could not import its modules, for whoever waits for that.
    pub(super) fn fail_waiting(&mut self, id: u32, why: &str, trace: &[u8]) {
        let waiting: Vec<usize> = self.waiting_for(id).collect();
        for slot in waiting {
            self.write_trace(slot, trace);
            self.end_waiting(slot, Outcome::NotStarted, Some(why.to_owned()));
        }
    }

    /// What Python says of a failure is the attempt's output.
    pub(super) fn write_trace(&mut self, slot: usize, trace: &[u8]) {
        let output = self.slots[slot].output;
        if output == OutputMode::Inherit || trace.is_empty() {
            return;
        }
        // The message says the most important thing.
        let _ = self.slots[slot].log.write(Stream::Stderr, trace);
        if output == OutputMode::Lines
            && let Some(waiting) = &self.slots[slot].waiting
        {
            self.ready.push(ProcessEvent::Output {
                task: waiting.job.task,
                stream: Stream::Stderr,
                bytes: trace.to_vec(),
            });
        }
    }

    /// Takes back what was asked for, and tells how that ends.
    pub(super) fn end_waiting(&mut self, slot: usize, outcome: Outcome, message: Option<String>) {
        let Some(waiting) = self.take_waiting(slot) else {
            return;
        };
        self.ready.push(ProcessEvent::Ended(AttemptEnd {
            task: waiting.job.task,
            attempt: waiting.job.attempt,
            outcome,
            message,
            took: waiting.started.elapsed(),
        }));
        self.start_deferred();
    }

    /// Takes back what was asked for, and frees its slot.
    fn take_waiting(&mut self, slot: usize) -> Option<WaitingStart> {
        let waiting = self.slots[slot].waiting.take()?;
        self.deadlines.change(slot, waiting.deadline, None);
        self.by_task.remove(&waiting.job.task);
        if let Some((request, _)) = &waiting.sent {
            self.pythons.requests.remove(request);
        }
        if let Some(python) = self.pythons.list.get_mut(&waiting.python) {
            python.queue.retain(|&other| other != slot);
        }
        self.slots[slot].log.close();
        self.free.insert(slot);
        Some(waiting)
    }

    /// Takes back what was asked for of a task.
    pub(crate) fn stop_waiting(&mut self, task: TaskId) {
        if let Some(&slot) = self.by_task.get(&task)
            && let Some(waiting) = &self.slots[slot].waiting
        {
            let id = waiting.python;
            self.end_waiting(slot, Outcome::Interrupted, None);
            self.end_if_stuck(id, !self.is_ready(id));
        }
    }

    /// The time of an attempt is over that is not there yet.
    pub(crate) fn waited_too_long(&mut self, slot: usize) {
        let Some(waiting) = &self.slots[slot].waiting else {
            return;
        };
        let id = waiting.python;
        let python = self.pythons.list.get(&id);
        let message = python.map(|python| {
            let modules = python.key.list();
            if python.is_ready {
                "it was not forked in time".to_owned()
            } else {
                format!("{modules} could not be preloaded in time")
            }
        });
        let is_answering = waiting.sent.is_none() && self.is_ready(id);
        self.end_waiting(slot, Outcome::TimedOut, message);
        self.end_if_stuck(id, !is_answering);
    }
}

fn error_number(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// What a fork is to become, but for its environment.
fn request(
    command: &PythonCommand<'_>,
    words: &[&[u8]],
    search: &Path,
    folder: &Path,
    job: &Job,
) -> Vec<Vec<u8>> {
    let (kind, target) = match command.target {
        PythonTarget::Script(script) => (&b"script"[..], script),
        PythonTarget::Module(module) => (&b"m"[..], module),
        PythonTarget::Code(code) => (&b"c"[..], code),
    };
    let cores: Vec<String> = job.cores.iter().map(ToString::to_string).collect();
    let mut request = vec![
        kind.to_vec(),
        search.as_os_str().as_bytes().to_vec(),
        folder.as_os_str().as_bytes().to_vec(),
        cores.join(",").into_bytes(),
        target.to_vec(),
        command.skip.to_string().into_bytes(),
        words.len().to_string().into_bytes(),
    ];
    request.extend(words.iter().map(|word| word.to_vec()));
    request
}
