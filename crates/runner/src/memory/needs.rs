//! What a task needs, by what tasks like it were seen to need.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use packhorse_core::{self as core, ProbePlan, Submission};
use packhorse_intake::signature::signature;
use packhorse_model::{Command, MemoryRequest, Models, Request};
use packhorse_store::{Reader, Sample};
use rustc_hash::FxHashMap;

use super::shape::{Need, Shape, largest};
use crate::known::Known;
use crate::run::Run;
use crate::{Appetite, Places, RunError};

/// What was learned of the commands of a run.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(super) shapes: FxHashMap<Arc<str>, Shape>,
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
    let allowed = submission.request.models;
    let need = Shape::new(&places.about, samples).need(allowed);
    submission.expected = need.expected;
    let largest = largest(&places.about, allowed);
    match known.appetite {
        Appetite::Uncounted => {}
        Appetite::Measured => submission.request.memory = MemoryRequest::Whole,
        Appetite::Given(bytes) => submission.request.memory = MemoryRequest::Bytes(bytes),
        Appetite::Learned | Appetite::Bounded(_) => {
            submission.request.memory = need.request(known.appetite.bound(), largest);
        }
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
        let need = self.need(&signature, request.models)?;
        submission.expected = need.expected;
        match known.appetite {
            Appetite::Uncounted => {}
            Appetite::Measured => submission.request.memory = MemoryRequest::Whole,
            Appetite::Given(bytes) => submission.request.memory = MemoryRequest::Bytes(bytes),
            Appetite::Learned | Appetite::Bounded(_) => {
                let largest = largest(&self.settings.places.about, request.models);
                submission.request.memory = need.request(known.appetite.bound(), largest);
                if need.memory.is_none() && known.probe.is_some() {
                    submission.probe = self.appoint(&signature, submission);
                }
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

    fn need(&mut self, signature: &Arc<str>, allowed: Models) -> Result<Need, RunError> {
        if let Some(shape) = self.needs.shapes.get(signature) {
            return Ok(shape.need(allowed));
        }
        let seen = self.reader()?.samples(signature)?;
        let shape = Shape::new(&self.settings.places.about, seen);
        let need = shape.need(allowed);
        self.needs.shapes.insert(Arc::clone(signature), shape);
        Ok(need)
    }

    /// Takes note of what an attempt was seen to need, and lets those who wait
    /// to know have it.
    pub(crate) fn learn(&mut self, signature: &Arc<str>, model: &str, sample: Sample) {
        let Some(shape) = self.needs.shapes.get_mut(signature) else {
            return;
        };
        let changed = shape.add(model, sample);
        shape.probing.clear();
        if !changed || shape.waiting.is_empty() {
            return;
        }
        let waiting: Vec<u32> = shape.waiting.iter().copied().collect();
        // All of them at once, before the first one starts.
        let together = !self.state.is_held();
        if together {
            self.step(core::SchedulerEvent::Hold);
        }
        for number in waiting {
            let (Some(known), Some(shape)) =
                (self.tasks.get(&number), self.needs.shapes.get(signature))
            else {
                continue;
            };
            let Some(wants) = &known.wants else {
                continue;
            };
            let mut request = wants.request.clone();
            let need = shape.need(request.models);
            let largest = largest(&self.settings.places.about, request.models);
            request.memory = need.request(known.appetite.bound(), largest);
            self.revise(number, request, need.expected, ProbePlan::None);
        }
        if together {
            self.step(core::SchedulerEvent::Unhold);
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
