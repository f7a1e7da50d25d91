//! Tasks of several sizes that come and go on 1 to 8 GPUs, where neighbours slow each other
//! down: the scheduler beside simple policies.

mod clock;
mod policy;
mod workload;

use anyhow::Result;

use clock::{MixOutcome, run};
use policy::{Choice, OwnPolicy, SchedulingPolicy, SimplePolicy};
use workload::{LOADS, TASKS, workloads};

use crate::bench::environment::BenchEnvironment;
use crate::bench::report::Section;
use crate::bench::statistics::ratio;

const SEEDS: usize = 20;

const GPUS: [u32; 4] = [1, 2, 4, 8];

/// The first is ours.
const POLICIES: [(&str, Option<Choice>); 4] = [
    ("pack", None),
    ("first_fit", Some(Choice::First)),
    ("best_fit", Some(Choice::Best)),
    ("spread", Some(Choice::Spread)),
];

/// How much worse than the best of the others we may be.
const MOST: f64 = 1.02;

pub fn measure(bench: &BenchEnvironment, section: &mut Section) -> Result<()> {
    let figures = bench.simulate(["mixes", &bench.rounds(SEEDS).to_string()])?;
    section.part(
        format!(
            "Tasks of several sizes (five mixes of quarters, halves, whole GPUs and pairs) come \
             and go on a machine, in a simulation with {TASKS} tasks each. A task beside another \
             on its GPU takes a quarter longer than alone, beside two half as long again. Mean \
             wait from arrival to start / mean time from arrival to end / makespan, as multiples \
             of ours. The others use a simple line, which keeps GPUs for the first that does not \
             fit; with one GPU there is nothing to choose, and what differs is the line."
        ),
        ["GPUs", "load", "first fit", "best fit", "spread"],
    );
    // Of the logarithms, where there is a choice.
    let mut sums = [[0.0_f64; 3]; POLICIES.len()];
    for gpus in GPUS {
        for load in LOADS {
            let of = |policy: &str| -> Result<[f64; 3]> {
                let figure = |what| figures.get(&name(policy, gpus, load, what));
                Ok([figure("wait")?, figure("end")?, figure("makespan")?])
            };
            let ours = of(POLICIES[0].0)?;
            let mut cells = Vec::new();
            for ((policy, _), sum) in POLICIES.iter().zip(&mut sums) {
                let theirs = of(policy)?;
                let ratios = [0, 1, 2].map(|figure| theirs[figure] / ours[figure]);
                for (sum, ratio) in sum.iter_mut().zip(ratios) {
                    *sum += if gpus > 1 { ratio.ln() } else { 0.0 };
                }
                cells.push(shown(ratios));
            }
            let load = load.map_or("all at once".to_owned(), |load| format!("{load} %"));
            section.row([&gpus, &load, &cells[1], &cells[2], &cells[3]]);
        }
    }
    let rows = f64::from(u32::try_from((GPUS.len() - 1) * LOADS.len())?);
    let means = sums.map(|sum| sum.map(|logarithms| (logarithms / rows).exp()));
    let [_, first, best, spread] = means.map(shown);
    section.row([&"2 to 8", &"geometric mean", &first, &best, &spread]);
    for (figure, what) in ["mean wait", "mean time to the end", "makespan"].iter().enumerate() {
        let others = means[1..].iter().map(|means| means[figure]);
        let best = others.fold(f64::INFINITY, f64::min);
        let name = format!("come and go: {what} within {MOST} of the best of the others");
        section.at_most(name, ratio(1.0 / best), MOST);
    }
    Ok(())
}

fn shown([wait, end, makespan]: [f64; 3]) -> String {
    format!("{wait:.2} / {end:.2} / {makespan:.3}")
}

fn name(policy: &str, gpus: u32, load: Option<u32>, what: &str) -> String {
    let load = load.unwrap_or(0);
    format!("{policy}_{gpus}_{load}_{what}")
}

/// Prints the figures, in milliseconds: means over all mixes, seeds and tasks.
pub fn simulate(seeds: u32) -> Result<()> {
    for gpus in GPUS {
        for load in LOADS {
            for (policy, choice) in POLICIES {
                let mut sum = MixOutcome::default();
                let mut count = 0;
                let workloads = (1..=seeds).flat_map(|seed| workloads(gpus, load, seed.into()));
                for tasks in workloads {
                    let mut policy: Box<dyn SchedulingPolicy> = match choice {
                        None => Box::new(OwnPolicy::new(gpus, load.is_some())?),
                        Some(choice) => Box::new(SimplePolicy::new(choice, gpus)),
                    };
                    let outcome = run(&tasks, gpus, &mut *policy);
                    sum.waited += outcome.waited;
                    sum.took += outcome.took;
                    sum.makespan += outcome.makespan;
                    count += 1;
                }
                let all = count * u64::from(TASKS);
                for (what, time) in [
                    ("wait", sum.waited / all),
                    ("end", sum.took / all),
                    ("makespan", sum.makespan / count),
                ] {
                    println!("{}={time}", name(policy, gpus, load, what));
                }
            }
        }
    }
    Ok(())
}
