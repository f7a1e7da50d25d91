//! `xtask simulate`, which prints figures of the scheduler alone. The bench runs it in a
//! release build.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use packhorse_core::{
    Effect, EndCause, Now, SchedulerEvent, SchedulerSettings, SchedulerState, step,
};
use packhorse_model::{Bytes, GpuRequest, MemoryRequest, Milli, Outcome, Placing, Request, TaskId};

use super::load::SyntheticLoad;
use super::mixes;
use super::original;
use super::replay::replay;
use super::simulation::{Simulation, plain_submission};
use super::trace::Trace;

/// The marks of a replay, in per cent of all GPUs.
const MARKS: [u32; 2] = [100, 130];

#[derive(clap::Subcommand)]
pub enum SimulateArgs {
    /// Replay a trace with each policy
    Replay { nodes: PathBuf, tasks: PathBuf, seeds: u32 },
    /// Time placements on one machine with 8 GPUs
    Placements,
    /// Run a synthetic load on 8 GPUs: a lower bound, the scheduler if it knew every peak,
    /// and the original's algorithm
    Load { tasks: usize },
    /// Run tasks that come and go with each policy
    Mixes { seeds: u32 },
}

pub fn simulate(args: &SimulateArgs) -> Result<ExitCode> {
    match args {
        SimulateArgs::Replay { nodes, tasks, seeds } => replay_trace(nodes, tasks, *seeds)?,
        SimulateArgs::Placements => time_placements()?,
        SimulateArgs::Mixes { seeds } => mixes::simulate(*seeds)?,
        SimulateArgs::Load { tasks } => run_load(&SyntheticLoad::new(*tasks))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn replay_trace(nodes: &Path, tasks: &Path, seeds: u32) -> Result<()> {
    let [nodes, tasks] = [nodes, tasks].map(fs_err::read_to_string);
    let trace = Trace::parse(&nodes?, &tasks?)?;
    for (name, policy) in [("pack", Placing::Pack), ("spread", Placing::Spread)] {
        let settings = SchedulerSettings { policy, ..SchedulerSettings::default() };
        let mut given = [0; 2];
        let mut submitted = 0;
        let start = Instant::now();
        for seed in 1..=seeds {
            let replay = replay(&trace, settings, seed.into(), &MARKS)?;
            for (sum, mark) in given.iter_mut().zip(&replay.given) {
                *sum += mark;
            }
            submitted += replay.tasks;
        }
        let took = start.elapsed().as_nanos() / u128::from(submitted.max(1));
        println!("{name}_placement_ns={took}");
        for (mark, given) in MARKS.iter().zip(given) {
            let hundredths = given * 10_000 / (trace.capacity() * u64::from(seeds)).max(1);
            println!("{name}_{mark}={}.{:02}", hundredths / 100, hundredths % 100);
        }
    }
    Ok(())
}

/// Tasks of twenty kinds come and go, so that the machine is about full.
fn time_placements() -> Result<()> {
    const TASKS: u32 = 200_000;
    let pool = SyntheticLoad::new(0).pool();
    let mut state = SchedulerState::new(&pool, SchedulerSettings::default())?;
    let mut effects = Vec::new();
    let mut running: VecDeque<TaskId> = VecDeque::new();
    let (mut spent, mut placed) = (Duration::ZERO, 0);
    for number in 1..=TASKS {
        // Looks random, but is the same every time.
        let kind = u64::from(number.wrapping_mul(2_654_435_761) >> 16) % 20;
        let request = Request {
            gpus: GpuRequest::Share(Milli(u32::try_from(50 * (kind % 4))?)),
            memory: MemoryRequest::Bytes(Bytes((1 + kind) << 29)),
            ..Request::default()
        };
        let submission = plain_submission(number, request);
        let id = submission.id;
        let now = Now(Duration::from_secs(number.into()));
        let submit = SchedulerEvent::Submit(submission);
        let start = Instant::now();
        step(&mut state, submit, now, &mut effects);
        let took = start.elapsed();
        let started = |effect: &Effect| matches!(effect, Effect::Start { .. });
        if effects.drain(..).any(|effect| started(&effect)) {
            spent += took;
            placed += 1;
            running.push_back(id);
        } else {
            // No task may wait, so that each placement is timed by itself.
            step(&mut state, SchedulerEvent::Cancel(id), now, &mut effects);
            for task in running.drain(..8.min(running.len())) {
                let ended = SchedulerEvent::Ended {
                    task,
                    attempt: 1,
                    outcome: Outcome::Succeeded,
                    cause: EndCause::Own,
                };
                step(&mut state, ended, now, &mut effects);
            }
            effects.clear();
        }
    }
    println!("placed={placed}");
    println!("placement_ns={}", (spent / placed.max(1)).as_nanos());
    Ok(())
}

fn run_load(load: &SyntheticLoad) -> Result<()> {
    let mut simulation = Simulation::new(&load.pool(), SchedulerSettings::default())?;
    for task in load.simulated_tasks() {
        simulation.submit(Duration::ZERO, task);
    }
    let known = simulation.run().makespan();
    for (name, time) in [
        ("bound", load.lower_bound()),
        ("known", known),
        ("original_one", original::on_one_gpu(load)),
        ("original_each", original::on_each_gpu(load)),
    ] {
        println!("{name}_s={:.3}", time.as_secs_f64());
    }
    Ok(())
}
