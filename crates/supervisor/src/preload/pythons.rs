//! The Pythons that attempts are forked from: their starts, what they tell, their ends.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use packhorse_model::{Outcome, ProcessEvent, TaskId};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::Pid;

use super::key::PythonKey;
use super::python::{Message, PreloadedPython};
use crate::Supervisor;
use crate::exit::{ProcessEnd, end_of};
use crate::supervisor::{BUFFER, TOKEN_PYTHON, TOKEN_PYTHON_END};

/// How many Pythons are kept. Each holds its modules in memory.
const MOST_PYTHONS: usize = 8;
/// How long one may take to end when it is killed.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// The Pythons that attempts are forked from.
#[derive(Default)]
pub(crate) struct Pythons {
    pub(super) list: FxHashMap<u32, PreloadedPython>,
    /// How many there have been.
    started: u32,
    /// The slots of requests that have not been answered, by the number of the request.
    pub(super) requests: FxHashMap<u64, usize>,
    pub(super) requested: u64,
    /// What has been told, which is told once.
    told: FxHashSet<String>,
}

impl Pythons {
    /// One of them was reaped, if it is one of them.
    pub(crate) fn note_end(&mut self, pid: Pid, end: ProcessEnd) {
        if let Some(python) = self.list.values_mut().find(|python| python.pid == pid) {
            python.end = Some(end);
        }
    }

    /// The one to fork from.
    pub(super) fn find(&self, key: &PythonKey) -> Option<u32> {
        let mut list = self.list.iter();
        let found = list.find(|(_, python)| !python.is_ending && python.key == *key);
        found.map(|(&id, _)| id)
    }

    /// Ends those that were not needed for the longest time, until at most so many are kept.
    /// One that is at work is not ended.
    fn keep_at_most(&mut self, most: usize) {
        loop {
            let kept = self.list.values().filter(|python| !python.is_ending);
            if kept.count() <= most {
                return;
            }
            let idle = self.list.values_mut().filter(|python| python.is_idle());
            let idle = idle.filter(|python| !python.is_ending);
            match idle.min_by_key(|python| python.last_used) {
                Some(oldest) => oldest.kill(),
                None => return,
            }
        }
    }
}

impl Supervisor {
    pub(super) fn tell_once(&mut self, task: TaskId, message: String) {
        if self.pythons.told.insert(message.clone()) {
            self.ready.push(ProcessEvent::Trouble { task, message });
        }
    }

    pub(super) fn start_python(&mut self, key: &PythonKey, folder: &Path) -> Result<u32, String> {
        self.pythons.keep_at_most(MOST_PYTHONS - 1);
        let limit = self.descriptor_limit.for_children();
        let failed = |error: std::io::Error| format!("no Python can be started: {error}");
        let started = PreloadedPython::start(key.clone(), folder, &self.inheritance, limit);
        let mut python = started.map_err(failed)?;
        self.pythons.started += 1;
        let id = self.pythons.started;
        let watched =
            self.watch(python.handle.as_fd(), TOKEN_PYTHON_END | u64::from(id)).and_then(|()| {
                let data = epoll::EventData::new_u64(TOKEN_PYTHON | u64::from(id));
                let flags = epoll::EventFlags::IN;
                Ok(epoll::add(&self.epoll, &python.control, data, flags)?)
            });
        if let Err(error) = watched {
            python.kill();
            let _ = end_within(&python, KILL_GRACE);
            return Err(failed(error));
        }
        self.spared.push(python.pid);
        self.buffer.resize(BUFFER, 0);
        self.pythons.list.insert(id, python);
        Ok(id)
    }

    pub(super) fn has_in_flight(&self, id: u32) -> bool {
        let python = self.pythons.list.get(&id);
        python.is_some_and(|python| python.in_flight > 0)
    }

    /// A Python has told something.
    pub(crate) fn hear_python(&mut self, id: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(python) = self.pythons.list.get_mut(&id) {
            match python.hear(&mut buffer) {
                Message::Nothing => break,
                Message::Closed => {
                    // Its end is told by its handle.
                    let _ = epoll::delete(&self.epoll, &python.control);
                    break;
                }
                Message::Ready => python.is_ready = true,
                Message::Text(text) => python.note_text(&text),
                Message::Notice(text) => {
                    let mut waiting = self.waiting_for(id);
                    let slot = waiting.next();
                    let task = slot.and_then(|slot| self.slots[slot].waiting.as_ref());
                    let task = task.map(|waiting| waiting.job.task);
                    drop(waiting);
                    if let Some(task) = task {
                        self.tell_once(task, text);
                    }
                }
                Message::Failed { why, trace } => {
                    python.is_ending = true;
                    self.fail_waiting(id, &why, &trace);
                }
                Message::Forked { request, pid } => {
                    python.in_flight = python.in_flight.saturating_sub(1);
                    if let Some(pid) = Pid::from_raw(pid) {
                        self.forked(request, pid);
                    }
                }
                Message::Unforked { request, error } => {
                    python.in_flight = python.in_flight.saturating_sub(1);
                    if let Some(slot) = self.pythons.requests.remove(&request) {
                        self.not_forked(slot, Errno::from_raw_os_error(error));
                    }
                }
            }
        }
        self.buffer = buffer;
        self.send_requests(id);
        // While all were at work there may have been more.
        self.pythons.keep_at_most(MOST_PYTHONS);
    }

    pub(super) fn is_ready(&self, id: u32) -> bool {
        let python = self.pythons.list.get(&id);
        python.is_some_and(|python| python.is_ready)
    }

    /// Ends a Python that may never answer, unless somebody still waits for it.
    pub(super) fn end_if_stuck(&mut self, id: u32, may_be_stuck: bool) {
        let is_wanted = self.waiting_for(id).next().is_some();
        if may_be_stuck
            && !is_wanted
            && let Some(python) = self.pythons.list.get_mut(&id)
        {
            python.kill();
        }
    }

    pub(crate) fn python_ended(&mut self, id: u32) {
        self.hear_python(id);
        let Some(python) = self.pythons.list.remove(&id) else {
            return;
        };
        let end = end_of(python.handle.as_fd(), python.pid, None);
        let end = python.end.or(end).unwrap_or(ProcessEnd::Unseen);
        self.spared.retain(|&spared| spared != python.pid);
        let modules = python.key.list();
        let how = match end {
            ProcessEnd::Exited(code) => format!("ended with status {code}"),
            ProcessEnd::Signaled(signal) => format!("was {}", Outcome::Killed { signal }),
            ProcessEnd::Unseen => "ended".to_owned(),
        };
        let said = python.last_words();
        let waiting: Vec<usize> = self.waiting_for(id).collect();
        for slot in waiting {
            // A Python that ends by itself while it imports does so again.
            let is_hopeless = !python.is_ready && matches!(end, ProcessEnd::Exited(_));
            if !is_hopeless && self.ask_again(slot) {
                continue;
            }
            let last = said.trim_ascii_end().rsplit(|&byte| byte == b'\n').next();
            let last = String::from_utf8_lossy(last.unwrap_or_default().trim_ascii());
            let last = if last.is_empty() { String::new() } else { format!(": {last}") };
            let message = format!("cannot preload {modules}: Python {how}{last}");
            self.write_trace(slot, &said);
            self.end_waiting(slot, Outcome::NotStarted, Some(message));
        }
    }

    /// Ends all Pythons.
    pub(crate) fn end_pythons(&mut self) {
        for python in self.pythons.list.values_mut() {
            python.kill();
        }
        for (_, python) in self.pythons.list.drain() {
            if end_within(&python, KILL_GRACE).is_some() {
                self.spared.retain(|&spared| spared != python.pid);
            }
        }
    }
}

/// How a Python ends that has been killed, if it does so in time.
fn end_within(python: &PreloadedPython, time: Duration) -> Option<ProcessEnd> {
    let time = Timespec::try_from(time).unwrap_or_default();
    let _ = poll(&mut [PollFd::new(&python.handle, PollFlags::IN)], Some(&time));
    end_of(python.handle.as_fd(), python.pid, None)
}
