mod csv;
mod curves;
mod keys;
mod listing;
mod plot;
mod points;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::Path;

use packhorse_model::{ByteString, Exit, TaskId};
use packhorse_session::{
    TestResult, find_run, folder_results, run_results, stored_run, stored_task, task_result,
};
use packhorse_store::{Home, ListedTask, Reader};
use serde_json::{Map, Value, json};

use super::slurm::refresh_shown;
use super::table::print_json;
use crate::args::ResultsArgs;
use crate::stdout::stdout;
use crate::{complain, wording};
use keys::MetricValue;
use listing::ResultsOrigin;

/// `packhorse results`
pub fn results(args: &ResultsArgs) -> anyhow::Result<Exit> {
    let (mut tests, place, name) = read(args.what.as_deref())?;
    if tests.is_empty() && !args.json && !args.csv {
        complain(&format!("there are no tests in {name}"));
        return Ok(Exit::Success);
    }
    if !args.json {
        for test in &mut tests {
            test.params = flattened(std::mem::take(&mut test.params));
        }
    }
    if let Some(key) = args.sort.as_deref().filter(|_| !tests.is_empty()) {
        keys::sort(&mut tests, key)?;
    }
    if args.json {
        return print_json(&tests.iter().map(as_json).collect());
    }
    let mut out = BufWriter::new(stdout());
    if args.csv {
        csv::write(&mut out, &tests)?;
    } else if let [x, y] = &args.plot[..] {
        if curves::is_step(x, &tests) {
            curves::draw(&mut out, &tests, y)?;
        } else {
            points::draw(&mut out, &tests, x, y)?;
        }
    } else {
        listing::print(&mut out, &tests, place)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// The tests of a run or a folder, or the one of a task, and what that is called.
fn read(what: Option<&OsStr>) -> anyhow::Result<(Vec<TestResult>, ResultsOrigin, String)> {
    let text = what.and_then(OsStr::to_str);
    let is_run = |text: &str| {
        matches!(text, "latest" | "last") || text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let task = text.and_then(|text| text.parse::<TaskId>().ok());
    let task = task.filter(|_| what.is_some_and(|what| !Path::new(what).exists()));
    if let Some(id) = task {
        let home = Home::locate()?;
        let reader = Reader::open(&home)?;
        let run = stored_run(&reader, id.run)?;
        let (task, mut attempts) = stored_task(&reader, id)?;
        let last = attempts.pop();
        let result = task_result(&home, &reader, &run, ListedTask { task, last })?;
        return Ok((vec![result], ResultsOrigin::Run, format!("task {id}")));
    }
    if let Some(folder) = what.filter(|_| !text.is_some_and(is_run)) {
        let folder = Path::new(folder);
        let mut notices = |text: &str| complain(&format!("warning: {text}"));
        let tests = folder_results(folder, &mut notices)?;
        let name = wording::name(format!("`{}`", folder.display()));
        return Ok((tests, ResultsOrigin::Folder, name));
    }
    let home = Home::locate()?;
    refresh_shown(&home, text)?;
    let reader = Reader::open(&home)?;
    let run = find_run(&reader, text)?;
    let tests = run_results(&home, &reader, &run)?;
    Ok((tests, ResultsOrigin::Run, format!("run {}", run.id)))
}

/// Parameters with those inside of others under names of their own: `net.hidden`.
fn flattened(params: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    fn add(name: String, value: Value, flat: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                for (key, value) in inner {
                    add(format!("{name}.{key}"), value, flat);
                }
            }
            value => drop(flat.insert(name, value)),
        }
    }
    let mut flat = BTreeMap::new();
    for (name, value) in params {
        add(name, value, &mut flat);
    }
    flat
}

/// A test for programs.
fn as_json(test: &TestResult) -> Value {
    let folder = test.folder.clone().map(|it| ByteString::from(it.into_os_string()));
    let metrics = test.metrics.iter().map(|(name, summary)| {
        let mut value = json!(summary);
        value["best"] = match which_is_best(name) {
            _ if summary.is_diverged() => value["last"].clone(),
            MetricValue::Highest => value["highest"].clone(),
            _ => value["lowest"].clone(),
        };
        (name.clone(), value)
    });
    let log = test.log.as_ref().and_then(|log| log.find().ok());
    let log = log.map(|log| ByteString::from(log.into_os_string()));
    json!({
        "task": test.task.map(|task| task.to_string()),
        "folder": folder,
        "params": test.params,
        "outcome": test.outcome.word(),
        "detail": test.outcome.detail(),
        "diverged": diverged(test).collect::<Vec<_>>(),
        "command": test.command,
        "attempts": test.attempts,
        "started": test.started,
        "ended": test.ended,
        "seconds": test.took.map(|took| took.as_secs_f64()),
        "gpus": test.gpus,
        "peak": test.peak,
        "git": test.git,
        "host": test.host,
        "log": log,
        "metrics": metrics.collect::<Map<String, Value>>(),
    })
}

/// The metrics of a test that ended with NaN or infinity.
fn diverged(test: &TestResult) -> impl Iterator<Item = &str> {
    let metrics = test.metrics.iter();
    metrics.filter(|(_, summary)| summary.is_diverged()).map(|(name, _)| name.as_str())
}

fn which_is_best(metric: &str) -> MetricValue {
    if packhorse_session::is_more_better(metric) {
        MetricValue::Highest
    } else {
        MetricValue::Lowest
    }
}
