//! Deciding alone, without processes. Examples of the core and of the engine measure; this
//! compares with the targets.

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::figures::Figures;
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, microseconds, ratio};

const ROUNDS: usize = 7;

/// A million tasks waiting in the scheduler: memory, and the cost of an event.
pub fn waiting() -> Result<Section> {
    let figures = Figures::of_example("packhorse-core", "million", &[])?;
    let bytes = Measured(figures.get("bytes_per_task")?, 0, "");
    let event = microseconds(figures.get("event_ns")?);

    let mut section = Section::new("waiting: tasks in the scheduler");
    section.part(
        "A million tasks wait in priority order in the scheduler.",
        ["tasks waiting", "bytes per task", "an event"],
    );
    section.row([&1_000_000, &bytes, &event]);
    section.less_than("less than 250 bytes per task", bytes, 250.0);
    section.less_than("an event takes less than 10 µs", event, 10.0);
    Ok(section)
}

/// What the engine takes for a task of one run, and of two at once.
pub fn engine(bench: &BenchEnvironment) -> Result<Section> {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let figures = Figures::of_example("packhorse-engine", "two_runs", &[])?;
        one.push(figures.get("one_run_ns")?);
        two.push(figures.get("two_runs_ns")?);
    }
    let of_one = ratio(median_ratio(&two, &one));
    let (one, two) = (microseconds(median(one)), microseconds(median(two)));

    let mut section = Section::new("engine: deciding alone");
    section.part(
        "100,000 tasks on 8 GPUs, from arrival to end, without processes: the time in \
         `Engine::handle` for each.",
        ["runs in one engine", "a task", "of one run"],
    );
    section.row([&1, &one, &ratio(1.0)]);
    section.row([&2, &two, &of_one]);
    section.less_than("a task in less than 20 µs", one, 20.0);
    let name = "tasks of two runs within 1.2 of those of one";
    section.less_than(name, of_one, 1.2);
    Ok(section)
}
