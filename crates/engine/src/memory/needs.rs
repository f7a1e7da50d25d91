//! What a task needs, by what tasks like it were seen to need.

use std::path::Path;
use std::sync::Arc;

use packhorse_core::{ProbePlan, SchedulerEvent, Submission};
use packhorse_intake::probe::probe_command;
use packhorse_intake::signature::{Signature, SignatureDraft};
use packhorse_model::{
    Bytes, Command, GpuRequest, LearnedPeak, MemoryRequest, Models, ProbeSpec, Request, TaskId,
    TaskSpec, VramRequest,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::family::{Family, Kind, LearnedPeaks};
use super::probing::Probing;
use super::shape::{Need, Shape, sizes};
use crate::engine::{DeviceInfo, Engine, UseLimit};
use crate::run::Run;
use crate::task::{Task, submission};

/// A device has to have so much free for a task of which nothing is known: one part of so
/// many.
const LEAST_FREE: u64 = 4;

/// How much GPU memory a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VramUse {
    /// Nobody said, and it is not counted.
    Uncounted,
    /// So much.
    Given(Bytes),
    /// What was learned; if nothing was, all that is free on a device.
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

    /// What a task that needs `request` otherwise asks for, whose like needed `need`. One of
    /// which nothing is known has all that is free on a device; and one that would not fit
    /// into any device with its margin has one to itself.
    fn request(
        self,
        need: Need,
        at_least: Bytes,
        devices: &[DeviceInfo],
        request: &Request,
    ) -> MemoryRequest {
        let memory = match self {
            Self::Learned => need.memory,
            Self::Bounded(bytes) => need.memory.or(Some(bytes)),
            // What was given counts, unless it was seen to be too little.
            Self::Given(bytes) if need.raised.is_some() => need.memory.max(Some(bytes)),
            Self::Given(bytes) if at_least > bytes => Some(at_least),
            Self::Uncounted | Self::Given(_) | Self::Measured => return self.at_first(),
        };
        let memory = memory.map(|memory| memory.max(need.raised.unwrap_or_default()).max(at_least));
        let (smallest, largest) = sizes(devices, request.models);
        let is_share = matches!(request.gpus, GpuRequest::Share(_));
        let rested = need.rested.max(need.raised).max(Some(at_least)).filter(|it| it.0 > 0);
        let least = rested.unwrap_or(Bytes(smallest.0 / LEAST_FREE));
        match memory {
            Some(memory) if memory < largest => MemoryRequest::Bytes(memory),
            // Whoever needs nearly all of a device gets it to itself.
            None if is_share && least.0 > 0 && least.0 < largest.0 / 100 * 95 => {
                MemoryRequest::AtLeast(least)
            }
            _ => MemoryRequest::Whole,
        }
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

/// Those of `models` of which a program can have several devices.
pub(crate) fn models_together(devices: &[DeviceInfo], models: Models) -> Models {
    let mut bits = models.0;
    for (number, model) in self::models(devices).iter().enumerate().take(64) {
        let mut alike = devices.iter().filter(|device| device.model == *model);
        if alike.any(|device| device.use_limit == UseLimit::NothingBeside) {
            bits &= !(1 << number);
        }
    }
    Models(bits)
}

/// What was learned of the commands of all runs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(super) shapes: FxHashMap<Arc<str>, Shape>,
    pub(super) families: FxHashMap<Arc<str>, Family>,
    /// Those that were asked for, and have not been found yet.
    pub(super) asked: FxHashSet<Arc<str>>,
}

/// What a task's memory request is worked out from, kept until the task is over.
#[derive(Clone, Debug)]
pub(crate) struct VramNeed {
    /// What it is remembered by.
    pub(crate) kind: Kind,
    /// What it needs besides memory.
    request: Request,
    /// How it is measured.
    pub(crate) probe: Option<Arc<Command>>,
    /// What it was seen to need itself.
    pub(super) at_least: Bytes,
    /// Whether nothing that is learned changes what it asks for any more.
    is_settled: bool,
}

/// What a task is remembered by that is started from `folder`, but for what is in files.
pub fn draft_of(command: &Command, spec: &TaskSpec, folder: &Path) -> SignatureDraft {
    if let Some(signature) = &spec.signature {
        return SignatureDraft::named(signature);
    }
    let own = spec.folder.as_deref();
    let folder = own.map_or_else(|| folder.to_owned(), |own| folder.join(own));
    SignatureDraft::new(command, &spec.env, &folder)
}

/// What the scheduler would be told of tasks, as far as it can be known before: for a plan.
pub struct Forecast<'a> {
    devices: &'a [DeviceInfo],
    slots: Option<u32>,
    needs: Needs,
}

impl<'a> Forecast<'a> {
    /// For tasks that run there.
    pub fn new(devices: &'a [DeviceInfo], slots: Option<u32>) -> Self {
        Self { devices, slots, needs: Needs::default() }
    }

    /// What the scheduler would be told of a task, and how long it will take as far as
    /// `peaks` can tell. `spec` is laid over the run's defaults already.
    pub fn submission<E>(
        &mut self,
        id: TaskId,
        spec: &TaskSpec,
        signature: Signature,
        peaks: impl FnOnce(&str) -> Result<LearnedPeaks, E>,
    ) -> Result<Submission, E> {
        let kind = Kind::from(signature);
        if let Some(key) = self.needs.ask(&kind) {
            self.needs.found(self.devices, &key, peaks(&key)?);
        }
        let mut submission = submission(id, spec, self.devices, self.slots);
        let request = &mut submission.request;
        let need = self.needs.need(&kind, request.models);
        request.memory = VramUse::of(spec).request(need, Bytes(0), self.devices, request);
        submission.expected = need.expected;
        Ok(submission)
    }
}

impl Engine {
    /// Works out what a task needs of memory, and lays it into `submission`.
    pub(crate) fn settle_need(&mut self, submission: &mut Submission, task: &mut Task, kind: Kind) {
        self.count_memory();
        let request = submission.request.clone();
        let need = self.needs.need(&kind, request.models);
        submission.expected = need.expected;
        let vram = task.vram();
        submission.request.memory = vram.request(need, Bytes(0), &self.devices, &request);
        let probe = task.spec.probe.as_ref();
        let probe = probe.and_then(|probe| probe_command(probe, &task.command));
        if matches!(vram, VramUse::Learned | VramUse::Bounded(_)) {
            let run = self.runs.get(&submission.id.run);
            let may_start = run.is_some_and(Run::takes_tasks);
            if need.memory.is_none() && probe.is_some() && may_start {
                submission.probe = self.appoint(&kind.signature, submission);
            }
            self.needs.wait(&self.devices, &kind, submission.id);
        } else {
            let shape = self.needs.shape(&self.devices, &kind.signature);
            shape.given.insert(submission.id);
        }
        let probe = probe.map(Arc::new);
        task.need = Some(Box::new(VramNeed {
            kind,
            request,
            probe,
            at_least: Bytes(0),
            is_settled: false,
        }));
    }

    /// Takes note of what an attempt was seen to need, which is remembered as `signature`,
    /// and lets those who wait to know have it.
    pub(crate) fn learn(
        &mut self,
        kind: &Kind,
        signature: &Arc<str>,
        model: &str,
        peak: LearnedPeak,
    ) {
        let mut changed = self.needs.learn_for_family(kind, signature, model, peak);
        let own = self.needs.shape(&self.devices, &kind.signature);
        own.probing = Probing::default();
        if *signature == kind.signature && own.add(model, peak) {
            changed.push(Arc::clone(signature));
        }
        self.hold();
        for signature in changed {
            if let Some(shape) = self.needs.shapes.get_mut(&signature) {
                shape.probing = Probing::default();
            }
            self.revise_waiting(&signature);
        }
        self.unhold();
    }

    /// What tasks of this kind need is known better: those that wait are told.
    pub(super) fn revise_waiting(&mut self, signature: &Arc<str>) {
        let Some(shape) = self.needs.shapes.get(signature) else {
            return;
        };
        if shape.waiting.is_empty() {
            return;
        }
        let waiting = shape.waiting.iter().copied().collect();
        self.revise_all(waiting);
    }

    /// Tells the scheduler what each of these tasks needs by now.
    pub(super) fn revise_all(&mut self, mut tasks: Vec<TaskId>) {
        tasks.sort_unstable();
        // All of them at once, before the first one starts.
        self.hold();
        for id in tasks {
            if let Some(revision) = self.revision(id) {
                self.step(revision);
            }
        }
        self.unhold();
    }

    /// What the scheduler is to be told of what a task needs by now.
    pub(crate) fn revision(&self, id: TaskId) -> Option<SchedulerEvent> {
        let task = self.tasks.get(&id)?;
        let need = task.need.as_ref().filter(|need| !need.is_settled)?;
        let mut request = need.request.clone();
        let known = self.needs.need(&need.kind, request.models);
        if known.memory.is_none() && need.probe.is_some() {
            // It will be known when that was measured.
            return None;
        }
        let vram = task.vram();
        request.memory = vram.request(known, need.at_least, &self.devices, &request);
        let (expected, probe) = (known.expected, ProbePlan::None);
        Some(SchedulerEvent::Revise { task: id, request, expected, probe })
    }

    /// A task has GPUs to itself after it had run out of memory. Nothing that is learned
    /// later takes that from it.
    pub(crate) fn keep_request(&mut self, id: TaskId) {
        self.forget_need(id);
        let task = self.tasks.get_mut(&id);
        if let Some(need) = task.and_then(|task| task.need.as_mut()) {
            need.is_settled = true;
        }
    }

    /// A task does not wait to know any more.
    pub(crate) fn forget_need(&mut self, id: TaskId) {
        let task = self.tasks.get(&id);
        if let Some(need) = task.and_then(|task| task.need.as_ref()) {
            self.needs.leave(&need.kind, id);
        }
    }
}
