use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::bail;
use packhorse_core::RefusalReason;
use packhorse_gpu::SelectError;
use packhorse_intake::lines::{Lines, Options, Separator};
use packhorse_model::{Command, DeviceId, Exit, RunId, TaskId};
use packhorse_runner::{About, Places, submissions};
use packhorse_sim::{Gantt, Glyphs, Job, Names, Plan};
use packhorse_store::{Home, Reader};
use serde_json::json;

use super::mistakes::Mistakes;
use super::pool::{self, Found};
use super::run::{give_back_files, open};
use crate::args::{PlanArgs, PoolArgs};
use crate::{complain, terminal, wording};

/// No machine has more.
const MOST_GPUS: usize = 1024;

/// `packhorse plan`
pub fn plan(mut args: PlanArgs) -> anyhow::Result<Exit> {
    give_back_files(&mut args.pool.gpus, &mut args.files);
    let commands = read(&args)?;
    if commands.is_empty() {
        complain("there is nothing to plan: no commands were given");
        return Ok(Exit::Success);
    }
    let Found {
        places, defaults, ..
    } = find(&args)?;
    let home = Home::locate()?;
    let reader = home
        .db()
        .exists()
        .then(|| Reader::open(&home))
        .transpose()?;
    let words: Vec<String> = commands
        .iter()
        .map(|(command, _)| wording::command(command).into_owned())
        .collect();
    let submissions = submissions(&places, &defaults, reader.as_ref(), RunId(1), commands)?;
    let jobs = submissions
        .into_iter()
        .map(|submission| Job {
            lasts: submission.expected.or(args.assume),
            submission,
        })
        .collect();
    let plan = Plan::new(&places.pool(), places.rules(), &[], jobs)?;
    if args.json {
        return show_json(&plan, &places, &words);
    }
    show(&plan, &places)
}

/// All commands of the input, or what is wrong with it.
fn read(args: &PlanArgs) -> anyhow::Result<Vec<(Command, Options)>> {
    let mut commands = Vec::new();
    let mut mistakes = Mistakes::default();
    let mut lines = Lines::new(Separator::Newline);
    for mut source in open(&args.files)? {
        let mut bytes = Vec::new();
        source.file.read_to_end(&mut bytes)?;
        lines.push(&bytes);
        lines.finish();
        for entry in &mut lines {
            match entry {
                Ok(entry) => commands.push((Command::Line(entry.command), entry.options)),
                Err(error) => mistakes.tell(|| error.render(&source.name, terminal::colour())),
            }
        }
        lines.next_source();
    }
    mistakes.refuse("nothing was planned")?;
    Ok(commands)
}

/// Where it would run. A single number is so many GPUs, like those that are here.
fn find(args: &PlanArgs) -> anyhow::Result<Found> {
    let [number] = args.pool.gpus.as_slice() else {
        return pool::find(&args.pool, &args.task);
    };
    let Ok(count) = number.parse::<usize>() else {
        return pool::find(&args.pool, &args.task);
    };
    if !(1..=MOST_GPUS).contains(&count) {
        bail!("a plan is for 1 to {MOST_GPUS} GPUs, not for {count}");
    }
    imagine(args, count)
}

/// As many GPUs as wanted: those that are here, and more like the first of them.
fn imagine(args: &PlanArgs, count: usize) -> anyhow::Result<Found> {
    let here = PoolArgs {
        gpus: Vec::new(),
        ..args.pool.clone()
    };
    let ids: Vec<String> = (0..count).map(|index| index.to_string()).collect();
    let numbered = PoolArgs {
        gpus: ids.clone(),
        ..args.pool.clone()
    };
    // Without a driver there are none here, and any are as good.
    let mut task = args.task.clone();
    let wanted = task.vram.take();
    let found = match pool::find(&here, &task) {
        Ok(found) if found.places.about.iter().any(|about| about.memory.0 > 0) => Some(found),
        Ok(_) => None,
        Err(error) if error.is::<SelectError>() => None,
        // There are some here, or it is not known, and something else is wrong.
        Err(error) => return Err(error),
    };
    let mut found = if let Some(found) = found {
        found
    } else {
        if wanted.is_some() && args.gpu_memory.is_none() {
            bail!(
                "--vram needs to know the GPUs' memory, and there is no GPU here to ask for it\n\
                 hint: say how much to imagine with --gpu-memory 24G"
            );
        }
        let mut found = pool::find_imagined(&numbered, &task)?;
        let about = About {
            memory: args.gpu_memory.unwrap_or_default(),
            model: "imagined".into(),
        };
        found.places.about = vec![about; count];
        found
    };
    task.vram = wanted;
    pool::ask_for_memory(&task, &mut found.defaults);
    let places = &mut found.places;
    if let (Some(unit), Some(about)) = (places.devices.first(), places.about.first()) {
        let (unit, about) = (unit.clone(), about.clone());
        for index in places.devices.len()..count {
            let mut unit = unit.clone();
            unit.label = index.to_string();
            places.devices.push(unit);
            places.about.push(about.clone());
        }
    }
    places.devices.truncate(count);
    places.about.truncate(count);
    Ok(found)
}

fn device_name(places: &Places, device: DeviceId) -> String {
    let unit = places.devices.get(device.0 as usize);
    unit.map_or_else(
        || "machine".to_owned(),
        |unit| format!("GPU {}", unit.label),
    )
}

fn show(plan: &Plan, places: &Places) -> anyhow::Result<Exit> {
    let (width, _) = terminal::size();
    let chart = Gantt {
        plan,
        width,
        glyphs: if terminal::has_unicode() {
            Glyphs::Unicode
        } else {
            Glyphs::Ascii
        },
        names: Names {
            device: &|device| device_name(places, device),
            task: &|task: TaskId| task.number.to_string(),
        },
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

fn show_json(plan: &Plan, places: &Places, words: &[String]) -> anyhow::Result<Exit> {
    let seconds = |time: Duration| time.as_secs_f64();
    let bars: Vec<_> = plan
        .bars
        .iter()
        .map(|bar| {
            let devices = bar.devices.iter();
            json!({
                "task": bar.task.number,
                "command": words.get(bar.task.number as usize - 1),
                "gpus": devices.map(|&device| device_name(places, device)).collect::<Vec<_>>(),
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
        "waiting": plan.waiting.iter().map(|task| task.number).collect::<Vec<_>>(),
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
    Ok(exit(plan))
}
