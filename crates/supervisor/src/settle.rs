//! The end of an attempt: what its leader left behind is found and ended.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use packhorse_model::{OutputMode, ProcessEvent, StopMode, Stream, TaskId};
use packhorse_proc::{ProcEntry, has_ended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use crate::Supervisor;
use crate::attempt::StragglersEnd;
use crate::drain::LAST_TURNS;
use crate::exit;
use crate::process_tree::{
    find_in_group, find_marked, is_executing, is_marked, is_service, number, signal_straggler,
    to_pid,
};
use crate::slot_outputs::SlotOutputs;
use crate::supervisor::{Slot, TOKEN_ORPHAN};

/// How long stragglers have to end by themselves. Helpers of a program often notice its end
/// by a pipe that closes: Python's `multiprocessing` has such ones.
const STRAGGLER_MOMENT: Duration = Duration::from_millis(200);
/// How long stragglers have between SIGTERM and SIGKILL.
const STRAGGLER_GRACE: Duration = Duration::from_secs(2);
/// How long they may take to end when they are killed. On a machine with far too
/// much to do it can be seconds until they get their turn to do so.
const KILL_GRACE: Duration = Duration::from_secs(10);
/// When to look again at a process that is executing its program: nothing tells
/// when it has.
const EXECUTION: Duration = Duration::from_millis(10);

/// How many buffers of a log are read before others get their turn: a mebibyte.
const SCAN_TURNS: usize = 16;

/// An orphan that is watched until it ends.
pub(crate) struct WatchedOrphan {
    handle: OwnedFd,
    /// The attempt it came from, if that could be told when it was found.
    owner: Option<(TaskId, u32)>,
}

/// A child that we did not start, and the slot of the attempt it came from, if that
/// can be told.
#[derive(Clone, Copy)]
struct Orphan {
    pid: Pid,
    slot: Option<usize>,
}

/// Children that we did not start.
#[derive(Default)]
struct FoundOrphans {
    list: Vec<Orphan>,
    /// There was somebody who could not be placed because it was executing its
    /// program.
    is_executing: bool,
    /// The outputs that such a child may hold, once they are needed.
    outputs: Option<SlotOutputs>,
}

impl Supervisor {
    /// Reaps orphans of running attempts that have ended.
    ///
    /// Orphans are looked for whenever the leader of an attempt has ended; until
    /// then those that end of themselves stay as zombies. A program whose attempts
    /// run for days and fork much can call this when it gets SIGCHLD, or now and
    /// then.
    ///
    /// With [`Children::All`] every ended child that is not spared is reaped. With
    /// [`Children::Marked`] it is only what is known to be an attempt's: a member of
    /// its process group, or one whose mark was seen while it lived. What left the
    /// group and ended before it was ever seen cannot be told from the program's
    /// own children, and stays a zombie as long as the program runs.
    pub fn reap_orphans(&mut self) {
        self.find_orphans();
        self.unsettled = !self.ending.is_empty();
        self.set_timer();
    }

    /// Ends what is left of descendants that belong to no attempt: processes
    /// that cleared their environment and left their group (with
    /// [`Children::All`]). What cannot be ended is left after a while: this may
    /// block for 10 seconds.
    pub fn finish(&mut self) {
        self.end_pythons();
        let end = Instant::now() + KILL_GRACE;
        loop {
            let found = self.find_orphans();
            let mut left = end.saturating_duration_since(Instant::now());
            let none = found.list.is_empty() && !found.is_executing;
            if none || left.is_zero() || self.abandoned {
                break;
            }
            if found.is_executing {
                left = left.min(EXECUTION);
            }
            for orphan in found.list {
                signal_straggler(orphan.pid, Signal::KILL);
            }
            let handles = self.orphans.values().map(|orphan| &orphan.handle);
            let mut handles: Vec<PollFd<'_>> =
                handles.map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
            let left = Timespec::try_from(left).unwrap_or_default();
            let _ = poll(&mut handles, Some(&left));
            let watched: Vec<Pid> = self.orphans.keys().copied().collect();
            for pid in watched {
                self.orphan_changed(pid);
            }
        }
        self.unsettled = !self.ending.is_empty();
        self.set_timer();
    }

    /// Finds our orphans, reaps those that have ended, and watches the others.
    fn find_orphans(&mut self) -> FoundOrphans {
        let mut found = FoundOrphans::default();
        let mut listed = std::mem::take(&mut self.listed);
        self.child_list.read(&mut listed);
        let is_ours =
            |pid: &Pid| self.has_leader(self.by_leader.get(pid)) || self.spared.contains(pid);
        listed.retain(|pid| !is_ours(pid));
        let known = std::mem::take(&mut self.unknown);
        self.of_others.retain(|pid| listed.contains(pid));
        listed.retain(|pid| !self.of_others.contains(pid));
        for &pid in &listed {
            if known.contains(&pid) {
                self.unknown.insert(pid);
            } else {
                self.find_orphan(pid, &mut found);
            }
        }
        self.listed = listed;
        found
    }

    /// Looks whether a child that we did not start is our orphan and lives.
    fn find_orphan(&mut self, pid: Pid, found: &mut FoundOrphans) {
        let all = self.children.are_all_ours();
        // Every child is ours to reap then, whoever's it was.
        if all && self.reap_orphan(pid) {
            return;
        }
        let known = self.orphans.get(&pid);
        let mut slot = self.attempt_of(pid);
        if let Some(orphan) = known {
            // It may have left its group and its mark since it was found.
            slot = slot.or_else(|| self.slot_of(orphan.owner?));
        } else if slot.is_none() {
            if all && is_service(pid) {
                self.spared.push(pid);
                return;
            }
            if is_executing(pid) {
                // It may be one.
                found.is_executing = true;
                return;
            }
            if !all {
                self.unknown.insert(pid);
                self.unknown_found += 1;
                return;
            }
        }
        if all {
            let is_known = known.is_some();
            if slot.is_none() {
                let outputs = found.outputs.get_or_insert_with(|| self.slot_outputs());
                let held = outputs.slots_of(ProcEntry::of(number(pid)).open_files());
                slot = self.ending.iter().copied().find(|slot| held.contains(slot));
                if held.is_empty() && !is_known && self.is_of_others(pid) {
                    // Unwatched it would never be reaped: then it is looked at once more.
                    if self.watch_to_reap(pid) {
                        self.of_others.insert(pid);
                    }
                    return;
                }
            }
        } else if self.reap_orphan(pid) {
            return;
        }
        if !self.orphans.contains_key(&pid)
            && let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
        {
            self.watch_straggler(pid, handle, slot);
        }
        found.list.push(Orphan { pid, slot });
    }

    /// Whether a child that we did not start need not descend from us. As the first process of
    /// a container we inherit what others start there by `exec` and leave behind: `tmux`,
    /// `nohup`. Such a process has no mark of ours, is in no attempt's group or session nor in
    /// our own session, and holds none of our pipes and logs, which the caller has looked at.
    fn is_of_others(&self, pid: Pid) -> bool {
        let Some(own_session) = self.init_session else {
            return false;
        };
        let Ok(stat) = ProcEntry::of(number(pid)).stat() else {
            return false;
        };
        let is_led = |leader| to_pid(leader).is_some_and(|pid| self.by_leader.contains_key(&pid));
        // Every session from outside the container has the number 0.
        let is_in_own_session = stat.session != 0 && stat.session == own_session;
        !is_led(stat.group)
            && !is_led(stat.session)
            && !is_in_own_session
            && !is_marked(pid, &self.home_mark)
    }

    /// The outputs by which an orphan is found to be an attempt's: those of attempts whose
    /// leader has ended, and of all attempts where an orphan may be of others.
    fn slot_outputs(&self) -> SlotOutputs {
        let mut outputs = SlotOutputs::default();
        let mut add = |slot: usize| outputs.add(slot, self.slots[slot].output_names());
        if self.init_session.is_some() {
            (0..self.slots.len()).for_each(add);
        } else {
            self.ending.iter().for_each(|&slot| add(slot));
        }
        outputs
    }

    /// Watches a child of others, to reap it when it ends. Whether it is watched now.
    fn watch_to_reap(&mut self, pid: Pid) -> bool {
        let handle = pidfd_open(pid, PidfdFlags::empty());
        handle.is_ok_and(|handle| self.watch_straggler(pid, handle, None))
    }

    /// Reaps a child that has ended. Whether it is gone now.
    fn reap_orphan(&mut self, pid: Pid) -> bool {
        let gone = exit::reap(pid);
        if gone {
            self.orphans.remove(&pid);
        }
        gone
    }

    /// Watches a process until it ends: else its end goes unnoticed until its deadline. Whether
    /// it is watched now.
    pub(crate) fn watch_straggler(
        &mut self,
        pid: Pid,
        handle: OwnedFd,
        slot: Option<usize>,
    ) -> bool {
        let token = TOKEN_ORPHAN | u64::from(number(pid));
        if self.watch(handle.as_fd(), token).is_err() {
            return false;
        }
        let attempt = slot.and_then(|slot| self.attempt(slot));
        let owner = attempt.map(|attempt| (attempt.task, attempt.number));
        self.orphans.insert(pid, WatchedOrphan { handle, owner });
        true
    }

    /// Looks whether an orphan has ended, and reaps it.
    pub(crate) fn orphan_changed(&mut self, pid: Pid) -> bool {
        let Some(orphan) = self.orphans.get(&pid) else {
            return false;
        };
        let ended = has_ended(&orphan.handle);
        if ended {
            exit::end_of(orphan.handle.as_fd(), pid, None);
            self.orphans.remove(&pid);
            self.of_others.remove(&pid);
        }
        ended
    }

    /// Looks at every attempt whose leader has ended: is its tree empty?
    pub(crate) fn settle_ending(&mut self) {
        let orphans = self.find_orphans();
        let mut ending = std::mem::take(&mut self.ending);
        ending.retain(|&slot| !self.settle(slot, &orphans));
        self.ending.append(&mut ending);
    }

    /// Finishes the attempt if nothing of it is left; else ends what is.
    fn settle(&mut self, slot: usize, orphans: &FoundOrphans) -> bool {
        let left = self.left_behind(slot, &orphans.list);
        let Some(attempt) = self.attempt(slot) else {
            return true;
        };
        let given_up = attempt.stragglers_end == StragglersEnd::GivenUp;
        if left.is_empty() && orphans.is_executing && !given_up {
            let again = Instant::now() + EXECUTION;
            self.with_attempt(slot, |attempt, _| attempt.deadline = Some(again));
            return false;
        }
        if left.is_empty() || given_up {
            // Somebody whom we cannot place may hold the writing ends.
            let strangers =
                !orphans.list.is_empty() || self.unknown_found != attempt.unknown_before;
            if self.scan_log(slot) {
                self.unsettled = true;
                return false;
            }
            self.finish_attempt(slot, left.is_empty(), strangers);
            return true;
        }
        self.with_attempt(slot, |attempt, buffer| {
            let is_ended_by_us = attempt.reason.is_some() || attempt.stopped.is_some();
            match attempt.stragglers_end {
                StragglersEnd::Unseen if !is_ended_by_us => {
                    attempt.stragglers_end = StragglersEnd::Awaited;
                    attempt.deadline = Some(Instant::now() + STRAGGLER_MOMENT);
                    return;
                }
                StragglersEnd::Awaited if attempt.stopped != Some(StopMode::Kill) => return,
                StragglersEnd::Unseen | StragglersEnd::Awaited => {
                    attempt.stragglers_end = StragglersEnd::Asked;
                }
                _ => {}
            }
            attempt.stragglers = attempt.stragglers.max(left.len()).max(1);
            let mut grace = STRAGGLER_GRACE;
            if attempt.stopped == Some(StopMode::Kill) {
                grace = KILL_GRACE;
                attempt.signal(Signal::KILL, buffer);
                for &pid in &left {
                    signal_straggler(pid, Signal::KILL);
                }
                attempt.stragglers_end = StragglersEnd::Killed;
            } else {
                if attempt.deadline.is_none() {
                    attempt.signal(Signal::TERM, buffer);
                }
                // Ending one may bring up another.
                for &pid in &left {
                    if !attempt.asked.contains(&pid) {
                        attempt.asked.push(pid);
                        signal_straggler(pid, Signal::TERM);
                    }
                }
            }
            attempt.deadline.get_or_insert(Instant::now() + grace);
        });
        false
    }

    /// The processes of an attempt that outlived its leader. Each is watched.
    fn left_behind(&mut self, slot: usize, orphans: &[Orphan]) -> Vec<Pid> {
        // If there is no other attempt, what cannot be placed is this one's.
        let only = self.children.are_all_ours() && self.by_task.len() == 1;
        let is_its = |orphan: &&Orphan| orphan.slot == Some(slot) || only;
        let mut left: Vec<Pid> = orphans.iter().filter(is_its).map(|it| it.pid).collect();
        let Some(attempt) = self.attempt(slot) else {
            return left;
        };
        let found: Vec<(Pid, OwnedFd)> = if attempt.is_adopted() {
            // They need not be our descendants.
            find_marked(attempt.task, attempt.number, &self.home_mark).collect()
        } else if left.is_empty() && attempt.group_exists() {
            // Below somebody whom we cannot place, who may also have failed to reap
            // them.
            find_in_group(attempt.leader).collect()
        } else {
            Vec::new()
        };
        for (pid, handle) in found {
            if has_ended(&handle) || left.contains(&pid) {
                continue;
            }
            left.push(pid);
            if !self.orphans.contains_key(&pid) {
                self.watch_straggler(pid, handle, Some(slot));
            }
        }
        left
    }

    /// Looks for metrics in a log that the attempt wrote itself: in some of it, so that
    /// nobody waits for long. Whether there is more.
    fn scan_log(&mut self, slot: usize) -> bool {
        let Slot { attempt, output, log, metrics, log_scan, .. } = &mut self.slots[slot];
        let Some(attempt) = attempt.as_ref().filter(|_| *output == OutputMode::File) else {
            return false;
        };
        for _ in 0..SCAN_TURNS {
            let Some(bytes) = log_scan.read(log, &mut self.buffer) else {
                return false;
            };
            // Whatever the stream, it is in the one file.
            if metrics.read(Stream::Stdout, bytes) {
                self.ready.extend(metrics.take(attempt.task, attempt.number));
            }
        }
        true
    }

    fn finish_attempt(&mut self, slot: usize, is_empty: bool, strangers: bool) {
        // Nobody writes any more, so what is in the pipes is all there is.
        let more = self.more;
        if self.slots[slot].output.is_piped() {
            self.take_output(slot, Stream::Stdout, LAST_TURNS);
            self.take_output(slot, Stream::Stderr, LAST_TURNS);
        }
        self.more = more;
        let Slot { attempt, metrics, .. } = &mut self.slots[slot];
        if let Some(attempt) = attempt
            && metrics.finish()
        {
            self.ready.extend(metrics.take(attempt.task, attempt.number));
        }
        let Some(attempt) = self.take_attempt(slot) else {
            return;
        };
        if strangers || attempt.stragglers > 0 {
            self.slots[slot].pipes = None;
        }
        let trouble = match attempt.stragglers {
            _ if !is_empty => {
                Some("processes it left behind cannot be ended and still run".to_owned())
            }
            // One that we ended ourselves had no chance to clean up.
            _ if attempt.reason.is_some() => None,
            0 => None,
            1 => Some("a process it left behind was ended".to_owned()),
            many => Some(format!("{many} processes it left behind were ended")),
        };
        self.ready
            .extend(trouble.map(|message| ProcessEvent::Trouble { task: attempt.task, message }));
        self.free.insert(slot);
        let (outcome, message) = (attempt.outcome(), attempt.message());
        self.ready.push(attempt.ended(outcome, message));
        self.start_deferred();
    }
}
