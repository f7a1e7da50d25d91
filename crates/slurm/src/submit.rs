//! A run goes to the cluster: its tasks are read, cut into elements and written into the
//! shared folder, recorded in the person's store, and submitted.
//!
//! Nothing is recorded before all that can be wrong has been found: the input is read to its
//! end, and Slurm is asked whether it would take the job.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::{self as fs, File};
use packhorse_engine::StopSignal;
use packhorse_intake::check_values;
use packhorse_model::{
    ByteString, JobTime, NewRun, NewTask, Record, RunId, RunSpec, SlurmSpec, TaskId, TaskSpec,
    TimeLimit, Timestamp, VramRequest,
};
use packhorse_session::settings::SLURM_FOLDER;
use packhorse_session::{
    NextRead, Notices, ProgramSignal, SessionError, Signals, TaskSource, is_on_path,
};
use packhorse_store::{Home, Reader, RunLock, Uuid, Writer, new_run_uuid};
use rustix::event::{PollFd, PollFlags, poll};

use crate::SlurmError;
use crate::arrays::{ArrayPlan, ArraySubmission, arrays};
use crate::cluster_run::{ClusterRun, Cut, Submitted};
use crate::commands::limits;
use crate::element::margin;
use crate::estimate::TimeEstimate;
use crate::folder::{ElementSpec, RunFile, SharedFolder};
use crate::job_shape::JobShape;
use crate::peaks::write_known_peaks;
use crate::planning::{ElementLimits, Rows, TaskCost, Workload};
use crate::sbatch::test_script;
use crate::script::{ScriptParts, script};
use crate::task_file::{AfterNumbers, ElementTasks, TaskFileWriter};

/// No more than this waits to be written into the store.
const MOST_UNWRITTEN: usize = 4 << 20;
/// So many tasks are one record.
const TASKS_AT_ONCE: usize = 512;

/// A run that is written into its folder, and could be submitted.
pub struct PreparedRun {
    spec: RunSpec,
    slurm: SlurmSpec,
    home: Home,
    folder: SharedFolder,
    run_in: PathBuf,
    elements: Vec<ElementSpec>,
    arrays: Vec<ArrayPlan>,
    tasks: u32,
    plan: String,
    /// Whether it is to be removed again: it was neither recorded nor submitted.
    is_draft: bool,
    /// Whether Slurm has said that it would take it.
    is_tested: bool,
}

impl Drop for PreparedRun {
    fn drop(&mut self) {
        if self.is_draft {
            let _ = fs::remove_dir_all(self.folder.path());
            // The folder of such folders too, if nothing else is in it.
            let _ = self.folder.path().parent().map(fs::remove_dir);
        }
    }
}

impl ClusterRun {
    /// Reads the tasks and plans the elements. What is prepared and not submitted leaves no
    /// trace.
    pub fn prepare(self, notices: &mut Notices<'_>) -> Result<PreparedRun, SlurmError> {
        if !is_on_path(Path::new("sbatch")) {
            return Err(SlurmError::NoCommand("sbatch"));
        }
        let mut spec = self.spec;
        let mut slurm = spec.slurm.take().unwrap_or_default();
        check(&spec, &slurm)?;
        let shape = JobShape::of(&slurm);
        shape.share_of(&spec.defaults, &spec.pool)?;
        let home = Home::locate()?;
        home.check_database()?;
        let parent = slurm.folder.take().unwrap_or_else(|| SLURM_FOLDER.into());
        let parent = std::path::absolute(self.folder.join(parent))?;
        check_path(&parent)?;
        slurm.template = slurm.template.map(std::path::absolute).transpose()?;
        // Who is asked to stop removes what there is first.
        let signals = Signals::block()?;
        let mut draft = PreparedRun {
            spec,
            slurm,
            home,
            folder: SharedFolder::create(&parent)?,
            run_in: self.folder,
            elements: Vec::new(),
            arrays: Vec::new(),
            tasks: 0,
            plan: String::new(),
            is_draft: true,
            is_tested: false,
        };
        draft.fill(self.source, self.cut, shape, &signals, notices)?;
        // What is wrong with a template is found here.
        draft.script()?;
        Ok(draft)
    }
}

/// The signal that asks us to stop, if one has come.
fn asked_to_stop(signals: &Signals) -> Option<u8> {
    let mut stop = None;
    for signal in signals.read() {
        match signal {
            ProgramSignal::Stop(StopSignal::Interrupt) => stop = Some(2),
            ProgramSignal::Stop(StopSignal::Hangup) => stop = Some(1),
            ProgramSignal::Stop(StopSignal::Quit) => stop = Some(3),
            ProgramSignal::Stop(_) => stop = Some(15),
            ProgramSignal::Suspend => Signals::suspend(),
            ProgramSignal::Resize | ProgramSignal::Continue | ProgramSignal::Child => {}
        }
    }
    stop
}

/// What can be checked before the first task is read.
pub(crate) fn check(spec: &RunSpec, slurm: &SlurmSpec) -> Result<(), SlurmError> {
    check_values(&spec.defaults).map_err(|(key, why)| SessionError::Value(key, why))?;
    let texts = [
        &slurm.partition,
        &slurm.account,
        &slurm.job_name,
        &slurm.gres,
        &slurm.mem,
        &slurm.mem_per_cpu,
        &slurm.output,
        &slurm.venv,
    ];
    let mut texts = texts.into_iter().flatten().chain(&slurm.sbatch);
    if let Some(text) = texts.find(|text| text.contains('\n')) {
        let text = text.lines().next().unwrap_or_default();
        return Err(SlurmError::Plan(format!(
            "`{text}…` has a line break, and sbatch takes one line\nhint: give each argument by itself"
        )));
    }
    if let Some(argument) = slurm.sbatch.iter().find(|text| !text.trim().starts_with('-')) {
        return Err(SlurmError::Plan(format!(
            "`{argument}` is no argument of sbatch\nhint: it begins with a dash, as in --sbatch=--constraint=a100"
        )));
    }
    Ok(())
}

/// Whether a path can stand in a script of sbatch.
fn check_path(path: &Path) -> Result<(), SlurmError> {
    let why = match path.to_str() {
        None => "is no text in UTF-8",
        Some(text) if text.contains('\n') => "has a line break",
        // It would take the numbers of jobs out of the names of files.
        Some(text) if text.contains('\\') => "has a backslash",
        Some(_) => return Ok(()),
    };
    Err(SlurmError::Plan(format!(
        "Slurm cannot be given the path {}: it {why}\n\
         hint: choose another, for the folder with --slurm-folder",
        path.display()
    )))
}

/// The `packhorse` of the nodes.
pub(crate) fn program_of(slurm: &SlurmSpec) -> Result<PathBuf, SlurmError> {
    let program = match &slurm.program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    check_path(&program)?;
    Ok(program)
}

/// Whether tasks have any time at all.
pub(crate) fn check_time(
    slurm: &SlurmSpec,
    task: &TaskSpec,
    job: Option<Duration>,
) -> Result<(), SlurmError> {
    let Some(job) = job else {
        return Ok(());
    };
    let margin = margin(slurm, task, job);
    if job > margin {
        return Ok(());
    }
    Err(SlurmError::Plan(format!(
        "a job ends after {}, and its tasks are ended {} before that, so none could run\n\
         hint: ask for more with --time, or for a shorter --grace or margin",
        JobTime::After(job),
        JobTime::After(margin),
    )))
}

impl PreparedRun {
    fn fill(
        &mut self,
        mut source: Box<dyn TaskSource>,
        cut: Cut,
        shape: JobShape,
        signals: &Signals,
        notices: &mut Notices<'_>,
    ) -> Result<(), SlurmError> {
        let cluster = limits(self.slurm.partition.as_deref());
        let job_time = self.slurm.time.map_or(cluster.time, JobTime::get);
        check_time(&self.slurm, &self.spec.defaults, job_time)?;
        warn_of_long_tasks(&self.spec.defaults, job_time, notices);
        let reader = Reader::open(&self.home)?;
        let said = self.slurm.task_time.and_then(TimeLimit::get);
        let mut estimate = TimeEstimate::new(said, &reader, &self.run_in);
        let mut file = TaskFileWriter::create(&self.folder, SharedFolder::TASKS)?;
        let mut workload = Workload::default();
        let mut after_file = None;
        let mut counts_memory = counts_memory(&self.spec.defaults);
        let mut rejected = false;
        loop {
            if let Some(input) = source.descriptor() {
                let input = PollFd::new(&input, PollFlags::IN);
                // Whatever comes of it is met when it is read.
                let _ = poll(&mut [input, PollFd::new(signals, PollFlags::IN)], None);
            }
            if let Some(signal) = asked_to_stop(signals) {
                return Err(SlurmError::Stopped(signal));
            }
            let read = source.read(usize::MAX);
            for (task, after) in read.tasks {
                file.add(&task)?;
                if !after.is_empty() {
                    let number = workload.tasks() + 1;
                    add_after(&self.folder, &mut after_file, number, &after)?;
                }
                counts_memory |= counts_memory_itself(&task);
                let whole = task.over(&self.spec.defaults);
                let cost = TaskCost {
                    share: shape.share_of(&whole, &self.spec.pool)?.0,
                    time: estimate.of(&whole),
                };
                workload.add(cost, &after);
            }
            for (_, message) in read.rejected {
                rejected = true;
                notices(&format!("error: {message}"));
            }
            if read.next == NextRead::Never {
                break;
            }
        }
        if rejected {
            return Err(SlurmError::Rejected);
        }
        self.tasks = workload.tasks();
        if self.tasks == 0 {
            return Err(SlurmError::NoTasks);
        }
        file.finish()?;
        if let Some(file) = &mut after_file {
            file.flush()?;
        }
        let jobs = self.at_once();
        self.elements = match cut {
            Cut::Packed => {
                let limits = ElementLimits { time: job_time, jobs };
                if let Some((tasks, work)) = workload.too_much_together(limits) {
                    notices(&format!(
                        "warning: {tasks} tasks come after each other, so one job runs them all, \
                         which takes about {}\n\
                         hint: tasks that come after none, such as those of a run of their own, \
                         are divided among jobs",
                        JobTime::After(work)
                    ));
                }
                let rows = workload.cut(limits);
                rows.into_iter().map(|rows| file.element(rows)).collect()
            }
            Cut::Given(given) => {
                let sizes: Vec<u32> = given.iter().map(|element| element.tasks).collect();
                if let Some((first, task)) = workload.torn_apart(&sizes) {
                    return Err(SlurmError::Plan(format!(
                        "task {task} comes after task {first}, and they are in different jobs\n\
                         hint: put them into one"
                    )));
                }
                given_elements(&file, given, self.tasks)?
            }
        };
        let count = u32::try_from(self.elements.len()).unwrap_or(u32::MAX);
        self.arrays = arrays(&[(0, count)], cluster.max_array_size);
        if counts_memory {
            write_known_peaks(&reader, &self.folder)?;
        }
        self.plan = plan_in_words(self, shape, job_time);
        Ok(())
    }

    /// The script that sbatch would be given.
    pub fn script(&self) -> Result<String, SlurmError> {
        let parent = self.folder.path().parent().unwrap_or(Path::new(""));
        self.script_of("RUN", &SharedFolder::open(parent.join("RUN")))
    }

    fn script_of(&self, run: &str, folder: &SharedFolder) -> Result<String, SlurmError> {
        script(&ScriptParts {
            spec: &self.slurm,
            run,
            folder,
            run_in: &self.run_in,
            program: &program_of(&self.slurm)?,
            elements: u32::try_from(self.elements.len()).unwrap_or(u32::MAX),
        })
    }

    /// What would be submitted, in words.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// The arrays that would be submitted, as sbatch is told.
    pub fn array_options(&self) -> Vec<String> {
        let at_once = self.at_once();
        self.arrays.iter().map(|plan| plan.option(at_once)).collect()
    }

    fn at_once(&self) -> Option<u32> {
        self.slurm.jobs.map(std::num::NonZeroU32::get)
    }

    /// Asks Slurm whether it would take the job.
    pub fn test(&mut self) -> Result<(), SlurmError> {
        if !self.is_tested {
            let draft = self.script_of("new", &self.folder)?;
            self.folder.write("script.sh", &draft)?;
            test_script(&self.folder.script(), &self.arrays)?;
            self.is_tested = true;
        }
        Ok(())
    }

    /// Records it in the person's store, and submits it. The lock is that of the run, for
    /// whoever follows it. Signals that came meanwhile act when they are let go.
    pub fn submit(mut self) -> Result<(Submitted, RunLock, Signals), SlurmError> {
        self.test()?;
        // From here on it has a name, and goes to its end, so that it is known what is on the
        // cluster.
        let signals = Signals::block()?;
        let (run, lock) = self.home.new_run()?;
        self.folder.rename(run)?;
        self.is_draft = false;
        let script = self.script_of(&run.to_string(), &self.folder)?;
        self.folder.write("script.sh", &script)?;
        self.slurm.folder = Some(self.folder.path().to_owned());
        self.spec.slurm = Some(self.slurm.clone());
        self.folder.write_elements(&self.elements)?;
        let uuid = new_run_uuid(Timestamp::now());
        self.folder.write_run(&RunFile {
            run,
            uuid,
            home: self.home.id()?,
            folder: ByteString::from(self.run_in.clone().into_os_string()),
            spec: self.spec.clone(),
        })?;
        self.record(run, uuid)?;
        let submission = ArraySubmission {
            folder: &self.folder,
            at_once: self.at_once(),
            has_dependency: has_dependency(&self.slurm),
            after: Vec::new(),
        };
        let jobs = match submission.submit(&self.arrays) {
            Ok(jobs) => jobs,
            // Nothing of it is on the cluster, and nothing was.
            Err(error @ SlurmError::Refused { .. }) => {
                self.home.remove_run(&lock)?;
                self.is_draft = true;
                return Err(error);
            }
            Err(error) => {
                let rest = format!(
                    "run {run} is kept with its {} tasks\n\
                     hint: `packhorse slurm resume {run}` submits it again",
                    self.tasks
                );
                let error = Box::new(error);
                return Err(SlurmError::HalfSubmitted { error, rest });
            }
        };
        let submitted = Submitted {
            run,
            jobs: jobs.iter().map(|job| job.job).collect(),
            elements: u32::try_from(self.elements.len()).unwrap_or(u32::MAX),
            tasks: self.tasks,
            folder: self.folder.path().to_owned(),
        };
        Ok((submitted, lock, signals))
    }

    /// Writes the run and its tasks into the person's store.
    fn record(&self, run: RunId, uuid: Uuid) -> Result<(), SlurmError> {
        // Whoever looks for its logs finds them where its jobs put them.
        let logs = self.home.log_dir(run);
        if let Err(error) = std::os::unix::fs::symlink(self.folder.logs(), &logs) {
            return Err(std::io::Error::new(
                error.kind(),
                format!("failed to make the link `{}`: {error}", logs.display()),
            )
            .into());
        }
        let mut writer = Writer::start(&self.home)?;
        let names = rustix::system::uname();
        let facts = Box::new(NewRun {
            uuid,
            started: Timestamp::now(),
            cwd: self.run_in.clone(),
            argv: std::env::args_os().collect(),
            host: names.nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            spec: self.spec.clone(),
        });
        writer.send(Record::NewRun { run, facts });
        let all = ElementSpec {
            file: SharedFolder::TASKS.to_owned(),
            lines: vec![(1, self.tasks)],
            offset: 0,
            offset_line: 1,
            ..ElementSpec::default()
        };
        let mut tasks = ElementTasks::open(&self.folder, &all)?;
        let after: AfterNumbers = read_after(&self.folder)?;
        let mut batch = Vec::with_capacity(TASKS_AT_ONCE);
        while let Some(task) = tasks.next_task(&after)? {
            let id = TaskId::new(run, task.number);
            batch.push(NewTask::new(id, task.spec, task.after.into()));
            if batch.len() == TASKS_AT_ONCE {
                writer.send(Record::Tasks(std::mem::take(&mut batch)));
                wait_for_room(&writer);
            }
        }
        writer.send(Record::Tasks(batch));
        writer.send(Record::InputComplete { run });
        Ok(writer.finish()?)
    }
}

/// Waits until the store has caught up.
pub(crate) fn wait_for_room(writer: &Writer) {
    while writer.unwritten().bytes > MOST_UNWRITTEN && writer.trouble().is_none() {
        let _ = poll(&mut [PollFd::new(writer, PollFlags::IN)], None);
        let _ = rustix::io::read(writer, &mut [0_u8; 8]);
    }
}

/// Which tasks come after which.
pub(crate) fn read_after(folder: &SharedFolder) -> Result<AfterNumbers, SlurmError> {
    let lines: Vec<(u32, Vec<u32>)> = folder.lines("after.jsonl")?;
    Ok(lines.into_iter().collect())
}

fn add_after(
    folder: &SharedFolder,
    file: &mut Option<std::io::BufWriter<File>>,
    number: u32,
    after: &[u32],
) -> Result<(), SlurmError> {
    let file = if let Some(file) = file {
        file
    } else {
        let new = File::create(folder.file("after.jsonl"))?;
        file.insert(std::io::BufWriter::new(new))
    };
    Ok(writeln!(file, "{}", crate::folder::json(&(number, after)))?)
}

fn given_elements(
    file: &TaskFileWriter,
    given: Vec<crate::GivenElement>,
    tasks: u32,
) -> Result<Vec<ElementSpec>, SlurmError> {
    let mut next = 1_u32;
    let elements = given.into_iter().map(|element| {
        let rows: Rows = vec![(next, element.tasks)];
        next = next.saturating_add(element.tasks);
        let folder = element.folder.map(|folder| ByteString::from(folder.into_os_string()));
        ElementSpec { parallel: element.parallel, folder, ..file.element(rows) }
    });
    let elements = elements.collect();
    if next - 1 != tasks {
        return Err(SlurmError::Plan(format!(
            "the jobs have {} tasks together, and there are {tasks}",
            next - 1
        )));
    }
    Ok(elements)
}

pub(crate) fn has_dependency(slurm: &SlurmSpec) -> bool {
    let mut arguments = slurm.sbatch.iter().map(|text| text.trim());
    arguments.any(|text| text.starts_with("--dependency") || text.starts_with("-d"))
}

fn counts_memory(task: &TaskSpec) -> bool {
    matches!(task.vram, Some(VramRequest::Auto | VramRequest::Measure)) || task.probe.is_some()
}

fn counts_memory_itself(task: &TaskSpec) -> bool {
    !task.is_plain() && counts_memory(task)
}

/// A task that may take longer than a job has little chance to succeed.
fn warn_of_long_tasks(task: &TaskSpec, job: Option<Duration>, notices: &mut Notices<'_>) {
    if let (Some(limit), Some(job)) = (task.timeout.and_then(TimeLimit::get), job)
        && limit > job
    {
        notices(&format!(
            "warning: a task may take {limit:?} (--timeout), and a job ends after {job:?}: \
             what runs then is cut off, and starts again in the next"
        ));
    }
}

fn plan_in_words(run: &PreparedRun, shape: JobShape, job_time: Option<Duration>) -> String {
    let counted = |count: u32, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let elements = u32::try_from(run.elements.len()).unwrap_or(u32::MAX);
    let most = run.elements.iter().map(ElementSpec::count).max();
    let has = match (shape.gpus, shape.cores) {
        (0, None) => String::new(),
        (0, Some(cores)) => format!(" with {}", counted(cores, "core")),
        (gpus, None) => format!(" with {}", counted(gpus, "GPU")),
        (gpus, Some(cores)) => {
            format!(" with {} and {}", counted(gpus, "GPU"), counted(cores, "core"))
        }
    };
    let time = job_time.map(|time| {
        let time = JobTime::After(time);
        format!(", each for at most {time}")
    });
    let at_once = run.at_once();
    let at_once = at_once.map(|most| format!(", at most {most} at a time"));
    format!(
        "{} in {}{has}, at most {} in one{}{}",
        counted(run.tasks, "task"),
        counted(elements, "job"),
        most.unwrap_or(0),
        time.unwrap_or_default(),
        at_once.unwrap_or_default(),
    )
}
