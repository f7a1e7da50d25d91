//! Deciding alone: what the engine takes for a task of one run, and of two at once.

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::figures::Figures;
use super::report::{MarkdownTable, Section, Target};
use super::statistics::{median, median_ratio};

const ROUNDS: usize = 7;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let figures = Figures::of_example("packhorse-engine", "two_runs", &[])?;
        one.push(figures.get("one_run_ns")? / 1e3);
        two.push(figures.get("two_runs_ns")? / 1e3);
    }
    let ratio = median_ratio(&two, &one);
    let (one, two) = (median(one), median(two));
    let mut table = MarkdownTable::new(["runs in one engine", "a task", "of one run"]);
    table.row(["1".into(), format!("{one:.2} µs"), "1.000".into()]);
    table.row(["2".into(), format!("{two:.2} µs"), format!("{ratio:.3}")]);
    Ok(Section {
        title: "engine: deciding alone",
        what: "100,000 tasks on 8 GPUs, from arrival to end, without processes: the time in \
               `Engine::handle` for each."
            .into(),
        table,
        targets: vec![
            Target::new(
                "a task in less than 20 µs",
                format!("{one:.2} µs"),
                one < 20.0,
            ),
            Target::new(
                "tasks of two runs within 1.2 of those of one",
                format!("{ratio:.3}"),
                ratio < 1.2,
            ),
        ],
    })
}
