use std::collections::VecDeque;
use std::time::Duration;

use packhorse_model::{Event, EventKind};

/// Events on their way to the observers. Each waits until the record that it goes with
/// is safe, and those behind it wait too, so that they stay in order.
///
/// A journal that is slow, or cannot write, must neither keep people in the dark nor fill our
/// memory: what has waited too long, or is too much, is told all the same, if a crash could
/// not lose it. It could if the journal does not know the task yet, or could not keep the
/// attempt's end even for the moment. If far too much is behind such an end, the rest goes
/// first.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    patience: Duration,
    waiting: VecDeque<WaitingEvent>,
    /// Since when the first of them waits.
    since: Option<Duration>,
    /// The bytes of output and metrics among them.
    bytes: usize,
    /// Records up to this are safe.
    pub(crate) committed: u64,
    /// Ends of attempts up to this outlive a crash, if their tasks do.
    pub(crate) kept: u64,
    /// Whether the journal kept all that it was sent when that was last heard of.
    keeps_all: bool,
}

#[derive(Debug)]
struct WaitingEvent {
    /// The record that it waits for.
    place: u64,
    /// What it waits for however long that takes.
    needs: Needed,
    event: Event,
}

/// The records without which a crash would lose something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needed {
    /// Up to this they have to be safe.
    pub(crate) committed: u64,
    /// Up to this they have to be kept for the moment.
    pub(crate) kept: u64,
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseLevel {
    Safe,
    /// What no crash could lose.
    Recoverable,
    /// The same, and what is behind that and cannot be lost either.
    OutOfOrder,
    All,
}

const MOST: usize = 10_000;
const MOST_BYTES: usize = 1 << 20;
/// So much is told even if what comes before it cannot be told yet.
const FAR_TOO_MANY_BYTES: usize = 64 << 20;

/// About how many bytes a metric takes besides its name.
const METRIC: usize = 64;

fn bytes(event: &Event) -> usize {
    match &event.kind {
        EventKind::Output { line, .. } => line.len(),
        EventKind::Metrics { values, .. } => {
            let names = values.keys().map(String::len);
            names.map(|length| length + METRIC).sum()
        }
        _ => 0,
    }
}

impl Outbox {
    /// Nothing to tell yet. Events wait for `patience` at most.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    /// An event to be told once the record at `place` is safe, or patience has ended and
    /// what it needs is there. If that is now, it comes back.
    pub(crate) fn push(
        &mut self,
        place: u64,
        needs: Needed,
        event: Event,
        now: Duration,
    ) -> Option<Event> {
        if self.waiting.is_empty() && place <= self.committed {
            return Some(event);
        }
        self.bytes += bytes(&event);
        self.since.get_or_insert(now);
        self.waiting.push_back(WaitingEvent { place, needs, event });
        None
    }

    /// The journal keeps records up to this, of so many that it was sent.
    pub(crate) fn set_kept(&mut self, kept: u64, sent: u64) {
        self.kept = kept;
        self.keeps_all = kept >= sent;
    }

    /// So many records are with the journal before anything else is told: if it has kept all
    /// so far, it keeps these.
    pub(crate) fn expect_kept(&mut self, sent: u64) {
        if self.keeps_all {
            self.kept = self.kept.max(sent);
        }
    }

    /// Whether a crash could lose what an event tells.
    fn can_be_lost(&self, waiting: &WaitingEvent) -> bool {
        let needs = waiting.needs;
        needs.committed > self.committed || needs.kept > self.kept.max(self.committed)
    }

    /// Those that may be told now.
    pub(crate) fn release(
        &mut self,
        what: ReleaseLevel,
        now: Duration,
    ) -> impl Iterator<Item = Event> {
        if what == ReleaseLevel::OutOfOrder {
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let (late, first) = waiting.partition::<VecDeque<_>, _>(|it| self.can_be_lost(it));
            self.waiting = first;
            self.waiting.extend(late);
        }
        let waits = |waiting: &WaitingEvent| match what {
            ReleaseLevel::Safe => waiting.place > self.committed,
            ReleaseLevel::Recoverable | ReleaseLevel::OutOfOrder => self.can_be_lost(waiting),
            ReleaseLevel::All => false,
        };
        let safe = self.waiting.iter().position(waits);
        let safe = safe.unwrap_or(self.waiting.len());
        if safe > 0 {
            self.since = (safe < self.waiting.len()).then_some(now);
        }
        self.waiting.drain(..safe).map(|waiting| {
            self.bytes -= bytes(&waiting.event);
            waiting.event
        })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When patience ends, if that would help.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let first = self.waiting.front()?;
        (!self.can_be_lost(first)).then_some(self.since?.saturating_add(self.patience))
    }

    /// What may be told now, because it is safe, or patience has ended, or too much waits.
    pub(crate) fn due(&self, now: Duration) -> ReleaseLevel {
        if self.bytes > FAR_TOO_MANY_BYTES {
            ReleaseLevel::OutOfOrder
        } else if self.deadline().is_some_and(|end| end <= now)
            || self.waiting.len() > MOST
            || self.bytes > MOST_BYTES
        {
            ReleaseLevel::Recoverable
        } else {
            ReleaseLevel::Safe
        }
    }
}
