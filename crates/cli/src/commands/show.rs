use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use packhorse_model::{AttemptPlace, ByteString, Exit, MetricSummary, Outcome, TaskId};
use packhorse_session::{can_go_on, each_task, find_run};
use packhorse_store::{
    Home, ListedTask, Reader, RunSeed, RunState, StoreError, StoredAttempt, StoredRun, StoredTask,
    TaskFilter,
};
use serde_json::{Value, json};

use super::logs::LogFolder;
use super::ls;
use super::slurm::refresh_shown;
use crate::args::ShowArgs;
use crate::stdout::stdout;
use crate::{terminal, wording};

type Metrics = BTreeMap<String, MetricSummary>;

/// `packhorse show`
pub fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    refresh_shown(&home, args.what.as_deref())?;
    let reader = Reader::open(&home)?;
    let mut out = std::io::BufWriter::new(stdout());
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
    let select = if args.failed { TaskFilter::Failed } else { TaskFilter::All };
    if args.json {
        writeln!(out, "{}", ls::as_json(&run))?;
        return each_task(reader, run.id, select, |listed| {
            let metrics = last_metrics(reader, &listed)?;
            Ok(writeln!(out, "{}", as_json(&listed, run.state, &metrics))?)
        });
    }
    heading(out, &run, can_go_on(reader, run.id)?)?;
    let width = terminal::line_width();
    each_task(reader, run.id, select, |listed| {
        let metrics = last_metrics(reader, &listed)?;
        let line = line(&listed, run.state, &metrics);
        Ok(writeln!(out, "{}", wording::clipped(&line, width))?)
    })
}

fn heading(out: &mut impl Write, run: &StoredRun, can_go_on: bool) -> anyhow::Result<()> {
    let counts = &run.counts;
    writeln!(out, "run {}  {}", run.id, ls::state(run.state))?;
    let name = if ls::is_original(run) { "" } else { "packhorse " };
    writeln!(out, "  command  {name}{}", wording::name(ls::command_line(run)))?;
    writeln!(out, "  folder   {}", folder(&run.cwd))?;
    let took = ls::took(run).map(wording::duration);
    let took = took.map(|took| match run.ended {
        Some(_) => format!(", took {took}"),
        None => format!(", {took} ago"),
    });
    let started = ls::clock(run.started) + &took.unwrap_or_default();
    writeln!(out, "  started  {started}")?;
    writeln!(
        out,
        "  tasks    {}: {} succeeded, {} failed, {} running, {} left",
        counts.total(),
        counts.succeeded,
        counts.failed,
        counts.running,
        counts.waiting + counts.interrupted
    )?;
    let hint = match run.state {
        RunState::OnCluster => Some(("slurm wait", "follows it")),
        _ if !can_go_on => None,
        RunState::Interrupted | RunState::Died => Some(("resume", "runs the rest")),
        RunState::Finished if counts.failed > 0 => Some(("retry", "runs the failed ones again")),
        RunState::Finished | RunState::Running => None,
    };
    if let Some((verb, effect)) = hint {
        writeln!(out, "hint: `packhorse {verb} {}` {effect}", run.id)?;
    }
    Ok(writeln!(out)?)
}

/// What the last attempt of a task has printed.
fn last_metrics(reader: &Reader, listed: &ListedTask) -> Result<Metrics, StoreError> {
    match &listed.last {
        Some(last) => reader.metrics(listed.task.id, last.attempt),
        None => Ok(Metrics::new()),
    }
}

fn line(listed: &ListedTask, run: RunState, metrics: &Metrics) -> String {
    let task = &listed.task;
    let last = listed.last.as_ref();
    let took = last.and_then(took).map(wording::duration);
    let device = last.and_then(|last| last.device.clone());
    let device = device.and_then(|device| place(&device));
    let name = task.spec.name.as_ref().map(|name| format!("[{name}] "));
    let message = last.and_then(|last| last.message.as_ref());
    let message = message.and_then(|message| message.lines().next());
    let why = message.map(|message| format!("  ({message})"));
    wording::name(format!(
        "{:<8} {:<18} {:>7}  {:<8} {}{}{}{}",
        task.id.to_string(),
        status(task, last, run),
        took.unwrap_or_default(),
        device.unwrap_or_default(),
        name.unwrap_or_default(),
        wording::command(&task.spec.command),
        wording::metrics(metrics),
        why.unwrap_or_default()
    ))
}

/// Where an attempt was placed, in words.
fn place(device: &str) -> Option<String> {
    let place = AttemptPlace::parse(device);
    // As short as in a list of ids: it stands in a column.
    let gpus = Some(place.gpus.join(",")).filter(|gpus| !gpus.is_empty());
    wording::place(place.node.as_deref(), gpus.as_slice())
}

fn folder(path: &Path) -> String {
    wording::name(path.display().to_string())
}

fn status(task: &StoredTask, last: Option<&StoredAttempt>, run: RunState) -> String {
    let text = match task.outcome {
        Some(Outcome::Skipped) => "skipped",
        Some(Outcome::TimedOut) => "timed out",
        Some(Outcome::NotStarted) => "not started",
        Some(outcome) => return outcome.to_string(),
        None if last.is_none_or(|last| last.outcome.is_some()) => "waiting",
        None if matches!(run, RunState::Running | RunState::OnCluster) => "running",
        None => "died with run",
    };
    text.to_owned()
}

fn took(attempt: &StoredAttempt) -> Option<std::time::Duration> {
    Some(attempt.ended?.since(attempt.started?))
}

fn as_json(listed: &ListedTask, run: RunState, metrics: &Metrics) -> Value {
    let task = &listed.task;
    let last = listed.last.as_ref();
    let attempt = last.map_or(Value::Null, attempt_json);
    let mut value = json!({
        "task": task.id.to_string(),
        "name": task.spec.name,
        "command": task.spec.command.to_text(),
        "outcome": task.outcome.map(Outcome::word),
        "detail": task.outcome.and_then(Outcome::detail),
        "status": status(task, last, run),
        "attempts": task.attempts,
        "gpus": attempt["gpus"],
        "started": attempt["started"],
        "ended": attempt["ended"],
        "message": attempt["message"],
        "note": attempt["note"],
        "peak": attempt["peak"],
        "metrics": metrics,
    });
    if attempt["node"].is_string() {
        value["node"] = attempt["node"].clone();
    }
    value
}

fn one_task(
    out: &mut impl Write,
    home: &Home,
    reader: &Reader,
    id: TaskId,
    json: bool,
) -> anyhow::Result<()> {
    let run = reader.run(id.run)?.with_context(|| format!("there is no run {}", id.run))?;
    let (task, attempts) =
        reader.task(id)?.with_context(|| format!("run {} has no task {}", id.run, id.number))?;
    let logs = LogFolder::of(home, reader, &run, &task)?;
    let listed = ListedTask { last: attempts.last().cloned(), task };
    let seed = RunSeed::of(run.uuid).of_task(id.number);
    if json {
        let mut value = as_json(&listed, run.state, &last_metrics(reader, &listed)?);
        let tries = attempts.iter().map(|attempt| {
            let mut value = attempt_json(attempt);
            let path = logs.log(attempt.attempt).find().ok().filter(|path| path.exists());
            let log = path.map(|path| ByteString::from(path.into_os_string()));
            value["log"] = json!(log);
            value["metrics"] = json!(reader.metrics(id, attempt.attempt)?);
            Ok(value)
        });
        value["seed"] = json!(seed);
        value["tries"] = tries.collect::<Result<_, StoreError>>()?;
        return Ok(writeln!(out, "{value}")?);
    }
    let task = &listed.task;
    writeln!(out, "task {id}  {}", status(task, listed.last.as_ref(), run.state))?;
    if let Some(name) = &task.spec.name {
        writeln!(out, "  name     {}", wording::printable(name))?;
    }
    writeln!(out, "  command  {}", wording::command(&task.spec.command))?;
    let own = task.spec.folder.as_deref();
    let place = own.map_or(run.cwd.clone(), |own| run.cwd.join(own));
    writeln!(out, "  folder   {}", folder(&place))?;
    writeln!(out, "  seed     {seed}")?;
    if !task.after.is_empty() {
        let after = task.after.iter();
        let after = after.map(|&number| TaskId::new(id.run, number).to_string());
        let after: Vec<String> = after.collect();
        writeln!(out, "  after    {}", after.join(", "))?;
    }
    for attempt in &attempts {
        match attempt.attempt {
            0 => writeln!(out, "  probe")?,
            number => writeln!(out, "  attempt {number}")?,
        }
        let outcome =
            attempt.outcome.map_or_else(|| "running".to_owned(), |outcome| outcome.to_string());
        let took = took(attempt).map(|took| format!(" after {}", wording::duration(took)));
        let log = logs.log(attempt.attempt).find().ok().filter(|log| log.exists());
        let place = attempt.device.as_deref().map(AttemptPlace::parse);
        let place = place.unwrap_or_default();
        let gpus = Some(place.gpus.join(","));
        let known = [
            ("outcome", Some(outcome + &took.unwrap_or_default())),
            ("because", attempt.message.clone()),
            ("note", attempt.note.clone()),
            ("memory", attempt.peak.map(|peak| format!("{peak} at most"))),
            ("started", attempt.started.map(ls::clock)),
            ("GPU", gpus.filter(|gpus| !gpus.is_empty())),
            ("node", place.node),
            ("log", log.map(|log| log.display().to_string())),
        ];
        let metrics = reader.metrics(id, attempt.attempt)?;
        let metrics = metrics.iter().map(|(name, summary)| {
            let text = format!("{name} {}", metric(summary));
            ("metric", Some(text))
        });
        for (what, text) in known.into_iter().chain(metrics) {
            if let Some(text) = text {
                writeln!(out, "    {what:<8} {}", wording::lines(&text))?;
            }
        }
    }
    Ok(())
}

/// The last value, and where it stands among the others.
fn metric(summary: &MetricSummary) -> String {
    let [last, lowest, highest] =
        [summary.last, summary.lowest, summary.highest].map(wording::number);
    match summary.count {
        1 => last,
        count => format!("{last} (lowest {lowest}, highest {highest}, {count} values)"),
    }
}

fn attempt_json(attempt: &StoredAttempt) -> Value {
    let place = attempt.device.as_deref().map(AttemptPlace::parse);
    let place = place.unwrap_or_default();
    let mut value = json!({
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.map(Outcome::word),
        "detail": attempt.outcome.and_then(Outcome::detail),
        "message": attempt.message,
        "note": attempt.note,
        "peak": attempt.peak,
        "started": attempt.started,
        "ended": attempt.ended,
        "gpus": place.gpus,
    });
    if let Some(node) = place.node {
        value["node"] = json!(node);
    }
    value
}
