//! Whatever comes in, in whatever order: the same inputs give the same actions, nothing
//! panics, and every task is finished or left. The lab itself sees to it that nothing is
//! told too early, and nothing taken without the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use packhorse_engine::{Input, LeasedDevice, MpsInput, MpsSettings, StopSignal, StoredTask};
use packhorse_model::{DeviceId, Milli, Outcome, RunId, TaskId};
use proptest::prelude::*;

use crate::lab::{Lab, NewTask, OK, SECOND, gib, task};

const GPUS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Tasks(u32, Vec<u8>, bool),
    InputEnded(u32),
    Ends(usize, u8),
    Holds(usize, u64),
    Stranger(usize, u64),
    Commit,
    Trouble,
    Pass(u64),
    Sleep(u64),
    Stop(u32, u8),
    Fails(usize),
    OtherRun(usize, u8),
    Answer(usize),
    Mps(usize, u8),
    Silent(usize, bool),
    Why(u32),
    /// The end of something that may not run.
    Nonsense(u32),
}

fn step() -> impl Strategy<Value = Step> {
    use Step::{
        Answer, Commit, Ends, Fails, Holds, InputEnded, Mps, Nonsense, OtherRun, Pass, Silent,
        Sleep, Stop, Stranger, Tasks, Trouble, Why,
    };
    let run = 1..=2_u32;
    prop_oneof![
        4 => (run.clone(), prop::collection::vec(any::<u8>(), 1..5), any::<bool>())
            .prop_map(|(run, kinds, more)| Tasks(run, kinds, more)),
        1 => run.clone().prop_map(InputEnded),
        8 => (any::<usize>(), any::<u8>()).prop_map(|(nth, how)| Ends(nth, how)),
        4 => (any::<usize>(), 0..26_u64).prop_map(|(nth, memory)| Holds(nth, memory)),
        1 => (0..GPUS, 0..26_u64).prop_map(|(gpu, memory)| Stranger(gpu, memory)),
        4 => Just(Commit),
        1 => Just(Trouble),
        6 => (0..4000_u64).prop_map(Pass),
        1 => (0..90_000_u64).prop_map(Sleep),
        1 => (run, any::<u8>()).prop_map(|(run, signal)| Stop(run, signal)),
        1 => (0..GPUS + 1).prop_map(Fails),
        2 => (0..GPUS, any::<u8>()).prop_map(|(gpu, kind)| OtherRun(gpu, kind)),
        8 => any::<usize>().prop_map(Answer),
        4 => (0..GPUS, any::<u8>()).prop_map(|(gpu, kind)| Mps(gpu, kind)),
        1 => (0..GPUS, any::<bool>()).prop_map(|(gpu, silent)| Silent(gpu, silent)),
        1 => (0..20_u32).prop_map(Why),
        1 => (0..20_u32).prop_map(Nonsense),
    ]
}

fn new_task(kind: u8, number: u32) -> NewTask {
    let probed = || task("python b.py --n 1").vram_auto().probe("{} --probe");
    // No door takes one that comes after itself.
    let after_another = |task: NewTask| match number - 1 {
        0 => task,
        before => task.after(1 + u32::from(kind) % before),
    };
    match kind % 15 {
        0 | 1 => task("a"),
        2 => task("a").share(300).retries(1),
        3 => task("a").vram(u64::from(kind) % 26),
        4 | 5 => task("python a.py").vram_auto(),
        6 => probed(),
        7 => probed().priority(i32::from(kind) % 3),
        8 => after_another(task("a")),
        9 => task("a").gpus(2),
        11 => task("a").group("g", 1),
        12 => task("a").share(300).group("g", 2).retries(1),
        13 => after_another(probed().group("h", 1)),
        10 => after_another(probed()),
        _ => task("a").share(500).vram(6).retries(2),
    }
}

/// A lab, and what was fed into it.
struct Play {
    lab: Lab,
    tasks: BTreeMap<u32, u64>,
    ended: BTreeSet<u32>,
    closed: BTreeSet<u32>,
}

impl Play {
    fn new(mps: bool) -> Self {
        let mut lab = Lab::built(&[24, 24, 40], None, |settings| {
            settings.leases = true;
            settings.mps = mps.then(MpsSettings::default);
        });
        lab.publishes = true;
        lab.answers.commits = false;
        lab.answers.questions = false;
        lab.answers.closes = false;
        lab.run(1);
        lab.run_with(2, |new| new.resumed = Some(6));
        lab.outcomes.insert(TaskId::new(RunId(2), 1), OK);
        lab.outcomes.insert(TaskId::new(RunId(2), 2), Outcome::TimedOut);
        let left = [(3, task("a").after(1)), (4, task("a").after(2)), (6, task("b"))];
        let tasks = left.into_iter().map(|(number, new)| {
            let (spec, after) = new.parts();
            StoredTask {
                id: TaskId::new(RunId(2), number),
                spec,
                after,
                outcome: None,
                attempts: number,
            }
        });
        lab.feed(Input::Resumed { run: RunId(2), tasks: tasks.collect(), more: false });
        Self {
            lab,
            tasks: BTreeMap::from([(1, 0), (2, 3)]),
            ended: BTreeSet::new(),
            closed: BTreeSet::new(),
        }
    }

    fn known(&self, run: u32) -> u32 {
        let before = if run == 2 { 3 } else { 0 };
        before + u32::try_from(self.tasks[&run]).unwrap()
    }

    fn nth_running(&self, nth: usize) -> Option<String> {
        let running = &self.lab.running;
        let place = nth.checked_rem(running.len())?;
        running.keys().nth(place).map(ToString::to_string)
    }

    fn take(&mut self, step: &Step) {
        let millis = Duration::from_millis;
        match *step {
            Step::Tasks(run, ref kinds, more) => {
                if self.ended.contains(&run) || self.closed.contains(&run) {
                    return;
                }
                let first = self.known(run) + 1;
                let tasks = kinds.iter().zip(first..);
                let tasks: Vec<NewTask> = tasks.map(|(&kind, it)| new_task(kind, it)).collect();
                *self.tasks.get_mut(&run).unwrap() += tasks.len() as u64;
                self.lab.add_some(run, tasks, more);
            }
            Step::InputEnded(run) => self.end_input(run),
            Step::Ends(nth, how) => {
                let Some(task) = self.nth_running(nth) else {
                    return;
                };
                let id: TaskId = task.parse().unwrap();
                self.lab.logs.remove(&id);
                self.lab.mps_failures.retain(|it| *it != id);
                let failed = Outcome::Failed { code: 1 };
                let outcome = match how % 10 {
                    0..4 => OK,
                    4 => failed,
                    5 => {
                        self.lab.logs.insert(id, "CUDA out of memory".to_owned());
                        failed
                    }
                    6 => {
                        self.lab.mps_failures.push(id);
                        Outcome::Killed { signal: 6 }
                    }
                    7 => Outcome::NotStarted,
                    8 => Outcome::TimedOut,
                    _ => Outcome::Interrupted,
                };
                self.lab.ends(&task, outcome);
            }
            Step::Holds(nth, memory) => {
                if let Some(task) = self.nth_running(nth) {
                    self.lab.holds_unseen(&task, memory);
                }
            }
            Step::Stranger(gpu, memory) => self.lab.stranger(gpu, memory),
            Step::Commit => self.lab.commit_all(),
            Step::Trouble => self.lab.trouble("the disk is full"),
            Step::Pass(time) => self.lab.pass(millis(time)),
            Step::Sleep(time) => self.lab.sleep(millis(time)),
            Step::Stop(run, signal) => self.lab.stop(
                run,
                match signal % 4 {
                    0 => StopSignal::Quit,
                    1 => StopSignal::Terminate,
                    2 => StopSignal::Hangup,
                    _ => StopSignal::Interrupt,
                },
            ),
            Step::Fails(gpu) => self.lab.feed(Input::DeviceFailed {
                device: DeviceId(u32::try_from(gpu).unwrap()),
                reason: "Xid 79".to_owned(),
            }),
            Step::OtherRun(gpu, kind) => {
                let held = LeasedDevice {
                    memory: gib(u64::from(kind) % 20),
                    share: Milli(u32::from(kind) % 500),
                    attempts: 1,
                    whole: kind % 5 == 0,
                    ..LeasedDevice::default()
                };
                match kind % 3 {
                    0 => self.lab.feed(Input::OtherRuns(Vec::new())),
                    _ => self.lab.other_run(77, gpu, &held),
                }
            }
            Step::Answer(nth) => self.answer(nth),
            Step::Mps(gpu, kind) => self.mps(gpu, kind),
            Step::Silent(gpu, silent) => self.lab.gpus[gpu].answers = !silent,
            Step::Why(number) => {
                self.lab.feed(Input::AskWhy { task: TaskId::new(RunId(1), number), reply_to: 1 });
            }
            Step::Nonsense(number) => {
                let task = TaskId::new(RunId(1 + number % 3), number);
                if !self.lab.running.contains_key(&task) {
                    self.lab.feed(Input::Outcome { task, outcome: None });
                    self.lab.feed(Input::Mps(MpsInput::Released(task)));
                }
            }
        }
    }

    fn end_input(&mut self, run: u32) {
        if !self.closed.contains(&run) && self.ended.insert(run) {
            // Nothing is left open of what arrived together.
            self.lab.add_some(run, [], false);
            self.lab.end_input(run);
        }
    }

    fn mps(&mut self, gpu: usize, kind: u8) {
        let device = DeviceId(u32::try_from(gpu).unwrap());
        self.lab.feed(Input::Mps(match kind % 8 {
            0 => MpsInput::Gone(device),
            1 => MpsInput::Unavailable { device, reason: "none".to_owned() },
            _ => MpsInput::Ready(device),
        }));
    }

    fn answer(&mut self, nth: usize) {
        let Some(place) = nth.checked_rem(self.lab.open.len()) else {
            return;
        };
        let answer = self.lab.open.remove(place).unwrap();
        if let Input::Close { run, .. } = &answer {
            self.closed.insert(run.0);
        }
        self.lab.feed(answer);
    }

    /// Everybody else leaves, and everything is answered: all comes to its end by itself.
    fn finish(&mut self) {
        for gpu in 0..GPUS {
            self.lab.gpus[gpu].answers = true;
            self.lab.stranger(gpu, 0);
        }
        self.lab.feed(Input::OtherRuns(Vec::new()));
        for run in [1, 2] {
            self.end_input(run);
        }
        for _ in 0..100 {
            while !self.lab.open.is_empty() {
                self.answer(0);
            }
            for gpu in 0..GPUS {
                self.mps(gpu, 7);
            }
            while let Some(task) = self.nth_running(0) {
                self.lab.ends(&task, OK);
            }
            self.lab.commit_all();
            self.lab.pass(SECOND);
            if self.lab.over.len() == 2 {
                return;
            }
        }
        panic!("a run does not end");
    }

    fn check(&self) {
        for run in [1, 2] {
            let summary = self.lab.summary(run);
            let all = summary.succeeded + summary.failed + summary.left;
            assert_eq!(all, self.tasks[&run], "{summary:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_same_inputs_give_the_same_actions_and_every_task_comes_to_its_end(
        steps in prop::collection::vec(step(), 1..120),
        mps in any::<bool>(),
    ) {
        let plays = [(); 2].map(|()| {
            let mut play = Play::new(mps);
            for step in &steps {
                play.take(step);
            }
            play.finish();
            play.check();
            play
        });
        let [one, other] = plays.map(|play| format!("{:?}", play.lab.actions));
        prop_assert!(one == other, "the same inputs gave other actions");
    }
}
