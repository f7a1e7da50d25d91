mod csv;
mod keys;
mod listing;
mod plot;

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::bail;
use packhorse_model::{ByteString, Exit, TaskId};
use packhorse_session::{TestResult, find_run, folder_results, run_results};
use packhorse_store::{Home, Reader};
use serde_json::{Map, Value, json};

use super::slurm::refresh_shown;
use super::table::print_json;
use crate::args::ResultsArgs;
use crate::{complain, terminal, wording};
use keys::{Key, KeyValue, MetricValue};
use listing::Place;
use plot::{Axis, Dots};

/// `packhorse results`
pub fn results(args: &ResultsArgs) -> anyhow::Result<Exit> {
    let (mut tests, place, name) = read(args.what.as_deref())?;
    if tests.is_empty() && !args.json && !args.csv {
        complain(&format!("there are no tests in {name}"));
        return Ok(Exit::Success);
    }
    if let Some(key) = args.sort.as_deref().filter(|_| !tests.is_empty()) {
        keys::sort(&mut tests, key)?;
    }
    if args.json {
        return print_json(&tests.iter().map(as_json).collect());
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.csv {
        csv::write(&mut out, &tests)?;
    } else if let [x, y] = &args.plot[..] {
        plot(&mut out, &tests, x, y)?;
    } else {
        listing::print(&mut out, &tests, place)?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// The tests of a run or a folder, and what that is called.
fn read(what: Option<&OsStr>) -> anyhow::Result<(Vec<TestResult>, Place, String)> {
    let text = what.and_then(OsStr::to_str);
    let is_run = |text: &str| {
        matches!(text, "latest" | "last") || text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let Some(folder) = what.filter(|_| !text.is_some_and(is_run)) {
        let folder = Path::new(folder);
        if let Some(task) = text.and_then(|text| text.parse::<TaskId>().ok())
            && !folder.exists()
        {
            bail!(
                "{task} is a task\nhint: `packhorse show {task}` shows it, `packhorse results {}` its run",
                task.run
            );
        }
        let mut notices = |text: &str| complain(&format!("warning: {text}"));
        let tests = folder_results(folder, &mut notices)?;
        let name = wording::name(format!("`{}`", folder.display()));
        return Ok((tests, Place::Folder, name));
    }
    let home = Home::locate()?;
    refresh_shown(&home, text)?;
    let reader = Reader::open(&home)?;
    let run = find_run(&reader, text)?;
    let tests = run_results(&reader, &run)?;
    Ok((tests, Place::Run, format!("run {}", run.id)))
}

/// A test for programs.
fn as_json(test: &TestResult) -> Value {
    let folder = test
        .folder
        .clone()
        .map(|it| ByteString::from(it.into_os_string()));
    let metrics = test.metrics.iter().map(|(name, summary)| {
        let mut value = json!(summary);
        value["best"] = match which_is_best(name) {
            MetricValue::Highest => value["highest"].clone(),
            _ => value["lowest"].clone(),
        };
        (name.clone(), value)
    });
    json!({
        "task": test.task.map(|task| task.to_string()),
        "folder": folder,
        "params": test.params,
        "outcome": test.outcome.word(),
        "detail": test.outcome.detail(),
        "command": test.command,
        "attempts": test.attempts,
        "started": test.started,
        "ended": test.ended,
        "seconds": test.took.map(|took| took.as_secs_f64()),
        "gpus": test.gpus,
        "peak": test.peak,
        "git": test.git,
        "host": test.host,
        "metrics": metrics.collect::<Map<String, Value>>(),
    })
}

fn which_is_best(metric: &str) -> MetricValue {
    if packhorse_session::is_more_better(metric) {
        MetricValue::Highest
    } else {
        MetricValue::Lowest
    }
}

/// Draws the tests as points.
fn plot(out: &mut impl Write, tests: &[TestResult], x: &str, y: &str) -> anyhow::Result<()> {
    let (x_key, y_key) = (Key::find(x, tests)?, Key::find(y, tests)?);
    let found = tests.iter().filter_map(|test| match y_key.of(test)? {
        KeyValue::Number(number) => Some((test, x_key.of(test)?, number)),
        KeyValue::Text(_) => None,
    });
    let found: Vec<(&TestResult, KeyValue, f64)> = found.collect();
    if found.is_empty() {
        bail!("no test has both `{x}` and a number as `{y}`");
    }
    let are_numbers = found
        .iter()
        .all(|(_, x, _)| matches!(x, KeyValue::Number(_)));
    let x_axis = if are_numbers {
        Axis::of_numbers(found.iter().map(|(_, x, _)| number(x)))
    } else {
        let mut names: Vec<String> = found.iter().map(|(_, x, _)| label(x)).collect();
        names.sort_unstable();
        names.dedup();
        Axis::Names(names)
    };
    let y_axis = Axis::of_numbers(found.iter().map(|(.., y)| *y));
    let points = found.iter().map(|(_, x, y)| {
        let x = if are_numbers {
            x_axis.place(number(x))
        } else {
            x_axis.place_of_name(&label(x))
        };
        (x, y_axis.place(*y))
    });
    let points: Vec<plot::Point> = points.collect();

    let mut title = format!("{y} by {x}: {}", wording::count(found.len() as u64, "test"));
    if found.len() < tests.len() {
        title += &format!(" of {}", tests.len());
    }
    for (name, axis) in [(x, &x_axis), (y, &y_axis)] {
        if axis.is_logarithmic() {
            title += &format!(", {name} logarithmic");
        }
    }
    let best = best(&y_key, y, x, &found);
    let (columns, rows) = terminal::size();
    // The title, the best one, and a line for the shell.
    let size = (columns.saturating_sub(1), rows.saturating_sub(3));
    let dots = if terminal::has_unicode() {
        Dots::Braille
    } else {
        Dots::Ascii
    };
    let drawn = plot::draw(&points, &x_axis, &y_axis, size, dots);
    for line in [title].into_iter().chain(drawn).chain(best) {
        let line = wording::name(line);
        writeln!(out, "{}", wording::clipped(&line, terminal::line_width()))?;
    }
    Ok(())
}

/// Which test has the best value of a metric.
fn best(key: &Key, y: &str, x: &str, found: &[(&TestResult, KeyValue, f64)]) -> Option<String> {
    let Key::Metric(name, which) = key else {
        return None;
    };
    if *which == MetricValue::Count {
        return None;
    }
    let by_value = found.iter();
    let (test, x_value, value) = match which_is_best(name) {
        // Not `max_by`: of several, the first.
        MetricValue::Highest => by_value.min_by(|a, b| b.2.total_cmp(&a.2)),
        _ => by_value.min_by(|a, b| a.2.total_cmp(&b.2)),
    }?;
    let task = test.task.map(|task| task.to_string());
    let folder = test
        .folder
        .as_ref()
        .map(|folder| folder.display().to_string());
    let whose = match task.or(folder) {
        Some(whose) => format!(" ({whose})"),
        None => String::new(),
    };
    let (value, x_value) = (wording::number(*value), label(x_value));
    Some(format!("best: {y} {value} at {x} {x_value}{whose}"))
}

fn number(value: &KeyValue) -> f64 {
    match value {
        KeyValue::Number(number) => *number,
        KeyValue::Text(_) => 0.0,
    }
}

fn label(value: &KeyValue) -> String {
    match value {
        KeyValue::Number(number) => wording::number(*number),
        KeyValue::Text(text) => wording::name(text.clone()),
    }
}
