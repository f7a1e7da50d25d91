//! What a task needs, by what tasks like it were seen to need.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use packhorse_core::{ProbePlan, Submission};
use packhorse_intake::probe::probe_command;
use packhorse_intake::signature::signature;
use packhorse_model::{
    Bytes, Command, LearnedPeak, MemoryRequest, Models, ProbeSpec, Request, TaskId, TaskSpec,
    VramRequest,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::probing::Probing;
use super::shape::{Need, Shape, largest};
use crate::engine::{DeviceInfo, Engine};
use crate::run::Run;
use crate::task::{Task, submission};

/// How much GPU memory a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VramUse {
    /// Nobody said, and it is not counted.
    Uncounted,
    /// So much.
    Given(Bytes),
    /// What was learned; if nothing was, a device of its own.
    Learned,
    /// What was learned; if nothing was, so much.
    Bounded(Bytes),
    /// A device of its own, to be measured on it.
    Measured,
}

impl VramUse {
    /// What a task with these options asks for.
    pub(crate) fn of(spec: &TaskSpec) -> Self {
        let probed = matches!(spec.probe, Some(ProbeSpec::Template(_)));
        match spec.vram {
            None => Self::Uncounted,
            Some(VramRequest::Bytes(bytes)) if probed => Self::Bounded(bytes),
            Some(VramRequest::Bytes(bytes)) => Self::Given(bytes),
            Some(VramRequest::Auto) => Self::Learned,
            Some(VramRequest::Measure) => Self::Measured,
        }
    }

    /// The most that a task asks for at first.
    pub(crate) fn at_first(self) -> MemoryRequest {
        match self {
            Self::Uncounted => MemoryRequest::Uncounted,
            Self::Given(bytes) | Self::Bounded(bytes) => MemoryRequest::Bytes(bytes),
            Self::Learned | Self::Measured => MemoryRequest::Whole,
        }
    }

    /// What a task asks for whose like needed `need`. One of which nothing is known has its
    /// devices to itself; and so has one that would not fit into any device with its margin.
    fn request(self, need: Need, devices: &[DeviceInfo], models: Models) -> MemoryRequest {
        let memory = match self {
            Self::Learned => need.memory,
            Self::Bounded(bytes) => need.memory.or(Some(bytes)),
            Self::Uncounted | Self::Given(_) | Self::Measured => return self.at_first(),
        };
        let memory = memory.filter(|&memory| memory < largest(devices, models));
        memory.map_or(MemoryRequest::Whole, MemoryRequest::Bytes)
    }
}

/// The different models among devices, in the order of the pool's numbers for them.
pub fn models(devices: &[DeviceInfo]) -> Vec<Arc<str>> {
    let mut models: Vec<Arc<str>> = Vec::new();
    for device in devices {
        if !models.contains(&device.model) {
            models.push(Arc::clone(&device.model));
        }
    }
    models
}

/// The models whose names contain one of `names`, which are separated by commas.
pub fn models_named(devices: &[DeviceInfo], names: &str) -> Models {
    let names = names.split(',').map(|name| name.trim().to_lowercase());
    let wanted: Vec<String> = names.collect();
    let mut bits = 0;
    for (number, model) in models(devices).iter().enumerate().take(64) {
        let model = model.to_lowercase();
        if wanted.iter().any(|name| model.contains(name.as_str())) {
            bits |= 1 << number;
        }
    }
    Models(bits)
}

/// What was learned of the commands of all runs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(super) shapes: FxHashMap<Arc<str>, Shape>,
    /// Those that were asked for, and have not been found yet.
    asked: FxHashSet<Arc<str>>,
}

impl Needs {
    /// Whether all is here that was ever learned of this shape.
    pub(crate) fn knows(&self, signature: &Arc<str>) -> bool {
        self.shapes.contains_key(signature)
    }

    /// Takes note that a shape is asked for; whether that is still to be done.
    pub(crate) fn ask(&mut self, signature: &Arc<str>) -> bool {
        !self.knows(signature) && self.asked.insert(Arc::clone(signature))
    }

    pub(crate) fn insert(&mut self, signature: &Arc<str>, shape: Shape) {
        self.asked.remove(signature);
        self.shapes.entry(Arc::clone(signature)).or_insert(shape);
    }
}

/// What a task's memory request is worked out from, kept until the task is over.
#[derive(Clone, Debug)]
pub(crate) struct VramNeed {
    /// What it is remembered by.
    pub(crate) signature: Arc<str>,
    /// What it needs besides memory.
    request: Request,
    /// How it is measured.
    pub(crate) probe: Option<Arc<Command>>,
}

/// What a task is remembered by that is started from `folder`.
pub(crate) fn signature_of(command: &Command, spec: &TaskSpec, folder: &Path) -> Arc<str> {
    match (&spec.signature, &spec.folder) {
        (Some(signature), _) => signature.as_str().into(),
        (None, Some(own)) => signature(command, &folder.join(own)).into(),
        (None, None) => signature(command, folder).into(),
    }
}

/// What the scheduler would be told of a task, and how long it will take as far as `peaks`
/// can tell: for a plan. `spec` is laid over the run's defaults already.
pub fn forecast(
    devices: &[DeviceInfo],
    slots: Option<u32>,
    id: TaskId,
    spec: &TaskSpec,
    folder: &Path,
    peaks: impl FnOnce(&str) -> BTreeMap<String, Vec<LearnedPeak>>,
) -> Submission {
    let signature = signature_of(&spec.command, spec, folder);
    let shape = Shape::new(devices, peaks(&signature));
    let mut submission = submission(id, spec, devices, slots);
    let request = &mut submission.request;
    let need = shape.need(request.models);
    request.memory = VramUse::of(spec).request(need, devices, request.models);
    submission.expected = need.expected;
    submission
}

impl Engine {
    /// Works out what a task needs of memory, and lays it into `submission`.
    pub(crate) fn settle_need(
        &mut self,
        submission: &mut Submission,
        task: &mut Task,
        signature: Arc<str>,
    ) {
        self.count_memory();
        let request = submission.request.clone();
        let Some(shape) = self.needs.shapes.get(&signature) else {
            return;
        };
        let need = shape.need(request.models);
        submission.expected = need.expected;
        let vram = task.vram();
        submission.request.memory = vram.request(need, &self.devices, request.models);
        let probe = task.spec.probe.as_ref();
        let probe = probe.and_then(|probe| probe_command(probe, &task.command));
        if matches!(vram, VramUse::Learned | VramUse::Bounded(_)) {
            let run = self.runs.get(&submission.id.run);
            let may_start = run.is_some_and(Run::takes_tasks);
            if need.memory.is_none() && probe.is_some() && may_start {
                submission.probe = self.appoint(&signature, submission);
            }
            if let Some(shape) = self.needs.shapes.get_mut(&signature) {
                shape.waiting.insert(submission.id);
            }
        }
        task.need = Some(Box::new(VramNeed {
            signature,
            request,
            probe: probe.map(Arc::new),
        }));
    }

    /// Takes note of what an attempt was seen to need, and lets those who wait to know
    /// have it.
    pub(crate) fn learn(&mut self, signature: &Arc<str>, model: &str, peak: LearnedPeak) {
        let Some(shape) = self.needs.shapes.get_mut(signature) else {
            return;
        };
        let changed = shape.add(model, peak);
        shape.probing = Probing::default();
        if !changed || shape.waiting.is_empty() {
            return;
        }
        let mut waiting: Vec<TaskId> = shape.waiting.iter().copied().collect();
        waiting.sort_unstable();
        // All of them at once, before the first one starts.
        self.hold();
        for id in waiting {
            let (Some(task), Some(shape)) = (self.tasks.get(&id), self.needs.shapes.get(signature))
            else {
                continue;
            };
            let Some(need) = &task.need else {
                continue;
            };
            let mut request = need.request.clone();
            let known = shape.need(request.models);
            request.memory = task.vram().request(known, &self.devices, request.models);
            self.revise(id, request, known.expected, ProbePlan::None);
        }
        self.unhold();
    }

    /// A task does not wait to know any more.
    pub(crate) fn forget_need(&mut self, id: TaskId) {
        let task = self.tasks.get(&id);
        if let Some(need) = task.and_then(|task| task.need.as_ref())
            && let Some(shape) = self.needs.shapes.get_mut(&need.signature)
        {
            shape.waiting.remove(&id);
        }
    }
}
