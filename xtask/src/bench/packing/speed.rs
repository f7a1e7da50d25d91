//! How long a decision takes.

use anyhow::Result;

use crate::bench::environment::BenchEnvironment;
use crate::bench::figures::Figures;
use crate::bench::report::{MarkdownTable, Target};

pub fn measure(bench: &BenchEnvironment) -> Result<(MarkdownTable, Vec<Target>)> {
    let eight = bench.simulate(["placements"])?.get("placement_ns")?;
    let million = Figures::of_example("packhorse-core", "million", &["memory"])?.get("event_ns")?;
    let microseconds = |nanoseconds: f64| format!("{:.2} µs", nanoseconds / 1e3);
    let mut table = MarkdownTable::new(["what", "time"]);
    table.row([
        "a placement on 8 GPUs, 20 kinds of tasks by share and memory".into(),
        microseconds(eight),
    ]);
    table.row([
        "an event on 1,024 GPUs, while a million tasks with memory requests wait".into(),
        microseconds(million),
    ]);
    let targets = vec![
        Target::new(
            "8 GPUs: a placement in less than 10 µs",
            microseconds(eight),
            eight < 10_000.0,
        ),
        Target::new(
            "a million waiting on 1,024 GPUs: an event in less than 20 µs",
            microseconds(million),
            million < 20_000.0,
        ),
    ];
    Ok((table, targets))
}
