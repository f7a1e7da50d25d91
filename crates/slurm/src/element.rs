//! One element of an array: packhorse again, inside a job.
//!
//! It reads its tasks from the shared folder, runs them as any run is run, and appends what
//! happens to its outcome file. If its time is over before all of them are, it puts itself
//! back into the queue; if Slurm ends it for somebody more urgent, it submits another job.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fs_err as fs;
use packhorse_intake::Colour;
use packhorse_model::{
    Event, EventKind, Exit, RunSpec, RunSummary, SlurmSpec, TaskSpec, TimeLimit, Timestamp,
};
use packhorse_session::settings::Settings;
use packhorse_session::{
    Journal, Launch, Notices, Observer, PartTime, ProgramSignal, QueueView, RunPart, SessionError,
    Signals,
};
use packhorse_store::Home;
use packhorse_trust::{create_private_folder, write_private};

use crate::SlurmError;
use crate::allocation::Allocation;
use crate::arrays::{ArrayPlan, coming_after};
use crate::commands::{is_cut_off, queue_of_run, requeue, state_of};
use crate::earlier_lives::EarlierLives;
use crate::element_journal::ElementJournal;
use crate::folder::{ElementSpec, RunFile, SharedFolder};
use crate::outcome_file::{OutcomeFile, OutcomeWriter};
use crate::prospect::{Prospect, requeues};
use crate::room::{JobRoom, SOON, come_sooner};
use crate::sbatch::{is_clear, submit_array};
use crate::status::pause;
use crate::stop_file::is_stopped;

/// How long before its end a job ends its tasks, if nobody says and it is long enough.
const MARGIN: Duration = Duration::from_secs(30);
/// What it needs besides the time that tasks have to end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// A network file system may hide a file for a while that another node has made: after such
/// pauses it is looked for again.
const SEEN_LATE: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];
/// SIGTERM: what Slurm sends to a job that it ends.
const TERMINATED: u8 = 15;

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
    if is_stopped(&folder) {
        notices("the run is being stopped: nothing is started");
        return Ok(Exit::Success);
    }
    let number = base.saturating_add(allocation.index);
    let run = folder.read_run()?;
    let element = folder.elements()?.into_iter().nth(number as usize);
    let element = element.ok_or_else(|| {
        SlurmError::Plan(format!("{} has no element {number}", folder.path().display()))
    })?;
    let this = Element { allocation, folder, number, base, run, tasks: element };
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
        let (earlier, file) = self.begin_life()?;
        let life = earlier.lives + 1;
        let ends = self.allocation.ends().unwrap_or_else(|error| {
            self.say(
                &file,
                &format!("nobody tells when it ends, so what runs then is lost: {error}"),
            );
            None
        });
        let ran = if earlier.silent > requeues(&self.run) {
            Err(SlurmError::Plan(format!(
                "its last {} lives ended before a task was seen to start, so it is given up\n\
                 hint: `packhorse slurm resume {}` submits what is left",
                earlier.silent, self.run.run
            )))
        } else {
            self.run_tasks(&earlier, &file, ends, observer, notices)
        };
        // What ends the job is not to keep us from saying what has become of it.
        let signals = Signals::block()?;
        let mut summary = match ran {
            Ok(summary) => summary,
            Err(error) => {
                // Whoever follows the run is to know why it did nothing.
                self.say(&file, &error.to_string());
                file.borrow_mut().finish()?;
                return Err(error);
            }
        };
        // Before anything else: there may be little time.
        file.borrow_mut().finish()?;
        let went_on = self.go_on(&mut summary, life, &signals, notices);
        if let Err(error) = &went_on {
            let left = counted(summary.left);
            self.say(&file, &format!("{left} left, and cannot go on from here: {error}"));
        }
        let exit = summary.exit;
        file.borrow_mut()
            .add(&Event { time: Timestamp::now(), kind: EventKind::RunEnded(summary) });
        file.borrow_mut().finish()?;
        went_on?;
        Ok(exit)
    }

    /// What earlier lives have written, and the file of this one.
    fn begin_life(&self) -> Result<(Rc<EarlierLives>, Rc<RefCell<OutcomeFile>>), SlurmError> {
        let begun = try_after(&SEEN_LATE, || {
            let earlier = EarlierLives::read(&self.folder, self.number)?;
            // If it is there already, there is another life, whose file was not seen a moment
            // ago. What that has done is not to be done again.
            let file = OutcomeFile::create(&self.folder, self.number, earlier.lives + 1)?;
            Ok::<_, SlurmError>(file.map(|file| (Rc::new(earlier), Rc::new(RefCell::new(file)))))
        })?;
        begun.ok_or_else(|| {
            SlurmError::Plan(format!(
                "what an earlier job has written for element {} is there, and cannot be seen from {}\n\
                 hint: `packhorse slurm resume {}` submits what is left",
                self.number, self.allocation.node, self.run.run
            ))
        })
    }

    /// Tells whoever follows the run.
    fn say(&self, file: &Rc<RefCell<OutcomeFile>>, message: &str) {
        let (job, node) = (&self.allocation.name, &self.allocation.node);
        file.borrow_mut().add(&Event {
            time: Timestamp::now(),
            kind: EventKind::Warning {
                task: None,
                message: format!("job {job} on {node}: {message}"),
            },
        });
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
        let mut journal = ElementJournal::new(
            self.run.run,
            &self.folder,
            &self.tasks,
            earlier,
            requeues(&self.run),
            Some(file),
        )?;
        let (last, _) = journal.look_through()?;
        let spec = RunSpec {
            pool: self.allocation.pool(&self.run.spec, self.tasks.parallel),
            ..self.run.spec.clone()
        };
        let time = ends.map(|ends| part_time(&spec, ends, earlier));
        let home = NodeHome::make(&self.allocation.name, &self.run.home)?;
        let settings = Settings::find(spec.config.as_deref(), notices)?;
        let launch = Launch::prepare(spec, Colour::Off, &settings, notices)?;
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
            uuid: self.run.uuid,
            logs: self.folder.logs(),
            last,
            journal: Box::new(journal) as Box<dyn Journal>,
            time,
        };
        Ok(launch.run_part(part, &mut observer)?)
    }

    /// Has Slurm start this element once more, if there is something to do for it. The error
    /// says why it does not, though there would be.
    fn go_on(
        &self,
        summary: &mut RunSummary,
        life: u32,
        signals: &Signals,
        notices: &mut Notices<'_>,
    ) -> Result<(), SlurmError> {
        if summary.exit == Exit::Success {
            return Ok(());
        }
        let prospect = Prospect::of(&self.folder, &self.run, self.number, &self.tasks)?;
        // It may have ended before it had read all of them.
        summary.left = prospect.left;
        if prospect.left == 0 || is_stopped(&self.folder) {
            return Ok(());
        }
        let is_ending = match summary.exit {
            // By somebody, or by Slurm: which of them, Slurm knows. If it puts the job back
            // itself, there is nothing to do.
            Exit::Signal(TERMINATED) if is_cut_off(&self.allocation.name)? => true,
            Exit::Signal(_) => return Ok(()),
            _ => false,
        };
        if !prospect.came_on {
            return Err(SlurmError::Plan(format!(
                "not one of them ran, and in another job like this none would\n\
                 hint: `packhorse slurm resume {} --time …` asks for a longer one",
                self.run.run
            )));
        }
        notices("what is left goes on in another job");
        if is_ending {
            return self.submit_next(life);
        }
        let Err(refused) = requeue(&self.allocation.name) else {
            return Ok(());
        };
        // It may have done so although it says otherwise, and is about to end us.
        let is_put_back = match state_of(&self.allocation.name) {
            Ok(state) => state != "RUNNING",
            Err(_) => !is_clear(&refused),
        };
        // Or somebody may have cancelled it meanwhile.
        let is_stop = |signal: &ProgramSignal| matches!(signal, ProgramSignal::Stop(_));
        if is_put_back || signals.read().iter().any(is_stop) || is_stopped(&self.folder) {
            return Ok(());
        }
        let next = self.submit_next(life);
        next.map_err(|error| SlurmError::Plan(format!("{refused}; {error}")))
    }

    /// Submits a job of its own for the next life.
    fn submit_next(&self, life: u32) -> Result<(), SlurmError> {
        let plan = ArrayPlan { base: self.base, elements: vec![(self.number, 1)] };
        let slurm = self.run.spec.slurm.as_ref();
        let most = slurm.and_then(|slurm| slurm.jobs).map(NonZeroU32::get);
        let own = self.allocation.name.as_str();
        let mut room = JobRoom::default();
        if let Some(most) = most {
            room = match queue_of_run(&self.folder, SOON) {
                Ok(queue) => {
                    let others = queue.iter().filter(|row| row.name() != own);
                    JobRoom::beside_or_behind(others, Some(most), std::slice::from_ref(&plan))
                }
                // Slurm starts another one of the array in our place.
                Err(_) => JobRoom::behind_array(&self.allocation.array, most),
            };
        }
        let mut options = vec![plan.option(None)];
        options.extend(coming_after(&room.after));
        let record = |job: &_| self.folder.add_job_of(self.number, life, job);
        let job = submit_array(&self.folder, &plan, &options, record)?;
        if !room.after.is_empty() {
            // If that is not possible, it begins later than it might.
            let _ = come_sooner(&self.folder, &job, &room, Some(own));
        }
        Ok(())
    }
}

/// Tries something after each of these pauses, until it comes to something.
fn try_after<T, E>(
    pauses: &[Duration],
    mut attempt: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    for &length in pauses {
        pause(length);
        if let Some(found) = attempt()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// How long before its end a job of this length ends its tasks.
pub(crate) fn margin(slurm: &SlurmSpec, task: &TaskSpec, job: Duration) -> Duration {
    slurm.margin.and_then(TimeLimit::get).unwrap_or_else(|| {
        let usual = MARGIN.min(job / 10);
        usual.max(task.grace.unwrap_or_default().0 + LAST_WORDS)
    })
}

fn counted(tasks: u64) -> String {
    match tasks {
        1 => "1 task is".to_owned(),
        tasks => format!("{tasks} tasks are"),
    }
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
    PartTime { ends: now + whole, whole, seen: seen.collect() }
}

/// Names to try for a folder on a node.
const MOST_NAMES: u32 = 100;

/// A state folder of this node, for as long as the job takes.
struct NodeHome {
    home: Home,
    path: PathBuf,
}

impl NodeHome {
    /// `id` is that of the person's own: tasks belong to that.
    fn make(job: &str, id: &str) -> Result<Self, SlurmError> {
        let name = format!("packhorse-{job}-{}", std::process::id());
        // Another user may have taken a name that can be guessed.
        let mut names = (0..MOST_NAMES).map(|twin| format!("{name}-{twin}"));
        let path = names.find_map(|name| {
            let path = std::env::temp_dir().join(name);
            match create_private_folder(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
                other => Some(other.map(|()| path)),
            }
        });
        let path = path.unwrap_or_else(|| Err(ErrorKind::AlreadyExists.into()))?;
        let home = Home::open(&path)?;
        write_private(&path.join("id"), format!("{id}\n"))?;
        Ok(Self { home, path })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_nothing_is_tried_after_every_pause() {
        let pauses = [Duration::ZERO; 4];
        let mut tries = 0;
        let mut seen_at = |wanted| {
            tries = 0;
            try_after(&pauses, || {
                tries += 1;
                Ok::<_, ()>((tries == wanted).then_some(tries))
            })
        };
        assert_eq!(seen_at(1), Ok(Some(1)));
        assert_eq!(seen_at(4), Ok(Some(4)));
        assert_eq!(seen_at(5), Ok(None));
        assert_eq!(try_after(&pauses, || Err::<Option<()>, _>("gone")), Err("gone"));
    }
}
