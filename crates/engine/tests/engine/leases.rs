//! Other runs on this machine: what they hold, and what they are told.

use packhorse_engine::{Action, Input, LeasedDevice, ProcessEvent};
use packhorse_model::{Milli, RunId};

use crate::lab::{FAILED, Lab, OK, SECOND, gib, id, task};

fn lab(gpus: usize) -> Lab {
    let mut lab = Lab::built(&vec![24; gpus], None, |settings| settings.leases = true);
    lab.run(1);
    lab
}

fn whole() -> LeasedDevice {
    LeasedDevice {
        share: Milli::ONE,
        attempts: 1,
        whole: true,
        ..LeasedDevice::default()
    }
}

fn memory(memory: u64) -> LeasedDevice {
    LeasedDevice {
        memory: gib(memory),
        attempts: 1,
        ..LeasedDevice::default()
    }
}

/// What others are told, as GPU, GiB, attempts and whether it is whole.
fn told(lease: Option<Vec<LeasedDevice>>) -> Vec<(String, u64, u32, bool)> {
    let held = lease.into_iter().flatten();
    held.map(|it| (it.device.into(), it.memory.0 >> 30, it.attempts, it.whole))
        .collect()
}

#[test]
fn a_gpu_that_another_run_has_to_itself_is_left_alone_until_it_ends() {
    let mut lab = lab(2);
    lab.other_run(77, 0, &whole());
    lab.add(1, vec![task("a"); 2]);
    assert_eq!(lab.running(), ["1.1@1"]);
    lab.feed(Input::OtherRuns(Vec::new()));
    assert_eq!(lab.running(), ["1.1@1", "1.2@0"]);
}

#[test]
fn shares_that_another_run_has_are_not_given_out() {
    let mut lab = lab(1);
    let share = Milli(600);
    lab.other_run(77, 0, &LeasedDevice { share, ..memory(0) });
    lab.add(1, [task("a").share(500), task("b").share(400)]);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn memory_that_another_run_was_promised_counts_before_it_takes_it() {
    let mut lab = lab(1);
    lab.other_run(77, 0, &memory(16));
    lab.add(1, [task("a").vram(10)]);
    assert!(lab.running().is_empty());
    assert!(lab.why("1.1").contains("other run"), "{}", lab.why("1.1"));
    lab.other_run(77, 0, &memory(8));
    lab.pass(SECOND * 2);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn what_another_run_holds_of_its_promise_does_not_count_twice() {
    let mut lab = lab(1);
    lab.other_run_holds(0, 77, 10);
    lab.other_run(77, 0, &memory(12));
    lab.add(1, [task("a").vram(11)]);
    assert_eq!(lab.running(), ["1.1@0"], "12 are theirs");
}

#[test]
fn what_another_run_holds_beyond_its_promise_counts() {
    let mut lab = lab(1);
    lab.other_run_holds(0, 77, 16);
    lab.other_run(77, 0, &memory(4));
    lab.add(1, [task("a").vram(11)]);
    assert!(lab.running().is_empty());
}

#[test]
fn where_no_driver_looks_promises_are_all_there_is() {
    let mut lab = Lab::built(&[24], None, |settings| {
        settings.leases = true;
        settings.sampled = false;
    });
    lab.run(1);
    lab.other_run(77, 0, &memory(16));
    lab.add(1, [task("a").vram(10), task("b").vram(8)]);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn what_is_taken_has_to_be_told_and_is_told_once() {
    let mut lab = lab(2);
    lab.add(1, [task("a").vram(4)]);
    assert_eq!(told(lab.raised()), [("GPU-0".to_owned(), 4, 1, false)]);
    assert_eq!(lab.raised(), None);
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn what_is_free_for_a_moment_is_not_given_up() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a"); 2]);
    lab.raised();
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert_eq!(lab.raised(), None, "the next one takes what was told");
    lab.ends("1.2", OK);
    assert_eq!(lab.raised(), None, "less is no reason to hurry");
    assert_eq!(lab.engine.lease_to_lower(), Some(Vec::new()));
    lab.engine.lease_told(true);
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn what_could_not_be_told_is_told_a_second_later() {
    let mut lab = lab(1);
    lab.add(1, [task("a")]);
    let lease = lab.engine.lease_to_raise();
    assert!(lease.is_some());
    lab.engine.lease_told(false);
    assert_eq!(lab.engine.lease_to_lower(), None, "not at once");
    assert_eq!(lab.engine.wake_at(), Some(lab.now + SECOND));
    assert_eq!(
        lab.engine.lease_to_raise(),
        lease,
        "whoever has the lock tries again"
    );
    lab.engine.lease_told(false);
    lab.now += SECOND;
    lab.feed(Input::Wake);
    assert_eq!(lab.engine.lease_to_lower(), lease);
    lab.engine.lease_told(true);
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn one_that_outgrows_its_promise_is_told_with_what_it_holds() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(4)]);
    lab.raised();
    lab.holds("1.1", 9);
    assert_eq!(
        told(lab.engine.lease_to_lower()),
        [("GPU-0".to_owned(), 9, 1, false)]
    );
}

#[test]
fn only_what_may_take_something_needs_the_lock() {
    let mut lab = lab(1);
    let now = lab.clock();
    let tasks = |run| Input::Tasks {
        run: RunId(run),
        tasks: vec![task("a").parts()],
        more: false,
    };
    let started = Input::Process(ProcessEvent::Started {
        task: id("1.1"),
        attempt: 1,
    });
    assert!(lab.engine.may_take(&tasks(1), now));
    assert!(!lab.engine.may_take(&Input::Wake, now), "nobody waits");
    assert!(!lab.engine.may_take(&started, now));
    lab.add(1, [task("a").share(500), task("b")]);
    lab.raised();
    assert!(lab.engine.may_take(&Input::Wake, now), "somebody waits");
    assert!(!lab.engine.may_take(&started, now));
    lab.ends("1.1", OK);
    lab.raised();
    assert!(!lab.engine.may_take(&tasks(1), now), "all is ours");
}

#[test]
fn nobody_is_asked_where_nobody_is_told() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let now = lab.clock();
    assert!(!lab.engine.may_take(&Input::InputEnded(RunId(1)), now));
    lab.add(1, [task("a").vram(4)]);
    let asked = |action| matches!(action, Action::RefreshOtherRuns).then_some(());
    assert!(lab.take_actions(asked).is_empty());
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn others_are_looked_at_again_with_the_devices() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(4)]);
    let asked = |action| matches!(action, Action::RefreshOtherRuns).then_some(());
    assert_eq!(lab.take_actions(asked).len(), 1);
}

#[test]
fn trouble_with_others_is_told_once() {
    let mut lab = lab(1);
    lab.told();
    for _ in 0..3 {
        lab.feed(Input::OtherRunsTrouble("no lock".to_owned()));
    }
    assert_eq!(lab.told(), ["warning: no lock"]);
}

#[test]
fn one_that_waits_for_another_run_is_named_as_such() {
    let mut lab = lab(1);
    assert!(!lab.engine.has_other_runs());
    lab.other_run(77, 0, &whole());
    lab.add(1, [task("a")]);
    assert!(lab.engine.has_other_runs());
    let why = lab.engine.why_first_waits().unwrap();
    assert!(why.contains("GPU 0"), "{why}");
}

#[test]
fn what_is_due_by_now_may_take_something_whatever_the_input_is() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500), task("b")]);
    lab.raised();
    lab.pass(SECOND);
    lab.answers.samples = false;
    lab.ends("1.1", FAILED);
    let committed = Input::Committed {
        records: 0,
        trouble: None,
    };
    assert!(!lab.engine.may_take(&committed, lab.clock()));
    lab.now += SECOND * 2;
    assert!(
        lab.engine.may_take(&committed, lab.clock()),
        "1.1 is judged"
    );
    lab.feed(committed);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn a_newcomer_is_looked_at_before_its_memory_counts_twice() {
    let mut lab = lab(1);
    lab.stranger(0, 8);
    lab.add(1, [task("a").vram(4), task("b").vram(14)]);
    lab.pass(SECOND * 20);
    assert_eq!(lab.running(), ["1.1@0"]);
    // They were seen before they said who they are.
    lab.stranger(0, 0);
    lab.other_run_holds(0, 77, 4);
    lab.other_run(77, 0, &memory(6));
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
}
