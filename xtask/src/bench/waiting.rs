//! A million tasks waiting in the scheduler itself: memory, and what an event
//! costs. The core's own example measures; we hold it to the targets.

use anyhow::{Context, Result, bail};

use super::report::{Section, Table, Target};
use super::stage::Stage;
use crate::folders::cargo;

const MOST_BYTES: f64 = 250.0;
const MOST_NANOSECONDS: f64 = 10_000.0;

pub fn measure(_: &Stage) -> Result<Section> {
    let mut command = cargo();
    command.args(["run", "--release", "--quiet", "--package", "packhorse-core"]);
    command.args(["--example", "million"]);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("packhorse-core's example million: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = figure(&text, "bytes_per_task")?;
    let event = figure(&text, "event_ns")?;

    let mut table = Table::new(["tasks waiting", "bytes a task", "an event"]);
    let microseconds = format!("{:.2} µs", event / 1e3);
    table.row([
        "1000000".into(),
        format!("{bytes:.0}"),
        microseconds.clone(),
    ]);
    Ok(Section {
        title: "waiting: tasks in the scheduler",
        what: "A million tasks wait in priority order in the scheduler.".into(),
        table,
        targets: vec![
            Target::new(
                "less than 250 bytes a task",
                format!("{bytes:.0}"),
                bytes < MOST_BYTES,
            ),
            Target::new(
                "an event costs microseconds (less than 10)",
                microseconds,
                event < MOST_NANOSECONDS,
            ),
        ],
    })
}

/// The number in `NAME=NUMBER`, the last there is.
pub fn figure(text: &str, name: &str) -> Result<f64> {
    let words = text.split_whitespace();
    let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let value = values.next_back();
    let value = value.with_context(|| format!("no {name}= in its output:\n{text}"))?;
    value.parse().with_context(|| format!("{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_read_by_its_name() {
        let text = "a million\nbytes_per_task=120 event_ns=850.5\n";
        assert!((figure(text, "event_ns").unwrap() - 850.5).abs() < 1e-9);
        assert!((figure(text, "bytes_per_task").unwrap() - 120.0).abs() < 1e-9);
        assert!(figure(text, "event").is_err());
    }
}
