use packhorse_core::{DeviceSpec, NodeSpec, Outside};
use packhorse_model::{GpuRequest, MemoryRequest, Milli, NodeId, Request, RunId};
use proptest::prelude::*;

use super::*;

const GB: u64 = 1 << 30;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One machine whose GPUs have this much memory, in GB.
fn pool(memory: &[u64]) -> Pool {
    let device = |(&memory, id): (&u64, u32)| DeviceSpec {
        id: DeviceId(id),
        near_cores: vec![],
        memory: Bytes(memory * GB),
        model: 0,
        one_process: false,
    };
    Pool {
        nodes: vec![NodeSpec {
            id: NodeId(0),
            devices: memory.iter().zip(0..).map(device).collect(),
            cores: vec![],
            cpu: None,
            ram: None,
        }],
        slots: None,
    }
}

fn simulation(memory: &[u64]) -> Simulation {
    Simulation::new(&pool(memory), SchedulerSettings::default()).unwrap()
}

fn id(number: u32) -> TaskId {
    TaskId::new(RunId(1), number)
}

/// A task that is promised so many GB, lasts so long and grows to so many GB
/// in the first half of its time.
fn task(number: u32, promised: u64, lasts: u64, peak: u64) -> SimulatedTask {
    let request = Request {
        gpus: GpuRequest::Share(Milli(0)),
        memory: MemoryRequest::Bytes(Bytes(promised * GB)),
        ..Request::default()
    };
    SimulatedTask {
        submission: plain_submission(number, request),
        behaviour: TaskBehaviour::growing(seconds(lasts), Bytes(peak * GB), 4, seconds(lasts) / 2),
    }
}

/// Task, attempt, start, end, and the memory it was promised.
fn attempts(history: &History) -> Vec<(u32, u32, u64, u64, u64)> {
    let ran = history.attempts.iter();
    ran.map(|ran| {
        let promised = ran.placement.devices.first().map_or(0, |on| on.memory.0);
        (ran.task.number, ran.attempt, ran.start.as_secs(), ran.end.as_secs(), promised / GB)
    })
    .collect()
}

#[test]
fn what_fits_runs_side_by_side_and_the_rest_follows() {
    let mut sim = simulation(&[24]);
    for number in 1..=3 {
        sim.submit(seconds(0), task(number, 12, 10, 11));
    }
    let history = sim.run();
    assert_eq!(attempts(&history), [(1, 1, 0, 10, 12), (2, 1, 0, 10, 12), (3, 1, 10, 20, 12)]);
    assert_eq!(history.makespan(), seconds(20));
    assert_eq!(history.attempts[0].peak, Bytes(11 * GB));
}

#[test]
fn who_outgrows_his_promise_and_the_gpu_climbs_the_ladder() {
    let mut sim = simulation(&[24]);
    let mut steady = task(1, 16, 100, 16);
    steady.behaviour = TaskBehaviour::growing(seconds(100), Bytes(16 * GB), 1, seconds(0));
    sim.submit(seconds(0), steady);
    // Alone it would have gone well; beside the first it dies at 12 GB.
    sim.submit(seconds(0), task(2, 8, 100, 16));
    let history = sim.run();
    let peak = Bytes(8 * GB);
    assert_eq!(
        history.attempts[1].outcome,
        Some((OUT_OF_MEMORY, EndCause::OutOfMemory { peak, at_least: Bytes(0) }))
    );
    assert_eq!(attempts(&history), [(1, 1, 0, 100, 16), (2, 1, 0, 33, 8), (2, 2, 100, 200, 12)]);
    assert_eq!(history.finished[&id(2)], Outcome::Succeeded);
}

#[test]
fn victim_of_a_neighbour_is_crowded() {
    let mut sim = simulation(&[24]);
    // After a second it takes 20 GB though it was promised 12.
    let mut greedy = task(1, 12, 100, 20);
    greedy.behaviour = TaskBehaviour::growing(seconds(100), Bytes(20 * GB), 1, seconds(0));
    greedy.behaviour.memory[0].after = seconds(1);
    let victim = task(2, 12, 10, 12);
    sim.submit(seconds(0), greedy);
    sim.submit(seconds(0), victim);
    let history = sim.run();
    assert_eq!(history.attempts[1].outcome, Some((OUT_OF_MEMORY, EndCause::Crowded)));
    assert_eq!(history.finished[&id(2)], Outcome::Succeeded);
    let retried = &history.attempts[2];
    assert_eq!((retried.task, retried.start), (id(2), seconds(100)));
}

#[test]
fn what_ends_makes_room_for_what_grows_at_the_same_moment() {
    let mut sim = simulation(&[24]);
    sim.submit(seconds(0), task(1, 16, 10, 16));
    let mut late = task(2, 8, 20, 16);
    late.behaviour = TaskBehaviour::growing(seconds(20), Bytes(16 * GB), 1, seconds(0));
    late.behaviour.memory[0].after = seconds(10);
    sim.submit(seconds(0), late);
    assert_eq!(attempts(&sim.run()), [(1, 1, 0, 10, 16), (2, 1, 0, 20, 8)]);
}

#[test]
fn strangers_make_tasks_wait_and_are_really_there() {
    let mut sim = simulation(&[24]);
    let stranger = |memory: u64| SchedulerEvent::Outside {
        device: DeviceId(0),
        held: Outside { memory: Bytes(memory * GB), ..Outside::default() },
    };
    sim.schedule(seconds(0), stranger(20));
    sim.submit(seconds(1), task(1, 8, 10, 8));
    sim.schedule(seconds(5), stranger(0));
    // It comes when the task has not grown yet, and takes what was promised.
    sim.schedule(seconds(6), stranger(20));
    sim.schedule(seconds(50), stranger(0));
    let history = sim.run();
    assert_eq!(
        attempts(&history).iter().map(|ran| (ran.2, ran.3)).collect::<Vec<_>>(),
        [(5, 8), (50, 60)]
    );
    assert_eq!(history.attempts[0].outcome, Some((OUT_OF_MEMORY, EndCause::Crowded)));
}

#[test]
fn time_limit_ends_an_attempt() {
    let mut sim = simulation(&[24]);
    let mut slow = task(1, 1, 100, 1);
    slow.submission.time_limit = Some(seconds(7));
    slow.submission.retries = 1;
    sim.submit(seconds(0), slow);
    let history = sim.run();
    assert_eq!(attempts(&history), [(1, 1, 0, 7, 1), (1, 2, 7, 14, 1)]);
    assert_eq!(history.finished[&id(1)], Outcome::TimedOut);
}

#[test]
fn cancelled_attempt_makes_room_at_once() {
    let mut sim = simulation(&[24]);
    sim.submit(seconds(0), task(1, 20, 100, 20));
    sim.submit(seconds(0), task(2, 20, 10, 20));
    sim.schedule(seconds(30), SchedulerEvent::Cancel(id(1)));
    let history = sim.run();
    assert_eq!(attempts(&history), [(1, 1, 0, 30, 20), (2, 1, 30, 40, 20)]);
    assert_eq!(history.finished[&id(1)], Outcome::Interrupted);
}

#[test]
fn what_never_can_start_is_refused_or_waits() {
    let mut sim = simulation(&[24]);
    sim.submit(seconds(0), task(1, 25, 1, 1));
    sim.schedule(seconds(0), SchedulerEvent::Drain(DeviceId(0)));
    sim.submit(seconds(1), task(2, 5, 1, 1));
    let history = sim.run();
    assert_eq!(history.refused[0].0, id(1));
    assert_eq!(history.refused.len(), 1);
    assert_eq!(history.attempts, []);
    assert!(history.finished.is_empty());
    assert_eq!(history.makespan(), seconds(0));
}

/// How much is held on the device at the worst moment of `history`, if what
/// each attempt held at its peak was held all the time it had it.
fn worst(history: &History, device: DeviceId, behaviours: &BTreeMap<TaskId, TaskBehaviour>) -> u64 {
    let on = |ran: &&SimulatedAttempt| ran.placement.devices.iter().any(|on| on.device == device);
    let ran: Vec<&SimulatedAttempt> = history.attempts.iter().filter(on).collect();
    let held = |ran: &SimulatedAttempt, at: Duration| {
        let steps = behaviours[&ran.task].memory.iter();
        let mut past = steps.filter(|step| ran.start + step.after <= at && step.memory <= ran.peak);
        past.next_back().map_or(0, |step| step.memory.0)
    };
    let moments = ran.iter().flat_map(|ran| {
        let steps = behaviours[&ran.task].memory.iter();
        steps.map(|step| ran.start + step.after)
    });
    let sums = moments.map(|at| {
        let there = ran.iter().filter(|ran| ran.start <= at && at < ran.end);
        there.map(|ran| held(ran, at)).sum()
    });
    sums.max().unwrap_or(0)
}

proptest! {
    #[test]
    fn memory_is_physical_and_everybody_ends(
        tasks in proptest::collection::vec((0..60_u64, 1..24_u64, 1..40_u64, 1..24_u64), 1..30)
    ) {
        let submitted = tasks.iter().zip(1..).map(|(&(at, promised, lasts, peak), number)| {
            (seconds(at), task(number, promised, lasts, peak))
        });
        let submitted: Vec<(Duration, SimulatedTask)> = submitted.collect();
        let run = || {
            let mut sim = simulation(&[16, 24]);
            for (at, task) in submitted.clone() {
                sim.submit(at, task);
            }
            sim.run()
        };
        let history = run();
        prop_assert_eq!(&history, &run());
        let behaviours = submitted.iter().map(|(_, task)| (task.submission.id, task.behaviour.clone()));
        let behaviours: BTreeMap<TaskId, TaskBehaviour> = behaviours.collect();
        prop_assert!(worst(&history, DeviceId(0), &behaviours) <= 16 * GB);
        prop_assert!(worst(&history, DeviceId(1), &behaviours) <= 24 * GB);
        prop_assert_eq!(history.finished.len(), submitted.len());
        for (task, &outcome) in &history.finished {
            prop_assert_eq!(outcome, Outcome::Succeeded, "{:?}", task);
        }
    }
}
