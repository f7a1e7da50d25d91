//! What happened since the last look.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::time::Instant;

use rustix::event::{Timespec, epoll};
use rustix::process::Pid;

use crate::Supervisor;
use crate::attempt::{EndReason, StragglersEnd};
use crate::exit::{ProcessEnd, end_of, reap_any};
use crate::process_tree::to_pid;
use crate::supervisor::{
    BUFFER, Slot, TOKEN_LEADER, TOKEN_ORPHAN, TOKEN_PYTHON, TOKEN_PYTHON_END, TOKEN_STDERR,
    TOKEN_STDOUT, TOKEN_TIMER,
};
use packhorse_model::{OutputMode, ProcessEvent, StopMode, Stream};

/// How many events are taken from the kernel at once.
const EVENTS: usize = 64;
/// How much is read from one attempt before the others get their turn.
const TURN: usize = 4;
/// How much is read at an attempt's end: a pipe holds no more than this, whatever
/// a task made of it, unless somebody we do not know of still writes.
pub(crate) const LAST_TURNS: usize = 32;

impl Supervisor {
    /// Reports all that has happened, and does what follows from it. It never
    /// blocks. To be called when the descriptor is readable, and with
    /// [`EndNotice::Sigchld`](crate::EndNotice::Sigchld) when that signal has come.
    ///
    /// If more has happened than is taken at once, the descriptor stays readable,
    /// or becomes so again: whoever waits for edges misses nothing.
    pub fn drain(&mut self, events: &mut Vec<ProcessEvent>) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let now = Timespec::default();
        let happened = match epoll::wait(&self.epoll, &mut buffer, Some(&now)) {
            Ok((happened, _)) => &*happened,
            Err(rustix::io::Errno::INTR) => &[],
            Err(error) => return Err(error.into()),
        };
        self.more = happened.len() == EVENTS;
        let tokens = happened.iter().map(|event| split(event.data.u64()));
        let mut is_due = false;
        // Output before ends: what was written before an end is told before it.
        for (kind, low) in tokens.clone() {
            match kind {
                TOKEN_STDOUT => self.take_output(low as usize, Stream::Stdout, TURN),
                TOKEN_STDERR => self.take_output(low as usize, Stream::Stderr, TURN),
                TOKEN_TIMER => {
                    self.deadlines.set_off();
                    is_due = true;
                }
                _ => {}
            }
        }
        // Who was forked is known before its end.
        for (kind, low) in tokens.clone() {
            match kind {
                TOKEN_PYTHON => self.hear_python(low),
                TOKEN_PYTHON_END => self.python_ended(low),
                _ => {}
            }
        }
        let mut has_ended = std::mem::take(&mut self.unsettled);
        for (kind, low) in tokens {
            match kind {
                TOKEN_LEADER => has_ended |= self.leader_changed(low as usize),
                TOKEN_ORPHAN => {
                    has_ended |= to_pid(low).is_some_and(|pid| self.orphan_changed(pid));
                }
                _ => {}
            }
        }
        if !self.uses_handles() {
            while let Some((pid, end)) = reap_any() {
                has_ended |= self.child_ended(pid, end);
            }
        }
        if is_due {
            has_ended |= self.act_on_deadlines();
        }
        if has_ended && !self.ending.is_empty() {
            self.settle_ending();
        }
        events.append(&mut self.ready);
        self.set_timer();
        Ok(())
    }

    /// Acts on attempts whose time is over. Whether some of them have to be settled.
    fn act_on_deadlines(&mut self) -> bool {
        let now = Instant::now();
        let mut settle = false;
        while let Some(slot) = self.deadlines.take_due(now) {
            if self.slots[slot].waiting.is_some() {
                self.waited_too_long(slot);
                continue;
            }
            let Slot { attempt: Some(attempt), buffer, .. } = &mut self.slots[slot] else {
                continue;
            };
            attempt.deadline = None;
            if attempt.end.is_some() {
                match attempt.stragglers_end {
                    StragglersEnd::Awaited => attempt.stragglers_end = StragglersEnd::Asked,
                    StragglersEnd::Killed => attempt.stragglers_end = StragglersEnd::GivenUp,
                    _ if attempt.stragglers > 0 => attempt.stopped = Some(StopMode::Kill),
                    _ => {}
                }
                settle = true;
            } else if attempt.proceed(buffer, now) {
                self.deadlines.change(slot, None, attempt.deadline);
            } else if attempt.stopped.is_none() {
                self.request_end(slot, StopMode::Terminate, EndReason::TimeLimit, now);
            } else {
                self.request_end(slot, StopMode::Kill, EndReason::Asked, now);
            }
        }
        settle
    }

    /// Moves output from the pipe to where it goes, at most `turns` buffers.
    pub(crate) fn take_output(&mut self, slot: usize, stream: Stream, turns: usize) {
        let Slot { attempt, pipes, log, metrics, output, .. } = &mut self.slots[slot];
        let attempt = attempt.as_ref().filter(|_| output.is_piped());
        let (Some(attempt), Some(reader)) = (attempt, pipes.as_ref()) else {
            // Nobody's output: whoever writes it gets a pipe without an end.
            *pipes = None;
            return;
        };
        for _ in 0..turns {
            let Some(bytes) = reader.read(stream, &mut self.buffer) else {
                return;
            };
            if let Err(error) = log.write(stream, bytes) {
                self.ready.push(ProcessEvent::Trouble {
                    task: attempt.task,
                    message: format!("the rest of its output is lost: {error}"),
                });
            }
            let full = bytes.len() == BUFFER;
            if *output == OutputMode::Lines {
                self.ready.push(ProcessEvent::Output {
                    task: attempt.task,
                    stream,
                    bytes: bytes.to_vec(),
                });
            }
            if metrics.read(stream, bytes) {
                self.ready.extend(metrics.take(attempt.task, attempt.number));
            }
            if !full {
                return;
            }
        }
        self.more = true;
    }

    /// Looks whether a leader has ended. Whether its attempt has to be settled.
    fn leader_changed(&mut self, slot: usize) -> bool {
        let Some(attempt) = &mut self.slots[slot].attempt else {
            return false;
        };
        let Some(handle) = &attempt.handle else {
            return false;
        };
        let start_time = attempt.leader_start_time();
        let Some(end) = end_of(handle.as_fd(), attempt.leader, start_time) else {
            // It is being traced, or its parent has not reaped it: the handle is
            // readable, and has an edge when that changes.
            if !std::mem::replace(&mut attempt.is_watched_for_edges, true) {
                let data = epoll::EventData::new_u64(TOKEN_LEADER | slot as u64);
                let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let _ = epoll::modify(&self.epoll, handle, data, edges);
            }
            return false;
        };
        self.leader_ended(slot, end)
    }

    /// A child of ours has ended, and is reaped. Whether attempts have to be settled.
    fn child_ended(&mut self, pid: Pid, end: ProcessEnd) -> bool {
        let leads = self.by_leader.get(&pid).copied();
        if let Some(slot) = leads.filter(|slot| self.has_leader(Some(slot))) {
            return self.leader_ended(slot, end);
        }
        self.orphans.remove(&pid);
        self.of_others.remove(&pid);
        self.pythons.note_end(pid, end);
        self.spared.retain(|&spared| spared != pid);
        true
    }

    /// A leader has ended, and is reaped. Whether its attempt has to be settled.
    fn leader_ended(&mut self, slot: usize, end: ProcessEnd) -> bool {
        let Slot { attempt: Some(attempt), buffer, .. } = &mut self.slots[slot] else {
            return false;
        };
        if buffer.error().is_some() && attempt.stopped.is_none() && !attempt.is_adopted() {
            self.start_again(slot);
            return false;
        }
        self.with_attempt(slot, |attempt, _| attempt.leader_ended(end));
        self.ending.push(slot);
        true
    }
}

/// What a token says: what it is of, and which of these.
fn split(token: u64) -> (u64, u32) {
    let low = token & u64::from(u32::MAX);
    (token - low, u32::try_from(low).unwrap_or_default())
}
