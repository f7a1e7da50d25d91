//! Tasks that outgrow what they were promised: what their kind is promised then, and that
//! everything comes to a good end, whoever takes memory from whom.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::lab::{A_LOOK, FAILED, Lab, OK, REST, SECOND, id, task};

const CUDA: &str = "CUDA out of memory";

/// Tasks of one kind for which 4 GiB were learned, on one GPU: 5 of them run.
fn alike(count: usize) -> Lab {
    let mut lab = Lab::with_gpus(1);
    for _ in 0..5 {
        lab.learned("work: python a.py", 4);
    }
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto().retries(1); count]);
    assert_eq!(lab.running().len(), 5);
    lab
}

#[test]
fn the_promise_of_a_whole_kind_rises_when_one_takes_from_another() {
    let mut lab = alike(8);
    for victim in ["1.3", "1.4", "1.5"] {
        lab.logs.insert(id(victim), CUDA.to_owned());
    }
    lab.holds_unseen("1.1", 9);
    lab.holds("1.2", 9);
    lab.ends("1.3", FAILED);
    lab.assert_told(
        "because 1.1 outgrew what it was promised on GPU 0; tasks of its kind are promised 9.9 \
         GiB from now on; it runs again, and no retry is used up",
    );
    for victim in ["1.4", "1.5"] {
        lab.ends(victim, FAILED);
        let told = lab.told().concat();
        assert!(
            told.contains("because 1.1 outgrew what it was promised on GPU 0; it runs"),
            "{told}"
        );
    }
    lab.pass(REST * 3);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"], "3.7 GiB are left");
    lab.started();
    lab.ends("1.1", OK);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.started(), ["1.3#2@0", "1.4#2@0"]);
    assert!(lab.promised("1.3") > 9.8 && lab.promised("1.4") > 9.8);
}

#[test]
fn an_amount_that_was_given_rises_for_the_whole_kind_as_well() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram(4); 8]);
    assert_eq!(lab.running().len(), 6);
    lab.logs.insert(id("1.2"), CUDA.to_owned());
    lab.holds("1.1", 17);
    lab.ends("1.2", FAILED);
    for other in ["1.3", "1.4", "1.5", "1.6"] {
        lab.ends(other, OK);
    }
    lab.pass(REST * 3);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert!(lab.promised("1.2") > 18.0);
}

#[test]
fn one_that_takes_too_much_beside_another_kind_raises_nothing() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, ["a", "c", "a", "a"].map(|name| task(&format!("python {name}.py")).vram(8)));
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.holds("1.2", 18);
    lab.ends("1.1", FAILED);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0", "1.3@0", "1.4@0"]);
}

#[test]
fn a_raise_is_taken_back_when_twenty_of_the_kind_did_without() {
    let mut lab = Lab::with_gpus(1);
    for _ in 0..40 {
        lab.learned("work: python a.py", 4);
    }
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 40]);
    lab.logs.insert(id("1.2"), CUDA.to_owned());
    lab.holds("1.1", 12);
    lab.ends("1.2", FAILED);
    let end_all = |lab: &mut Lab| {
        let running: Vec<_> = lab.running.keys().map(ToString::to_string).collect();
        for task in &running {
            lab.holds(task, 4);
            lab.ends(task, OK);
        }
        lab.pass(SECOND);
        running.len()
    };
    let mut ended = end_all(&mut lab);
    assert_eq!(lab.running().len(), 1, "13.2 GiB each");
    while ended < 26 {
        ended += end_all(&mut lab);
    }
    assert_eq!(lab.running().len(), 5);
}

#[test]
fn a_failure_of_its_own_after_it_outgrew_its_promise_runs_again_with_what_it_held() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(8).retries(1)]);
    lab.holds("1.1", 13);
    lab.ends("1.1", FAILED);
    lab.assert_told("retrying 1.1#1, 0 left: ");
    lab.pass(SECOND);
    assert!(lab.promised("1.1") > 14.0);
}

#[test]
fn one_whose_kind_is_known_to_need_as_much_claims_nothing() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram(4); 3]);
    lab.add(1, [task("python b.py").vram(12)]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0", "1.3@0", "1.4@0"]);
    lab.ends("1.4", OK);
    lab.holds("1.1", 5);
    lab.holds("1.2", 5);
    lab.add(1, [task("python c.py").vram(6)]);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0", "1.3@0"], "1.1 may need all");
    lab.ends("1.1", OK);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.2@0", "1.3@0", "1.5@0"], "it is known to need 5 GiB");
    lab.holds("1.3", 5);
    lab.add(1, [task("python c.py").vram(6)]);
    lab.pass(SECOND);
    assert_eq!(lab.running().len(), 4);
}

#[test]
fn one_that_grows_a_little_all_the_time_does_not_keep_a_gpu_for_itself() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, ["a", "b"].map(|name| task(&format!("python {name}.py")).vram(8)));
    lab.add(1, [task("python c.py").vram(12)]);
    for second in 0..12 {
        lab.holds_mebibytes("1.1", 9000 + 10 * second);
        lab.pass(SECOND);
    }
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0", "1.3@0"]);
}

/// A task as it really is: what it was promised, what it needs, in how many steps it takes
/// that, and for how long it then runs.
#[derive(Clone, Debug)]
struct Truth {
    kind: u32,
    promised: u64,
    needs: u64,
    steps: u64,
    lasts: u32,
    /// Whether it says how much it could not get.
    tells: bool,
}

fn truth() -> impl Strategy<Value = Truth> {
    (1..4_u32, 1..12_u64, 1..22_u64, 1..5_u64, 1..40_u32, any::<bool>()).prop_map(
        |(kind, promised, needs, steps, lasts, tells)| {
            let kind = kind * 11;
            Truth { kind, promised, needs, steps, lasts, tells }
        },
    )
}

/// The world around a lab: programs that take memory, and die when a GPU has none left.
struct World {
    lab: Lab,
    truths: Vec<Truth>,
    /// What the running attempts hold, and for how long they have run since.
    held: BTreeMap<String, (u32, u64, u32)>,
    attempts: BTreeMap<String, u32>,
}

impl World {
    fn new(gpus: usize, truths: Vec<Truth>) -> Self {
        let mut lab = Lab::with_gpus(gpus);
        lab.run(1);
        let new = truths
            .iter()
            .map(|truth| task(&format!("python kind{}.py", truth.kind)).vram(truth.promised));
        lab.add(1, new.collect::<Vec<_>>());
        lab.end_input(1);
        Self { lab, truths, held: BTreeMap::new(), attempts: BTreeMap::new() }
    }

    fn free(&self, gpu: u32) -> u64 {
        let on_it = self.held.values().filter(|(device, ..)| *device == gpu);
        24 - on_it.map(|(_, held, _)| held).sum::<u64>()
    }

    /// Every program goes one step on.
    fn step(&mut self) {
        let running: Vec<_> = self
            .lab
            .running
            .iter()
            .map(|(id, start)| (id.to_string(), start.placement.devices[0].device.0))
            .collect();
        for (name, gpu) in running {
            let truth = &self.truths[id(&name).number as usize - 1];
            if !self.held.contains_key(&name) {
                *self.attempts.entry(name.clone()).or_default() += 1;
            }
            let (_, held, age) = self.held.get(&name).copied().unwrap_or((gpu, 0, 0));
            if held == truth.needs {
                if age == truth.lasts {
                    self.held.remove(&name);
                    self.lab.ends(&name, OK);
                } else {
                    self.held.insert(name, (gpu, held, age + 1));
                }
                continue;
            }
            let more = truth.needs.div_ceil(truth.steps).min(truth.needs - held);
            if more <= self.free(gpu) {
                self.held.insert(name.clone(), (gpu, held + more, 0));
                self.lab.holds_unseen(&name, held + more);
                continue;
            }
            self.held.remove(&name);
            let asked = if truth.tells {
                format!(". Tried to allocate {more}.00 GiB")
            } else {
                String::new()
            };
            self.lab.logs.insert(id(&name), format!("{CUDA}{asked}"));
            self.lab.ends(&name, FAILED);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every program would run alone on a GPU. So none fails for good because of others, none
    /// is restarted for ever, and the promises of a kind rise a few times at most.
    #[test]
    fn whoever_takes_memory_from_whom_all_succeed_after_a_few_attempts(
        gpus in 1..3_usize,
        truths in prop::collection::vec(truth(), 1..9),
    ) {
        let mut world = World::new(gpus, truths);
        let mut told = Vec::new();
        for _ in 0..20_000 {
            if world.lab.is_over(1) {
                break;
            }
            world.step();
            world.lab.pass(SECOND / 10);
            told.extend(world.lab.told());
        }
        prop_assert!(world.lab.is_over(1), "{told:#?}");
        let summary = world.lab.summary(1);
        prop_assert_eq!(summary.failed, 0, "{:#?}", told);
        for (task, attempts) in &world.attempts {
            // Three times crowded out, and the rungs of the ladder from 1 GiB to all.
            prop_assert!(*attempts <= 12, "{} has {} attempts: {:#?}", task, attempts, told);
        }
        let raises = told.iter().filter(|line| line.contains("from now on")).count();
        prop_assert!(raises <= 30, "{told:#?}");
    }
}
