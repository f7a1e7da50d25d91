//! How much a job asked for, exactly.
//!
//! Slurm tells a prolog a whole percentage, rounded down. If a whole GPU is more than 100
//! `mps`, several amounts have the same percentage: `mps:20` and `mps:22` of 320 are both 6.
//! Then Slurm is asked (see [`crate::queue`]), and what it says counts only if it has that
//! percentage. Without an answer a job is measured by the least that it may be, so that no
//! job is refused that is allowed, and counted with the most.

/// The amounts that a percentage may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub least: u64,
    pub most: u64,
}

impl Share {
    /// The amounts of which Slurm says that they are `percent` of `whole`.
    pub fn of(percent: u64, whole: u64) -> Self {
        // Slurm: the percentage is rounded down, but at least 1.
        let percent = percent.max(1);
        let first = |percent: u64| percent.saturating_mul(whole).div_ceil(100);
        let least = if percent == 1 { 1 } else { first(percent) };
        Self {
            least: least.max(1),
            most: first(percent.saturating_add(1)).saturating_sub(1).max(least.max(1)),
        }
    }

    /// The one amount that it can be.
    pub fn exact(self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }

    /// The same, with what Slurm says of the job on each of its nodes. If that does not fit,
    /// it stays open.
    #[must_use]
    pub fn settled(self, said: Option<u64>) -> Self {
        let said = said.filter(|said| (self.least..=self.most).contains(said));
        said.map_or(self, |said| Self { least: said, most: said })
    }

    /// How much is taken from the GPUs for it: the most that it may be, so that none is given
    /// more than it has; but no more GPUs than it surely needs.
    pub fn reserved(self, per_gpu: u64) -> u64 {
        let gpus = self.least.div_ceil(per_gpu.max(1));
        self.most.min(gpus.saturating_mul(per_gpu).max(self.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_what_slurm_rounds_to_that_percentage() {
        for whole in [25, 80, 100, 320, 1280, 1000] {
            for amount in 1..=whole * 2 {
                let percent = (amount * 100 / whole).max(1);
                let share = Share::of(percent, whole);
                assert!(
                    (share.least..=share.most).contains(&amount),
                    "{amount} of {whole}: {share:?}"
                );
            }
            for percent in 1..=200 {
                let share = Share::of(percent, whole);
                for amount in [share.least, share.most] {
                    let seen = (amount * 100 / whole).max(1);
                    let is_possible = (1..=whole * 2).any(|a| (a * 100 / whole).max(1) == percent);
                    assert!(seen == percent || !is_possible, "{percent} of {whole}");
                }
            }
        }
    }

    #[test]
    fn a_whole_of_100_needs_no_question() {
        for percent in 1..=100 {
            assert_eq!(Share::of(percent, 100).exact(), Some(percent));
        }
        assert_eq!(Share::of(6, 320).exact(), None);
    }

    #[test]
    fn slurm_settles_what_the_percentage_leaves_open() {
        let share = Share::of(1, 1280);
        let exactly = |amount| Share { least: amount, most: amount };
        assert_eq!(share.settled(Some(20)), exactly(20));
        assert_eq!(share.settled(None), share);
        assert_eq!(share.settled(Some(500)), share, "not that");
        assert_eq!(share.reserved(320), 25, "the most it may be");
        // 25 percent are 320 to 332: one GPU, not two.
        assert_eq!(Share::of(25, 1280).reserved(320), 320);
        assert_eq!(Share::of(26, 1280).reserved(320), 345);
    }
}
