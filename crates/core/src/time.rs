//! When attempts end, as far as that is known.

use std::time::Duration;

use crate::Now;

/// A moment in nanoseconds since the origin of [`Now`], or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(u64);

/// How long a task will hold what it gets at most, coarsely: rounded up to five
/// significant bits, so that no more than a few hundred different ones exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bound(Length);

/// A length of time in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Length(u64);

/// When a running attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndTimes {
    expected: Moment,
    limit: Moment,
}

impl Length {
    const UNKNOWN: Self = Self(u64::MAX);

    /// In nanoseconds. More than 584 years are as good as unknown.
    pub(crate) fn new(length: Option<Duration>) -> Self {
        let nanos = length.and_then(|length| u64::try_from(length.as_nanos()).ok());
        nanos.map_or(Self::UNKNOWN, Self)
    }

    pub(crate) fn get(self) -> Option<Duration> {
        (self != Self::UNKNOWN).then(|| Duration::from_nanos(self.0))
    }
}

impl Moment {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The time as passed in.
    pub(crate) fn new(now: Now) -> Self {
        Self(u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn get(self) -> Option<Now> {
        (self != Self::NEVER).then(|| Now(Duration::from_nanos(self.0)))
    }

    /// How long it is from `now` until then, if that is known and not over.
    pub(crate) fn nanos_from(self, now: Self) -> Option<u64> {
        self.get()?;
        self.0.checked_sub(now.0)
    }

    fn plus(self, length: Length) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Bound {
    /// The bound of a task with this limit that is expected to take so long.
    pub(crate) fn new(limit: Length, expected: Length) -> Self {
        let nanos = limit.min(expected).0;
        let dropped = (u64::BITS - nanos.leading_zeros()).saturating_sub(5);
        let steps = (nanos >> dropped) + u64::from(nanos.trailing_zeros() < dropped);
        Self(Length(steps.saturating_mul(1 << dropped)))
    }

    /// Whether what starts `now` is over by `until`, as far as anybody knows.
    pub(crate) fn is_over_by(self, until: Moment, now: Moment) -> bool {
        until.nanos_from(now).is_some_and(|nanos| self.0.0 <= nanos)
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0.0
    }
}

impl EndTimes {
    pub(crate) fn new(since: Moment, limit: Length, expected: Length) -> Self {
        Self { expected: since.plus(limit.min(expected)), limit: since.plus(limit) }
    }

    /// When it ends, as it looks at `now`. One that took longer than expected
    /// will need its whole limit, for all we know.
    pub(crate) fn at(self, now: Moment) -> Moment {
        [self.expected, self.limit].into_iter().find(|&end| end >= now).unwrap_or(Moment::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(nanos: u64) -> Length {
        Length::new(Some(Duration::from_nanos(nanos)))
    }

    #[test]
    fn a_bound_is_never_too_low_and_hardly_too_high() {
        let mut distinct = std::collections::BTreeSet::new();
        for nanos in (0..40).chain((0..60).map(|bit| (1 << bit) + (1 << (bit / 2)) + 1)) {
            let Bound(Length(bound)) = Bound::new(length(nanos), Length::UNKNOWN);
            assert!(bound >= nanos, "{nanos}");
            assert!(bound <= nanos + nanos / 16, "{nanos}");
            distinct.insert(bound);
        }
        let hour = 3_600_000_000_000;
        for nanos in hour..hour + 1000 {
            distinct.insert(Bound::new(length(nanos), Length::UNKNOWN).0.0);
        }
        assert!(distinct.len() < 100);
        assert_eq!(Bound::new(length(96), length(32)), Bound::new(length(32), length(96)));
        let unknown = Bound::new(Length::UNKNOWN, Length::UNKNOWN);
        assert_eq!(unknown.0, Length::UNKNOWN);
    }

    #[test]
    fn an_unknown_length_is_never_over() {
        let unknown = Bound::new(Length::UNKNOWN, Length::UNKNOWN);
        assert!(!unknown.is_over_by(Moment::NEVER, Moment(0)));
        assert!(!unknown.is_over_by(Moment(u64::MAX - 1), Moment(0)));
        let short = Bound::new(length(16), Length::UNKNOWN);
        assert!(short.is_over_by(Moment(20), Moment(4)));
        assert!(!short.is_over_by(Moment(20), Moment(5)));
        assert!(!short.is_over_by(Moment::NEVER, Moment(5)));
    }

    #[test]
    fn one_that_is_overdue_needs_its_limit_or_nobody_knows() {
        let ends = EndTimes::new(Moment(100), length(50), length(10));
        assert_eq!(ends.at(Moment(110)), Moment(110));
        assert_eq!(ends.at(Moment(111)), Moment(150));
        assert_eq!(ends.at(Moment(151)), Moment::NEVER);
        let ends = EndTimes::new(Moment(100), Length::UNKNOWN, length(10));
        assert_eq!(ends.at(Moment(111)), Moment::NEVER);
    }
}
