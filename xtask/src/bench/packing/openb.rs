//! A production trace, replayed with each policy.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::bench::environment::BenchEnvironment;
use crate::bench::report::Section;
use crate::bench::statistics::Measured;
use crate::folders::workspace;

/// Where the trace is, if it is not beside the workspace.
const FOLDER: &str = "PACKHORSE_OPENB";

const SEEDS: usize = 10;

/// A workload, and what the paper's best fit and its own policy (FGD) reach when 100 % and
/// 130 % have been requested.
const PAPER: [(&str, [f64; 2], [f64; 2]); 5] = [
    ("default", [92.86, 93.08], [95.23, 95.39]),
    ("cpu050", [93.56, 93.79], [95.00, 95.21]),
    ("gpushare40", [91.44, 91.69], [93.96, 94.15]),
    ("multigpu20", [93.73, 93.93], [95.53, 95.65]),
    ("gpuspec25", [85.67, 93.23], [93.91, 94.74]),
];

fn folder() -> Result<PathBuf> {
    let beside = || workspace().join("../shared/data/openb");
    let folder = env::var_os(FOLDER).map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        bail!(
            "the trace is not in {}\nhint: {FOLDER} names the folder with the lists of Alibaba's \
             cluster-trace-gpu-v2023",
            folder.display()
        );
    }
    Ok(folder)
}

pub fn measure(bench: &BenchEnvironment, section: &mut Section) -> Result<()> {
    let folder = folder()?;
    let path = |file: &str| folder.join(file).display().to_string();
    let seeds = bench.rounds(SEEDS).to_string();
    section.part(
        "A production trace (openb: 6,212 GPUs in 1,213 machines), replayed as in the paper on \
         fragmentation (FGD, ATC '23): tasks arrive in random order and never end; in gpuspec25 a quarter of them name the \
         models that they may use. GPUs allocated, \
         in per cent of all, when 100 % / 130 % of them have been requested; the mean over seeds.",
        [
            "workload",
            "spread",
            "best fit (paper)",
            "FGD (paper)",
            "pack",
            "a placement",
        ],
    );
    let milliseconds = |nanoseconds: f64| Measured(nanoseconds / 1e6, 2, " ms");
    let mut slowest = 0_f64;
    for (workload, best_fit, fgd) in PAPER {
        let nodes = path("openb_node_list_gpu_node.csv");
        let tasks = path(&format!("openb_pod_list_{workload}.csv"));
        let figures = bench.simulate(["replay", &nodes, &tasks, &seeds])?;
        let both = |policy: &str| -> Result<[f64; 2]> {
            Ok([figures.get(&format!("{policy}_100"))?, figures.get(&format!("{policy}_130"))?])
        };
        let (pack, spread) = (both("pack")?, both("spread")?);
        let nanoseconds = figures.get("pack_placement_ns")?;
        slowest = slowest.max(nanoseconds);
        let shown = |[at, past]: [f64; 2]| format!("{at:.2} / {past:.2}");
        section.row([
            &workload,
            &shown(spread),
            &shown(best_fit),
            &shown(fgd),
            &shown(pack),
            &milliseconds(nanoseconds),
        ]);
        let lead = (pack[0] - fgd[0]).min(pack[1] - fgd[1]);
        section.target(
            format!("{workload}: at least FGD, in points"),
            format!("{lead:+.2}"),
            lead >= 0.0,
        );
    }
    let name = "6,212 GPUs: a placement in less than 1 ms";
    section.less_than(name, milliseconds(slowest), 1.0);
    Ok(())
}
