//! What a million waiting tasks cost: bytes each, and the time an event takes.
//!
//! `cargo run --release -p packhorse-core --example million [SCENE] [TASKS] [NODES]`
//!
//! `shares` (the default): parts of GPUs, whole ones and pairs, with cores, on
//! one node of 8. `memory`: random multiples of 64 MiB on nodes of 8 GPUs with
//! 80 GiB. `lasting`: the same with durations that are known, so that they
//! decide about reservations.
#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use packhorse_core::{
    CoreSpec, DeviceSpec, Effect, EndCause, NodeSpec, Now, Pool, PoolError, SchedulerEvent,
    SchedulerSettings, SchedulerState, Submission, step,
};
use packhorse_model::{
    Bytes, CoreId, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Outcome, Priority, Request,
    RunId, TaskId,
};

/// The system's allocator, with the bytes that are in use counted.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `block` came from `alloc` above, and so from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    Shares,
    Memory,
    Lasting,
}

fn pool(nodes: u32) -> Pool {
    let device = |node: u32, index: u32| DeviceSpec {
        id: DeviceId(100 + node * 8 + index),
        near_cores: (index * 8..index * 8 + 8).map(CoreId).collect(),
        memory: Bytes(80 << 30),
        model: 0,
        one_process: false,
    };
    let node = |node: u32| NodeSpec {
        id: NodeId(node),
        devices: (0..8).map(|index| device(node, index)).collect(),
        cores: (0..64).map(|core| CoreSpec::whole(CoreId(core))).collect(),
        cpu: None,
        ram: None,
    };
    Pool { nodes: (0..nodes).map(node).collect(), slots: None }
}

/// A number that looks random, the same for the same `number` and `salt`.
fn random(number: u32, salt: u64, below: u64) -> u64 {
    let mixed = (u64::from(number) + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)) % below
}

fn submission(scene: Scene, number: u32) -> Submission {
    let (gpus, cores, memory) = match (scene, number % 3) {
        (Scene::Shares, 0) => (GpuRequest::Share(Milli(500)), 0, MemoryRequest::Uncounted),
        (Scene::Shares, 1) => (GpuRequest::Whole(1), 4, MemoryRequest::Uncounted),
        (Scene::Shares, _) => (GpuRequest::Whole(2), 8, MemoryRequest::Uncounted),
        (Scene::Memory | Scene::Lasting, _) => {
            let memory = Bytes((random(number, 1, 1280) + 1) * (64 << 20));
            let memory = MemoryRequest::Bytes(memory);
            (GpuRequest::Share(Milli(0)), 0, memory)
        }
    };
    let hours = Duration::from_mins(30 * (1 + random(number, 2, 16)));
    Submission {
        priority: Priority(i32::try_from(number / 3 % 5).unwrap_or(0)),
        retries: 1,
        time_limit: (scene == Scene::Shares).then_some(Duration::from_hours(1)),
        expected: (scene == Scene::Lasting).then_some(hours),
        ..Submission::new(
            TaskId::new(RunId(1), number),
            Request { gpus, memory, cores, ..Request::default() },
        )
    }
}

/// A scheduler, and the attempts it has started in their order.
struct Work {
    state: SchedulerState,
    effects: Vec<Effect>,
    running: VecDeque<(TaskId, u32)>,
    now: Duration,
}

impl Work {
    fn step(&mut self, event: SchedulerEvent) {
        self.now += Duration::from_millis(10);
        step(&mut self.state, event, Now(self.now), &mut self.effects);
        for effect in self.effects.drain(..) {
            if let Effect::Start { task, attempt, .. } = effect {
                self.running.push_back((task, attempt));
            }
        }
    }

    /// Ends the attempt that has run for longest.
    fn end_one(&mut self) -> bool {
        let Some((task, attempt)) = self.running.pop_front() else {
            return false;
        };
        self.step(SchedulerEvent::Ended {
            task,
            attempt,
            outcome: Outcome::Succeeded,
            cause: EndCause::Own,
        });
        true
    }
}

/// The scene, how many tasks, and on how many nodes.
fn arguments() -> Option<(Scene, u32, u32)> {
    let mut arguments = std::env::args().skip(1).peekable();
    let scene = match arguments.peek().map(String::as_str) {
        Some("shares") => Some(Scene::Shares),
        Some("memory") => Some(Scene::Memory),
        Some("lasting") => Some(Scene::Lasting),
        _ => None,
    };
    if scene.is_some() {
        arguments.next();
    }
    let scene = scene.unwrap_or(Scene::Shares);
    let all = if scene == Scene::Shares { 1 } else { 128 };
    let mut number = |default| arguments.next().map_or(Some(default), |text| text.parse().ok());
    Some((scene, number(1_000_000)?, number(all)?))
}

fn main() -> Result<(), PoolError> {
    let Some((scene, tasks, nodes)) = arguments() else {
        println!("usage: million [shares|memory|lasting] [TASKS] [NODES]");
        std::process::exit(2);
    };
    let empty = IN_USE.load(Relaxed);
    let mut work = Work {
        state: SchedulerState::new(&pool(nodes), SchedulerSettings::default())?,
        effects: Vec::new(),
        running: VecDeque::new(),
        now: Duration::ZERO,
    };

    let start = Instant::now();
    for number in 1..=tasks {
        work.step(SchedulerEvent::Submit(submission(scene, number)));
    }
    let submit = start.elapsed() / tasks.max(1);
    let waiting = work.state.counts().waiting.max(1);
    let bytes = (IN_USE.load(Relaxed) - empty) / waiting;

    let events = (tasks / 10).max(1);
    let mut slowest = Duration::ZERO;
    let start = Instant::now();
    let mut last = start;
    for _ in 0..events {
        work.end_one();
        let now = Instant::now();
        slowest = slowest.max(now - last);
        last = now;
    }
    let event = start.elapsed() / events;

    let running = work.running.len();
    while work.end_one() {}
    let finished = work.state.counts().finished;
    println!("waiting={waiting}");
    println!("bytes_per_task={bytes}");
    println!("submit_ns={}", submit.as_nanos());
    println!("event_ns={}", event.as_nanos());
    println!("slowest_event_ns={}", slowest.as_nanos());
    println!("running={running}");
    println!("finished={finished}");
    Ok(())
}
