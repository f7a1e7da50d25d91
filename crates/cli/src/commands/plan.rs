use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::bail;
use packhorse_core::RefusalReason;
use packhorse_intake::lines::Separator;
use packhorse_intake::{TaskLanguage, TaskReader};
use packhorse_model::{Bytes, DeviceId, Exit, PoolSpec, RunId, TaskId, TaskSpec};
use packhorse_session::settings::Settings;
use packhorse_session::{Devices, SessionError, plan_submissions, scheduler_settings};
use packhorse_sim::{Gantt, Glyphs, Plan, PlanTask};
use packhorse_store::{Home, Reader};
use serde_json::json;

use super::mistakes::Mistakes;
use super::run::{give_back_files, open};
use super::table::print_json;
use crate::args::PlanArgs;
use crate::{complain, terminal, wording};

/// No machine has more.
const MOST_GPUS: usize = 1024;

/// `packhorse plan`
pub fn plan(mut args: PlanArgs) -> anyhow::Result<Exit> {
    give_back_files(&mut args.pool.gpus, &mut args.files);
    let tasks = read(&args)?;
    if tasks.is_empty() {
        complain("there is nothing to plan: no commands were given");
        return Ok(Exit::Success);
    }
    let settings = Settings::find()?;
    let (pool, defaults) = settings.under(args.pool.spec(), args.task.spec());
    let devices = find(&args, &pool, &defaults, &settings)?;
    let home = Home::locate()?;
    let reader = home
        .db()
        .exists()
        .then(|| Reader::open(&home))
        .transpose()?;
    let words: Vec<String> = tasks
        .iter()
        .map(|task| wording::command(&task.command).into_owned())
        .collect();
    let submissions = plan_submissions(&devices, &defaults, reader.as_ref(), RunId(1), tasks)?;
    let tasks = submissions
        .into_iter()
        .map(|submission| PlanTask {
            lasts: submission.expected.or(args.assume),
            submission,
        })
        .collect();
    let plan = Plan::new(&devices.pool(), scheduler_settings(&pool), tasks)?;
    if args.json {
        return show_json(&plan, &devices, &words);
    }
    show(&plan, &devices)
}

/// All commands of the input, or what is wrong with it.
fn read(args: &PlanArgs) -> anyhow::Result<Vec<TaskSpec>> {
    let mut commands = Vec::new();
    let mut mistakes = Mistakes::default();
    let mut lines = TaskReader::new(TaskLanguage::Lines(Separator::Newline));
    for mut source in open(&args.files)? {
        let mut bytes = Vec::new();
        source.file.read_to_end(&mut bytes)?;
        lines.push(&bytes);
        lines.finish();
        for entry in &mut lines {
            match entry {
                Ok(entry) => commands.push(entry.spec),
                Err(error) => mistakes.tell(|| error.render(&source.name, terminal::colour())),
            }
        }
        lines.next_source();
    }
    mistakes.refuse("nothing was planned")?;
    Ok(commands)
}

/// Where it would run. A single number is so many GPUs: those that are here, and more like
/// the first of them.
fn find(
    args: &PlanArgs,
    pool: &PoolSpec,
    task: &TaskSpec,
    settings: &Settings,
) -> anyhow::Result<Devices> {
    let count = match args.pool.gpus.as_slice() {
        [number] => number.parse::<usize>().ok(),
        _ => None,
    };
    let config = settings.gpu_config();
    let find = |pool, task| Devices::find(pool, task, &config, &mut complain);
    let Some(count) = count else {
        return Ok(find(pool, task)?);
    };
    if !(1..=MOST_GPUS).contains(&count) {
        bail!("a plan is for 1 to {MOST_GPUS} GPUs, not for {count}");
    }
    let here = PoolSpec {
        gpus: Vec::new(),
        ..pool.clone()
    };
    // Without a driver there are none here, and any are as good.
    let unmeasured = TaskSpec {
        vram: None,
        ..task.clone()
    };
    match find(&here, &unmeasured) {
        Ok(mut found) if found.info.iter().any(|info| info.memory > Bytes(0)) => {
            found.resize(count);
            return Ok(found);
        }
        Ok(_) | Err(SessionError::Select(_)) => {}
        // There are some here, or it is not known, and something else is wrong.
        Err(error) => return Err(error.into()),
    }
    if task.vram.is_some() && args.gpu_memory.is_none() {
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
        info.memory = args.gpu_memory.unwrap_or_default();
        info.model = "imagined".into();
    }
    Ok(found)
}

fn device_name(devices: &Devices, device: DeviceId) -> String {
    let unit = devices.units.get(device.0 as usize);
    unit.map_or_else(
        || "machine".to_owned(),
        |unit| format!("GPU {}", unit.label),
    )
}

fn show(plan: &Plan, devices: &Devices) -> anyhow::Result<Exit> {
    let (width, _) = terminal::size();
    let chart = Gantt {
        plan,
        width,
        glyphs: if terminal::has_unicode() {
            Glyphs::UNICODE
        } else {
            Glyphs::ASCII
        },
        device_name: &|device| device_name(devices, device),
        task_name: &|task: TaskId| task.number.to_string(),
    };
    let mut out = std::io::stdout().lock();
    write!(out, "{chart}")?;
    for (task, reason) in &plan.refused {
        let number = task.number;
        complain(&match skipped(plan, reason) {
            Some(why) => format!("task {number} would be skipped: {why}"),
            None => format!("task {number} could never run: {reason}"),
        });
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

fn exit(plan: &Plan) -> Exit {
    if plan.refused.is_empty() {
        Exit::Success
    } else {
        Exit::TasksFailed
    }
}

fn show_json(plan: &Plan, devices: &Devices, words: &[String]) -> anyhow::Result<Exit> {
    let seconds = |time: Duration| time.as_secs_f64();
    let bars: Vec<_> = plan
        .bars
        .iter()
        .map(|bar| {
            let on = bar.devices.iter();
            json!({
                "task": bar.task.number,
                "command": words.get(bar.task.number as usize - 1),
                "gpus": on.map(|&device| device_name(devices, device)).collect::<Vec<_>>(),
                "start_seconds": seconds(bar.start),
                "end_seconds": seconds(bar.end),
                "duration_known": bar.known,
            })
        })
        .collect();
    let why = |reason: &RefusalReason| skipped(plan, reason).unwrap_or_else(|| reason.to_string());
    let value = json!({
        "tasks": bars,
        "expected_end_seconds": plan.expected_end().map(seconds),
        "durations_unknown": plan.unknown,
        "refused": plan.refused.iter()
            .map(|(task, reason)| json!({"task": task.number, "reason": why(reason)}))
            .collect::<Vec<_>>(),
    });
    print_json(&value)?;
    Ok(exit(plan))
}
