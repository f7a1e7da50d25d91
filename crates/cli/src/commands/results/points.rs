//! A drawing with a point for each test.

use std::io::Write;

use anyhow::bail;
use packhorse_session::TestResult;

use super::keys::{Key, KeyValue, MetricValue};
use super::plot::{self, PlotAxis};
use super::which_is_best;
use crate::wording;

/// Draws the tests as points.
pub fn draw(out: &mut impl Write, tests: &[TestResult], x: &str, y: &str) -> anyhow::Result<()> {
    let (x_key, y_key) = (Key::find(x, tests)?, Key::find(y, tests)?);
    let found = tests.iter().filter_map(|test| match y_key.of(test)? {
        KeyValue::Number(number) => Some((test, x_key.of(test)?, number)),
        KeyValue::Text(_) => None,
    });
    let (found, diverged): (Vec<_>, Vec<_>) = found.partition(|(_, x, y)| {
        y.is_finite() && !matches!(x, KeyValue::Number(number) if !number.is_finite())
    });
    if found.is_empty() && !diverged.is_empty() {
        bail!("no test has a finite number as both `{x}` and `{y}`: {} diverged", diverged.len());
    }
    if found.is_empty() {
        bail!("no test has both `{x}` and a number as `{y}`");
    }
    let are_numbers = found.iter().all(|(_, x, _)| matches!(x, KeyValue::Number(_)));
    let x_axis = if are_numbers {
        PlotAxis::of_numbers(found.iter().map(|(_, x, _)| number(x)))
    } else {
        let mut names: Vec<String> = found.iter().map(|(_, x, _)| label(x)).collect();
        names.sort_unstable();
        names.dedup();
        PlotAxis::Names(names)
    };
    let y_axis = PlotAxis::of_numbers(found.iter().map(|(.., y)| *y));
    let points = found.iter().map(|(_, x, y)| {
        let x = if are_numbers { x_axis.place(number(x)) } else { x_axis.place_of_name(&label(x)) };
        (x, y_axis.place(*y))
    });
    let points: Vec<plot::Point> = points.collect();

    let mut title = format!("{y} by {x}: {}", wording::count(found.len() as u64, "test"));
    if found.len() < tests.len() {
        title += &format!(" of {}", tests.len());
    }
    if !diverged.is_empty() {
        title += &format!(", {} diverged", diverged.len());
    }
    for (name, axis) in [(x, &x_axis), (y, &y_axis)] {
        if axis.is_logarithmic() {
            title += &format!(", {name} logarithmic");
        }
    }
    let best = best(&y_key, y, x, &found);
    plot::print(out, &title, &points, (&x_axis, &y_axis), best)
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
    let whose = whose(test);
    let (value, x_value) = (wording::number(*value), label(x_value));
    Some(format!("best: {y} {value} at {x} {x_value}{whose}"))
}

/// The name of a test in brackets, with a blank before it.
pub fn whose(test: &TestResult) -> String {
    let task = test.task.map(|task| task.to_string());
    let folder = (test.folder.as_ref()).map(|folder| folder.display().to_string());
    match task.or(folder) {
        Some(whose) => format!(" ({whose})"),
        None => String::new(),
    }
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
