use packhorse_core::{DeviceSpec, NodeSpec};
use packhorse_model::{GpuRequest, MemoryRequest, Milli, NodeId, Request, RunId};
use proptest::prelude::*;

use super::*;
use crate::truth::plain;

const GB: u64 = 1 << 30;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pool(memory: &[u64]) -> Pool {
    let device = |(&memory, id): (&u64, u32)| DeviceSpec {
        id: DeviceId(id),
        near_cores: vec![],
        memory: Bytes(memory * GB),
        model: 0,
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

fn world(memory: &[u64]) -> Simulation {
    Simulation::new(&pool(memory), SchedulerSettings::default()).unwrap()
}

fn id(number: u32) -> TaskId {
    TaskId::new(RunId(1), number)
}

/// A task that is promised so many GB, lasts so long and grows to so many GB
/// in the first half of its time.
fn work(number: u32, promised: u64, lasts: u64, peak: u64) -> Work {
    let request = Request {
        gpus: GpuRequest::Share(Milli(0)),
        memory: MemoryRequest::Bytes(Bytes(promised * GB)),
        ..Request::default()
    };
    Work {
        submission: plain(number, request),
        truth: Truth::growing(seconds(lasts), Bytes(peak * GB), 4, seconds(lasts) / 2),
    }
}

/// Task, attempt, start, end, and the memory it was promised.
fn attempts(history: &History) -> Vec<(u32, u32, u64, u64, u64)> {
    let ran = history.ran.iter();
    ran.map(|ran| {
        let promised = ran.placement.devices.first().map_or(0, |on| on.memory.0);
        (
            ran.task.number,
            ran.attempt,
            ran.start.as_secs(),
            ran.end.as_secs(),
            promised / GB,
        )
    })
    .collect()
}

#[test]
fn what_fits_runs_side_by_side_and_the_rest_follows() {
    let mut world = world(&[24]);
    for number in 1..=3 {
        world.submit(seconds(0), work(number, 12, 10, 11));
    }
    let history = world.run();
    assert_eq!(
        attempts(&history),
        [(1, 1, 0, 10, 12), (2, 1, 0, 10, 12), (3, 1, 10, 20, 12)]
    );
    assert_eq!(history.makespan(), seconds(20));
    assert!((history.utilisation(&[DeviceId(0)]) - 1.0).abs() < 1e-9);
    assert_eq!(history.ran[0].peak, Bytes(11 * GB));
}

#[test]
fn who_outgrows_his_promise_and_the_gpu_climbs_the_ladder() {
    let mut world = world(&[24]);
    let mut steady = work(1, 16, 100, 16);
    steady.truth = Truth::growing(seconds(100), Bytes(16 * GB), 1, seconds(0));
    world.submit(seconds(0), steady);
    // Alone it would have gone well; beside the first it dies at 12 GB.
    world.submit(seconds(0), work(2, 8, 100, 16));
    let history = world.run();
    let peak = Bytes(8 * GB);
    assert_eq!(
        history.ran[1].outcome,
        Some((OUT_OF_MEMORY, EndCause::OutOfMemory { peak }))
    );
    assert_eq!(
        attempts(&history),
        [(1, 1, 0, 100, 16), (2, 1, 0, 33, 8), (2, 2, 100, 200, 12)]
    );
    assert_eq!(history.finished[&id(2)], Outcome::Succeeded);
}

#[test]
fn victim_of_a_neighbour_is_collateral() {
    let mut world = world(&[24]);
    // After a second it takes 20 GB though it was promised 12.
    let mut greedy = work(1, 12, 100, 20);
    greedy.truth = Truth::growing(seconds(100), Bytes(20 * GB), 1, seconds(0));
    greedy.truth.memory[0].after = seconds(1);
    let victim = work(2, 12, 10, 12);
    world.submit(seconds(0), greedy);
    world.submit(seconds(0), victim);
    let history = world.run();
    assert_eq!(
        history.ran[1].outcome,
        Some((OUT_OF_MEMORY, EndCause::Collateral))
    );
    assert_eq!(history.finished[&id(2)], Outcome::Succeeded);
    let retried = &history.ran[2];
    assert_eq!((retried.task, retried.start), (id(2), seconds(100)));
}

#[test]
fn what_ends_makes_room_for_what_grows_at_the_same_moment() {
    let mut world = world(&[24]);
    world.submit(seconds(0), work(1, 16, 10, 16));
    let mut late = work(2, 8, 20, 16);
    late.truth = Truth::growing(seconds(20), Bytes(16 * GB), 1, seconds(0));
    late.truth.memory[0].after = seconds(10);
    world.submit(seconds(0), late);
    assert_eq!(
        attempts(&world.run()),
        [(1, 1, 0, 10, 16), (2, 1, 0, 20, 8)]
    );
}

#[test]
fn strangers_make_tasks_wait_and_are_really_there() {
    let mut world = world(&[24]);
    let stranger = |memory: u64| SchedulerEvent::Outside {
        device: DeviceId(0),
        held: Outside {
            memory: Bytes(memory * GB),
            ..Outside::default()
        },
    };
    world.tell(seconds(0), stranger(20));
    world.submit(seconds(1), work(1, 8, 10, 8));
    world.tell(seconds(5), stranger(0));
    // It comes when the task has not grown yet, and takes what was promised.
    world.tell(seconds(6), stranger(20));
    world.tell(seconds(50), stranger(0));
    let history = world.run();
    assert_eq!(
        attempts(&history)
            .iter()
            .map(|ran| (ran.2, ran.3))
            .collect::<Vec<_>>(),
        [(5, 8), (50, 60)]
    );
    assert_eq!(
        history.ran[0].outcome,
        Some((OUT_OF_MEMORY, EndCause::Collateral))
    );
}

#[test]
fn time_limit_ends_an_attempt() {
    let mut world = world(&[24]);
    let mut slow = work(1, 1, 100, 1);
    slow.submission.time_limit = Some(seconds(7));
    slow.submission.retries = 1;
    world.submit(seconds(0), slow);
    let history = world.run();
    assert_eq!(attempts(&history), [(1, 1, 0, 7, 1), (1, 2, 7, 14, 1)]);
    assert_eq!(history.finished[&id(1)], Outcome::TimedOut);
}

#[test]
fn cancelled_attempt_makes_room_at_once() {
    let mut world = world(&[24]);
    world.submit(seconds(0), work(1, 20, 100, 20));
    world.submit(seconds(0), work(2, 20, 10, 20));
    world.tell(seconds(30), SchedulerEvent::Cancel(id(1)));
    let history = world.run();
    assert_eq!(attempts(&history), [(1, 1, 0, 30, 20), (2, 1, 30, 40, 20)]);
    assert_eq!(history.finished[&id(1)], Outcome::Interrupted);
}

#[test]
fn what_never_can_start_is_told() {
    let mut world = world(&[24]);
    world.submit(seconds(0), work(1, 25, 1, 1));
    world.tell(seconds(0), SchedulerEvent::Drain(DeviceId(0)));
    world.submit(seconds(1), work(2, 5, 1, 1));
    let history = world.run();
    assert_eq!(history.refused[0].0, id(1));
    assert_eq!(history.waiting, [id(2)]);
    assert_eq!(history.makespan(), seconds(0));
    assert!(history.utilisation(&[DeviceId(0)]) < 1e-9);
}

#[test]
fn busy_time_counts_neighbours_once() {
    let mut world = world(&[24, 24]);
    world.submit(seconds(0), work(1, 10, 10, 1));
    world.submit(seconds(4), work(2, 10, 10, 1));
    world.submit(seconds(20), work(3, 10, 10, 1));
    let history = world.run();
    assert_eq!(history.busy(DeviceId(0)), seconds(24));
    assert_eq!(history.busy(DeviceId(1)), seconds(0));
    assert!((history.utilisation(&[DeviceId(0), DeviceId(1)]) - 0.4).abs() < 1e-9);
}

/// How much is held on the device at the worst moment of `history`, if what
/// each attempt held at its peak was held all the time it had it.
fn worst(history: &History, device: DeviceId, truths: &FxHashMap<TaskId, Truth>) -> u64 {
    let on = |ran: &&Ran| ran.placement.devices.iter().any(|on| on.device == device);
    let ran: Vec<&Ran> = history.ran.iter().filter(on).collect();
    let held = |ran: &Ran, at: Duration| {
        let holds = truths[&ran.task].memory.iter();
        let mut past = holds.filter(|hold| ran.start + hold.after <= at && hold.memory <= ran.peak);
        past.next_back().map_or(0, |hold| hold.memory.0)
    };
    let moments = ran.iter().flat_map(|ran| {
        let holds = truths[&ran.task].memory.iter();
        holds.map(|hold| ran.start + hold.after)
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
        let works = tasks.iter().zip(1..).map(|(&(at, promised, lasts, peak), number)| {
            (seconds(at), work(number, promised, lasts, peak))
        });
        let works: Vec<(Duration, Work)> = works.collect();
        let run = || {
            let mut world = world(&[16, 24]);
            for (at, work) in works.clone() {
                world.submit(at, work);
            }
            world.run()
        };
        let history = run();
        prop_assert_eq!(&history, &run());
        let truths = works.iter().map(|(_, work)| (work.submission.id, work.truth.clone()));
        let truths: FxHashMap<TaskId, Truth> = truths.collect();
        prop_assert!(worst(&history, DeviceId(0), &truths) <= 16 * GB);
        prop_assert!(worst(&history, DeviceId(1), &truths) <= 24 * GB);
        prop_assert_eq!(history.finished.len(), works.len());
        for (task, &outcome) in &history.finished {
            prop_assert_eq!(outcome, Outcome::Succeeded, "{:?}", task);
        }
    }
}
