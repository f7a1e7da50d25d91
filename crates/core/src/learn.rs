//! What to reserve for a task like those that were seen before.

use std::time::Duration;

use packhorse_model::{Bytes, LearnedPeak, PeakOrigin};

/// While fewer were seen, the largest counts instead of a quantile.
const FEW: usize = 20;

/// No margin is smaller: a driver rounds what it gives, and a context grows
/// with what a library loads late.
const LEAST_MARGIN: Bytes = Bytes(64 << 20);

/// Reserved amounts are multiples of this, so that like tasks are alike.
const STEP: Bytes = Bytes(64 << 20);

/// How much memory to promise to a task whose like needed `samples`. `None` if
/// there are none.
///
/// It is a high quantile (95 %; of fewer than 20 the largest), and a margin that
/// shrinks as evidence grows: a tenth of it divided by the square root of their
/// number, but never less than 64 MiB or what sampling may have missed. The sum
/// is rounded up to 64 MiB. Those that were never seen to their end say nothing alone.
pub fn reservation<'a>(samples: impl Iterator<Item = &'a LearnedPeak> + Clone) -> Option<Bytes> {
    samples.clone().find(|sample| is_over(sample))?;
    let peak = high(samples.clone().map(|sample| sample.peak.0))?;
    let margin =
        margin(peak, samples.clone().count()).max(error(samples, peak)).max(LEAST_MARGIN.0);
    Some(round_up(Bytes(peak.saturating_add(margin))))
}

fn is_over(sample: &LearnedPeak) -> bool {
    sample.origin != PeakOrigin::Growing
}

/// How much more than `peak` may have gone unseen. Of those that came near it,
/// the one that was looked at best counts; and the more of them agree, the less
/// can all have missed.
fn error<'a>(samples: impl Iterator<Item = &'a LearnedPeak> + Clone, peak: u64) -> u64 {
    let near = samples.filter(|sample| sample.peak.0 >= peak - peak / 20);
    let best = near.clone().map(|sample| sample.error.0).min();
    by_root(best.unwrap_or(0), near.count())
}

/// How long a task will take at most whose like took as long as `samples`: the same
/// quantile and margin, without a floor. `None` if no duration is known.
pub fn expected<'a>(samples: impl Iterator<Item = &'a LearnedPeak> + Clone) -> Option<Duration> {
    let over = samples.filter(|sample| is_over(sample));
    let durations = over.filter_map(|sample| sample.duration);
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let high = high(durations.clone().map(nanos))?;
    let nanos = high.saturating_add(margin(high, durations.count()));
    Some(Duration::from_nanos(nanos))
}

/// Whether peaks between `least` and `most` may be those of tasks that need the same: they
/// differ by no more than what varies from one attempt to the next.
pub fn agree(least: Bytes, most: Bytes) -> bool {
    most.0.saturating_sub(least.0) <= (most.0 / 32).max(LEAST_MARGIN.0)
}

/// The next multiple of 64 MiB.
pub(crate) fn round_up(amount: Bytes) -> Bytes {
    let steps = amount.0.div_ceil(STEP.0);
    Bytes(steps.saturating_mul(STEP.0))
}

/// The 95 % quantile: as small as may be with no more than one in twenty above.
fn high(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    let last = values.len().checked_sub(1)?;
    values.sort_unstable();
    let above = if values.len() < FEW { 0 } else { values.len() / 20 };
    Some(values[last - above])
}

/// A tenth of `amount`, divided by the square root of `count`.
fn margin(amount: u64, count: usize) -> u64 {
    by_root(amount, count) / 10
}

/// `amount`, divided by the square root of `count`. In whole numbers, so that every
/// machine reserves the same.
fn by_root(amount: u64, count: usize) -> u64 {
    // The root in thousandths.
    let root = (count as u128 * 1_000_000).isqrt().max(1);
    u64::try_from(u128::from(amount) * 1000 / root).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use packhorse_model::Timestamp;

    use super::*;

    const MIB: u64 = 1 << 20;
    const SAMPLE: LearnedPeak = LearnedPeak {
        at: Timestamp(0),
        peak: Bytes(0),
        error: Bytes(0),
        duration: None,
        origin: PeakOrigin::Run,
    };

    fn peaks(mebibytes: impl IntoIterator<Item = u64>) -> Vec<LearnedPeak> {
        let sample = |peak| LearnedPeak { peak: Bytes(peak * MIB), ..SAMPLE };
        mebibytes.into_iter().map(sample).collect()
    }

    fn reserved(samples: &[LearnedPeak]) -> u64 {
        let Bytes(amount) = reservation(samples.iter()).unwrap();
        assert_eq!(amount % (64 * MIB), 0);
        amount / MIB
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        assert_eq!(reservation([].iter()), None);
        assert_eq!(expected([].iter()), None);
        assert_eq!(expected([SAMPLE].iter()), None);
    }

    #[test]
    fn one_that_was_last_seen_growing_says_how_much_at_least() {
        let growing = LearnedPeak {
            peak: Bytes(900 * MIB),
            duration: Some(Duration::from_secs(5)),
            origin: PeakOrigin::Growing,
            ..SAMPLE
        };
        let alone = [growing];
        assert_eq!(reservation(alone.iter()), None);
        assert_eq!(expected(alone.iter()), None);
        let beside = [growing, peaks([100])[0]];
        assert!(reservation(beside.iter()) > Some(growing.peak));
        assert_eq!(expected(beside.iter()), None);
    }

    #[test]
    fn the_largest_of_few_counts() {
        // A tenth of 8000 divided by the root of 4 is 400: 8400, rounded up.
        assert_eq!(reserved(&peaks([5000, 8000, 1000, 2000])), 8448);
    }

    #[test]
    fn of_many_one_in_twenty_may_need_more() {
        let mut seen = vec![1000; 19];
        seen.push(50_000);
        assert_eq!(reserved(&peaks(seen.clone())), 1088);
        seen.push(40_000);
        assert!(reserved(&peaks(seen)) > 40_000, "two of twenty-one are more");
    }

    #[test]
    fn the_margin_shrinks_as_evidence_grows_but_has_a_floor() {
        let margin = |count: usize| reserved(&peaks(vec![40 * 1024; count])) - 40 * 1024;
        assert_eq!(margin(1), 4096);
        assert_eq!(margin(4), 2048);
        assert_eq!(margin(16), 1024);
        assert_eq!(margin(1_000_000), 64);
    }

    #[test]
    fn what_sampling_may_have_missed_is_added() {
        let mut samples = peaks([1000]);
        samples[0].error = Bytes(500 * MIB);
        assert_eq!(reserved(&samples), 1536);
        // Four that agree have hardly all missed it.
        assert_eq!(reserved(&samples.repeat(4)), 1280);
        // And one that was looked at well settles it.
        samples.extend(peaks([990]));
        assert_eq!(reserved(&samples), 1088);
    }

    #[test]
    fn the_largest_numbers_do_no_harm() {
        let huge = LearnedPeak {
            peak: Bytes(u64::MAX),
            error: Bytes(u64::MAX),
            duration: Some(Duration::MAX),
            ..SAMPLE
        };
        assert_eq!(reservation([huge].iter()), Some(Bytes(u64::MAX)));
        assert!(expected([huge].iter()).is_some());
    }

    #[test]
    fn peaks_agree_that_differ_by_no_more_than_noise() {
        let agree = |least, most| agree(Bytes(least * MIB), Bytes(most * MIB));
        assert!(agree(100, 164) && !agree(100, 165));
        assert!(agree(31_000, 32_000) && !agree(30_900, 32_000));
    }

    #[test]
    fn durations_have_a_margin_too() {
        let expected = |seconds: &[u64]| {
            let sample = |&seconds: &u64| LearnedPeak {
                duration: Some(Duration::from_secs(seconds)),
                ..SAMPLE
            };
            let samples: Vec<LearnedPeak> = seconds.iter().map(sample).collect();
            expected(samples.iter())
        };
        assert_eq!(expected(&[100, 60, 80, 20]), Some(Duration::from_secs(105)));
        assert_eq!(expected(&[100]), Some(Duration::from_secs(110)));
    }
}
