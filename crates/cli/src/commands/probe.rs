use std::io::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use packhorse_hands::Output;
use packhorse_model::{Command, Exit, GpuRequest, Milli};
use packhorse_runner::{Appetite, Event, Finished, Input, Line, Reporter, Seen};
use serde_json::json;

use super::Order;
use crate::args::{ProbeArgs, TaskArgs};
use crate::report::Plain;
use crate::saved::Saved;
use crate::{complain, wording};

/// `packhorse probe`
pub fn probe(args: ProbeArgs) -> anyhow::Result<Exit> {
    if args.pool.slots.is_some() {
        bail!("a probe measures GPU memory, and --slots uses no GPU");
    }
    let words: Vec<Vec<u8>> = args
        .command
        .into_iter()
        .map(OsStringExt::into_vec)
        .collect();
    let task = TaskArgs {
        vram: Some(packhorse_intake::Vram::Auto),
        signature: args.signature,
        ..TaskArgs::default()
    };
    let input = Input::One(Command::Words(words));
    let mut order = Order::new(&args.pool, &task, Output::Log, input)?;
    order.defaults.appetite = Appetite::Measured;
    order.defaults.request.gpus = GpuRequest::Share(Milli(0));
    order.defaults.signature = task.signature.as_deref().map(Arc::from);
    let mut reporter = Measuring {
        inner: Plain::new(true),
        seen: None,
        finished: None,
    };
    let summary = order.launch(&Saved::new(&args.pool, &task, None), &mut reporter)?;
    let took = reporter
        .finished
        .as_ref()
        .map_or(Duration::ZERO, |finished| finished.took);
    if args.json {
        let mut out = std::io::stdout().lock();
        let value = json!({
            "task": reporter.finished.as_ref().map(|finished| finished.task.to_string()),
            "outcome": reporter.finished.as_ref().map(|finished| finished.outcome.word()),
            "peak": reporter.seen.map(|seen| seen.peak.0),
            "error": reporter.seen.map(|seen| seen.error.0),
            "samples": reporter.seen.map_or(0, |seen| seen.samples),
            "interval_seconds": reporter.seen.map(|seen| seen.interval.as_secs_f64()),
            "utilisation_percent": reporter.seen.and_then(|seen| seen.busy)
                .map(|(mean, most)| json!({"mean": mean, "most": most})),
            "seconds": took.as_secs_f64(),
        });
        writeln!(out, "{value}")?;
        return Ok(summary.exit);
    }
    show(&reporter, took)?;
    Ok(summary.exit)
}

fn show(reporter: &Measuring, took: Duration) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
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
    writeln!(
        out,
        "looked at     {}, at most {} apart",
        wording::count(seen.samples, "time"),
        wording::duration(seen.interval)
    )?;
    if let Some((mean, most)) = seen.busy {
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
    seen: Option<Seen>,
    finished: Option<Finished>,
}

impl Reporter for Measuring {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Measured { seen, .. } => self.seen = Some(*seen),
            Event::Finished(finished) => self.finished = Some(finished.clone()),
            // The measurement is the summary.
            Event::RunEnded(_) => return,
            _ => {}
        }
        self.inner.event(event);
    }

    fn show(&mut self, now: Instant, line: &dyn Line) -> Option<Instant> {
        self.inner.show(now, line)
    }
}
