//! What a million waiting tasks cost: bytes each, and the time an event takes.
//!
//! `cargo run --release -p packhorse-core --example million [TASKS]`
#![expect(clippy::print_stdout, reason = "its figures are what it is for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use packhorse_core::{
    DeviceSpec, Effect, Event, NodeSpec, Now, Pool, PoolError, Settings, State, Submission, step,
};
use packhorse_model::{
    CoreId, DeviceId, GpuRequest, Milli, NodeId, Outcome, Priority, Request, RunId, TaskId,
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

fn pool() -> Pool {
    let device = |index: u32| DeviceSpec {
        id: DeviceId(100 + index),
        near_cores: (index * 8..index * 8 + 8).map(CoreId).collect(),
    };
    Pool {
        nodes: vec![NodeSpec {
            id: NodeId(0),
            devices: (0..8).map(device).collect(),
            cores: (0..64).map(CoreId).collect(),
        }],
        slots: None,
    }
}

fn submission(number: u32) -> Submission {
    let (gpus, cores) = match number % 3 {
        0 => (GpuRequest::Share(Milli(500)), 0),
        1 => (GpuRequest::Whole(1), 4),
        _ => (GpuRequest::Whole(2), 8),
    };
    Submission {
        id: TaskId::new(RunId(1), number),
        request: Request { gpus, cores },
        priority: Priority(i32::try_from(number / 3 % 5).unwrap_or(0)),
        retries: 1,
        time_limit: Some(Duration::from_hours(1)),
        after: vec![],
    }
}

/// A scheduler, and the attempts it has started in their order.
struct Work {
    state: State,
    effects: Vec<Effect>,
    running: VecDeque<(TaskId, u32)>,
}

impl Work {
    fn step(&mut self, event: Event) {
        step(&mut self.state, event, Now::default(), &mut self.effects);
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
        self.step(Event::Ended {
            task,
            attempt,
            outcome: Outcome::Succeeded,
        });
        true
    }
}

fn main() -> Result<(), PoolError> {
    let asked = std::env::args().nth(1).and_then(|tasks| tasks.parse().ok());
    let tasks: u32 = asked.unwrap_or(1_000_000);
    let empty = IN_USE.load(Relaxed);
    let mut work = Work {
        state: State::new(&pool(), Settings::default())?,
        effects: Vec::new(),
        running: VecDeque::new(),
    };

    let start = Instant::now();
    for number in 1..=tasks {
        work.step(Event::Submit(submission(number)));
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

    while work.end_one() {}
    let finished = work.state.counts().finished;
    println!("waiting={waiting}");
    println!("bytes_per_task={bytes}");
    println!("submit_ns={}", submit.as_nanos());
    println!("event_ns={}", event.as_nanos());
    println!("slowest_event_ns={}", slowest.as_nanos());
    println!("finished={finished}");
    Ok(())
}
