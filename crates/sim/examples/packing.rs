//! How well things are packed, and how long that takes.
//!
//! `cargo run --release -p packhorse-sim --example packing SCENE …`
//!
//! - `openb NODES TASKS SEEDS`: the replay of a trace, with each policy;
//! - `eight`: placements on one machine with 8 GPUs;
//! - `crowd TASKS KINDS MILLISECONDS SEED`: many tasks with random peaks on 8
//!   simulated GPUs, if what they need is known; the lower bound; and the
//!   original's algorithm.
#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use packhorse_core::{
    DeviceSpec, Effect, EndCause, NodeSpec, Now, Policy, Pool, SchedulerEvent, SchedulerSettings,
    SchedulerState, Submission, step,
};
use packhorse_model::{
    Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Outcome, Priority, Request, RunId,
    TaskId,
};
use packhorse_sim::{Crowd, Simulation, Trace, original, replay};

const MARKS: [u32; 2] = [100, 130];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["openb", nodes, tasks, seeds] => openb(nodes, tasks, seeds.parse()?),
        ["eight"] => eight(),
        ["crowd", tasks, kinds, mean, seed] => {
            let mean = Duration::from_millis(mean.parse()?);
            let machine = (8, Bytes(24 << 30));
            let tasks = (tasks.parse()?, kinds.parse()?);
            crowd(&Crowd::new(machine, tasks, mean, seed.parse()?))
        }
        _ => Err("which scene? See the head of this example".into()),
    }
}

fn settings(policy: Policy) -> SchedulerSettings {
    SchedulerSettings {
        policy,
        ..SchedulerSettings::default()
    }
}

fn openb(nodes: &str, tasks: &str, seeds: u32) -> Result<(), Box<dyn Error>> {
    let (nodes, tasks) = (
        fs_err::read_to_string(nodes)?,
        fs_err::read_to_string(tasks)?,
    );
    let trace = Trace::parse(&nodes, &tasks)?;
    for (name, policy) in [("pack", Policy::Pack), ("spread", Policy::Spread)] {
        let mut given = [0; 2];
        let mut came = 0;
        let start = Instant::now();
        for seed in 1..=seeds {
            let replay = replay(&trace, settings(policy), seed.into(), &MARKS)?;
            for (sum, mark) in given.iter_mut().zip(&replay.marks) {
                *sum += mark.given;
            }
            came += replay.tasks;
        }
        let took = start.elapsed().as_nanos() / (came as u128).max(1);
        println!("{name}_placement_ns={took}");
        for (mark, given) in MARKS.iter().zip(given) {
            let hundredths = given * 10_000 / (trace.capacity() * u64::from(seeds)).max(1);
            println!("{name}_{mark}={}.{:02}", hundredths / 100, hundredths % 100);
        }
    }
    Ok(())
}

/// Tasks of twenty sorts come and go, so that the machine is about full.
fn eight() -> Result<(), Box<dyn Error>> {
    const TASKS: u32 = 200_000;
    let device = |id| DeviceSpec {
        id: DeviceId(id),
        near_cores: Vec::new(),
        memory: Bytes(24 << 30),
        model: 0,
    };
    let node = NodeSpec {
        id: NodeId(0),
        devices: (0..8).map(device).collect(),
        cores: Vec::new(),
        cpu: None,
        ram: None,
    };
    let pool = Pool {
        nodes: vec![node],
        slots: None,
    };
    let mut state = SchedulerState::new(&pool, SchedulerSettings::default())?;
    let mut effects = Vec::new();
    let mut running: VecDeque<TaskId> = VecDeque::new();
    let (mut spent, mut placed) = (Duration::ZERO, 0);
    for number in 1..=TASKS {
        // Looks random, is the same every time.
        let sort = u64::from(number.wrapping_mul(2_654_435_761) >> 16) % 20;
        let submission = Submission {
            id: TaskId::new(RunId(1), number),
            request: Request {
                gpus: GpuRequest::Share(Milli(u32::try_from(50 * (sort % 4))?)),
                memory: MemoryRequest::Bytes(Bytes((1 + sort) << 29)),
                ..Request::default()
            },
            batch: 0,
            priority: Priority(0),
            retries: 0,
            time_limit: None,
            expected: None,
            probe: packhorse_core::ProbePlan::None,
            after: Vec::new(),
        };
        let id = submission.id;
        let now = Now(Duration::from_secs(number.into()));
        let start = Instant::now();
        step(
            &mut state,
            SchedulerEvent::Submit(submission),
            now,
            &mut effects,
        );
        let took = start.elapsed();
        let started = |effect: &Effect| matches!(effect, Effect::Start { .. });
        if effects.drain(..).any(|effect| started(&effect)) {
            spent += took;
            placed += 1;
            running.push_back(id);
        } else {
            // Nobody is to wait, so that each placement is one by itself.
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

fn crowd(crowd: &Crowd) -> Result<(), Box<dyn Error>> {
    let mut simulation = Simulation::new(&crowd.pool(), SchedulerSettings::default())?;
    for work in crowd.work() {
        simulation.submit(Duration::ZERO, work);
    }
    let known = simulation.run().makespan();
    for (name, time) in [
        ("bound", crowd.lower_bound()),
        ("known", known),
        ("original_one", original::on_one_gpu(crowd)),
        ("original_each", original::on_each_gpu(crowd)),
    ] {
        println!("{name}_s={:.3}", time.as_secs_f64());
    }
    Ok(())
}
