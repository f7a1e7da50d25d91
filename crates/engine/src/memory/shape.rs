//! What was seen of commands of one shape, and what that says of the next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use packhorse_core as core;
use packhorse_model::{Bytes, LearnedPeak, Models, PeakOrigin, TaskId};
use rustc_hash::FxHashSet;

use super::needs::models;
use super::probing::Probing;
use super::rest::with_margin;
use crate::engine::DeviceInfo;

/// How many samples of a shape count on each model: the newest.
const KEPT: usize = 64;

/// After so many attempts that stayed within what was learned, that is believed again.
const CALM: u32 = 20;

/// What a task needs, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) memory: Option<Bytes>,
    /// If that is not known: what those that run now were seen to need at rest, and those
    /// that grew late and were not seen to their end.
    pub(super) rested: Option<Bytes>,
    /// What those that run now were seen to need beyond what they were promised.
    pub(super) raised: Option<Bytes>,
    pub(super) expected: Option<Duration>,
}

impl Need {
    /// What `samples` say.
    fn of<'a>(samples: impl Iterator<Item = &'a LearnedPeak> + Clone) -> Self {
        Need {
            memory: core::reservation(samples.clone()),
            rested: None,
            raised: None,
            expected: core::expected(samples).map(coarse),
        }
    }
}

/// Rounded up by an eighth at most, so that it does not change with every task
/// that ends.
fn coarse(time: Duration) -> Duration {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let unit = (nanos.checked_ilog2().unwrap_or(0)).saturating_sub(3);
    Duration::from_nanos(nanos.div_ceil(1 << unit).saturating_mul(1 << unit))
}

/// All that is known of commands of one shape.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// What was seen on each model of the pool, in the order of its numbers.
    models: Vec<OnModel>,
    /// What all of that says together.
    need: Need,
    /// Tasks that wait to know what they need.
    pub(super) waiting: FxHashSet<TaskId>,
    /// Tasks that were given an amount, which stays as long as none like them outgrows it.
    pub(super) given: FxHashSet<TaskId>,
    /// Who of them is measured.
    pub(super) probing: Probing,
    /// What those that run now were seen to need at rest, and those that grew late and were
    /// not seen to their end.
    pub(super) rested: Option<Bytes>,
    /// How old one was that grew after its memory had rested.
    pub(super) grows_at: Option<Duration>,
    raise: Option<Raise>,
}

/// What tasks of a kind are promised because some took memory that others were promised.
#[derive(Clone, Copy, Debug)]
struct Raise {
    memory: Bytes,
    /// Attempts in a row that then stayed within what is known without this.
    calm: u32,
}

#[derive(Debug)]
struct OnModel {
    name: Arc<str>,
    /// The newest last.
    samples: VecDeque<LearnedPeak>,
    need: Need,
}

impl Shape {
    /// Of a shape that was seen like this, on devices like these.
    pub(crate) fn new(about: &[DeviceInfo], mut seen: BTreeMap<String, Vec<LearnedPeak>>) -> Self {
        let all = seen.values().flatten();
        let growing = all.filter(|sample| sample.origin == PeakOrigin::Growing);
        let (rested, grows_at) = growing.fold((None, None), |(rested, age), sample| {
            let needed = with_margin(sample.peak);
            (rested.max(Some(needed)), age.max(sample.duration))
        });
        let of_model = |name: Arc<str>| {
            let mut samples = seen.remove(&*name).unwrap_or_default();
            samples.sort_by_key(|sample| sample.at);
            samples.drain(..samples.len().saturating_sub(KEPT));
            OnModel { need: Need::of(samples.iter()), name, samples: samples.into() }
        };
        let mut shape = Self {
            models: models(about).into_iter().map(of_model).collect(),
            rested,
            grows_at,
            ..Self::default()
        };
        shape.sum_up();
        shape
    }

    fn sum_up(&mut self) {
        self.need = Need::of(self.models.iter().flat_map(|model| &model.samples));
    }

    /// Takes note of one more, and tells whether that changes anything. As many
    /// are kept as the store keeps.
    pub(super) fn add(&mut self, model: &str, sample: LearnedPeak) -> bool {
        let Some(model) = self.models.iter_mut().find(|known| &*known.name == model) else {
            return false;
        };
        let before = (model.need, self.need);
        model.samples.push_back(sample);
        if model.samples.len() > KEPT {
            model.samples.pop_front();
        }
        model.need = Need::of(model.samples.iter());
        let now = model.need;
        self.sum_up();
        let calmed = self.calm_down(sample);
        calmed || (now, self.need) != before
    }

    /// Promises tasks at least so much. Whether that is new.
    pub(super) fn raise(&mut self, memory: Bytes) -> bool {
        let is_more = self.raise.is_none_or(|raise| memory > raise.memory);
        if is_more {
            self.raise = Some(Raise { memory, calm: 0 });
        }
        is_more
    }

    /// What the attempts that were seen to their end needed at most, and a margin.
    pub(super) fn completed(&self) -> Option<Bytes> {
        let samples = self.models.iter().flat_map(|model| &model.samples);
        let completed = samples.filter(|sample| match sample.origin {
            PeakOrigin::Run | PeakOrigin::Probe | PeakOrigin::GrewLate => true,
            PeakOrigin::OutOfMemory | PeakOrigin::Growing => false,
        });
        completed.map(|sample| sample.peak).max().map(with_margin)
    }

    /// What tasks are promised at least since some of them took too much.
    pub(super) fn raised(&self) -> Option<Bytes> {
        self.raise.map(|raise| raise.memory)
    }

    /// Takes a raise back when enough attempts did without. Whether that is now.
    fn calm_down(&mut self, sample: LearnedPeak) -> bool {
        let Some(raise) = self.raise.as_mut().filter(|raise| raise.memory > Bytes(0)) else {
            return false;
        };
        let is_calm = sample.origin == PeakOrigin::Run && Some(sample.peak) <= self.need.memory;
        raise.calm = if is_calm { raise.calm + 1 } else { 0 };
        let is_over = raise.calm >= CALM;
        if is_over {
            // What was given is not believed again: what was learned counts.
            raise.memory = Bytes(0);
        }
        is_over
    }

    /// Whether nothing is known and nobody waits to know.
    pub(super) fn is_idle(&self) -> bool {
        self.need == Need::default()
            && self.waiting.is_empty()
            && self.given.is_empty()
            && self.raise.is_none()
            && self.probing.is_idle()
            && (self.rested, self.grows_at) == (None, None)
    }

    /// What a task needs that may run on these models: the most over all of them,
    /// each by what was seen on it. One on which nothing was seen goes by the
    /// others.
    pub(super) fn need(&self, allowed: Models) -> Need {
        let numbered = self.models.iter().zip(0_u8..);
        let allowed = numbered.filter(|(_, number)| allowed.contains(*number));
        let needs = allowed.map(|(model, _)| Need {
            memory: model.need.memory.or(self.need.memory),
            rested: self.rested,
            raised: self.raised(),
            expected: model.need.expected.or(self.need.expected),
        });
        needs.fold(Need::default(), |most, need| Need {
            memory: most.memory.max(need.memory),
            rested: need.rested,
            raised: need.raised,
            expected: most.expected.max(need.expected),
        })
    }
}

/// The memory of the smallest and of the largest device of these models; 0 where nobody
/// knows.
pub(super) fn sizes(about: &[DeviceInfo], allowed: Models) -> (Bytes, Bytes) {
    let names = models(about);
    let names = names.iter().zip(0_u8..);
    let is_allowed = |about: &&DeviceInfo| {
        let number = names.clone().find(|(name, _)| **name == about.model);
        number.is_some_and(|(_, number)| allowed.contains(number))
    };
    let sizes = about.iter().filter(is_allowed).map(|about| about.memory);
    let smallest = sizes.clone().min().unwrap_or_default();
    (smallest, sizes.max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use packhorse_model::Timestamp;

    use super::*;
    use crate::engine::UseLimit;

    const GIB: u64 = 1 << 30;

    fn shape(seen: &[(&str, u64, u64)]) -> Shape {
        let device = |model: &str| DeviceInfo {
            label: String::new(),
            keys: Vec::new(),
            memory: Bytes(80 * GIB),
            model: model.into(),
            use_limit: UseLimit::None,
        };
        let devices = [device("old"), device("new"), device("newest")];
        let mut shape = Shape::new(&devices, BTreeMap::new());
        for &(model, peak, seconds) in seen {
            let sample = LearnedPeak {
                at: Timestamp(0),
                peak: Bytes(peak * GIB),
                error: Bytes(0),
                duration: Some(Duration::from_secs(seconds)),
                origin: PeakOrigin::Run,
            };
            shape.add(model, sample);
        }
        shape
    }

    fn memory(shape: &Shape, models: u64) -> u64 {
        shape.need(Models(models)).memory.unwrap().0 / GIB
    }

    #[test]
    fn a_task_needs_what_was_seen_on_the_models_that_it_may_run_on() {
        let shape = shape(&[("old", 10, 80), ("new", 20, 40)]);
        assert_eq!(memory(&shape, 0b001), 11);
        assert_eq!(memory(&shape, 0b010), 22);
        assert_eq!(memory(&shape, 0b011), 22);
        let expected = |models| shape.need(Models(models)).expected.unwrap();
        assert!(expected(0b001) > Duration::from_secs(80));
        assert!(expected(0b010) < Duration::from_secs(50));
    }

    #[test]
    fn a_model_on_which_nothing_was_seen_goes_by_the_others() {
        let seen = shape(&[("old", 10, 80), ("new", 20, 40)]);
        assert!(memory(&seen, 0b100) > 20);
        assert_eq!(shape(&[]).need(Models::ANY), Need::default());
    }
}
