use std::io::{BufWriter, Write as _};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::bail;
use packhorse_intake::grid::{Grid, GridSelection};
use packhorse_model::{Command, Exit, GridSpec, PoolSpec, SourceSpec};
use packhorse_proc::{LARGEST_SETTINGS, read_whole, utf8};
use packhorse_session::{
    RunningTests, SchedulerLog, TaskChecks, add_place, grid_language, grid_source, read_grid,
    test_states, tidy_results,
};
use serde_json::json;

use super::launch::{DoorRun, Order, observer};
use super::results_on_cluster::ResultsOnCluster;
use super::run::give_back_files;
use super::running_tests::{are, count, exit_with, refuse_at_work, warn_of_left_alone, why};
use super::slurm::{ClusterLaunch, launch};
use crate::args::{GridArgs, Rerun};
use crate::stdout::stdout;
use crate::{complain, terminal, wording};

/// A grid file that was read.
struct OpenGrid {
    path: PathBuf,
    grid: Rc<Grid>,
    spec: GridSpec,
    selection: GridSelection,
}

/// Which tests run, and which do not because they are done.
#[derive(Default)]
struct GridWork {
    run: Vec<(u32, u32)>,
    skipped: Vec<(u32, u32)>,
    /// How many may run elsewhere.
    left_alone: u64,
    /// The runs that left tests unfinished.
    ended_runs: Vec<String>,
}

/// `packhorse grid`
pub fn grid(mut args: GridArgs) -> anyhow::Result<Exit> {
    let mut open = read(&mut args)?;
    warn_of_names(&open.grid);
    if args.list {
        return list(&open, args.launch.output.json);
    }
    if args.dry_run && !args.launch.slurm.slurm {
        return dry_run(&open, &args);
    }
    let mut order = order(&args, &open)?;
    let work = sort_out(&open, &args)?;
    let (run, skipped) = (count(&work.run), count(&work.skipped));
    if run == 0 {
        if work.left_alone == 0 || skipped > 0 {
            complain(&match skipped {
                0 => "there are no tests".to_owned(),
                _ => format!(
                    "nothing to do: {} done\nhint: --force runs them again",
                    are(skipped, "test")
                ),
            });
        }
        return Ok(exit_with(work.left_alone, Exit::Success));
    }
    if skipped > 0 && !args.launch.output.quiet {
        let tests = are(skipped, "test");
        complain(&format!("{tests} done, and skipped; --force runs them again"));
    }
    open.spec.places = work.run;
    if order.spec.slurm.is_some() {
        order.spec.ended_runs = work.ended_runs;
    }
    if !args.dry_run {
        tidy_results(&open.grid);
    }
    let door = door(order, &open);
    if door.order.spec.slurm.is_some() {
        let how = ClusterLaunch::new(&args.launch, args.dry_run);
        let (spec, grid) = (&open.spec, &open.grid);
        let exit = launch(door, how, |shown| {
            Ok(SchedulerLog::beside(shown, spec, grid, each(&work.skipped))?)
        })?;
        return Ok(exit_with(work.left_alone, exit));
    }
    let shown = observer(&args.launch.output, &door.order.spec, door.order.spec.output, false);
    let prepared = door.order.prepare()?;
    let mut shown = SchedulerLog::beside(shown, &open.spec, &open.grid, each(&work.skipped))?;
    let summary = prepared.start(door.source, &mut *shown, &mut complain)?;
    Ok(exit_with(work.left_alone, summary.exit))
}

/// What would be run.
pub fn open_grid(args: &mut GridArgs) -> anyhow::Result<DoorRun> {
    let mut open = read(args)?;
    if args.list || args.dry_run {
        bail!(
            "--list and --dry-run show tests, and a plan shows when they run\nhint: leave one out"
        );
    }
    warn_of_names(&open.grid);
    let order = order(args, &open)?;
    open.spec.places = sort_out(&open, args)?.run;
    Ok(door(order, &open))
}

fn door(mut order: Order, open: &OpenGrid) -> DoorRun {
    order.spec.source = SourceSpec::Grid(open.spec.clone());
    DoorRun {
        order,
        source: grid_source(&open.spec, Rc::clone(&open.grid), 0),
        checks: TaskChecks::default(),
    }
}

/// Reads the file, and checks all of it.
fn read(args: &mut GridArgs) -> anyhow::Result<OpenGrid> {
    let path = path_of(args)?;
    let Some(language) = grid_language(&path) else {
        bail!(
            "`{}` could be written in anything\n\
             hint: a grid file ends in .yaml, .yml, .toml, .json or .py",
            path.display()
        );
    };
    let text = utf8(read_whole(&path, LARGEST_SETTINGS)?, &path.display().to_string())?;
    let words = std::mem::take(&mut args.command).into_iter();
    let words: Vec<Vec<u8>> = words.map(OsStringExt::into_vec).collect();
    let command = (!words.is_empty()).then_some(Command::Words(words));
    let name = path.display().to_string();
    let grid = read_grid(&text, language, command.as_ref(), &name, terminal::colour())?;
    let selection = grid.select(&args.only)?;
    Ok(OpenGrid {
        path,
        grid: Rc::new(grid),
        spec: GridSpec { language, text, command, places: Vec::new() },
        selection,
    })
}

/// The file that is meant.
fn path_of(args: &mut GridArgs) -> anyhow::Result<PathBuf> {
    let mut files: Vec<PathBuf> = args.file.take().into_iter().collect();
    give_back_files(&mut args.launch.pool.gpus, &mut files)?;
    match files.as_slice() {
        [] => bail!(
            "no file was given\nhint: `packhorse grid tests.yaml`, with the file before --gpus"
        ),
        [path] => Ok(path.clone()),
        [_, other, ..] => bail!(
            "`{}` is one file too many\nhint: a command stands after --, as in `packhorse grid tests.yaml -- python train.py`",
            other.display()
        ),
    }
}

/// What the run is like: what the file says, under what the arguments say.
fn order(args: &GridArgs, open: &OpenGrid) -> anyhow::Result<Order> {
    if !open.grid.has_command() {
        bail!(
            "{} says nothing of what to run\n\
             hint: write `command: python train.py` into it, or give a command after --",
            open.path.display()
        );
    }
    let file = PoolSpec { gpus: open.grid.scheduler().gpus.clone(), ..PoolSpec::default() };
    let file = with_workers(file);
    let task = args.launch.task.spec().over(open.grid.task());
    let order = Order::with(args.launch.pool().over(&file), task, args.launch.output.mode())?;
    let mut order = order.on_slurm(&args.launch)?;
    let rerun = rerun(open, args);
    order.spec.keeps_results = rerun != Some(Rerun::All);
    order.spec.folder_in_doubt = Rerun::in_doubt(rerun);
    let pool = &order.spec.pool;
    let on_slurm = order.spec.slurm.is_some();
    if pool.gpus.is_empty() && pool.slots.is_none() && !on_slurm {
        bail!(
            "{} names no GPUs: scheduler_config has no `gpu`\n\
             hint: write `gpu: [\"0\", \"1\"]` there, or use --gpus 0,1, --gpus all or --slots N",
            open.path.display()
        );
    }
    Ok(order)
}

/// In the original a GPU that is named twice has two tests at a time. Such names are handed
/// out as they stand.
fn with_workers(mut pool: PoolSpec) -> PoolSpec {
    let mut gpus = pool.gpus.iter();
    let has_twin = |gpu: &String| pool.gpus.iter().filter(|other| *other == gpu).count() > 1;
    if gpus.any(has_twin) {
        pool.as_written = true;
        for gpu in &mut pool.gpus {
            *gpu = gpu.replace('+', ",");
        }
    }
    pool
}

/// Which tests run that are done or may run elsewhere.
fn rerun(open: &OpenGrid, args: &GridArgs) -> Option<Rerun> {
    if open.grid.scheduler().force_rerun { Some(Rerun::All) } else { args.force }
}

/// Which tests run.
fn sort_out(open: &OpenGrid, args: &GridArgs) -> anyhow::Result<GridWork> {
    let rerun = rerun(open, args);
    let is_all = rerun == Some(Rerun::All);
    let (mut work, mut running) = (GridWork::default(), RunningTests::default());
    let mut on_cluster = ResultsOnCluster::find()?;
    for test in test_states(&open.grid, &open.selection)? {
        let (place, state) = test?;
        let folder = || open.grid.folder(place);
        if running.find_occupancy(&state, folder, Rerun::in_doubt(rerun))?.is_some() {
            continue;
        }
        let places = if is_all || !state.is_done() {
            on_cluster.note(|| open.grid.folder(place))?;
            &mut work.run
        } else {
            &mut work.skipped
        };
        add_place(places, place);
    }
    refuse_at_work(&running)?;
    on_cluster.refuse()?;
    work.left_alone = warn_of_left_alone(&running, "--force=left-alone");
    work.ended_runs = running.ended_runs();
    Ok(work)
}

/// Each place of several in a row.
fn each(places: &[(u32, u32)]) -> impl Iterator<Item = u32> {
    places.iter().flat_map(|&(first, count)| first..first + count)
}

/// Says which folders are not called as the original would call them.
fn warn_of_names(grid: &Grid) {
    let report = grid.report();
    if let Some(name) = &report.shared_example {
        complain(&format!(
            "warning: {} would share a folder with another one, such as `{name}`\n\
             hint: a hash is added to their names; with a larger config_string_value_maxlen more \
             of each value is in them",
            wording::count(report.shared, "test")
        ));
    }
    if let Some(name) = &report.unusable_example {
        complain(&format!(
            "warning: {} would have a folder name that is too long or has a `/`, such as `{name}`\n\
             hint: it is cut, `/` becomes `_`, and a hash is added",
            wording::count(report.unusable, "test")
        ));
    }
    if report.repeated > 0 {
        let tests = wording::count(report.repeated, "test");
        complain(&format!(
            "warning: {tests} can be left out of test_config, because it has the same ones before: each \
             runs once"
        ));
    }
}

/// `--list`: a line for each test.
fn list(open: &OpenGrid, json: bool) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(stdout());
    for test in test_states(&open.grid, &open.selection)? {
        let (place, state) = test?;
        let folder = open.grid.folder(place);
        if json {
            let params = open.grid.test(place).params;
            let test = json!({ "folder": folder, "state": state.word(), "params": params });
            writeln!(out, "{test}")?;
        } else {
            writeln!(out, "{:<12} {}", state.word(), wording::name(folder))?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// `--dry-run`: the commands that would run, and as remarks what is skipped.
fn dry_run(open: &OpenGrid, args: &GridArgs) -> anyhow::Result<Exit> {
    order(args, open)?;
    let rerun = rerun(open, args);
    let is_all = rerun == Some(Rerun::All);
    let mut running = RunningTests::default();
    let mut out = BufWriter::new(stdout());
    for test in test_states(&open.grid, &open.selection)? {
        let (place, state) = test?;
        let folder = || open.grid.folder(place);
        let occupancy = running.find_occupancy(&state, folder, Rerun::in_doubt(rerun))?;
        if let Some(occupancy) = occupancy {
            let folder = wording::name(open.grid.folder(place));
            writeln!(out, "# {}: {folder}", occupancy.words())?;
        } else if is_all || !state.is_done() {
            let command = open.grid.test(place).command;
            writeln!(out, "{}", wording::command(&command))?;
        } else {
            let (folder, why) = (wording::name(open.grid.folder(place)), why(&state));
            writeln!(out, "# skipped, {why}: {folder}")?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}
