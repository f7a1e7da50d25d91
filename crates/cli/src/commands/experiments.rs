use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, bail};
use packhorse_intake::experiments::Experiments;
use packhorse_model::{Command, Exit, ExperimentDebug, ExperimentsSpec, SourceSpec};
use packhorse_proc::{LARGEST_SETTINGS, read_to_limit, utf8};
use packhorse_session::{
    NamedProcess, RunningTests, TaskChecks, add_place, experiments_source, fit_here,
    open_experiments as open_experiments_again, read_experiments, repetition_states, time_stamp,
    write_back, write_back_into,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::experiments_slurm::{in_order_of_jobs, runs_elsewhere, submit};
use super::launch::{DoorRun, Order, observer};
use super::results_on_cluster::ResultsOnCluster;
use super::run::give_back_files;
use super::running_tests::{are, count, exit_with, refuse_at_work, warn_of_left_alone, why};
use crate::args::{ExperimentArgs, Rerun};
use crate::stdout::stdout;
use crate::{complain, terminal, wording};

/// An experiment file that was read.
pub struct OpenExperiments {
    /// What people call the file.
    name: String,
    pub experiments: Rc<Experiments>,
    /// How to read it again, and which repetitions run.
    pub spec: ExperimentsSpec,
    /// Whether the file is one that can be written back beside its results.
    pub is_file: bool,
}

/// Which repetitions run, and how many are done.
#[derive(Default)]
struct ExperimentWork {
    run: Vec<(u32, u32)>,
    skipped: u64,
    /// How many may run elsewhere.
    left_alone: u64,
    /// The runs that left repetitions unfinished.
    ended_runs: Vec<String>,
}

/// `packhorse exp`
pub fn experiments(mut args: ExperimentArgs) -> anyhow::Result<Exit> {
    args.launch.slurm.slurm |= args.to_slurm;
    args.prefix_with_timestamp |= args.time_stamp.is_some();
    if args.launch.slurm.slurm && args.prefix_with_timestamp {
        bail!("-t is for runs on this machine\nhint: leave it out, or run without --slurm");
    }
    let end_with = args.end_with.map(NamedProcess::open).transpose()?;
    let mut open = read(&mut args)?;
    if args.expand {
        return expand(&open.experiments);
    }
    if args.slurm_document {
        return slurm_document(&open.experiments);
    }
    if let Some(folder) = &args.write_back {
        write_back_into(folder, &open.experiments, &open.spec)?;
        return Ok(Exit::Success);
    }
    if args.list {
        return list(&open, &args);
    }
    check_command(&open)?;
    if args.dry_run && !args.launch.slurm.slurm {
        return dry_run(&open, &args);
    }
    let work = sort_out(&open, &args)?;
    let run = count(&work.run);
    if run == 0 {
        if work.left_alone == 0 || work.skipped > 0 {
            complain(&match work.skipped {
                0 => "there are no repetitions".to_owned(),
                skipped => format!(
                    "nothing to do: {} done\nhint: -o runs them again",
                    are(skipped, "repetition")
                ),
            });
        }
        return Ok(exit_with(work.left_alone, Exit::Success));
    }
    if work.skipped > 0 && !args.launch.output.quiet {
        let repetitions = are(work.skipped, "repetition");
        complain(&format!("{repetitions} done, and skipped; -o runs them again"));
    }
    open.spec.places = work.run;
    if args.launch.slurm.slurm {
        open.spec.places = in_order_of_jobs(&open);
        return Ok(exit_with(work.left_alone, submit(&open, &args, work.ended_runs, end_with)?));
    }
    let order = order(&args, &open)?;
    let door = door(order, &open);
    let mut shown = observer(&args.launch.output, &door.order.spec, door.order.spec.output, false);
    let prepared = door.order.prepare()?.ending_with(end_with);
    if open.is_file {
        write_back(&open.experiments, &open.spec)
            .context("what was read cannot be written back")?;
    }
    let summary = prepared.start(door.source, &mut *shown, &mut complain)?;
    Ok(exit_with(work.left_alone, summary.exit))
}

/// What would be run.
pub fn open_experiments(args: &mut ExperimentArgs) -> anyhow::Result<DoorRun> {
    let mut open = read(args)?;
    if args.list || args.dry_run || args.expand {
        bail!(
            "--list and --dry-run show repetitions, and a plan shows when they run\nhint: leave one out"
        );
    }
    check_command(&open)?;
    open.spec.places = sort_out(&open, args)?.run;
    Ok(door(order(args, &open)?, &open))
}

fn door(mut order: Order, open: &OpenExperiments) -> DoorRun {
    order.spec.source = SourceSpec::Experiments(open.spec.clone());
    DoorRun {
        order,
        source: experiments_source(&open.spec, Rc::clone(&open.experiments), 0),
        checks: TaskChecks::default(),
    }
}

/// Reads the file and those it imports, and checks all of what is used of them.
fn read(args: &mut ExperimentArgs) -> anyhow::Result<OpenExperiments> {
    let path = path_of(args)?;
    let words = std::mem::take(&mut args.command).into_iter();
    let words: Vec<Vec<u8>> = words.map(OsStringExt::into_vec).collect();
    let mut spec = ExperimentsSpec {
        shown: path.clone(),
        selected: args.experiments.clone(),
        prefix: args
            .prefix_with_timestamp
            .then(|| args.time_stamp.take().unwrap_or_else(time_stamp)),
        debug: match (args.debug, args.debugall) {
            (_, true) => ExperimentDebug::All,
            (true, false) => ExperimentDebug::First,
            (false, false) => ExperimentDebug::Off,
        },
        command: (!words.is_empty()).then_some(Command::Words(words)),
        plain_command: args.plain_command,
        // A program that was told exactly what to do has logs of its own.
        log: !args.noconsolelog && !args.plain_command,
        ..ExperimentsSpec::default()
    };
    let mut text = None;
    if path == Path::new("-") {
        let input = std::io::stdin().lock();
        let read = read_to_limit(input, "standard input", LARGEST_SETTINGS);
        let read = read.context("standard input cannot be read")?;
        text = Some(utf8(read, "standard input")?);
        spec.shown = "standard input".into();
    }
    let is_file = text.is_none();
    let mut experiments = read_experiments(&path, text, &mut spec, terminal::colour())?;
    if args.launch.slurm.slurm && runs_elsewhere(&experiments, args) {
        // Results are where they were, wherever the code is.
        spec.base = Some(std::env::current_dir()?);
        experiments = open_experiments_again(&spec, terminal::colour())?;
    }
    for warning in experiments.warnings() {
        complain(&warning.render(terminal::colour()));
    }
    warn_of_names(&experiments);
    if let Some(job) = args.job.filter(|job| *job >= experiments.jobs()) {
        bail!(
            "there is no job {job}\nhint: {} counted from 0",
            match experiments.jobs() {
                1 => "there is one job,".to_owned(),
                jobs => format!("there are {jobs} jobs,"),
            }
        );
    }
    Ok(OpenExperiments {
        name: spec.shown.display().to_string(),
        experiments: Rc::new(experiments),
        spec,
        is_file,
    })
}

/// The file that is meant.
fn path_of(args: &mut ExperimentArgs) -> anyhow::Result<PathBuf> {
    let mut files: Vec<PathBuf> = args.file.take().into_iter().collect();
    give_back_files(&mut args.launch.pool.gpus, &mut files)?;
    // `-e NAME FILE`: what follows the names and is a file is meant as one.
    if files.is_empty()
        && let Some(file) = args.experiments.pop_if(|name| name == "-" || Path::new(name).is_file())
    {
        if args.experiments.is_empty() {
            bail!(
                "`{file}` is a file and no experiment\n\
                 hint: name the experiments after -e, and the file before it"
            );
        }
        files.push(file.into());
    }
    match files.as_slice() {
        [] => bail!(
            "no file was given\n\
             hint: `packhorse exp config.yml -- python train.py`, with the file before --gpus"
        ),
        [path] => Ok(path.clone()),
        [_, other, ..] => bail!(
            "`{}` is one file too many\n\
             hint: a command stands after --, as in `packhorse exp config.yml -- python train.py`",
            other.display()
        ),
    }
}

fn check_command(open: &OpenExperiments) -> anyhow::Result<()> {
    if let Some(experiment) = open.experiments.without_command() {
        bail!(
            "{} does not say what the experiment `{experiment}` runs\n\
             hint: give a command after --, or write `command: python train.py` into the file",
            open.name
        );
    }
    Ok(())
}

/// What the run is like: what the file says, under what the arguments say.
fn order(args: &ExperimentArgs, open: &OpenExperiments) -> anyhow::Result<Order> {
    let mut order = Order::new(&args.launch)?;
    order.spec.folder_in_doubt = Rerun::in_doubt(args.overwrite);
    order.spec.keeps_results = args.overwrite != Some(Rerun::All);
    fit_here(
        &mut order.spec,
        &args.launch.pool(),
        &open.experiments,
        &order.settings,
        &mut complain,
    )?;
    Ok(order)
}

/// Which repetitions run.
fn sort_out(open: &OpenExperiments, args: &ExperimentArgs) -> anyhow::Result<ExperimentWork> {
    let (mut work, mut running) = (ExperimentWork::default(), RunningTests::default());
    let mut on_cluster = ResultsOnCluster::find()?;
    for repetition in repetition_states(&open.experiments, args.job) {
        let (place, rep, state) = repetition?;
        let in_doubt = Rerun::in_doubt(args.overwrite);
        if running.find_occupancy(&state, || rep.folder(), in_doubt)?.is_some() {
            continue;
        }
        if args.overwrite == Some(Rerun::All) || !state.is_done() {
            add_place(&mut work.run, place);
            on_cluster.note(|| rep.folder())?;
        } else {
            work.skipped += 1;
        }
    }
    refuse_at_work(&running)?;
    on_cluster.refuse()?;
    work.left_alone = warn_of_left_alone(&running, "-o=left-alone");
    work.ended_runs = running.ended_runs();
    Ok(work)
}

/// Says which folders are not called as the original would call them.
fn warn_of_names(experiments: &Experiments) {
    let report = experiments.report();
    if let Some(name) = &report.shared_example {
        complain(&format!(
            "warning: {} would share a folder with another one, such as `{name}`\n\
             hint: a hash is added to their names",
            wording::count(report.shared, "run")
        ));
    }
    if let Some(name) = &report.unusable_example {
        complain(&format!(
            "warning: {} would have a folder name that is too long, such as `{name}`\n\
             hint: it is cut, and a hash is added",
            wording::count(report.unusable, "run")
        ));
    }
    if report.repeated > 0 {
        let runs = wording::count(report.repeated, "run");
        complain(&format!(
            "warning: {runs} can be left out, because the file has the same ones before: each runs once"
        ));
    }
}

/// `--expand`: a line for each run.
fn expand(experiments: &Experiments) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(stdout());
    for run in 0..experiments.runs() {
        writeln!(out, "{}", experiments.expanded(run))?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// `--slurm-document`: a line, if there is one.
fn slurm_document(experiments: &Experiments) -> anyhow::Result<Exit> {
    if let Some(slurm) = experiments.slurm() {
        let document = Value::Object(slurm.json());
        writeln!(stdout(), "{document}")?;
    }
    Ok(Exit::Success)
}

/// A line of `--list --json`.
#[derive(Serialize)]
struct ListedRepetition<'a> {
    experiment: &'a str,
    run: &'a str,
    repetition: u32,
    job: u32,
    folder: &'a str,
    state: &'a str,
    config: Box<RawValue>,
}

/// `--list`: a line for each repetition.
fn list(open: &OpenExperiments, args: &ExperimentArgs) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(stdout());
    for repetition in repetition_states(&open.experiments, args.job) {
        let (_, rep, state) = repetition?;
        let folder = rep.folder();
        if args.launch.output.json {
            let listed = ListedRepetition {
                experiment: rep.experiment(),
                run: rep.run(),
                repetition: rep.number(),
                job: rep.job(),
                folder: &folder,
                state: state.word(),
                config: RawValue::from_string(rep.config())?,
            };
            // Whoever has seen enough closes the pipe, which is no error of JSON.
            serde_json::to_writer(&mut out, &listed).map_err(std::io::Error::from)?;
            out.write_all(b"\n")?;
        } else {
            writeln!(out, "{:<12} {}", state.word(), wording::name(folder))?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// `--dry-run`: the commands that would run, and as remarks what is skipped.
fn dry_run(open: &OpenExperiments, args: &ExperimentArgs) -> anyhow::Result<Exit> {
    let mut running = RunningTests::default();
    let mut out = BufWriter::new(stdout());
    for repetition in repetition_states(&open.experiments, args.job) {
        let (_, rep, state) = repetition?;
        let in_doubt = Rerun::in_doubt(args.overwrite);
        let occupancy = running.find_occupancy(&state, || rep.folder(), in_doubt)?;
        if let Some(occupancy) = occupancy {
            writeln!(out, "# {}: {}", occupancy.words(), wording::name(rep.folder()))?;
        } else if args.overwrite == Some(Rerun::All) || !state.is_done() {
            let command = rep.task().command;
            writeln!(out, "{}", wording::command(&command))?;
        } else {
            let (folder, why) = (wording::name(rep.folder()), why(&state));
            writeln!(out, "# skipped, {why}: {folder}")?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}
