use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::bail;
use packhorse_core::{RefusalReason, Submission};
use packhorse_model::{
    Bytes, DeviceId, Exit, GridLanguage, PoolSpec, RunId, RunSpec, TaskId, TaskSpec,
};
use packhorse_proc::{LARGEST_SETTINGS, read_regular};
use packhorse_session::settings::Settings;
use packhorse_session::{
    Devices, DevicesNow, PlannedTasks, SessionError, grid_language, plan_submissions, read_all,
    scheduler_settings,
};
use packhorse_sim::{DurationGuess, Gantt, Glyphs, Plan, PlanStart, PlanTask};
use packhorse_store::{Home, Reader};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::csv::open_csv;
use super::experiments::open_experiments;
use super::grid::open_grid;
use super::launch::DoorRun;
use super::mistakes::Mistakes;
use super::run::{give_back_files, open_run};
use super::sweep::{build, open_sweep};
use crate::args::{
    Cli, CsvArgs, ExperimentArgs, GridArgs, ImaginedArgs, LaunchArgs, PlanArgs, PlannedDoor,
    RunArgs, Verb,
};
use crate::report::Progress;
use crate::stdout::stdout;
use crate::{complain, terminal, wording};

/// No machine has more.
const MOST_GPUS: usize = 1024;

/// What is not done if something is wrong with the input.
const CONSEQUENCE: &str = "nothing was planned";

/// `packhorse plan`
pub fn plan(args: PlanArgs) -> anyhow::Result<Exit> {
    match args.door {
        None => plan_files(args.run, args.imagined),
        Some(PlannedDoor::Run(of)) => plan_run(of.door, of.imagined),
        Some(PlannedDoor::Csv(of)) => plan_csv(of.door, of.imagined),
        Some(PlannedDoor::Grid(of)) => plan_grid(of.door, of.imagined),
        Some(PlannedDoor::Exp(of)) => plan_experiments(of.door, of.imagined),
        Some(PlannedDoor::Sweep(mut of)) => {
            let (spec, sweep) = build(&mut of.door)?;
            let door = open_sweep(&of.door, spec, sweep)?;
            plan_door(door, &of.door.launch, of.imagined)
        }
    }
}

fn plan_run(mut args: RunArgs, imagined: ImaginedArgs) -> anyhow::Result<Exit> {
    let (door, _) = open_run(&mut args, CONSEQUENCE)?;
    plan_door(door, &args.launch, imagined)
}

fn plan_csv(mut args: CsvArgs, imagined: ImaginedArgs) -> anyhow::Result<Exit> {
    let door = open_csv(&mut args, CONSEQUENCE)?;
    plan_door(door, &args.launch, imagined)
}

fn plan_grid(mut args: GridArgs, imagined: ImaginedArgs) -> anyhow::Result<Exit> {
    let door = open_grid(&mut args)?;
    plan_door(door, &args.launch, imagined)
}

fn plan_experiments(mut args: ExperimentArgs, imagined: ImaginedArgs) -> anyhow::Result<Exit> {
    let door = open_experiments(&mut args)?;
    plan_door(door, &args.launch, imagined)
}

/// What a file is, by the end of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Commands,
    Csv,
    TaskLines,
    /// A grid, or experiments.
    Settings(GridLanguage),
}

impl FileKind {
    fn of(path: &Path) -> Self {
        let end = path.extension().and_then(|end| end.to_str());
        match end.unwrap_or_default().to_ascii_lowercase().as_str() {
            "csv" => Self::Csv,
            "jsonl" | "ndjson" => Self::TaskLines,
            _ => grid_language(path).map_or(Self::Commands, Self::Settings),
        }
    }

    /// Whether several such files can be planned together.
    fn is_one_of_many(self) -> bool {
        matches!(self, Self::Commands | Self::TaskLines)
    }
}

/// Plans files without a word on what they are.
fn plan_files(mut args: RunArgs, imagined: ImaginedArgs) -> anyhow::Result<Exit> {
    give_back_files(&mut args.launch.pool.gpus, &mut args.files)?;
    let Some(first) = args.files.first().cloned() else {
        return plan_run(args, imagined);
    };
    let kind = FileKind::of(&first);
    let mut rest = args.files.iter().skip(1);
    if let Some(other) = rest.find(|file| !kind.is_one_of_many() || FileKind::of(file) != kind) {
        bail!(
            "`{}` cannot be planned together with `{}`\nhint: plan them one after the other",
            other.display(),
            first.display()
        );
    }
    match kind {
        FileKind::Commands => plan_run(args, imagined),
        FileKind::Csv => plan_csv(csv_args(first, args.launch)?, imagined),
        FileKind::Settings(language) => plan_settings(first, language, args.launch, imagined),
        FileKind::TaskLines => {
            args.tasks = std::mem::take(&mut args.files);
            plan_run(args, imagined)
        }
    }
}

/// Plans a file that may be a grid or experiments, by what is in it.
fn plan_settings(
    file: PathBuf,
    language: GridLanguage,
    launch: LaunchArgs,
    imagined: ImaginedArgs,
) -> anyhow::Result<Exit> {
    // Its door reads the file again, so it cannot be a pipe.
    let text = read_regular(&file, LARGEST_SETTINGS)?;
    let text = String::from_utf8_lossy(&text);
    let may_be_experiments = language == GridLanguage::Yaml;
    let door = if text.contains("test_config") {
        "grid"
    } else if may_be_experiments && text.lines().any(|line| line.starts_with("name:")) {
        "exp"
    } else {
        let name = file.display();
        bail!(
            "`{name}` has neither `test_config`, as a grid has, nor experiments with a `name`\n\
             hint: say what it is: `packhorse plan grid {name}`, `packhorse plan exp {name}`, or \
             for a file of commands `packhorse plan run {name}`"
        );
    };
    match Cli::read(&["packhorse".into(), door.into()])?.command {
        Verb::Grid(args) => plan_grid(GridArgs { file: Some(file), launch, ..args }, imagined),
        Verb::Exp(args) => {
            plan_experiments(ExperimentArgs { file: Some(file), launch, ..*args }, imagined)
        }
        _ => bail!("`packhorse {door}` is not understood"),
    }
}

/// `packhorse csv FILE` with these options.
fn csv_args(file: PathBuf, launch: LaunchArgs) -> anyhow::Result<CsvArgs> {
    let words = ["packhorse".into(), "csv".into(), "--".into(), file.into()];
    let Verb::Csv(mut args) = Cli::read(&words)?.command else {
        bail!("`packhorse csv` is not understood");
    };
    args.launch = launch;
    Ok(args)
}

/// Plans what a door has made of its arguments.
fn plan_door(
    mut door: DoorRun,
    launch: &LaunchArgs,
    imagined: ImaginedArgs,
) -> anyhow::Result<Exit> {
    if door.order.spec.slurm.is_some() {
        bail!(
            "a plan is for this machine\n\
             hint: with --slurm, `packhorse run --dry-run` shows what would be submitted"
        );
    }
    let mut progress = Progress::new();
    let (tasks, rejected) =
        read_all(&mut *door.source, &mut |read| progress.show("reading", read, None));
    progress.clear();
    let mut mistakes = Mistakes::default();
    for message in rejected {
        mistakes.tell(|| message);
    }
    mistakes.refuse(CONSEQUENCE)?;
    if tasks.is_empty() {
        complain("there is nothing to plan: no commands were given");
        return Ok(Exit::Success);
    }
    let (spec, settings) = (&door.order.spec, &door.order.settings);
    let home = Home::locate()?;
    let reader = home.db().exists().then(|| Reader::open(&home)).transpose()?;
    let count = match launch.pool.gpus.as_slice() {
        // No GPU at all is not meant, so that is the one with this number.
        [number] => number.parse::<usize>().ok().filter(|count| *count > 0),
        _ => None,
    };
    let (mut devices, imagines_all) = find(count, imagined.gpu_memory, spec, settings)?;
    let counts_memory = spec.defaults.vram.is_some() || tasks.counts_memory();
    let mut now = DevicesNow::default();
    if !imagines_all {
        let reader = reader.as_ref();
        now = DevicesNow::look(spec, &mut devices, counts_memory, reader, settings, &mut complain)?;
    }
    for (device, reason) in &now.left_out {
        let name = device_name(&devices, *device);
        complain(&format!("{name} is left out: {reason}"));
    }
    if let Some(count) = count.filter(|_| !imagines_all) {
        let is_used = |device| now.left_out.iter().all(|(out, _)| *out != device);
        let held = std::mem::take(&mut now.outside).into_iter();
        let held = held.filter(|(device, _)| is_used(*device));
        now.outside = (0..).map(DeviceId).zip(held.map(|(_, held)| held)).collect();
        devices.retain(is_used);
        now.left_out.clear();
        now.outside.truncate(count);
        devices.resize(count);
    }
    let (reader, run) = (reader.as_ref(), RunId(1));
    let mut planned = Vec::with_capacity(tasks.len());
    let mut progress = Progress::new();
    let mut each = |id, submission: Rc<Submission>| {
        planned.push(PlanTask { id, lasts: submission.expected, submission });
        progress.show("looking up", planned.len(), Some(tasks.len()));
    };
    plan_submissions(&devices, spec, reader, run, &tasks, &mut complain, &mut each)?;
    // Only `--json` shows commands.
    let commands = launch.output.json.then_some(tasks);
    let start = PlanStart {
        assume: imagined.assume,
        outside: now.outside,
        left_out: now.left_out.iter().map(|(device, _)| *device).collect(),
    };
    let name = |device| device_name(&devices, device);
    let settings = scheduler_settings(&spec.pool);
    let count = planned.len();
    let mut shown = |done| progress.show("planning", done, Some(count));
    let plan = Plan::new(&devices.pool(), settings, &start, &planned, &name, &mut shown)?;
    progress.clear();
    drop(planned);
    if let Some(tasks) = commands {
        return show_json(&plan, &devices, &tasks);
    }
    show(&plan, &devices)
}

/// Where it would run, and whether all of that is imagined. `count` is for so many GPUs:
/// those that are here, and more like the first of them.
fn find(
    count: Option<usize>,
    memory: Option<Bytes>,
    spec: &RunSpec,
    settings: &Settings,
) -> anyhow::Result<(Devices, bool)> {
    let (pool, task) = (&spec.pool, &spec.defaults);
    let config = settings.gpu_config();
    let find = |pool, task| Devices::find(pool, task, &config, &mut complain);
    let Some(count) = count else {
        return Ok((find(pool, task)?, false));
    };
    if count > MOST_GPUS {
        bail!("a plan is for 1 to {MOST_GPUS} GPUs, not for {count}");
    }
    let here = PoolSpec { gpus: Vec::new(), ..pool.clone() };
    // Without a driver there are none here, and any are as good.
    let unmeasured = TaskSpec { vram: None, ..task.clone() };
    match find(&here, &unmeasured) {
        Ok(found) if found.info.iter().any(|info| info.memory > Bytes(0)) => {
            return Ok((found, false));
        }
        Ok(_) | Err(SessionError::Select(_)) => {}
        // There are some here, or it is not known, and something else is wrong.
        Err(error) => return Err(error.into()),
    }
    if task.vram.is_some() && memory.is_none() {
        bail!(
            "--vram needs to know the GPUs' memory, and there is no GPU here to ask for it\n\
             hint: say how much to imagine with --gpu-memory 24G"
        );
    }
    let imagined = PoolSpec {
        gpus: (0..count).map(|index| index.to_string()).collect(),
        as_written: true,
        ..pool.clone()
    };
    let mut found = find(&imagined, &unmeasured)?;
    for info in &mut found.info {
        info.memory = memory.unwrap_or_default();
        info.model = "imagined".into();
    }
    Ok((found, true))
}

fn device_name(devices: &Devices, device: DeviceId) -> String {
    let unit = devices.units.get(device.0 as usize);
    unit.map_or_else(|| "machine".to_owned(), |unit| format!("GPU {}", unit.label))
}

fn show(plan: &Plan, devices: &Devices) -> anyhow::Result<Exit> {
    let (width, _) = terminal::size();
    let chart = Gantt {
        plan,
        width,
        glyphs: if terminal::has_unicode() { Glyphs::UNICODE } else { Glyphs::ASCII },
        device_name: &|device| device_name(devices, device),
        task_name: &|task: TaskId| task.number.to_string(),
    };
    let mut out = stdout();
    write!(out, "{}", wording::lines(&chart.to_string()))?;
    for (task, reason) in &plan.refused {
        let number = task.number;
        complain(&match skipped(plan, reason) {
            Some(why) => format!("task {number} would be skipped: {why}"),
            None => format!("task {number} could never run: {reason}"),
        });
    }
    if let Some((task, why)) = waits(plan) {
        complain(&format!("task {} {why}", task.number));
    }
    Ok(exit(plan))
}

/// Why a task would be skipped: it comes after one that would not run either.
fn skipped(plan: &Plan, reason: &RefusalReason) -> Option<String> {
    let RefusalReason::UnknownDependency(first) = reason else {
        return None;
    };
    let would_not_run = plan.refused.iter().any(|(task, _)| task == first);
    would_not_run.then(|| format!("it comes after task {}, which would not run", first.number))
}

/// Who waits for others to leave, and why.
fn waits(plan: &Plan) -> Option<(TaskId, &str)> {
    let (task, why) = plan.why_waiting.as_ref()?;
    let name = format!("{task} ");
    Some((*task, why.strip_prefix(&name).unwrap_or(why)))
}

fn exit(plan: &Plan) -> Exit {
    if plan.refused.is_empty() { Exit::Success } else { Exit::TasksFailed }
}

/// The plan for programs, printed as it is made: a value of a million tasks takes more
/// than the plan.
#[derive(Serialize)]
struct PlanJson<'a, T, R> {
    assumed_seconds: Option<f64>,
    durations_unknown: usize,
    expected_end_seconds: Option<f64>,
    first_waits_because: Option<&'a str>,
    is_bound: bool,
    refused: R,
    tasks: T,
    waiting: Vec<u32>,
}

#[derive(Serialize)]
struct BarJson {
    command: Option<String>,
    duration_known: bool,
    end_seconds: Option<f64>,
    gpus: Vec<String>,
    round: Option<u64>,
    start_seconds: Option<f64>,
    task: u32,
}

/// A list whose items are made when they are printed.
struct Each<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

fn show_json(plan: &Plan, devices: &Devices, tasks: &PlannedTasks) -> anyhow::Result<Exit> {
    let seconds = |time: Duration| time.as_secs_f64();
    // A round is no time.
    let in_rounds = plan.guess == DurationGuess::Rounds;
    let seconds_or_null = |time: Duration| (!in_rounds).then(|| seconds(time));
    let bars = plan.bars.iter().map(|bar| {
        let command = tasks.get(bar.task.number as usize - 1);
        BarJson {
            command: command.map(|task| wording::command(&task.command).into_owned()),
            duration_known: bar.known,
            end_seconds: seconds_or_null(bar.end),
            gpus: bar.devices.iter().map(|&device| device_name(devices, device)).collect(),
            round: in_rounds.then(|| bar.start.as_secs() + 1),
            start_seconds: seconds_or_null(bar.start),
            task: bar.task.number,
        }
    });
    let why = |reason: &RefusalReason| skipped(plan, reason).unwrap_or_else(|| reason.to_string());
    let refused = plan.refused.iter();
    let value = PlanJson {
        assumed_seconds: match plan.guess {
            DurationGuess::Assumed(time) | DurationGuess::Median(time) => Some(seconds(time)),
            DurationGuess::AllKnown | DurationGuess::Rounds => None,
        },
        durations_unknown: plan.unknown,
        expected_end_seconds: plan.expected_end().map(seconds),
        first_waits_because: waits(plan).map(|(_, why)| why),
        is_bound: plan.is_bound(),
        refused: Each(
            refused.map(|(task, reason)| json!({"task": task.number, "reason": why(reason)})),
        ),
        tasks: Each(bars),
        waiting: plan.waiting.iter().map(|task| task.number).collect(),
    };
    let mut out = std::io::BufWriter::new(stdout());
    serde_json::to_writer_pretty(&mut out, &value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(exit(plan))
}
