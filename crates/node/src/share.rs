//! How much a job asked for, exactly.
//!
//! Slurm tells a prolog a whole percentage, rounded down. If a whole GPU is more than 100
//! `mps`, several amounts have the same percentage: `mps:20` and `mps:22` of 320 are both 6.
//! Then `scontrol` is asked, and what it says counts only if it has that percentage.

/// The amounts that a percentage may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The least.
    pub least: u64,
    /// The most.
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
            most: first(percent.saturating_add(1))
                .saturating_sub(1)
                .max(least.max(1)),
        }
    }

    /// The one amount that it can be.
    pub fn exact(self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }

    /// The amount in what `scontrol -o -d show job` says: of several nodes' the largest that
    /// can be meant. If it says nothing that fits, the most that it may be: then no GPU is
    /// given more than it has.
    pub fn settle(self, answer: Option<&str>) -> u64 {
        let amounts = answer.into_iter().flat_map(amounts);
        let fitting = amounts.filter(|amount| (self.least..=self.most).contains(amount));
        fitting.max().unwrap_or(self.most)
    }
}

/// The amounts of `mps` in words such as `GRES=mps:titanrtx:64(IDX:0)` and
/// `JOB_GRES=gpu:1,mps:64`.
fn amounts(answer: &str) -> impl Iterator<Item = u64> {
    let words = answer.split_whitespace();
    let lists = words.filter_map(|word| {
        let list = word.strip_prefix("JOB_GRES=");
        list.or_else(|| word.strip_prefix("GRES="))
    });
    let parts = lists.flat_map(|list| list.split(','));
    parts.filter_map(|part| {
        let part = part.strip_prefix("gres/").unwrap_or(part);
        let amount = part.strip_prefix("mps:")?.split('(').next()?;
        let amount = amount.rsplit(':').next()?;
        match amount.strip_suffix(['K', 'k']) {
            Some(thousands) => Some(thousands.parse::<u64>().ok()?.saturating_mul(1024)),
            None => amount.parse().ok(),
        }
    })
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
    fn scontrol_settles_what_the_percentage_leaves_open() {
        let share = Share::of(1, 1280);
        for answer in [
            "JobId=1 JOB_GRES=mps:20   Nodes=n1 CPU_IDs=0 Mem=100 GRES=mps:20(20/1280,0/0) X",
            "JOB_GRES=mps:titanrtx:20 Nodes=n1 GRES=mps:titanrtx:20(IDX:0)",
            "JOB_GRES=gpu:1,mps:20",
            "JOB_GRES=mps:40 Nodes=n[1-2] GRES=mps:20(IDX:0)",
        ] {
            assert_eq!(share.settle(Some(answer)), 20, "{answer}");
        }
        assert_eq!(share.settle(None), 25, "the most it may be");
        assert_eq!(share.settle(Some("GRES=mps:500(IDX:0)")), 25, "not that");
    }
}
