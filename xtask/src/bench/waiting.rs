//! A million tasks waiting in the scheduler: memory, and the cost of an event. The
//! core's own example measures; this compares with the targets.

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::figures::Figures;
use super::report::{MarkdownTable, Section, Target};

pub fn measure(_: &BenchEnvironment) -> Result<Section> {
    let figures = Figures::of_example("packhorse-core", "million", &[])?;
    let bytes = figures.get("bytes_per_task")?;
    let event = figures.get("event_ns")?;

    let mut table = MarkdownTable::new(["tasks waiting", "bytes per task", "an event"]);
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
                "less than 250 bytes per task",
                format!("{bytes:.0}"),
                bytes < 250.0,
            ),
            Target::new(
                "an event takes less than 10 µs",
                microseconds,
                event < 10_000.0,
            ),
        ],
    })
}
