use std::io::Write;

use anyhow::Context as _;
use packhorse_model::{Exit, Outcome, TaskId};
use packhorse_session::{each_task, find_run};
use packhorse_store::{
    Home, ListedTask, Reader, RunState, StoredAttempt, StoredRun, StoredTask, TaskFilter,
};
use serde_json::{Value, json};

use super::logs::LogFolder;
use super::ls::{self, StartedAs};
use crate::args::ShowArgs;
use crate::{terminal, wording};

/// `packhorse show`
pub fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match args.what.as_deref() {
        Some(text) if text.contains('.') => {
            let id = text.parse()?;
            one_task(&mut out, &home, &reader, id, args.json)?;
        }
        text => one_run(&mut out, &reader, text, args)?,
    }
    out.flush()?;
    Ok(Exit::Success)
}

fn one_run(
    out: &mut impl Write,
    reader: &Reader,
    text: Option<&str>,
    args: &ShowArgs,
) -> anyhow::Result<()> {
    let run = find_run(reader, text)?;
    let select = if args.failed {
        TaskFilter::Failed
    } else {
        TaskFilter::All
    };
    if args.json {
        writeln!(out, "{}", ls::as_json(&run))?;
        return each_task(reader, run.id, select, |listed| {
            Ok(writeln!(out, "{}", as_json(&listed, run.state))?)
        });
    }
    heading(out, &run)?;
    let width = terminal::line_width();
    each_task(reader, run.id, select, |listed| {
        let line = line(&listed, run.state);
        Ok(writeln!(out, "{}", wording::clipped(&line, width))?)
    })
}

fn heading(out: &mut impl Write, run: &StoredRun) -> anyhow::Result<()> {
    let counts = &run.counts;
    writeln!(out, "run {}  {}", run.id, ls::state(run.state))?;
    let line = ls::command_line(run);
    match ls::started_as(run) {
        StartedAs::Packhorse => writeln!(out, "  command  packhorse {line}")?,
        StartedAs::Original => writeln!(out, "  command  {line}")?,
    }
    writeln!(out, "  folder   {}", run.cwd.display())?;
    let took = ls::took(run).map(|took| format!(", took {}", wording::duration(took)));
    writeln!(
        out,
        "  started  {}{}",
        ls::clock(run.started),
        took.unwrap_or_default()
    )?;
    writeln!(
        out,
        "  tasks    {}: {} succeeded, {} failed, {} running, {} left",
        counts.total(),
        counts.succeeded,
        counts.unsuccessful(),
        counts.running,
        counts.waiting + counts.interrupted
    )?;
    let hint = match run.state {
        RunState::Interrupted | RunState::Died => Some(("resume", "goes on with it")),
        RunState::Finished if counts.unsuccessful() > 0 => {
            Some(("retry", "runs the failed ones again"))
        }
        RunState::Finished | RunState::Running => None,
    };
    if let Some((verb, effect)) = hint {
        writeln!(out, "hint: `packhorse {verb} {}` {effect}", run.id)?;
    }
    Ok(writeln!(out)?)
}

fn line(listed: &ListedTask, run: RunState) -> String {
    let task = &listed.task;
    let last = listed.last.as_ref();
    let took = last
        .and_then(took)
        .map(wording::duration)
        .unwrap_or_default();
    let device = last
        .and_then(|last| last.device.as_deref())
        .map(|device| wording::devices(&[device.to_owned()]))
        .unwrap_or_default();
    let name = task
        .spec
        .name
        .as_ref()
        .map(|name| format!("[{name}] "))
        .unwrap_or_default();
    let why = last
        .and_then(|last| last.message.as_deref())
        .map(|message| format!("  ({message})"))
        .unwrap_or_default();
    format!(
        "{:<8} {:<18} {:>7}  {:<8} {name}{}{why}",
        task.id.to_string(),
        status(task, last, run),
        took,
        device,
        wording::command(&task.spec.command)
    )
}

fn status(task: &StoredTask, last: Option<&StoredAttempt>, run: RunState) -> String {
    match (task.outcome, last) {
        (Some(Outcome::Skipped), _) => "skipped".to_owned(),
        (Some(Outcome::TimedOut), _) => "timed out".to_owned(),
        (Some(Outcome::NotStarted), _) => "not started".to_owned(),
        (Some(outcome), _) => outcome.to_string(),
        (None, Some(last)) if last.outcome.is_none() && run == RunState::Running => {
            "running".to_owned()
        }
        (None, Some(last)) if last.outcome.is_none() => "died with run".to_owned(),
        (None, _) => "waiting".to_owned(),
    }
}

fn devices(attempt: &StoredAttempt) -> Vec<&str> {
    let devices = attempt.device.as_deref();
    devices.map_or_else(Vec::new, |devices| devices.split(',').collect())
}

fn took(attempt: &StoredAttempt) -> Option<std::time::Duration> {
    Some(attempt.ended?.since(attempt.started?))
}

fn as_json(listed: &ListedTask, run: RunState) -> Value {
    let task = &listed.task;
    let last = listed.last.as_ref();
    json!({
        "task": task.id.to_string(),
        "name": task.spec.name,
        "command": wording::command(&task.spec.command),
        "outcome": task.outcome.map(Outcome::word),
        "detail": task.outcome.and_then(Outcome::detail),
        "status": status(task, last, run),
        "attempts": task.attempts,
        "gpus": last.map(devices),
        "started": last.and_then(|last| last.started),
        "ended": last.and_then(|last| last.ended),
        "message": last.and_then(|last| last.message.clone()),
        "note": last.and_then(|last| last.note.clone()),
        "peak": last.and_then(|last| last.peak).map(|peak| peak.0),
    })
}

fn one_task(
    out: &mut impl Write,
    home: &Home,
    reader: &Reader,
    id: TaskId,
    json: bool,
) -> anyhow::Result<()> {
    let run = reader
        .run(id.run)?
        .with_context(|| format!("there is no run {}", id.run))?;
    let (task, attempts) = reader
        .task(id)?
        .with_context(|| format!("run {} has no task {}", id.run, id.number))?;
    let logs = LogFolder::of(home, reader, &run, &task)?;
    let listed = ListedTask {
        last: attempts.last().cloned(),
        task,
    };
    if json {
        let mut value = as_json(&listed, run.state);
        value["tries"] = attempts
            .iter()
            .map(|attempt| try_json(&logs, attempt))
            .collect();
        return Ok(writeln!(out, "{value}")?);
    }
    let task = &listed.task;
    writeln!(
        out,
        "task {id}  {}",
        status(task, listed.last.as_ref(), run.state)
    )?;
    if let Some(name) = &task.spec.name {
        writeln!(out, "  name     {name}")?;
    }
    writeln!(out, "  command  {}", wording::command(&task.spec.command))?;
    let own = task.spec.folder.as_deref();
    let folder = own.map_or(run.cwd.clone(), |own| run.cwd.join(own));
    writeln!(out, "  folder   {}", folder.display())?;
    if !task.after.is_empty() {
        let after: Vec<String> = task
            .after
            .iter()
            .map(|&number| TaskId::new(id.run, number).to_string())
            .collect();
        writeln!(out, "  after    {}", after.join(", "))?;
    }
    for attempt in &attempts {
        match attempt.attempt {
            0 => writeln!(out, "  probe")?,
            number => writeln!(out, "  attempt {number}")?,
        }
        let outcome = attempt
            .outcome
            .map_or_else(|| "running".to_owned(), |outcome| outcome.to_string());
        let took = took(attempt).map(|took| format!(" after {}", wording::duration(took)));
        writeln!(out, "    outcome  {outcome}{}", took.unwrap_or_default())?;
        if let Some(message) = &attempt.message {
            writeln!(out, "    because  {message}")?;
        }
        if let Some(note) = &attempt.note {
            writeln!(out, "    note     {note}")?;
        }
        if let Some(peak) = attempt.peak {
            writeln!(out, "    memory   {peak} at most")?;
        }
        if let Some(started) = attempt.started {
            writeln!(out, "    started  {}", ls::clock(started))?;
        }
        if let Some(device) = &attempt.device {
            writeln!(out, "    GPU      {device}")?;
        }
        let log = logs.path(attempt.attempt);
        if log.exists() {
            writeln!(out, "    log      {}", log.display())?;
        }
    }
    Ok(())
}

fn try_json(logs: &LogFolder, attempt: &StoredAttempt) -> Value {
    let log = logs.path(attempt.attempt);
    json!({
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.map(Outcome::word),
        "detail": attempt.outcome.and_then(Outcome::detail),
        "message": attempt.message,
        "note": attempt.note,
        "peak": attempt.peak.map(|peak| peak.0),
        "started": attempt.started,
        "ended": attempt.ended,
        "gpus": devices(attempt),
        "log": log.exists().then_some(log),
    })
}
