//! The replay of the paper on fragmentation (ATC '23): tasks arrive one by one, are placed
//! at once or fail, and never end. It measures how much of all GPUs is allocated when a
//! certain amount has been requested.

use std::time::Duration;

use packhorse_core::{
    Effect, Now, PoolError, SchedulerEvent, SchedulerSettings, SchedulerState, step,
};
use packhorse_model::{GpuRequest, Request};

use fastrand::Rng;

use super::simulation::plain_submission;
use super::trace::Trace;

/// The result of a replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// How many tasks arrived.
    pub tasks: u32,
    /// What was allocated at each mark, in thousandths of a GPU.
    pub given: Vec<u64>,
}

fn size(request: &Request) -> u64 {
    match request.gpus {
        GpuRequest::None => 0,
        GpuRequest::Share(share) => share.0.into(),
        GpuRequest::Whole(count) => u64::from(count) * 1000,
    }
}

/// Submits all tasks of `trace` in an order that depends on `seed`, then more of them drawn
/// at random, until the last of `marks` is reached. Marks are in per cent of the cluster's
/// GPUs, in ascending order.
pub fn replay(
    trace: &Trace,
    settings: SchedulerSettings,
    seed: u64,
    marks: &[u32],
) -> Result<Replay, PoolError> {
    let mut state = SchedulerState::new(&trace.pool, settings)?;
    let mut random = Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..trace.tasks.len()).collect();
    random.shuffle(&mut order);
    let mut order = order.into_iter();
    let mut replay = Replay::default();
    let (mut asked, mut given, mut marks) = (0, 0, marks.iter().copied().peekable());
    let mut effects = Vec::new();
    // Tasks that request no GPU would never reach a mark.
    if !trace.tasks.iter().any(|request| size(request) > 0) {
        return Ok(replay);
    }
    while let Some(&mark) = marks.peek() {
        if asked * 100 >= trace.capacity() * u64::from(mark) {
            replay.given.push(given);
            marks.next();
            continue;
        }
        let task = order.next().unwrap_or_else(|| random.usize(..trace.tasks.len()));
        let request = &trace.tasks[task];
        replay.tasks += 1;
        asked += size(request);
        let now = Now(Duration::from_secs(replay.tasks.into()));
        let submission = plain_submission(replay.tasks, request.clone());
        let id = submission.id;
        let submit = SchedulerEvent::Submit(submission);
        step(&mut state, submit, now, &mut effects);
        let started = |effect: &Effect| matches!(effect, Effect::Start { .. });
        if effects.iter().any(started) {
            given += size(request);
        } else {
            step(&mut state, SchedulerEvent::Cancel(id), now, &mut effects);
        }
        effects.clear();
    }
    Ok(replay)
}

#[cfg(test)]
mod tests {
    use packhorse_model::Placing;

    use super::*;

    /// Two GPUs; halves, and whole ones.
    fn trace() -> Trace {
        let nodes = "head\na,9000,99,2,M\n";
        let tasks = "head\n1,1,1,1,500\n2,1,1,1,500\n3,1,1,1,1000\n";
        Trace::parse(nodes, tasks).unwrap()
    }

    #[test]
    fn marks_are_reached_by_drawing_again() {
        let replay = replay(&trace(), SchedulerSettings::default(), 1, &[50, 300]).unwrap();
        assert!(replay.tasks > 3);
        assert_eq!(replay.given.len(), 2);
        assert_eq!(replay.given[1], 2000, "three times of all cannot fit");
    }

    #[test]
    fn same_seed_gives_the_same_replay() {
        let one = replay(&trace(), SchedulerSettings::default(), 5, &[130]).unwrap();
        assert_eq!(one, replay(&trace(), SchedulerSettings::default(), 5, &[130]).unwrap());
    }

    #[test]
    fn spreading_wastes_what_packing_keeps_whole() {
        let tasks = "head\n".to_owned() + &"1,1,1,1,500\n".repeat(8) + &"2,1,1,1,1000\n".repeat(4);
        let trace = Trace::parse("head\na,9000,99,8,M\n", &tasks).unwrap();
        let given = |policy| -> u64 {
            let settings = SchedulerSettings { policy, ..SchedulerSettings::default() };
            let replays = (0..20).map(|seed| replay(&trace, settings, seed, &[100]));
            replays.map(|replay| replay.unwrap().given[0]).sum()
        };
        let (pack, spread) = (given(Placing::Pack), given(Placing::Spread));
        assert!(pack * 10 > spread * 11, "{pack} {spread}");
    }

    #[test]
    fn one_that_fails_keeps_nothing_from_those_behind_it() {
        let tasks = "head\n1,1,1,1,500\n2,1,1,2,1000\n";
        let trace = Trace::parse("head\na,9000,99,2,M\n", tasks).unwrap();
        for seed in 0..10 {
            let replay = replay(&trace, SchedulerSettings::default(), seed, &[1000]).unwrap();
            assert_eq!(replay.given[0], 2000, "seed {seed}");
        }
    }

    #[test]
    fn tasks_without_gpus_alone_reach_no_mark() {
        let trace = Trace::parse("head\na,9,9,1,M\n", "head\n1,1,1,0,0\n").unwrap();
        let replay = replay(&trace, SchedulerSettings::default(), 1, &[100]).unwrap();
        assert!(replay.given.is_empty());
    }
}
