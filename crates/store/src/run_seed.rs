use uuid::Uuid;

/// What the seeds of a run's tasks come from.
///
/// It follows from the run's UUID, so it is the same whenever the run goes on, and another one
/// for a run of the same number in another state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSeed(u32);

impl RunSeed {
    pub fn of(run: Uuid) -> Self {
        let (high, low) = run.as_u64_pair();
        let words = [high >> 32, high, low >> 32, low];
        let word = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default();
        Self(words.into_iter().fold(0, |seed, part| mix(seed ^ word(part))))
    }

    /// The seed of the task with this number: another one for each task of the run.
    pub fn of_task(self, number: u32) -> u32 {
        mix(mix(number) ^ self.0)
    }
}

/// Changes about half of the bits if one of them changes, and no two words to the same: the last
/// step of `MurmurHash3`.
const fn mix(mut word: u32) -> u32 {
    word ^= word >> 16;
    word = word.wrapping_mul(0x85eb_ca6b);
    word ^= word >> 13;
    word = word.wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 16)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use packhorse_model::Timestamp;

    use super::*;
    use crate::new_run_uuid;

    #[test]
    fn no_two_tasks_of_a_run_have_the_same_seed() {
        let run = RunSeed::of(new_run_uuid(Timestamp::now()));
        let seeds: HashSet<u32> = (1..=100_000).map(|number| run.of_task(number)).collect();
        assert_eq!(seeds.len(), 100_000);
    }

    #[test]
    fn runs_of_one_moment_have_other_seeds() {
        let now = Timestamp::now();
        let [one, other] = [(); 2].map(|()| RunSeed::of(new_run_uuid(now)));
        assert_ne!(one.of_task(1), other.of_task(1));
    }

    /// A run that an older program began goes on with the same seeds.
    #[test]
    fn a_seed_never_changes() {
        let run = RunSeed::of(Uuid::from_u128(0x0198_1234_5678_7abc_8def_0123_4567_89ab));
        assert_eq!(
            [1, 2, 3].map(|number| run.of_task(number)),
            [1_692_903_671, 2_615_783_852, 1_184_845_297]
        );
    }
}
