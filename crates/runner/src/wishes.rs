//! Tasks that ask for something themselves: more or less of the machine, another
//! place in the order, other tasks to come first.

use std::sync::Arc;

use packhorse_core::{self as core, Submission};
use packhorse_intake::lines::Options;
use packhorse_model::{Command, GpuRequest, Milli, Outcome, Request, RunId, TaskId};
use packhorse_store::{NewTask, Overrides, Record, StoredTask, TimeLimit, Vram};

use crate::devices::models_named;
use crate::known::Known;
use crate::run::Run;
use crate::{Appetite, Defaults, Places, RunError};

/// Whether the task has no wishes of its own.
pub(crate) fn is_plain(task: &StoredTask) -> bool {
    task.name.is_none() && task.after.is_empty() && task.overrides == Overrides::default()
}

/// What a task asks for itself, for the store to keep.
pub fn overrides(options: &Options) -> Overrides {
    Overrides {
        gpus: options.gpus,
        vram: options.vram.map(stored_vram),
        cpu: options.cpu,
        ram: options.ram,
        model: (!options.models.is_empty()).then(|| options.models.join(",").into()),
        signature: options.signature.as_deref().map(Into::into),
        folder: None,
        cores: options.cores,
        priority: options.priority,
        retries: options.retries,
        time_limit: options.time_limit.map(TimeLimit::After),
    }
}

/// The most that a task with these options asks for at first.
pub fn first_request(places: &Places, defaults: &Defaults, options: &Options) -> Request {
    let nobody = TaskId::new(RunId(1), 1);
    let mut submission = defaults.submission(nobody);
    let mut known = Known::new(Arc::new(Command::Words(Vec::new())), 0, 0);
    known.appetite = defaults.appetite.clone();
    lay_over(places, &overrides(options), &mut submission, &mut known);
    known.appetite.at_first(&submission.request)
}

fn stored_vram(vram: packhorse_intake::Vram) -> Vram {
    match vram {
        packhorse_intake::Vram::Auto => Vram::Auto,
        packhorse_intake::Vram::Bytes(bytes) => Vram::Bytes(bytes),
    }
}

impl Run<'_> {
    /// The record of a line with directives.
    pub(crate) fn wishful(&mut self, number: u32, command: Command, options: Options) -> NewTask {
        let wishes = overrides(&options);
        let mut task = NewTask::plain(number, command);
        // The names were checked when the line was read.
        let after = options
            .after
            .iter()
            .filter_map(|name| self.feed.names.get(name));
        task.after = after.copied().collect();
        if let Some(name) = options.name {
            task.name = Some(name.as_str().into());
            self.feed.names.insert(name, number);
        }
        task.overrides = Some(Box::new(wishes));
        task
    }

    /// Gives the core a task that has just come, with what it asks for itself.
    pub(crate) fn submit_new(&mut self, task: NewTask) -> Result<(), RunError> {
        let id = TaskId::new(self.id, task.number);
        let mut submission = self.settings.defaults.submission(id);
        let mut known = self.settings.defaults.known(Arc::new(task.command), 0);
        let overrides = task.overrides.as_deref().cloned().unwrap_or_default();
        let places = &self.settings.places;
        lay_over(places, &overrides, &mut submission, &mut known);
        self.submit_after(submission, known, &task.after)
    }

    /// Gives the core a task of an earlier moment or session.
    pub(crate) fn submit_stored(&mut self, task: StoredTask) -> Result<(), RunError> {
        let mut submission = self.settings.defaults.submission(task.id);
        if is_plain(&task) {
            return self.submit_plain(submission, Arc::new(task.command), task.attempts);
        }
        let command = Arc::new(task.command);
        let mut known = self.settings.defaults.known(command, task.attempts);
        let places = &self.settings.places;
        lay_over(places, &task.overrides, &mut submission, &mut known);
        self.submit_after(submission, known, &task.after)
    }

    /// Gives the core a task that comes after others, unless it is known already
    /// that one of those did not succeed.
    pub(crate) fn submit_after(
        &mut self,
        mut submission: Submission,
        known: Known,
        after: &[u32],
    ) -> Result<(), RunError> {
        for &number in after {
            let id = TaskId::new(self.id, number);
            match self.outcome_beyond_core(id)? {
                Some(Outcome::Succeeded) => {}
                Some(_) => {
                    self.skip(submission.id, known);
                    return Ok(());
                }
                None => submission.after.push(id),
            }
        }
        self.submit(submission, known)
    }

    /// How a task came out that the core does not know: it was refused, or
    /// settled in an earlier session.
    fn outcome_beyond_core(&mut self, id: TaskId) -> Result<Option<Outcome>, RunError> {
        if let Some(outcome) = self.feed.decided.get(&id.number) {
            return Ok(Some(*outcome));
        }
        let now = self.now();
        if !self.feed.resumed || core::explain(&self.state, id, now).is_some() {
            return Ok(None);
        }
        let found = self.reader()?.task(id)?;
        Ok(found.and_then(|(task, _)| task.outcome.filter(|outcome| outcome.is_final())))
    }

    /// Settles a task that cannot run because of another.
    fn skip(&mut self, task: TaskId, known: Known) {
        let outcome = Outcome::Skipped;
        self.feed.decided.insert(task.number, outcome);
        self.tasks.insert(task.number, known);
        let place = self.store.send(Record::TaskFinished {
            task: task.number,
            outcome,
        });
        self.finished(task, outcome, None, None, place);
    }
}

/// Lays a task's wishes over the run's defaults.
pub(crate) fn lay_over(
    places: &Places,
    overrides: &Overrides,
    submission: &mut Submission,
    known: &mut Known,
) {
    if let Some(vram) = overrides.vram {
        known.appetite = match (vram, &known.appetite) {
            (Vram::Auto, _) => Appetite::Learned,
            (Vram::Bytes(bytes), Appetite::Bounded(_)) => Appetite::Bounded(bytes),
            (Vram::Bytes(bytes), _) => Appetite::Given(bytes),
        };
        // Memory alone decides how many share a device, unless somebody said
        // more.
        if submission.request.gpus == GpuRequest::Whole(1) && overrides.gpus.is_none() {
            submission.request.gpus = GpuRequest::Share(Milli(0));
        }
    }
    if let Some(signature) = &overrides.signature {
        known.signature = Some(signature.as_ref().into());
    }
    if let Some(folder) = &overrides.folder {
        known.folder = Some(folder.as_path().into());
    }
    if let Some(model) = &overrides.model {
        submission.request.models = models_named(&places.about, model);
    }
    if let Some(cpu) = overrides.cpu {
        submission.request.cpu = cpu;
    }
    if let Some(ram) = overrides.ram {
        submission.request.ram = ram;
    }
    if let Some(gpus) = overrides.gpus {
        submission.request.gpus = gpus;
    }
    if let Some(cores) = overrides.cores {
        submission.request.cores = cores;
    }
    if let Some(priority) = overrides.priority {
        submission.priority = priority;
    }
    if let Some(retries) = overrides.retries {
        submission.retries = retries;
        known.retries = retries;
    }
    match overrides.time_limit {
        Some(TimeLimit::Never) => submission.time_limit = None,
        Some(TimeLimit::After(limit)) => submission.time_limit = Some(limit),
        None => {}
    }
    // With GPUs for a limit, nothing would limit tasks that need none.
    let request = &mut submission.request;
    if request.gpus == GpuRequest::None && places.slots.is_none() {
        request.cores = request.cores.max(1);
    }
}
