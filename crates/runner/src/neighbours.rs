//! Other runs on this machine: what they hold, and what they are told of us.
//!
//! What we publish is never less than what we hold, so that most starts need no
//! word to anybody: a slot that is free for a moment between two tasks stays
//! published. Only a step that may take more than is published is taken under
//! the lock, with a fresh look at what others hold.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use packhorse_core::{self as core, DeviceLoad, Effect, Outside};
use packhorse_leases::{About, Guard, Held, Lease, Leases};
use packhorse_model::{Bytes, Milli};

use crate::RunError;
use crate::run::{LEASES, Run, system};

/// How long after a failure others are told again what we hold.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of other runs.
#[derive(Default)]
pub(crate) struct Neighbours {
    leases: Option<Leases>,
    others: Vec<Lease>,
    /// Which state of affairs `others` is.
    revision: u64,
    /// What the members of each device are known by.
    keys: Vec<Vec<String>>,
    /// What others were last told that we hold of each device.
    published: Vec<Portion>,
    /// When to try again to tell them, if that failed.
    again: Option<Instant>,
    /// Whether their doings are listened to.
    watched: bool,
    /// What was last complained of.
    complaint: Option<String>,
    /// What the core was last told that others hold of each device.
    pub(crate) told: Vec<Outside>,
}

/// Who we are, as the environment tells: for people to read.
fn user() -> String {
    let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    name.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string())
}

/// What has changed about other runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    None,
    /// What they hold, or who is left of them.
    Amounts,
    /// There are some that were not known before.
    Newcomers,
}

/// What we hold of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Portion {
    memory: Bytes,
    share: Milli,
    attempts: u32,
    whole: bool,
}

impl Portion {
    fn of(load: &DeviceLoad) -> Self {
        Self {
            memory: load.counted,
            share: load.used,
            attempts: load.attempts,
            whole: load.whole,
        }
    }

    fn covers(self, other: Self) -> bool {
        self.memory >= other.memory
            && self.share >= other.share
            && self.attempts >= other.attempts
            && (self.whole || !other.whole)
    }
}

impl Neighbours {
    /// Whether a process is another run.
    pub(crate) fn is_run(&self, pid: u32) -> bool {
        self.others.iter().any(|lease| lease.pid == pid)
    }

    /// What other runs hold of a device, but for its memory.
    pub(crate) fn held(&self, index: usize) -> Outside {
        let mut all = Outside::default();
        for key in self.keys.get(index).into_iter().flatten() {
            let mut sum = Outside::default();
            for held in self.leases_on(key) {
                sum.share.0 = sum.share.0.saturating_add(held.share.0).min(Milli::ONE.0);
                sum.attempts = sum.attempts.saturating_add(held.attempts);
                sum.whole |= held.whole;
            }
            all.share = all.share.max(sum.share);
            all.attempts = all.attempts.max(sum.attempts);
            all.whole |= sum.whole;
        }
        all
    }

    /// What other runs may still take of the memory they were promised on a
    /// member of a device, given what each is seen to hold.
    pub(crate) fn growth(&self, index: usize, member: usize, seen: &[(u32, Bytes)]) -> u64 {
        let Some(key) = self.keys.get(index).and_then(|keys| keys.get(member)) else {
            return 0;
        };
        let mut growth = 0_u64;
        for lease in &self.others {
            let promised = lease.held.iter().filter(|held| *held.device == **key);
            let promised: u64 = promised
                .map(|held| held.memory.0)
                .fold(0, u64::saturating_add);
            let held = seen.iter().find(|(pid, _)| *pid == lease.pid);
            let held = held.map_or(0, |(_, held)| held.0);
            growth = growth.saturating_add(promised.saturating_sub(held));
        }
        growth
    }

    fn leases_on<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Held> {
        let held = self.others.iter().flat_map(|lease| &lease.held);
        held.filter(move |held| *held.device == *key)
    }

    /// Takes in what others hold.
    fn take_in(&mut self, guard: &Guard<'_>) -> News {
        if guard.revision() == self.revision {
            return News::None;
        }
        let known = guard.others().all(|lease| self.is_run(lease.pid));
        self.revision = guard.revision();
        self.others = guard.others().cloned().collect();
        if known {
            News::Amounts
        } else {
            News::Newcomers
        }
    }

    /// Whether there is nothing that somebody else could take meanwhile. A device
    /// whose whole share is given out has memory left for tasks without one.
    fn all_is_ours(&self) -> bool {
        self.again.is_none() && self.published.iter().all(|share| share.whole)
    }

    /// When to try again to tell others what we hold, if that failed.
    pub(crate) fn again(&self) -> Option<Instant> {
        self.again
    }

    /// Takes note of how telling them went.
    fn told_them<E>(&mut self, result: Result<(), E>) -> Option<E> {
        self.again = result.is_err().then(|| Instant::now() + AGAIN);
        result.err()
    }

    /// Our lease, as others are to see it.
    fn lease(&self) -> Vec<Held> {
        let mut lease = BTreeMap::new();
        for (keys, share) in self.keys.iter().zip(&self.published) {
            if *share == Portion::default() {
                continue;
            }
            for key in keys {
                lease.insert(key.as_str(), *share);
            }
        }
        lease
            .into_iter()
            .map(|(key, share)| Held {
                device: key.into(),
                memory: share.memory,
                share: share.share,
                attempts: share.attempts,
                whole: share.whole,
            })
            .collect()
    }
}

impl Run<'_> {
    /// Makes ourselves known to other runs, and them to us.
    pub(crate) fn meet_neighbours(&mut self) {
        let count = self.settings.places.devices.len();
        self.neighbours.keys = (0..count).map(|index| self.devices.keys(index)).collect();
        self.neighbours.published = vec![Portion::default(); count];
        self.neighbours.told = vec![Outside::default(); count];
        let Some(folder) = self.settings.sharing.leases.clone().filter(|_| count > 0) else {
            return;
        };
        let words: Vec<String> = std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let about = About {
            user: user(),
            run: Some(self.id),
            command: words.join(" "),
        };
        match Leases::open(&folder, about) {
            Ok(leases) => self.neighbours.leases = Some(leases),
            Err(error) => self.warn(
                None,
                format!("other runs on this machine are not seen: {error}"),
            ),
        }
    }

    /// Listens to other runs while anybody waits for what they may give up; what
    /// they do meanwhile is none of our business, nor who comes to take something.
    pub(crate) fn mind_neighbours(&mut self) -> Result<(), RunError> {
        let wanted = self.state.counts().waiting > 0 && !self.neighbours.others.is_empty();
        if wanted == self.neighbours.watched {
            return Ok(());
        }
        let Some(leases) = &mut self.neighbours.leases else {
            return Ok(());
        };
        self.neighbours.watched = wanted;
        if !wanted {
            let unwatched = self.hands.unwatch(leases.as_fd(), LEASES);
            return unwatched.map_err(system("watch other runs"));
        }
        let listening = leases.listen();
        let watched = self.hands.watch(leases.as_fd(), LEASES);
        watched.map_err(system("watch other runs"))?;
        match listening {
            // Somebody may have left before.
            Ok(()) => self.neighbours_changed(),
            Err(error) => self.complain_of_neighbours(&error),
        }
        Ok(())
    }

    /// Lets the core take a step; under the lock of all runs, if it may take
    /// something that others could take as well.
    pub(crate) fn decide(&mut self, event: core::SchedulerEvent, effects: &mut Vec<Effect>) {
        let now = self.now();
        let may_take = match event {
            core::SchedulerEvent::Unhold => true,
            // Nothing is handed out meanwhile.
            _ if self.state.is_held() => false,
            core::SchedulerEvent::Submit(_) | core::SchedulerEvent::Ended { .. } => true,
            _ => self.state.counts().waiting > 0,
        };
        if !may_take || self.neighbours.all_is_ours() {
            return core::step(&mut self.state, event, now, effects);
        }
        let Some(mut leases) = self.neighbours.leases.take() else {
            return core::step(&mut self.state, event, now, effects);
        };
        let mut trouble = Vec::new();
        match leases.lock() {
            Ok(mut guard) => {
                trouble.extend(guard.warning());
                let news = self.neighbours.take_in(&guard);
                if news != News::None {
                    self.welcome(news);
                    for index in 0..self.neighbours.keys.len() {
                        if let Some(event) = self.outside_event(index) {
                            core::step(&mut self.state, event, now, effects);
                        }
                    }
                }
                core::step(&mut self.state, event, now, effects);
                if self.raise() || self.neighbours.again.is_some() {
                    let result = guard.publish(&self.neighbours.lease());
                    trouble.extend(self.neighbours.told_them(result));
                }
            }
            Err(error) => {
                trouble.push(error);
                core::step(&mut self.state, event, now, effects);
            }
        }
        self.neighbours.leases = Some(leases);
        for error in trouble {
            self.complain_of_neighbours(&error);
        }
    }

    /// Has a look at the devices if there are new runs: what they hold already
    /// would count as strangers' besides what they were promised.
    fn welcome(&mut self, news: News) {
        if news == News::Newcomers
            && let Some(watching) = &mut self.watching
        {
            watching.look();
        }
    }

    fn complain_of_neighbours(&mut self, error: &packhorse_leases::Error) {
        let message = error.to_string();
        if self.neighbours.complaint.as_ref() != Some(&message) {
            self.neighbours.complaint = Some(message.clone());
            self.warn(None, message);
        }
    }

    /// Brings what is published up to what is held; whether that was more.
    fn raise(&mut self) -> bool {
        let mut raised = false;
        for (published, load) in self
            .neighbours
            .published
            .iter_mut()
            .zip(self.state.devices())
        {
            let held = Portion::of(&load);
            if !published.covers(held) {
                *published = held;
                raised = true;
            }
        }
        raised
    }

    /// Gives up what is published and not held any more. Called between turns of
    /// the loop: what is free for a moment only is not given up.
    pub(crate) fn give_up_leases(&mut self) {
        if self.neighbours.leases.is_none() {
            return;
        }
        let published = &self.neighbours.published;
        let is_as_told = self
            .state
            .devices()
            .zip(published)
            .all(|(load, published)| Portion::of(&load) == *published);
        let due = self.neighbours.again.is_some_and(|at| at <= Instant::now());
        if is_as_told && !due {
            return;
        }
        let held = self.state.devices().map(|load| Portion::of(&load));
        self.neighbours.published = held.collect();
        let lease = self.neighbours.lease();
        let Some(leases) = &mut self.neighbours.leases else {
            return;
        };
        let result = leases.lock().and_then(|mut guard| guard.publish(&lease));
        if let Some(error) = self.neighbours.told_them(result) {
            self.complain_of_neighbours(&error);
        }
    }

    /// Somebody else took something, gave something up, or died.
    pub(crate) fn neighbours_changed(&mut self) {
        let Some(mut leases) = self.neighbours.leases.take() else {
            return;
        };
        let changed = leases.lock().map(|guard| self.neighbours.take_in(&guard));
        self.neighbours.leases = Some(leases);
        match changed {
            Ok(News::None) => {}
            Ok(news) => {
                self.welcome(news);
                for index in 0..self.neighbours.keys.len() {
                    self.tell_outside(index);
                }
            }
            Err(error) => self.complain_of_neighbours(&error),
        }
    }
}
