//! What a task needs, by what tasks like it were seen to need.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use packhorse_core::{self as core, Submission};
use packhorse_intake::signature::signature;
use packhorse_model::{Bytes, Command, MemoryRequest, Request};
use packhorse_store::{Reader, Sample};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::known::Known;
use crate::run::Run;
use crate::{Appetite, Places, RunError};

/// How many samples of a shape count: the newest.
const KEPT: usize = 64;

/// What was learned of the commands of a run.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    shapes: FxHashMap<Arc<str>, Shape>,
}

/// All that is known of commands of one shape.
#[derive(Debug, Default)]
struct Shape {
    /// What was seen on the models of this run's pool, the newest last.
    samples: VecDeque<Sample>,
    /// What they say.
    need: Need,
    /// Tasks that wait to know what they need.
    waiting: FxHashSet<u32>,
}

/// What a task needs, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    memory: Option<Bytes>,
    expected: Option<Duration>,
}

impl Need {
    /// What `samples` say.
    fn of<'a>(samples: impl IntoIterator<Item = &'a Sample> + Clone) -> Self {
        let peaks: Vec<core::Sample> = samples
            .clone()
            .into_iter()
            .map(|sample| core::Sample {
                peak: sample.peak,
                error: sample.error,
            })
            .collect();
        let durations: Vec<Duration> = samples
            .into_iter()
            .filter_map(|sample| sample.duration)
            .collect();
        Need {
            memory: core::reservation(&peaks),
            expected: core::expected(&durations).map(coarse),
        }
    }

    /// One of which nothing is known has its devices to itself, and so has one
    /// that would not fit into any device with its margin.
    fn request(self, largest: Bytes) -> MemoryRequest {
        match self.memory {
            Some(bytes) if bytes < largest => MemoryRequest::Bytes(bytes),
            _ => MemoryRequest::Whole,
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

impl Shape {
    fn new(samples: impl IntoIterator<Item = Sample>) -> Self {
        let mut samples: Vec<Sample> = samples.into_iter().collect();
        samples.sort_by_key(|sample| sample.at);
        let samples = VecDeque::from(samples);
        Self {
            need: Need::of(&samples),
            samples,
            waiting: FxHashSet::default(),
        }
    }

    /// Takes note of one more; as many are kept as the store keeps.
    fn add(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
        self.need = Need::of(&self.samples);
    }
}

/// How a task's memory is come by, kept until it is over.
#[derive(Clone, Debug)]
pub(crate) struct Wants {
    /// What it is remembered by.
    pub(crate) signature: Arc<str>,
    /// What it needs besides memory.
    request: Request,
    /// How it is measured.
    probe: Option<Arc<Command>>,
}

impl Wants {
    pub(crate) fn probe(&self) -> Option<&Arc<Command>> {
        self.probe.as_ref()
    }
}

/// What a task will need and how long it will take, as far as the store can tell:
/// for a plan.
pub(crate) fn foresee(
    places: &Places,
    reader: Option<&Reader>,
    folder: &Path,
    submission: &mut Submission,
    known: &Known,
) -> Result<(), RunError> {
    let signature = match &known.signature {
        Some(signature) => signature.to_string(),
        None => signature(&known.command, folder),
    };
    let samples = match reader {
        Some(reader) => reader.samples(&signature)?,
        None => BTreeMap::new(),
    };
    let here = |model: &str| places.about.iter().any(|about| &*about.model == model);
    let samples: Vec<Sample> = samples
        .into_iter()
        .filter(|(model, _)| here(model))
        .flat_map(|(_, samples)| samples)
        .collect();
    let need = Need::of(&samples);
    submission.expected = need.expected;
    let largest = places.about.iter().map(|about| about.memory).max();
    match known.appetite {
        Appetite::Uncounted => {}
        Appetite::Measured => submission.request.memory = MemoryRequest::Whole,
        Appetite::Given(bytes) => submission.request.memory = MemoryRequest::Bytes(bytes),
        Appetite::Learned => submission.request.memory = need.request(largest.unwrap_or_default()),
    }
    Ok(())
}

impl Run<'_> {
    /// Works out what a task needs of memory, and lays it into `submission`.
    pub(crate) fn settle_needs(
        &mut self,
        submission: &mut Submission,
        known: &mut Known,
    ) -> Result<(), RunError> {
        if known.appetite == Appetite::Uncounted || submission.request.gpus.devices() == 0 {
            return Ok(());
        }
        self.count_memory();
        let signature = known.signature.take().unwrap_or_else(|| {
            let folder = known.folder.as_deref().unwrap_or(&self.folder);
            signature(&known.command, folder).into()
        });
        let request = submission.request.clone();
        let need = self.need(&signature)?;
        submission.expected = need.expected;
        match known.appetite {
            Appetite::Uncounted => {}
            Appetite::Measured => submission.request.memory = MemoryRequest::Whole,
            Appetite::Given(bytes) => submission.request.memory = MemoryRequest::Bytes(bytes),
            Appetite::Learned => {
                submission.request.memory = need.request(self.devices.largest());
                submission.probe = need.memory.is_none() && known.probe.is_some();
                let shape = self.needs.shapes.entry(Arc::clone(&signature));
                shape.or_default().waiting.insert(submission.id.number);
            }
        }
        known.wants = Some(Box::new(Wants {
            signature,
            request,
            probe: known.probe.take(),
        }));
        Ok(())
    }

    fn need(&mut self, signature: &Arc<str>) -> Result<Need, RunError> {
        if let Some(shape) = self.needs.shapes.get(signature) {
            return Ok(shape.need);
        }
        let mut models = self.reader()?.samples(signature)?;
        models.retain(|model, _| self.devices.has_model(model));
        let shape = Shape::new(models.into_values().flatten());
        let need = shape.need;
        self.needs.shapes.insert(Arc::clone(signature), shape);
        Ok(need)
    }

    /// Takes note of what an attempt was seen to need, and lets those who wait
    /// to know have it.
    pub(crate) fn learn(&mut self, signature: &Arc<str>, sample: Sample) {
        let Some(shape) = self.needs.shapes.get_mut(signature) else {
            return;
        };
        let before = shape.need;
        shape.add(sample);
        let need = shape.need;
        if need == before || shape.waiting.is_empty() {
            return;
        }
        let waiting: Vec<u32> = shape.waiting.iter().copied().collect();
        let memory = need.request(self.devices.largest());
        // All of them at once, before the first one starts.
        let together = !self.state.is_held();
        if together {
            self.step(core::Event::Hold);
        }
        for number in waiting {
            let Some(wants) = self
                .tasks
                .get(&number)
                .and_then(|known| known.wants.as_ref())
            else {
                continue;
            };
            let mut request = wants.request.clone();
            request.memory = memory;
            self.step(core::Event::Revise {
                task: packhorse_model::TaskId::new(self.id, number),
                request,
                expected: need.expected,
                probe: false,
            });
        }
        if together {
            self.step(core::Event::Unhold);
        }
    }

    /// A task does not wait to know any more.
    pub(crate) fn forget_wish(&mut self, number: u32) {
        if let Some(wants) = self
            .tasks
            .get(&number)
            .and_then(|known| known.wants.as_ref())
            && let Some(shape) = self.needs.shapes.get_mut(&wants.signature)
        {
            shape.waiting.remove(&number);
        }
    }
}
