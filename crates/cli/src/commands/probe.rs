use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use packhorse_model::{
    Event, EventKind, Exit, Measurement, OutputMode, TaskResult, TaskSpec, VramRequest,
};
use packhorse_session::{Observer, QueueView};
use serde_json::json;

use super::launch::Order;
use super::run::one_command;
use crate::args::ProbeArgs;
use crate::report::Plain;
use crate::stdout::stdout;
use crate::{complain, wording};

/// `packhorse probe`
pub fn probe(args: ProbeArgs) -> anyhow::Result<Exit> {
    if args.pool.slots.is_some() {
        bail!("a probe measures GPU memory, and --slots uses no GPU");
    }
    let task = TaskSpec {
        vram: Some(VramRequest::Measure),
        signature: args.signature,
        ..TaskSpec::default()
    };
    let mut order = Order::of(&args.pool, task, Some(OutputMode::Log))?;
    order.spec.defaults.gpus = None;
    order.spec.defaults.probe = None;
    let source = Box::new(one_command(args.command));
    let mut reporter = Measuring { inner: Plain::new(true), seen: None, finished: None };
    let launch = order.prepare()?;
    let summary = launch.start(source, &mut reporter, &mut complain)?;
    let (seen, finished) = (reporter.seen, reporter.finished.as_ref());
    let took = finished.map_or(Duration::ZERO, |finished| finished.took);
    if args.json {
        let value = json!({
            "task": finished.map(|finished| finished.task.to_string()),
            "outcome": finished.map(|finished| finished.outcome.word()),
            "peak": seen.map(|seen| seen.peak),
            "error": seen.map(|seen| seen.error),
            "samples": seen.map_or(0, |seen| seen.samples),
            "interval_seconds": seen.map(|seen| seen.interval.as_secs_f64()),
            "utilisation_percent": seen.and_then(|seen| seen.utilisation),
            "seconds": took.as_secs_f64(),
        });
        writeln!(stdout(), "{value}")?;
    } else {
        show(&reporter, took)?;
    }
    Ok(summary.exit)
}

fn show(reporter: &Measuring, took: Duration) -> anyhow::Result<()> {
    let mut out = stdout();
    let Some(seen) = reporter.seen else {
        complain(
            "it was never seen to hold GPU memory\n\
             hint: it may use no GPU, or have ended before the first look, or run in a container of its own",
        );
        return Ok(());
    };
    let error = match seen.error.0 {
        0 => "it rested there".to_owned(),
        _ => format!("it still grew, by {} at the last look", seen.error),
    };
    writeln!(out, "peak memory   {} ({error})", seen.peak)?;
    if seen.by_growth {
        writeln!(
            out,
            "seen by       how much its GPU's memory grew: no process of its own is on it"
        )?;
    }
    writeln!(
        out,
        "looked at     {}, at most {} apart",
        wording::count(seen.samples, "time"),
        wording::duration(seen.interval)
    )?;
    if let Some(busy) = seen.utilisation {
        let (mean, most) = (busy.mean, busy.most);
        writeln!(out, "utilisation   {mean} % in the mean, {most} % at most")?;
    }
    writeln!(out, "time          {}", wording::duration(took))?;
    let finished = reporter.finished.as_ref();
    if finished.is_some_and(|finished| finished.outcome.is_success()) {
        complain("hint: `packhorse peaks` shows what it is remembered as");
    } else {
        complain("it did not succeed: it may need more than this");
    }
    Ok(())
}

/// Keeps what was measured.
struct Measuring {
    inner: Plain,
    seen: Option<Measurement>,
    finished: Option<TaskResult>,
}

impl Observer for Measuring {
    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Measured(seen) => self.seen = Some(*seen),
            EventKind::Finished(finished) => self.finished = Some(finished.clone()),
            // The measurement is the summary.
            EventKind::RunEnded(_) => return,
            _ => {}
        }
        self.inner.event(event);
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        self.inner.show(now, queue)
    }
}
