//! What many different requests cost beside equal ones: the time an event takes
//! when every waiting task needs another amount of something.
//!
//! `cargo run --release -p packhorse-core --example distinct [TASKS…]`
#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::collections::VecDeque;
use std::time::Duration;

use packhorse_core::{
    CoreSpec, DeviceSpec, Effect, EndCause, NodeSpec, Now, Pool, PoolError, SchedulerEvent,
    SchedulerSettings, SchedulerState, Submission, step,
};
use packhorse_model::{
    Bytes, CoreId, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Outcome, Priority, Request,
    RunId, TaskId,
};

const GIB: u64 = 1 << 30;

/// What every task needs another amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinct {
    Nothing,
    Ram,
    Vram,
    Cpu,
    TimeLimit,
    Priority,
    Everything,
}

fn pool() -> Pool {
    let device = |index: u32| DeviceSpec {
        id: DeviceId(index),
        near_cores: (index * 8..index * 8 + 8).map(CoreId).collect(),
        memory: Bytes(80 * GIB),
        model: 0,
        one_process: false,
    };
    let node = NodeSpec {
        id: NodeId(0),
        devices: (0..8).map(device).collect(),
        cores: (0..64).map(|core| CoreSpec::whole(CoreId(core))).collect(),
        cpu: Some(Milli(64_000)),
        ram: Some(Bytes(512 * GIB)),
    };
    Pool { nodes: vec![node], slots: None }
}

/// A number that looks random, the same for the same `number` and `salt`.
fn random(number: u32, salt: u64, below: u64) -> u64 {
    let mixed = (u64::from(number) + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)) % below
}

fn submission(distinct: Distinct, number: u32) -> Submission {
    // From half of `base` to half as much again, if this is what differs.
    let amount = |what: Distinct, base: u64| {
        if distinct == what || distinct == Distinct::Everything {
            base / 2 + random(number, what as u64, base)
        } else {
            base
        }
    };
    let small = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    Submission {
        priority: Priority(i32::try_from(amount(Distinct::Priority, 1 << 20)).unwrap_or(0)),
        retries: 1,
        time_limit: Some(Duration::from_secs(amount(Distinct::TimeLimit, 100_000))),
        ..Submission::new(
            TaskId::new(RunId(1), number),
            Request {
                gpus: GpuRequest::Share(Milli(0)),
                memory: MemoryRequest::Bytes(Bytes(amount(Distinct::Vram, 24 * GIB))),
                cpu: Milli(small(amount(Distinct::Cpu, 2_600))),
                ram: Bytes(amount(Distinct::Ram, 21 * GIB)),
                ..Request::default()
            },
        )
    }
}

/// How long this thread has been on a core: on a busy machine a clock shows more.
#[expect(
    clippy::disallowed_methods,
    reason = "without that file there are no figures, and no error to name it in"
)]
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Submits so many tasks and ends each; the time for a submission and for an end.
fn measure(distinct: Distinct, tasks: u32) -> Result<(Duration, Duration), PoolError> {
    let mut state = SchedulerState::new(&pool(), SchedulerSettings::default())?;
    let mut effects = Vec::new();
    let mut running = VecDeque::new();
    let mut now = Duration::ZERO;
    let mut act = |event, running: &mut VecDeque<(TaskId, u32)>| {
        now += Duration::from_millis(10);
        step(&mut state, event, Now(now), &mut effects);
        for effect in effects.drain(..) {
            if let Effect::Start { task, attempt, .. } = effect {
                running.push_back((task, attempt));
            }
        }
    };
    let start = cpu_time();
    for number in 1..=tasks {
        act(SchedulerEvent::Submit(submission(distinct, number)), &mut running);
    }
    let submitted = cpu_time().saturating_sub(start);
    while let Some((task, attempt)) = running.pop_front() {
        let ended = SchedulerEvent::Ended {
            task,
            attempt,
            outcome: Outcome::Succeeded,
            cause: EndCause::Own,
        };
        act(ended, &mut running);
    }
    let ended = cpu_time().saturating_sub(start + submitted);
    Ok((submitted / tasks, ended / tasks))
}

fn main() -> Result<(), PoolError> {
    let mut numbers: Vec<u32> =
        std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    if numbers.is_empty() {
        numbers = vec![10_000, 100_000];
    }
    println!("tasks distinct submit_ns end_ns ratio");
    for tasks in numbers {
        let mut equal = None;
        for distinct in [
            Distinct::Nothing,
            Distinct::Ram,
            Distinct::Vram,
            Distinct::Cpu,
            Distinct::TimeLimit,
            Distinct::Priority,
            Distinct::Everything,
        ] {
            // The best of three: a busy machine only ever makes it slower.
            let runs = [(); 3].map(|()| measure(distinct, tasks));
            let runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
            let (submit, end) =
                runs.into_iter().min_by_key(|&(submit, end)| submit + end).unwrap_or_default();
            let sum = (submit + end).as_secs_f64();
            let equal = *equal.get_or_insert(sum);
            println!(
                "{tasks} {distinct:?} {} {} {:.2}",
                submit.as_nanos(),
                end.as_nanos(),
                sum / equal
            );
        }
    }
    Ok(())
}
