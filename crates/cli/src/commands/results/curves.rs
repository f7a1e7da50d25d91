//! A drawing with a curve for each test: a metric by the steps it was printed at.

use std::io::Write;

use anyhow::{Context as _, bail};
use packhorse_model::MetricSummary;
use packhorse_session::{MetricSeries, TestResult};

use super::keys::{Key, MetricValue};
use super::plot::{self, PlotAxis, Point};
use super::points::whose;
use super::which_is_best;
use crate::{complain, wording};

/// What a line of metrics calls the place where it was printed.
const STEP: &str = "step";

/// Whether a drawing has steps along its floor. A parameter that is called so comes first.
pub fn is_step(x: &str, tests: &[TestResult]) -> bool {
    x == STEP && !tests.iter().any(|test| test.params.contains_key(x))
}

/// Draws a metric of each test, as its log has it.
pub fn draw(out: &mut impl Write, tests: &[TestResult], y: &str) -> anyhow::Result<()> {
    let Key::Metric(metric, MetricValue::Best) = Key::find(y, tests)? else {
        bail!("`{y}` has no value at each step\nhint: only a metric has, such as `loss`");
    };
    let mut curves = Vec::new();
    let (mut missing, mut diverged) = (0_u64, 0_u64);
    for test in tests.iter().filter(|it| it.metrics.contains_key(&metric)) {
        // Where the log was, there may be another run's.
        let log = test.log.as_ref().filter(|log| log.find().is_ok());
        let read = log.map(|log| MetricSeries::read(log, &metric));
        match read {
            Some(Ok(series)) if series.count() > 0 => curves.push((test, series)),
            Some(Ok(series)) if series.not_finite() > 0 => diverged += 1,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot read the log of{}", whose(test)));
            }
            _ => missing += 1,
        }
    }
    if curves.is_empty() && diverged > 0 {
        bail!("`{y}` has no finite value to draw");
    }
    if curves.is_empty() {
        bail!("the logs with the values of `{y}` are gone, or were never kept");
    }
    if missing > 0 {
        let tests = wording::count(missing, "test");
        complain(&format!("warning: the log of {tests} is gone: {y} is not drawn"));
    }
    let all = || curves.iter().flat_map(|(_, series)| series.points());
    let (x_axis, y_axis) = (
        PlotAxis::of_numbers(all().map(|(step, _)| step)),
        PlotAxis::of_numbers(all().map(|(_, value)| value)),
    );
    let mut points: Vec<Point> = Vec::new();
    for (_, series) in &curves {
        let mut from = None;
        for (step, value) in series.points() {
            let to = (x_axis.place(step), y_axis.place(value));
            points.extend(plot::line(from.unwrap_or(to), to));
            from = Some(to);
        }
    }
    let values: u64 = curves.iter().map(|(_, series)| series.count()).sum();
    let mut title = format!(
        "{y} by {STEP}: {} of {}",
        wording::count(values, "value"),
        wording::count(curves.len() as u64, "test"),
    );
    diverged += curves.iter().filter(|(test, _)| has_diverged(test, &metric)).count() as u64;
    if diverged > 0 {
        title += &format!(", {diverged} diverged");
    }
    for (name, axis) in [(STEP, &x_axis), (y, &y_axis)] {
        if axis.is_logarithmic() {
            title += &format!(", {name} logarithmic");
        }
    }
    let best = best(y, &metric, &curves);
    plot::print(out, &title, &points, (&x_axis, &y_axis), best)
}

fn has_diverged(test: &TestResult, metric: &str) -> bool {
    test.metrics.get(metric).is_some_and(MetricSummary::is_diverged)
}

/// Which test had the best value, and where.
fn best(y: &str, metric: &str, curves: &[(&TestResult, MetricSeries)]) -> Option<String> {
    let is_high = which_is_best(metric) == MetricValue::Highest;
    let kept = curves.iter().filter(|(test, _)| !has_diverged(test, metric));
    let found = kept.filter_map(|(test, series)| {
        let found = if is_high { series.highest() } else { series.lowest() };
        Some((test, found?))
    });
    // Of several, the first.
    let (test, (step, value)) = found
        .min_by(|(_, (_, a)), (_, (_, b))| if is_high { b.total_cmp(a) } else { a.total_cmp(b) })?;
    let (value, step) = (wording::number(value), wording::number(step));
    Some(format!("best: {y} {value} at {STEP} {step}{}", whose(test)))
}
