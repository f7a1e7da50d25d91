//! What an engine takes to decide about tasks of one run, and of two at once: no process is
//! started. Prints figures for `cargo xtask bench`.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use packhorse_core::{DeviceSpec, NodeSpec, Pool, SchedulerSettings};
use packhorse_engine::{
    Action, AttemptEnd, ClockReading, DeviceInfo, Engine, EngineSettings, Input, NewRunInput,
    OomSigns, OutputMode, ProcessEvent, UseLimit,
};
use packhorse_model::{
    Bytes, Command, DeviceId, NodeId, Outcome, RunId, TaskId, TaskSpec, Timestamp,
};

const GPUS: u32 = 8;
const TASKS: u32 = 100_000;
/// So many arrive at once.
const CHUNK: u32 = 512;

#[expect(clippy::print_stdout, reason = "its output is what it is for")]
fn main() {
    println!("one_run_ns={:.0}", nanoseconds_per_task(1));
    println!("two_runs_ns={:.0}", nanoseconds_per_task(2));
}

/// The time for each of [`TASKS`] tasks, which are those of so many runs together.
fn nanoseconds_per_task(runs: u32) -> f64 {
    let mut engine = engine();
    let mut actions = Vec::new();
    let mut running: VecDeque<(TaskId, u32)> = VecDeque::new();
    let mut clock = ClockReading::default();
    let start = Instant::now();
    for run in 1..=runs {
        let folder = Path::new("/nowhere");
        let new = NewRunInput {
            run: RunId(run),
            defaults: TaskSpec::default().into(),
            batch: None,
            output: OutputMode::Log,
            folder: folder.to_owned(),
            logs: folder.into(),
            total: None,
            resumed: None,
            succeeded_before: 0,
            failed_before: 0,
            record: 0,
            recoverable: true,
        };
        engine.handle(Input::AddRun(Box::new(new)), clock, &mut actions);
    }
    let mut left = vec![TASKS / runs; runs as usize];
    let mut finished = 0;
    loop {
        // A source is read when there is room for what it has.
        for (left, run) in left.iter_mut().zip(1..) {
            let run = RunId(run);
            while *left > 0 && engine.room(run) > 0 {
                let count = CHUNK.min(*left);
                *left -= count;
                let task = |_| (TaskSpec::new(Command::Line(b"true".to_vec())), Vec::new());
                let tasks = (0..count).map(task).collect();
                let more = false;
                engine.handle(Input::Tasks { run, tasks, more }, clock, &mut actions);
            }
        }
        let mut started = Vec::new();
        for action in actions.drain(..) {
            if let Action::Start(start) = action {
                started.push((start.task, start.attempt));
            }
        }
        for (task, attempt) in started {
            running.push_back((task, attempt));
            let started = ProcessEvent::Started { task, attempt };
            engine.handle(Input::Process(started), clock, &mut actions);
        }
        let Some((task, attempt)) = running.pop_front() else {
            break;
        };
        clock.monotonic += Duration::from_micros(10);
        clock.wall = Timestamp(clock.wall.0 + 10);
        finished += 1;
        let end = ProcessEvent::Ended(AttemptEnd {
            task,
            attempt,
            outcome: Outcome::Succeeded,
            message: None,
            took: Duration::from_micros(10),
        });
        engine.handle(Input::Process(end), clock, &mut actions);
    }
    assert_eq!(finished, TASKS / runs * runs, "every task has run");
    start.elapsed().as_secs_f64() * 1e9 / f64::from(finished)
}

fn engine() -> Engine {
    let devices = (0..GPUS).map(|number| DeviceSpec {
        id: DeviceId(number),
        near_cores: Vec::new(),
        memory: Bytes(0),
        model: 0,
        one_process: false,
    });
    let node = NodeSpec {
        id: NodeId(0),
        devices: devices.collect(),
        cores: Vec::new(),
        cpu: None,
        ram: None,
    };
    let info = (0..GPUS).map(|number| DeviceInfo {
        label: number.to_string(),
        keys: vec![number.to_string()],
        memory: Bytes(0),
        model: "pretended".into(),
        use_limit: UseLimit::None,
    });
    Engine::new(EngineSettings {
        pool: Pool { nodes: vec![node], slots: None },
        scheduler: SchedulerSettings::default(),
        devices: info.collect(),
        sampled: false,
        silence: Duration::from_secs(20),
        rest: Duration::MAX,
        leases: false,
        at_most: None,
        mps: None,
        oom_signs: OomSigns::default(),
        patience: Duration::ZERO,
    })
    .expect("the pool is a sensible one")
}
