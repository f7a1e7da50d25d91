//! Submitting what is left of a run, or what failed.
//!
//! What is left is cut into new elements, whose numbers follow those that there were. The old
//! ones are over: none of them starts again.

use packhorse_model::{
    ByteString, JobTime, Outcome, Record, RunId, SlurmSpec, StoredTask, TaskId, TimeLimit,
};
use packhorse_session::{Signals, WhichTasks, each_task, stored_run};
use packhorse_store::{Home, Reader, RunLock, StoredRun, TaskFilter, Writer};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::SlurmError;
use crate::arrays::{ArraySubmission, arrays};
use crate::cluster_run::Submitted;
use crate::commands::limits;
use crate::estimate::TimeEstimate;
use crate::folder::{AgainTask, ElementSpec, SharedFolder};
use crate::followed_run::{FollowedRun, shared_folder};
use crate::job_shape::JobShape;
use crate::planning::{ElementLimits, TaskCost, Workload};
use crate::sbatch::{test_script, unrecorded};
use crate::script::{ScriptParts, script};
use crate::status::is_gone;
use crate::stop_file::remove_stop;
use crate::submit::{check, check_time, has_dependency, program_of};
use crate::task_file::{AfterNumbers, ElementTasks, TaskFileWriter};

/// What has come of submitting a run again.
#[derive(Debug)]
pub enum Again {
    /// There is nothing to do.
    Nothing(Box<StoredRun>),
    /// It is on the cluster again. The lock is that of the run. Signals that came meanwhile act
    /// when they are let go.
    Submitted(Submitted, RunLock, Box<Signals>),
}

/// Submits the tasks of a run that are left, or those that failed as well. `changes` replaces
/// what was asked of Slurm before.
pub fn submit_again(
    home: &Home,
    run: RunId,
    which: WhichTasks,
    changes: SlurmSpec,
) -> Result<Again, SlurmError> {
    let reader = Reader::open(home)?;
    let folder = shared_folder(&reader, run)?;
    let lock = home.lock_run(run)?;
    let lock = if reader.is_on_cluster(run)? || !unrecorded(&folder)?.is_empty() {
        settle(home, lock)?
    } else {
        lock
    };
    let reader = Reader::open(home)?;
    let outcomes = reader.outcomes(run)?.into_iter().collect();
    let (tasks, in_vain) = part_in_vain(tasks_of(&reader, run, which)?, &outcomes);
    skip(home, &in_vain)?;
    if tasks.is_empty() {
        return Ok(Again::Nothing(Box::new(stored_run(&reader, run)?)));
    }
    let mut file = folder.read_run()?;
    let slurm = changes.over(&file.spec.slurm.clone().unwrap_or_default());
    check(&file.spec, &slurm)?;
    let mut elements = folder.elements()?;
    let first = u32::try_from(elements.len()).unwrap_or(u32::MAX);
    let cluster = limits(slurm.partition.as_deref());
    let limits = ElementLimits {
        time: slurm.time.map_or(cluster.time, JobTime::get),
        jobs: slurm.jobs.map(std::num::NonZeroU32::get),
    };
    check_time(&slurm, &file.spec.defaults, limits.time)?;
    let run_in = std::path::PathBuf::from(file.folder.as_os_str());
    let said = slurm.task_time.and_then(TimeLimit::get);
    let mut estimate = TimeEstimate::new(said, &reader, &run_in);
    let name = next_name(&folder);
    let mut writer = TaskFileWriter::create(&folder, &name)?;
    let job = JobShape::of(&slurm);
    let mut place = 0;
    for (likes, tasks) in group(&folder, &elements, &tasks)? {
        let mut workload = Workload::default();
        let numbers = tasks.iter().map(|task| task.id.number);
        let places: FxHashMap<u32, u32> = numbers.zip(1..).collect();
        for task in &tasks {
            let whole = task.spec.clone().over(&file.spec.defaults);
            let cost = TaskCost {
                share: job.share_of(&whole, &file.spec.pool)?.0,
                time: estimate.of(&whole),
            };
            // What it comes after and does not run again has succeeded.
            let after = task.after.iter().copied();
            let after: Vec<u32> = after.filter(|it| places.contains_key(it)).collect();
            let lines: Vec<u32> = after.iter().map(|it| places[it]).collect();
            workload.add(cost, &lines);
            writer.add(&AgainTask {
                number: task.id.number,
                attempts: task.attempts,
                after,
                spec: task.spec.clone(),
            })?;
        }
        for mut rows in workload.cut(limits) {
            for (first, _) in &mut rows {
                *first += place;
            }
            elements.push(ElementSpec {
                parallel: likes.0,
                folder: likes.1.clone(),
                ..writer.element(rows)
            });
        }
        place += u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    }
    writer.finish()?;
    let count = u32::try_from(elements.len()).unwrap_or(u32::MAX) - first;
    let plans = arrays(&[(first, count)], cluster.max_array_size);
    let text = script(&ScriptParts {
        spec: &slurm,
        run: &run.to_string(),
        folder: &folder,
        run_in: &run_in,
        program: &program_of(&slurm)?,
        elements: first + count,
    })?;
    folder.write("script.sh", &text)?;
    test_script(&folder.script(), &plans)?;
    // From here on it goes to its end, so that it is known what is on the cluster.
    let signals = Signals::block()?;
    folder.write_elements(&elements)?;
    file.spec.slurm = Some(slurm.clone());
    folder.write_run(&file)?;
    remove_stop(&folder)?;
    reopen(home, run, &tasks)?;
    let submission = ArraySubmission {
        folder: &folder,
        at_once: limits.jobs,
        has_dependency: has_dependency(&slurm),
        after: Vec::new(),
    };
    let jobs = submission.submit(&plans)?;
    let submitted = Submitted {
        run,
        jobs: jobs.iter().map(|job| job.job).collect(),
        elements: count,
        tasks: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
        folder: folder.path().to_owned(),
    };
    Ok(Again::Submitted(submitted, lock, Box::new(signals)))
}

/// Brings a run that may still be on the cluster to its end here, if nothing of it is alive.
fn settle(home: &Home, lock: RunLock) -> Result<RunLock, SlurmError> {
    let run = lock.run();
    let mut followed = FollowedRun::open(home, lock)?;
    if !is_gone(&mut followed)? {
        followed.leave()?;
        return Err(SlurmError::Plan(format!(
            "run {run} is still on the cluster\n\
             hint: `packhorse slurm wait {run}` follows it, `packhorse slurm cancel {run}` ends it"
        )));
    }
    let (_, _, lock) = followed.close(None)?;
    Ok(lock)
}

/// How an element was given: how many tasks at a time, and in which folder.
type GivenAs = (Option<u32>, Option<ByteString>);

/// Tasks that were in elements that somebody has cut are in such elements again.
fn group(
    folder: &SharedFolder,
    elements: &[ElementSpec],
    tasks: &[StoredTask],
) -> Result<Vec<(GivenAs, Vec<StoredTask>)>, SlurmError> {
    let is_given = |element: &&ElementSpec| element.parallel.is_some() || element.folder.is_some();
    let mut given: FxHashMap<u32, &ElementSpec> = FxHashMap::default();
    for element in elements.iter().filter(is_given) {
        let mut of = ElementTasks::open(folder, element)?;
        while let Some(task) = of.next_task(&AfterNumbers::default())? {
            given.insert(task.number, element);
        }
    }
    let mut groups: Vec<(GivenAs, Vec<StoredTask>)> = Vec::new();
    for task in tasks {
        let element = given.get(&task.id.number);
        let likes = element.map_or((None, None), |it| (it.parallel, it.folder.clone()));
        match groups.iter_mut().find(|(of, _)| *of == likes) {
            Some((_, group)) => group.push(task.clone()),
            None => groups.push((likes, vec![task.clone()])),
        }
    }
    Ok(groups)
}

/// The tasks that are to run.
fn tasks_of(reader: &Reader, run: RunId, which: WhichTasks) -> Result<Vec<StoredTask>, SlurmError> {
    let mut tasks = Vec::new();
    let filters = match which {
        WhichTasks::Unfinished => &[TaskFilter::Unfinished][..],
        WhichTasks::Failed => &[TaskFilter::Unfinished, TaskFilter::Failed],
    };
    for &filter in filters {
        each_task(reader, run, filter, |listed| {
            tasks.push(listed.task);
            Ok::<_, SlurmError>(())
        })?;
    }
    tasks.sort_by_key(|task| task.id);
    Ok(tasks)
}

/// The tasks that can run, and those that come after one that did not succeed and does not run
/// again: a job that was cut off may have had no time to say that these are skipped.
fn part_in_vain(
    tasks: Vec<StoredTask>,
    outcomes: &FxHashMap<u32, Outcome>,
) -> (Vec<StoredTask>, Vec<TaskId>) {
    let again: FxHashSet<u32> = tasks.iter().map(|task| task.id.number).collect();
    let mut in_vain = Vec::new();
    let mut skipped: FxHashSet<u32> = FxHashSet::default();
    let (mut can_run, mut left) = (Vec::new(), tasks);
    // A task comes after others before it.
    left.sort_by_key(|task| task.id);
    for task in left {
        let failed = |before: &u32| {
            let outcome = outcomes.get(before);
            outcome.is_some_and(|it| !it.is_success()) && !again.contains(before)
        };
        let mut before = task.after.iter();
        if before.any(|before| skipped.contains(before) || failed(before)) {
            skipped.insert(task.id.number);
            in_vain.push(task.id);
        } else {
            can_run.push(task);
        }
    }
    (can_run, in_vain)
}

/// Records that tasks are skipped.
fn skip(home: &Home, tasks: &[TaskId]) -> Result<(), SlurmError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let mut writer = Writer::start(home)?;
    for &task in tasks {
        let outcome = Outcome::Skipped;
        writer.send(Record::TaskFinished { task, outcome });
    }
    Ok(writer.finish()?)
}

/// A name that no file of tasks has.
fn next_name(folder: &SharedFolder) -> String {
    let names = (2_u32..).map(|round| format!("again.{round}.jsonl"));
    let mut free = names.filter(|name| !folder.file(name).exists());
    free.next().unwrap_or_default()
}

/// Records that the run goes on.
fn reopen(home: &Home, run: RunId, tasks: &[StoredTask]) -> Result<(), SlurmError> {
    let mut writer = Writer::start(home)?;
    let names = rustix::system::uname();
    let host = names.nodename().to_string_lossy().into_owned();
    let pid = std::process::id();
    writer.send(Record::RunResumed { run, pid, host: host.into() });
    let tasks = tasks.iter().map(|task| task.id.number).collect();
    writer.send(Record::Reopened { run, tasks });
    Ok(writer.finish()?)
}
