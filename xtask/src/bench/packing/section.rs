use anyhow::Result;

use super::{openb, speed, synthetic};
use crate::bench::environment::BenchEnvironment;
use crate::bench::report::Section;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let (replayed, mut targets) = openb::measure(bench)?;
    let (timed, more) = speed::measure(bench)?;
    targets.extend(more);
    let (raced, more) = synthetic::measure(bench)?;
    targets.extend(more);
    let what = format!(
        "A production trace (openb: 6,212 GPUs in 1,213 machines), replayed as in the paper on \
         fragmentation (FGD, ATC '23): tasks arrive in random order and never end. GPUs allocated, \
         in per cent of all, when 100 % / 130 % of them have been requested; the mean over seeds.\n\n\
         {replayed}\n\
         Decisions alone:\n\n\
         {timed}\n\
         Tasks of 20 kinds with random peaks (1 to 12 GiB, within 4 % of their kind's) and \
         durations, growing in steps, on 8 simulated GPUs of 24 GiB: the real binary, NVML calls and \
         processes. From an earlier trial run it has learned 60 % of what each kind needs. The bound is \
         memory × time, or the longest task."
    );
    Ok(Section {
        title: "packing: how full GPUs get",
        what,
        table: raced,
        targets,
    })
}
