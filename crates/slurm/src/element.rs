//! One element of an array: packhorse again, inside a job.
//!
//! It reads its tasks from the shared folder, runs them as any run is run, and appends what
//! happens to its outcome file. If its time is over before all of them are, it puts itself
//! back into the queue.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;
use packhorse_intake::Colour;
use packhorse_model::{
    DEFAULT_REQUEUES, Event, EventKind, Exit, RunSpec, RunSummary, SlurmSpec, TaskSpec, TimeLimit,
    Timestamp,
};
use packhorse_session::settings::Settings;
use packhorse_session::{
    Journal, Launch, Notices, Observer, PartTime, QueueView, RunPart, SessionError,
};
use packhorse_store::Home;

use crate::SlurmError;
use crate::allocation::Allocation;
use crate::arrays::ArrayPlan;
use crate::commands::{requeue, state_of};
use crate::earlier_lives::EarlierLives;
use crate::element_journal::ElementJournal;
use crate::folder::{ElementSpec, RunFile, SharedFolder};
use crate::outcome_file::{OutcomeFile, OutcomeWriter};
use crate::sbatch::{is_clear, submit_array};

/// How long before its end a job ends its tasks, if nobody says and it is long enough.
const MARGIN: Duration = Duration::from_secs(30);
/// What it needs besides the time that tasks have to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs the element of this array index. `base` is the element that index 0 stands for.
/// `observer` is shown what happens, too.
pub fn run_element(
    folder: &Path,
    base: u32,
    observer: &mut dyn Observer,
    notices: &mut Notices<'_>,
) -> Result<Exit, SlurmError> {
    let allocation = Allocation::find()?;
    let folder = SharedFolder::open(folder.to_owned());
    let number = base.saturating_add(allocation.index);
    let run = folder.read_run()?;
    let element = folder.elements()?.into_iter().nth(number as usize);
    let element = element.ok_or_else(|| {
        SlurmError::Plan(format!(
            "{} has no element {number}",
            folder.path().display()
        ))
    })?;
    let this = Element {
        allocation,
        folder,
        number,
        base,
        run,
        tasks: element,
    };
    this.run(observer, notices)
}

struct Element {
    allocation: Allocation,
    folder: SharedFolder,
    number: u32,
    base: u32,
    run: RunFile,
    tasks: ElementSpec,
}

impl Element {
    fn run(
        &self,
        observer: &mut dyn Observer,
        notices: &mut Notices<'_>,
    ) -> Result<Exit, SlurmError> {
        let ends = self.allocation.ends();
        let earlier = Rc::new(EarlierLives::read(&self.folder, self.number)?);
        let (file, life) = OutcomeFile::create(&self.folder, self.number, earlier.lives)?;
        let file = Rc::new(RefCell::new(file));
        let ran = if earlier.silent > self.requeues() {
            Err(SlurmError::Plan(format!(
                "its last {} lives ended before a task was seen to start, so it is given up\n\
                 hint: `packhorse slurm resume {}` submits what is left",
                earlier.silent, self.run.run
            )))
        } else {
            self.run_tasks(&earlier, &file, ends, observer, notices)
        };
        if let Err(error) = &ran {
            // Whoever follows the run is to know why it did nothing.
            file.borrow_mut().add(&Event {
                time: Timestamp::now(),
                kind: EventKind::Warning {
                    task: None,
                    message: format!(
                        "job {} on {}: {error}",
                        self.allocation.name, self.allocation.node
                    ),
                },
            });
        }
        file.borrow_mut().finish()?;
        let summary = ran?;
        let stopped = matches!(summary.exit, Exit::Signal(_));
        if summary.left > 0 && !stopped && self.has_more_to_do(&earlier)? {
            self.go_on(life, notices)?;
        }
        Ok(summary.exit)
    }

    fn run_tasks(
        &self,
        earlier: &Rc<EarlierLives>,
        file: &Rc<RefCell<OutcomeFile>>,
        ends: Option<Instant>,
        observer: &mut dyn Observer,
        notices: &mut Notices<'_>,
    ) -> Result<RunSummary, SlurmError> {
        let own = self.tasks.folder.as_ref().unwrap_or(&self.run.folder);
        let run_in = PathBuf::from(own.as_os_str());
        std::env::set_current_dir(&run_in).map_err(|error| {
            let text = format!("this node cannot enter {}: {error}", run_in.display());
            std::io::Error::new(error.kind(), text)
        })?;
        self.allocation.keep_to_cores();
        let mut journal = self.journal(earlier, Some(file))?;
        let (last, _) = journal.look_through()?;
        let spec = RunSpec {
            pool: self.allocation.pool(&self.run.spec, self.tasks.parallel),
            ..self.run.spec.clone()
        };
        let time = ends.map(|ends| part_time(&spec, ends, earlier));
        let home = NodeHome::make(&self.allocation.name, &self.run.home)?;
        let launch = Launch::prepare(spec, Colour::Off, &Settings::find()?, notices)?;
        let mut observer = Both {
            file: OutcomeWriter {
                file: Rc::clone(file),
                node: self.allocation.node.as_str().into(),
            },
            other: observer,
        };
        let part = RunPart {
            home: home.home.clone(),
            run: self.run.run,
            logs: self.folder.logs(),
            last,
            journal: Box::new(journal) as Box<dyn Journal>,
            time,
        };
        Ok(launch.run_part(part, &mut observer)?)
    }

    fn journal(
        &self,
        earlier: &Rc<EarlierLives>,
        file: Option<&Rc<RefCell<OutcomeFile>>>,
    ) -> Result<ElementJournal, SlurmError> {
        let (run, requeues) = (self.run.run, self.requeues());
        ElementJournal::new(run, &self.folder, &self.tasks, earlier, requeues, file)
    }

    fn slurm(&self) -> Option<&SlurmSpec> {
        self.run.spec.slurm.as_ref()
    }

    fn requeues(&self) -> u32 {
        let said = self.slurm().and_then(|slurm| slurm.requeues);
        said.unwrap_or(DEFAULT_REQUEUES)
    }

    /// Whether another life would have something to do, and this one has brought it on: what
    /// leads nowhere is not repeated for ever.
    fn has_more_to_do(&self, before: &EarlierLives) -> Result<bool, SlurmError> {
        let now = Rc::new(EarlierLives::read(&self.folder, self.number)?);
        let cut_off = |lives: &EarlierLives| lives.cut_off.values().sum::<u32>();
        let came_on = now.settled.len() > before.settled.len() || cut_off(&now) > cut_off(before);
        if !came_on {
            return Ok(false);
        }
        let (_, left) = self.journal(&now, None)?.look_through()?;
        Ok(left > 0)
    }

    /// Has Slurm start this element once more: by putting this very job back, or else by a
    /// job of its own.
    fn go_on(&self, life: u32, notices: &mut Notices<'_>) -> Result<(), SlurmError> {
        notices("what is left goes on in another job");
        let Err(refused) = requeue(&self.allocation.name) else {
            return Ok(());
        };
        // It may have done so although it says otherwise, and is about to end us.
        let is_put_back = match state_of(&self.allocation.name) {
            Ok(state) => state != "RUNNING",
            Err(_) => !is_clear(&refused),
        };
        if is_put_back {
            return Ok(());
        }
        let plan = ArrayPlan {
            base: self.base,
            elements: vec![(self.number, 1)],
        };
        let record = |job: &_| self.folder.add_job_of(self.number, life, job);
        let submitted = submit_array(&self.folder, &plan, &[plan.option(None)], record);
        submitted
            .map(drop)
            .map_err(|error| SlurmError::HalfSubmitted {
                error: Box::new(refused),
                rest: format!(
                    "{error}\nhint: `packhorse slurm resume {}` submits what is left",
                    self.run.run
                ),
            })
    }
}

/// How long before its end a job of this length ends its tasks.
pub(crate) fn margin(slurm: &SlurmSpec, task: &TaskSpec, job: Duration) -> Duration {
    slurm.margin.and_then(TimeLimit::get).unwrap_or_else(|| {
        let usual = MARGIN.min(job / 10);
        usual.max(task.grace.unwrap_or_default().0 + LAST_WORDS)
    })
}

/// When tasks are ended, so that there is time to write down what became of them.
fn part_time(spec: &RunSpec, ends: Instant, earlier: &EarlierLives) -> PartTime {
    let now = Instant::now();
    let all = ends.saturating_duration_since(now);
    let slurm = spec.slurm.clone().unwrap_or_default();
    let margin = margin(&slurm, &spec.defaults, all);
    let whole = all.saturating_sub(margin);
    let defaults = Arc::new(spec.defaults.clone());
    let seen = earlier.times.iter();
    let seen = seen.map(|(command, took)| (Arc::clone(command), Arc::clone(&defaults), *took));
    PartTime {
        ends: now + whole,
        whole,
        seen: seen.collect(),
    }
}

/// A state folder of this node, for as long as the job takes.
struct NodeHome {
    home: Home,
    path: PathBuf,
}

impl NodeHome {
    /// `id` is that of the person's own: tasks belong to that.
    fn make(job: &str, id: &str) -> Result<Self, SlurmError> {
        let name = format!("packhorse-{job}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let home = Home::open(&path)?;
        let made = Self { home, path };
        fs::write(made.path.join("id"), format!("{id}\n"))?;
        Ok(made)
    }
}

impl Drop for NodeHome {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Shows everything to the file, and to somebody else.
struct Both<'a> {
    file: OutcomeWriter,
    other: &'a mut dyn Observer,
}

impl Observer for Both<'_> {
    fn event(&mut self, event: &Event) {
        self.file.event(event);
        self.other.event(event);
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        let again = [self.file.show(now, queue), self.other.show(now, queue)];
        again.into_iter().flatten().min()
    }
}

impl From<SlurmError> for SessionError {
    fn from(error: SlurmError) -> Self {
        match error {
            SlurmError::Io(error) => error.into(),
            SlurmError::Session(error) => error,
            error => Self::Rendered(error.to_string()),
        }
    }
}
