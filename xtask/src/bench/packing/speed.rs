//! How long a decision takes.

use anyhow::Result;

use crate::bench::environment::BenchEnvironment;
use crate::bench::figures::Figures;
use crate::bench::report::Section;
use crate::bench::statistics::microseconds;

pub fn measure(bench: &BenchEnvironment, section: &mut Section) -> Result<()> {
    let eight = bench.simulate(["placements"])?.get("placement_ns")?;
    let million = Figures::of_example("packhorse-core", "million", &["memory"])?.get("event_ns")?;
    let (eight, million) = (microseconds(eight), microseconds(million));
    section.part("Decisions alone:", ["what", "time"]);
    let what = "a placement on 8 GPUs, 20 kinds of tasks by share and memory";
    section.row([&what, &eight]);
    let what = "an event on 1,024 GPUs, while a million tasks with memory requests wait";
    section.row([&what, &million]);
    let name = "8 GPUs: a placement in less than 10 µs";
    section.less_than(name, eight, 10.0);
    let name = "a million waiting on 1,024 GPUs: an event in less than 20 µs";
    section.less_than(name, million, 20.0);
    Ok(())
}
