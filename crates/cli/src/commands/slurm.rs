//! Runs on a Slurm cluster: `--slurm` of every door, and `packhorse slurm`.

use std::io::Write as _;
use std::os::fd::OwnedFd;

use anyhow::bail;
use packhorse_model::{ByteString, Exit, RunId, RunSpec, SlurmSpec, SourceSpec};
use packhorse_session::{
    Observer, SchedulerLog, TaskChecks, WhichTasks, can_go_on, check_can_go_on,
};
use packhorse_slurm::{
    Again, AskSlurm, Attached, Cancelled, ClusterRun, Cut, Followed, JobShape, SlurmError,
    Submitted, cancel, find_cluster_run, follow, refresh, run_element, submit_again,
};
use packhorse_store::{Home, Reader, RunLock};
use serde_json::json;

use super::again::say_nothing_to_do;
use super::launch::{DoorRun, observer};
use super::logs;
use super::mistakes::Mistakes;
use super::slurm_status::status;
use crate::args::{LaunchArgs, OutputArgs, SlurmResumeArgs, SlurmVerb};
use crate::report::Plain;
use crate::stdout::stdout;
use crate::{complain, wording};

/// `packhorse slurm`
pub fn slurm(verb: SlurmVerb) -> anyhow::Result<Exit> {
    match verb {
        SlurmVerb::Status { run, json } => status(run.as_deref(), json),
        SlurmVerb::Wait { run, output } => wait(run.as_deref(), &output),
        SlurmVerb::Logs(args) => logs::logs(&args),
        SlurmVerb::Cancel { run } => {
            let home = Home::locate()?;
            let run = find_cluster_run(&Reader::open(&home)?, run.as_deref())?;
            cancel_run(&home, run)
        }
        SlurmVerb::Resume(args) => {
            let home = Home::locate()?;
            let run = find_cluster_run(&Reader::open(&home)?, args.run.as_deref())?;
            resume(&home, run, &args)
        }
        SlurmVerb::Element { folder, base } => {
            let mut quiet = Plain::new(true);
            Ok(run_element(&folder, base, &mut quiet, &mut complain)?)
        }
    }
}

/// How a door's run goes to the cluster.
pub struct ClusterLaunch<'a> {
    /// How its tasks become elements.
    pub cut: Cut,
    /// The folder that its tasks run in, if it is not this one.
    pub folder: Option<std::path::PathBuf>,
    /// Only show what would be submitted.
    pub dry_run: bool,
    /// Stay until it is over.
    pub wait: bool,
    /// Cancel it when this process ends.
    pub end_with: Option<OwnedFd>,
    /// What is shown.
    pub output: &'a OutputArgs,
    /// What has to be done when all is prepared, before it is submitted.
    pub before: Option<BeforeSubmission<'a>>,
}

/// What has to be done before a run is submitted. It is given the script.
pub type BeforeSubmission<'a> = Box<dyn FnOnce(&str) -> anyhow::Result<()> + 'a>;

impl<'a> ClusterLaunch<'a> {
    /// As few elements as make sense, in this folder.
    pub fn new(args: &'a LaunchArgs, dry_run: bool) -> Self {
        Self {
            cut: Cut::Packed,
            folder: None,
            dry_run,
            wait: args.slurm.wait,
            end_with: None,
            output: &args.output,
            before: None,
        }
    }

    /// Cancels the run when this process ends, for programs that drive packhorse.
    pub fn ending_with(mut self, process: Option<OwnedFd>) -> anyhow::Result<Self> {
        if process.is_some() && !self.wait {
            bail!(
                "--end-with is for runs that are followed\n\
                 hint: leave it out, or add --wait"
            );
        }
        self.end_with = process;
        Ok(self)
    }
}

/// Hands what a door has made of its arguments to the cluster. `beside` puts observers beside
/// the one that shows it.
pub fn launch(
    door: DoorRun,
    how: ClusterLaunch<'_>,
    beside: impl FnOnce(Box<dyn Observer>) -> anyhow::Result<Box<dyn Observer>>,
) -> anyhow::Result<Exit> {
    let spec = door.order.spec;
    refuse_impossible(&door.checks, &spec)?;
    let folder = match how.folder {
        Some(folder) => folder,
        None => std::env::current_dir()?,
    };
    let shown = how.wait.then(|| observer(how.output, &spec, None, false));
    let prepared =
        ClusterRun { spec, source: door.source, cut: how.cut, folder }.prepare(&mut complain);
    let mut prepared = match prepared {
        Err(SlurmError::NoTasks) => {
            complain("warning: there were no commands in the input");
            return Ok(Exit::Success);
        }
        Err(SlurmError::Stopped(signal)) => return Ok(Exit::Signal(signal)),
        prepared => prepared?,
    };
    if how.dry_run {
        let mut out = stdout();
        // A script begins with the program that runs it.
        let script = prepared.script()?;
        let (first, rest) = script.split_once('\n').unwrap_or((&script, ""));
        writeln!(out, "{first}")?;
        for option in prepared.array_options() {
            writeln!(out, "# sbatch {option} script.sh")?;
        }
        writeln!(out, "# {}", prepared.plan())?;
        write!(out, "{rest}")?;
        return Ok(Exit::Success);
    }
    if let Some(before) = how.before {
        prepared.test()?;
        before(&prepared.script()?)?;
    }
    let (submitted, lock, _signals) = prepared.submit()?;
    told(&submitted, lock, shown, how.end_with, how.output, Attached::Submitted, beside)
}

/// Says what was submitted, or follows it if there is an observer to show it.
fn told(
    submitted: &Submitted,
    lock: RunLock,
    shown: Option<Box<dyn Observer>>,
    end_with: Option<OwnedFd>,
    output: &OutputArgs,
    attached: Attached,
    beside: impl FnOnce(Box<dyn Observer>) -> anyhow::Result<Box<dyn Observer>>,
) -> anyhow::Result<Exit> {
    if let Some(shown) = shown {
        let mut shown = beside(shown)?;
        return follow_run(&Home::locate()?, lock, attached, end_with, &mut *shown);
    }
    let Submitted { run, jobs, elements, tasks, folder } = submitted;
    let mut out = stdout();
    if output.json {
        let folder = ByteString::from(folder.clone().into_os_string());
        let line = json!({
            "run": run.0, "jobs": jobs, "elements": elements, "tasks": tasks, "folder": folder,
        });
        writeln!(out, "{line}")?;
        return Ok(Exit::Success);
    }
    let numbers: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "run {run}: {} in {}, submitted to Slurm as {}",
        wording::count(*tasks, "task"),
        wording::count(*elements, "job"),
        numbers.join(", "),
    )?;
    drop(out);
    complain(&format!(
        "hint: `packhorse slurm status {run}` shows how it is, `packhorse slurm wait {run}` follows it"
    ));
    Ok(Exit::Success)
}

/// Says which tasks of files could never run in such a job.
fn refuse_impossible(checks: &TaskChecks, spec: &RunSpec) -> anyhow::Result<()> {
    let shape = JobShape::of(spec.slurm.as_ref().unwrap_or(&SlurmSpec::default()));
    let mut mistakes = Mistakes::default();
    for (source, line, task) in checks.requests() {
        let task = task.clone().over(&spec.defaults);
        if let Err(error) = shape.share_of(&task, &spec.pool) {
            let text = format!("error: {source}:{line}: this task could never run: {error}");
            mistakes.tell(|| wording::message(text));
        }
    }
    mistakes.refuse("nothing was submitted")
}

/// `packhorse slurm wait`
fn wait(run: Option<&str>, output: &OutputArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let run = find_cluster_run(&reader, run)?;
    let stored = packhorse_session::stored_run(&reader, run)?;
    let spec = reader.run_spec(run)?.unwrap_or_default();
    if spec.slurm.is_none() {
        return Err(SlurmError::NotOnSlurm(run).into());
    }
    if !reader.is_on_cluster(run)? {
        complain(&format!(
            "run {run} is over: {} succeeded, {} failed, {} left",
            stored.counts.succeeded,
            stored.counts.failed,
            stored.counts.unfinished(),
        ));
        return Ok(stored.exit.map_or(Exit::Success, Exit::from));
    }
    let lock = home.lock_run(run)?;
    let mut shown = beside_of(&spec, observer(output, &spec, None, false))?;
    follow_run(&home, lock, Attached::Later, None, &mut *shown)
}

/// What else a run shows itself to, as its door has it.
fn beside_of(spec: &RunSpec, shown: Box<dyn Observer>) -> anyhow::Result<Box<dyn Observer>> {
    let SourceSpec::Grid(grid) = &spec.source else {
        return Ok(shown);
    };
    let command = grid.command.as_ref();
    let read = packhorse_session::read_grid(
        &grid.text,
        grid.language,
        command,
        "the run's grid",
        crate::terminal::colour(),
    )?;
    Ok(SchedulerLog::beside(shown, grid, &std::rc::Rc::new(read), std::iter::empty())?)
}

fn follow_run(
    home: &Home,
    lock: RunLock,
    attached: Attached,
    end_with: Option<OwnedFd>,
    shown: &mut dyn Observer,
) -> anyhow::Result<Exit> {
    let run = lock.run();
    match follow(home, lock, attached, end_with, shown)? {
        Followed::Over(summary) => Ok(summary.exit),
        Followed::Left(exit) => {
            complain(&format!(
                "run {run} goes on without us\n\
                 hint: `packhorse slurm wait {run}` follows it again, `packhorse slurm cancel {run}` ends it"
            ));
            Ok(exit)
        }
    }
}

/// `packhorse slurm cancel`, and `packhorse stop` of a run on Slurm.
pub fn cancel_run(home: &Home, run: RunId) -> anyhow::Result<Exit> {
    complain(&match cancel(home, run)? {
        Cancelled::WasOver => format!("run {run} is over already"),
        Cancelled::Over if !can_go_on(&Reader::open(home)?, run)? => {
            format!("run {run} has stopped")
        }
        Cancelled::Over => format!(
            "run {run} has stopped\nhint: `packhorse slurm resume {run}` submits what is left of it, if anything is"
        ),
        Cancelled::Followed => {
            format!(
                "the jobs of run {run} were cancelled; whoever follows it shows what becomes of it"
            )
        }
        Cancelled::Ending(jobs) => {
            let names = jobs.iter().map(|(job, node)| match node.as_str() {
                "" => job.clone(),
                node => format!("{job} on {node}"),
            });
            let names: Vec<String> = names.collect();
            format!(
                "the jobs of run {run} were cancelled, and some are still ending: {}\n\
                 hint: `packhorse slurm status {run}` shows when they have ended",
                names.join(", ")
            )
        }
    });
    Ok(Exit::Success)
}

/// `packhorse slurm resume`
fn resume(home: &Home, run: RunId, args: &SlurmResumeArgs) -> anyhow::Result<Exit> {
    let which = if args.failed { WhichTasks::Failed } else { WhichTasks::Unfinished };
    let mut changes = args.request.spec();
    // It stays where it is.
    changes.folder = None;
    resume_run(home, run, which, changes, args.wait, &args.output)
}

/// Submits what is left of a run, and what failed.
pub fn resume_run(
    home: &Home,
    run: RunId,
    which: WhichTasks,
    changes: SlurmSpec,
    wait: bool,
    output: &OutputArgs,
) -> anyhow::Result<Exit> {
    check_can_go_on(&Reader::open(home)?, run)?;
    match submit_again(home, run, which, changes)? {
        Again::Nothing(stored) => {
            say_nothing_to_do(&stored, which);
            let failed = which == WhichTasks::Unfinished && stored.counts.failed > 0;
            Ok(if failed { Exit::TasksFailed } else { Exit::Success })
        }
        Again::Submitted(submitted, lock, _signals) => {
            let spec = Reader::open(home)?.run_spec(run)?.unwrap_or_default();
            let shown = wait.then(|| observer(output, &spec, None, false));
            let beside = |shown| beside_of(&spec, shown);
            told(&submitted, lock, shown, None, output, Attached::Later, beside)
        }
    }
}

/// Brings the store up to date if a run on the cluster, or a task of one, is about to be
/// shown.
pub fn refresh_shown(home: &Home, what: Option<&str>) -> anyhow::Result<()> {
    let reader = Reader::open(home)?;
    let run = match what.and_then(|what| what.split_once('.')) {
        Some((run, _)) => run.parse().ok(),
        None => packhorse_session::find_run(&reader, what).ok().map(|run| run.id),
    };
    if let Some(run) = run
        && reader.is_on_cluster(run)?
        && let Err(error) = refresh(home, run, AskSlurm::Yes)
    {
        complain(&format!("warning: {error}"));
    }
    Ok(())
}
