//! A task's place in line.

use std::cmp::Ordering;
use std::time::Duration;

use packhorse_model::Priority;

use crate::Now;

/// By batch, then by aged priority, then by submission. It is given once and
/// kept over retries: since all rise at the same pace while they wait, nobody
/// ever overtakes another by waiting. Only while its next start is a probe, a task
/// counts as half a priority more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    /// The batch, doubled; and one more while the rank is a probe's.
    batch: u32,
    // The halves of numbers, the high one first: as u64s they would make the
    // struct larger, a million times.
    rank: [u32; 2],
    submitted: [u32; 2],
}

impl QueueKey {
    /// The place of the submission `number`, made at `now`.
    pub(crate) fn new(
        batch: u32,
        priority: Priority,
        ageing: Option<Duration>,
        now: Now,
        number: u64,
    ) -> Self {
        let rank = match ageing {
            None => i64::from(priority.0) * 2,
            Some(ageing) => {
                micros(now.0).saturating_add(micros(ageing).saturating_mul(priority.0.into()))
            }
        };
        Self {
            batch: batch.min(u32::MAX >> 1) << 1,
            // A probe's is to be a number too.
            rank: sortable(rank.clamp(i64::MIN / 4, i64::MAX / 4)),
            submitted: halves(number),
        }
    }

    /// The same task's place when its next start is a probe, or is none.
    pub(crate) fn for_probe(self, probe: bool, ageing: Option<Duration>) -> Self {
        let ahead = ageing.map_or(1, |ageing| micros(ageing) / 2);
        let change = i64::from(self.batch & 1) - i64::from(probe);
        let rank = unsortable(self.rank) + change * ahead;
        Self { batch: self.batch & !1 | u32::from(probe), rank: sortable(rank), ..self }
    }

    /// The same as numbers: comparing those is several times faster than
    /// comparing field by field.
    fn key(self) -> (u128, u64) {
        let before = u128::from(self.batch >> 1) << 64 | u128::from(whole(self.rank));
        (before, whole(self.submitted))
    }
}

impl PartialOrd for QueueKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueueKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

fn whole([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// As a number without a sign: negative ones have to come before the others.
fn sortable(rank: i64) -> [u32; 2] {
    halves(rank.cast_unsigned() ^ (1 << 63))
}

fn unsortable(rank: [u32; 2]) -> i64 {
    (whole(rank) ^ (1 << 63)).cast_signed()
}

/// Microseconds last for 292,000 years, priorities included.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of a u64")]
fn halves(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(batch: u32, priority: i32, ageing: Option<u64>, at: u64, number: u64) -> QueueKey {
        let now = Now(Duration::from_secs(at));
        let ageing = ageing.map(Duration::from_secs);
        QueueKey::new(batch, Priority(priority), ageing, now, number)
    }

    #[test]
    fn batches_go_before_priorities_and_those_before_submissions() {
        let line = [
            order(0, 7, None, 9, 3),
            order(1, i32::MIN, None, 9, 2),
            order(1, -1, None, 9, 9),
            order(1, 0, None, 9, 4),
            order(1, 0, None, 1, 1 << 33),
            order(1, i32::MAX, None, 0, 0),
        ];
        assert!(line.is_sorted());
    }

    #[test]
    fn waiting_makes_up_for_priority() {
        let early = order(0, 5, Some(60), 0, 1);
        assert!(order(0, 0, Some(60), 299, 2) < early);
        assert!(order(0, 0, Some(60), 300, 2) > early, "it has waited for five minutes");
        assert!(order(0, 0, None, 300, 2) < early);
    }

    #[test]
    fn the_largest_numbers_keep_their_order() {
        let first = order(0, i32::MIN, Some(u64::MAX), 0, 1);
        let last = order(0, i32::MAX, Some(u64::MAX), u64::MAX, 2);
        assert!(first < last);
    }
}
