use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use packhorse_core::{
    Effect, EndCause, Now, Outside, Pool, PoolError, ProbePlan, RefusalReason, SchedulerEvent,
    SchedulerSettings, SchedulerState, Submission, explain, step,
};
use packhorse_model::{DeviceId, MemoryRequest, Outcome, TaskId};
use rustc_hash::FxHashSet;

/// A task to be planned. There may be millions: every byte counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTask {
    pub id: TaskId,
    /// What the scheduler is told, but for the id: many tasks are alike.
    pub submission: Rc<Submission>,
    /// How long it will probably take, if that is known.
    pub lasts: Option<Duration>,
}

/// How things are when a plan begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanStart {
    /// How long to assume a task takes of which that is not known.
    pub assume: Option<Duration>,
    /// What others hold of devices. They keep it.
    pub outside: Vec<(DeviceId, Outside)>,
    /// Devices that are not used.
    pub left_out: Vec<DeviceId>,
}

/// What would run where, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The devices that are used, in the pool's order.
    pub devices: Vec<DeviceId>,
    /// What runs, in the order of start.
    pub bars: Vec<PlanBar>,
    /// What was assumed for unknown durations.
    pub guess: DurationGuess,
    /// How many durations are not known.
    pub unknown: usize,
    /// The tasks that could never run on this pool.
    pub refused: Vec<(TaskId, RefusalReason)>,
    /// The tasks that would wait for others to leave, or for devices that are left out, and
    /// whatever comes after those.
    pub waiting: Vec<TaskId>,
    /// Why the first of them in line waits, in words.
    pub why_waiting: Option<(TaskId, String)>,
    /// Whether some have all that is free because nobody knows what they need: in a run
    /// that is found out, and others join them.
    pub measured_alone: bool,
}

/// When a task runs, and on which devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanBar {
    pub task: TaskId,
    /// Its devices, in the pool's order; none if it needs none.
    pub devices: Rc<[DeviceId]>,
    /// When it starts.
    pub start: Duration,
    /// When it ends.
    pub end: Duration,
    /// Whether its duration is known.
    pub known: bool,
}

/// What is assumed for unknown durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationGuess {
    /// Nothing: all are known.
    AllKnown,
    /// What somebody said.
    Assumed(Duration),
    /// The median of the known ones.
    Median(Duration),
    /// None is known, so all are assumed to be equally long. A second of the plan is one
    /// round, which says nothing about real time.
    Rounds,
}

/// Tasks planned between two reports of progress.
const PROGRESS: usize = 1024;

impl Plan {
    /// Plans the tasks, which are in the order of their ids, as if they started now, others
    /// kept what they hold and all went well. An attempt takes no longer than its time
    /// limit; there are no probes. In what is said in words, devices are called as `name`
    /// says. `progress` is told now and then how many have got a place.
    pub fn new(
        pool: &Pool,
        settings: SchedulerSettings,
        start: &PlanStart,
        tasks: &[PlanTask],
        name: &dyn Fn(DeviceId) -> String,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, PoolError> {
        let guess = DurationGuess::of(tasks, start.assume);
        let specs = pool.nodes.iter().flat_map(|node| &node.devices);
        let devices = specs.map(|spec| spec.id);
        let is_unknown = |task: &PlanTask| {
            let memory = task.submission.request.memory;
            matches!(memory, MemoryRequest::AtLeast(_) | MemoryRequest::Whole)
        };
        let mut plan = Self {
            devices: devices.filter(|id| !start.left_out.contains(id)).collect(),
            measured_alone: tasks.iter().any(is_unknown),
            bars: Vec::with_capacity(tasks.len()),
            guess,
            unknown: tasks.iter().filter(|task| task.lasts.is_none()).count(),
            refused: Vec::new(),
            waiting: Vec::new(),
            why_waiting: None,
        };
        let place = |id: TaskId| tasks.binary_search_by_key(&id, |task| task.id).ok();
        let mut is_settled = vec![false; tasks.len()];
        let mut placements: FxHashSet<Rc<[DeviceId]>> = FxHashSet::default();
        let mut state = SchedulerState::new(pool, settings)?;
        let mut effects = Vec::new();
        // All are submitted before the first starts, as in a real run that has read its
        // input: priorities count from the beginning.
        let submitted = tasks.iter().map(|task| SchedulerEvent::Submit(guess.settled(task)));
        let outside = start.outside.iter();
        let outside = outside.map(|&(device, held)| SchedulerEvent::Outside { device, held });
        let left_out = start.left_out.iter().copied().map(SchedulerEvent::Drain);
        let before = [SchedulerEvent::Hold, SchedulerEvent::MoreToCome(false)];
        let before = before.into_iter().chain(outside);
        for event in before.chain(left_out).chain(submitted) {
            step(&mut state, event, Now::default(), &mut effects);
        }
        let mut next = Some((Duration::ZERO, SchedulerEvent::Unhold));
        // By their times, and by their places among the bars.
        let mut ends = BTreeMap::new();
        while let Some((now, event)) = next {
            step(&mut state, event, Now(now), &mut effects);
            for effect in effects.drain(..) {
                if let Effect::Refused { task, reason } = effect {
                    if let Some(place) = place(task) {
                        is_settled[place] = true;
                    }
                    plan.refused.push((task, reason));
                } else if let Effect::Start { task, attempt, placement, .. } = effect {
                    let Some(place) = place(task) else { continue };
                    is_settled[place] = true;
                    let (lasts, known) =
                        (guess.length(&tasks[place]), tasks[place].lasts.is_some());
                    let ended = SchedulerEvent::Ended {
                        task,
                        attempt,
                        outcome: Outcome::Succeeded,
                        cause: EndCause::Own,
                    };
                    let end = now.saturating_add(lasts);
                    ends.insert((end, plan.bars.len()), ended);
                    plan.bars.push(PlanBar {
                        task,
                        devices: shared(
                            &mut placements,
                            placement.devices.iter().map(|on| on.device),
                        ),
                        start: now,
                        end,
                        known,
                    });
                    if plan.bars.len().is_multiple_of(PROGRESS) {
                        progress(plan.bars.len());
                    }
                }
            }
            next = ends.pop_first().map(|((end, _), ended)| (end, ended));
        }
        let waiting = tasks.iter().zip(is_settled).filter(|(_, is_settled)| !is_settled);
        plan.waiting = waiting.map(|(task, _)| task.id).collect();
        plan.why_waiting = state.first_in_line().and_then(|first| {
            let why = explain(&state, first, Now(plan.length()), name, &|_| Vec::new())?;
            Some((first, why))
        });
        Ok(plan)
    }

    /// When the last task ends, in the plan's own time.
    pub(crate) fn length(&self) -> Duration {
        let ends = self.bars.iter().map(|bar| bar.end);
        ends.max().unwrap_or_default()
    }

    /// How long all of it will take; `None` if no duration is known, or some wait for
    /// others.
    pub fn expected_end(&self) -> Option<Duration> {
        let ends = self.guess != DurationGuess::Rounds && self.waiting.is_empty();
        ends.then(|| self.length())
    }

    /// Whether the expected end is the latest: every duration is known, and what is known
    /// of one is how long it takes at most.
    pub fn is_bound(&self) -> bool {
        self.guess == DurationGuess::AllKnown && self.waiting.is_empty()
    }
}

/// These devices, once for all tasks that run on them.
fn shared(
    known: &mut FxHashSet<Rc<[DeviceId]>>,
    devices: impl Iterator<Item = DeviceId>,
) -> Rc<[DeviceId]> {
    let devices: Vec<DeviceId> = devices.collect();
    if let Some(known) = known.get(&*devices) {
        return Rc::clone(known);
    }
    let devices: Rc<[DeviceId]> = devices.into();
    known.insert(Rc::clone(&devices));
    devices
}

impl DurationGuess {
    fn of(tasks: &[PlanTask], assume: Option<Duration>) -> Self {
        let mut known: Vec<Duration> = tasks.iter().filter_map(|task| task.lasts).collect();
        if known.len() == tasks.len() {
            return Self::AllKnown;
        }
        known.sort_unstable();
        match (assume, known.get(known.len() / 2)) {
            (Some(assumed), _) => Self::Assumed(assumed),
            (None, Some(&median)) => Self::Median(median),
            (None, None) => Self::Rounds,
        }
    }

    /// What the scheduler is told of a task that is planned by this guess.
    fn settled(self, task: &PlanTask) -> Submission {
        let mut submission =
            Submission { id: task.id, probe: ProbePlan::None, ..(*task.submission).clone() };
        if self == Self::Rounds {
            // Real durations mean nothing in rounds.
            submission.time_limit = None;
            submission.expected = None;
        }
        submission
    }

    /// How long such a task takes.
    fn length(self, task: &PlanTask) -> Duration {
        let lasts = match self {
            Self::Rounds => return Duration::from_secs(1),
            Self::Median(median) | Self::Assumed(median) => task.lasts.unwrap_or(median),
            Self::AllKnown => task.lasts.unwrap_or_default(),
        };
        lasts.min(task.submission.time_limit.unwrap_or(lasts))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use packhorse_core::{DeviceSpec, NodeSpec};
    use packhorse_model::{Bytes, GpuRequest, Milli, NodeId, Priority, Request, RunId};

    use super::*;

    /// What task `number` asks for: this and nothing else.
    pub(crate) fn submission(number: u32, request: Request) -> Submission {
        Submission::new(TaskId::new(RunId(1), number), request)
    }

    /// Plans for one machine with so many GPUs that nobody else uses.
    pub(crate) fn plan(gpus: u32, tasks: Vec<PlanTask>) -> Plan {
        plan_from(&PlanStart::default(), gpus, tasks)
    }

    #[expect(clippy::needless_pass_by_value, reason = "short to write in tests")]
    pub(crate) fn plan_from(start: &PlanStart, gpus: u32, tasks: Vec<PlanTask>) -> Plan {
        let device = |id| DeviceSpec {
            id: DeviceId(id),
            near_cores: vec![],
            memory: Bytes(24 << 30),
            model: 0,
            one_process: false,
        };
        let node = NodeSpec {
            id: NodeId(0),
            devices: (0..gpus).map(device).collect(),
            cores: vec![],
            cpu: None,
            ram: None,
        };
        let pool = Pool { nodes: vec![node], slots: None };
        let name = |device: DeviceId| format!("GPU {}", device.0);
        Plan::new(&pool, SchedulerSettings::default(), start, &tasks, &name, &mut |_| {}).unwrap()
    }

    fn task(number: u32, lasts: Option<u64>) -> PlanTask {
        task_with(number, lasts, |_| {})
    }

    fn task_with(number: u32, lasts: Option<u64>, change: impl Fn(&mut Submission)) -> PlanTask {
        let mut submission = submission(number, Request::default());
        change(&mut submission);
        PlanTask {
            id: submission.id,
            submission: submission.into(),
            lasts: lasts.map(Duration::from_secs),
        }
    }

    fn bars(plan: &Plan) -> Vec<(u32, u32, u64, u64)> {
        let bars = plan.bars.iter();
        bars.map(|bar| {
            let device = bar.devices.first().map_or(99, |device| device.0);
            let seconds = |time: Duration| time.as_secs();
            (bar.task.number, device, seconds(bar.start), seconds(bar.end))
        })
        .collect()
    }

    #[test]
    fn longer_ones_are_followed_by_what_waits() {
        let plan = plan(2, vec![task(1, Some(10)), task(2, Some(4)), task(3, Some(3))]);
        assert_eq!(bars(&plan), [(1, 0, 0, 10), (2, 1, 0, 4), (3, 1, 4, 7)]);
        assert_eq!(plan.expected_end(), Some(Duration::from_secs(10)));
        assert_eq!((plan.guess, plan.unknown), (DurationGuess::AllKnown, 0));
    }

    #[test]
    fn urgent_ones_go_first_wherever_they_stand_in_the_input() {
        let urgent = task_with(2, Some(1), |it| it.priority = Priority(-1));
        let plan = plan(1, vec![task(1, Some(1)), urgent]);
        assert_eq!(bars(&plan), [(2, 0, 0, 1), (1, 0, 1, 2)]);
    }

    #[test]
    fn unknown_durations_are_taken_to_be_the_median() {
        let known = [2, 4, 60].map(Some);
        let tasks = known.into_iter().chain([None]).zip(1..);
        let plan = plan(4, tasks.map(|(lasts, number)| task(number, lasts)).collect());
        assert_eq!(plan.guess, DurationGuess::Median(Duration::from_secs(4)));
        assert_eq!(bars(&plan)[3], (4, 3, 0, 4));
        assert_eq!(plan.unknown, 1);
        let known: Vec<bool> = plan.bars.iter().map(|bar| bar.known).collect();
        assert_eq!(known, [true, true, true, false]);
    }

    #[test]
    fn nothing_known_is_planned_in_rounds_and_promises_no_end() {
        let limit = Some(Duration::from_millis(5));
        let limited = task_with(1, None, |it| it.time_limit = limit);
        let plan = plan(1, vec![limited, task(2, None)]);
        assert_eq!(plan.guess, DurationGuess::Rounds);
        assert_eq!(bars(&plan), [(1, 0, 0, 1), (2, 0, 1, 2)]);
        assert_eq!(plan.expected_end(), None);
    }

    #[test]
    fn time_limit_ends_what_takes_longer() {
        let limited = task_with(1, Some(50), |it| {
            it.time_limit = Some(Duration::from_secs(5));
            it.retries = 3;
        });
        assert_eq!(bars(&plan(1, vec![limited])), [(1, 0, 0, 5)]);
    }

    #[test]
    fn impossible_requests_are_told() {
        let many = task_with(1, Some(1), |it| it.request.gpus = GpuRequest::Whole(9));
        let plan = plan(1, vec![many]);
        assert_eq!(plan.refused.len(), 1);
        assert_eq!(plan.refused[0].0, TaskId::new(RunId(1), 1));
        assert_eq!(plan.bars, []);
    }

    #[test]
    fn what_others_hold_is_not_given_out_and_who_waits_for_them_is_told() {
        let outside = Outside { share: Milli(500), attempts: 1, ..Outside::default() };
        let start = PlanStart {
            outside: vec![(DeviceId(0), outside)],
            left_out: vec![DeviceId(1)],
            ..PlanStart::default()
        };
        let share = GpuRequest::Share(Milli(500));
        let half = task_with(1, Some(3), |it| it.request.gpus = share);
        let plan = plan_from(&start, 2, vec![half, task(2, Some(3))]);
        assert_eq!(bars(&plan), [(1, 0, 0, 3)]);
        assert_eq!(plan.devices, [DeviceId(0)]);
        assert_eq!(plan.waiting, [TaskId::new(RunId(1), 2)]);
        assert!(plan.why_waiting.is_some());
        assert_eq!(plan.expected_end(), None);
    }

    #[test]
    fn what_is_assumed_is_no_bound() {
        let start = PlanStart { assume: Some(Duration::from_secs(9)), ..PlanStart::default() };
        let plan = |lasts| plan_from(&start, 1, vec![task(1, Some(3)), task(2, lasts)]);
        let assumed = plan(None);
        assert_eq!(bars(&assumed), [(1, 0, 0, 3), (2, 0, 3, 12)]);
        assert_eq!((assumed.unknown, assumed.is_bound()), (1, false));
        assert!(!assumed.bars[1].known);
        assert!(plan(Some(1)).is_bound());
    }
}
