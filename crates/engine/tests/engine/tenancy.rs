//! GPUs that tasks have to themselves, in runs that count no memory.

use std::time::Duration;

use packhorse_engine::{Input, LeasedDevice, ProcessEvent};
use packhorse_model::{AttemptEnd, Milli};

use crate::lab::{A_LOOK, FAILED, Lab, OK, SECOND, id, task};

fn lab() -> Lab {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab
}

/// The first task has ended after so long.
fn ends_after(lab: &mut Lab, took: Duration) {
    let start = lab.running.remove(&id("1.1")).unwrap();
    lab.feed(Input::Process(ProcessEvent::Ended(AttemptEnd {
        task: id("1.1"),
        attempt: start.attempt,
        outcome: OK,
        message: None,
        took,
    })));
}

#[test]
fn strangers_are_named_once() {
    let mut lab = lab();
    lab.stranger(0, 10);
    lab.add(1, vec![task("a"); 2]);
    lab.pass(A_LOOK);
    lab.assert_told(
        "warning: others hold 10.0 GiB of GPU 0, which a task has whole: process 90000 \
         (python, ada, 10.0 GiB)",
    );
    lab.ends("1.1", OK);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert!(!lab.told().join("\n").contains("others hold"));
}

#[test]
fn a_desktop_is_nothing_to_speak_of() {
    let mut lab = lab();
    lab.stranger(0, 1);
    lab.add(1, [task("a")]);
    lab.pass(SECOND);
    assert!(!lab.told().join("\n").contains("warning"));
    assert_eq!(lab.samples(), 1, "one look was enough");
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn the_next_waits_until_the_memory_of_the_last_is_gone() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 2]);
    lab.pass(SECOND * 2);
    lab.left_on(0, 16);
    ends_after(&mut lab, SECOND * 2);
    assert!(lab.running().is_empty());
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.left_on(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn so_does_the_next_attempt_of_the_same_task() {
    let mut lab = lab();
    lab.add(1, [task("a").retries(1)]);
    lab.pass(SECOND);
    lab.left_on(0, 16);
    lab.ends("1.1", FAILED);
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.left_on(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_is_lost_meanwhile_is_neither_looked_at_nor_held_any_more() {
    let mut lab = Lab::built(&[24], None, |settings| settings.leases = true);
    lab.run(1);
    lab.add(1, vec![task("a"); 2]);
    lab.raised();
    lab.pass(SECOND * 2);
    lab.left_on(0, 16);
    ends_after(&mut lab, SECOND * 2);
    assert!(lab.engine.lease_to_lower().is_none(), "it is not free yet");
    lab.gpus[0].lost = Some("it has fallen off the bus".to_owned());
    lab.pass(SECOND);
    lab.samples();
    lab.pass(SECOND * 10);
    assert_eq!(lab.samples(), 0);
    assert_eq!(lab.engine.wake_at(), None);
    let lease = lab.engine.lease_to_lower().unwrap();
    assert_eq!(lease.held, []);
}

#[test]
fn it_does_not_wait_for_ever() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 2]);
    lab.pass(SECOND * 2);
    lab.left_on(0, 16);
    ends_after(&mut lab, SECOND * 2);
    lab.pass(SECOND * 7);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.assert_told(
        "warning of 1.1: GPU 0 still holds 16.0 GiB that its task has left, and the driver lists \
         no process on it",
    );
}

#[test]
fn after_short_ones_it_looks_once_a_second() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 3]);
    lab.pass(A_LOOK);
    lab.samples();
    ends_after(&mut lab, A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert_eq!(lab.samples(), 0);
    lab.pass(SECOND);
    lab.left_on(0, 16);
    lab.ends_after("1.2", OK, None, A_LOOK);
    assert!(lab.running().is_empty());
    lab.left_on(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.3@0"]);
}

#[test]
fn one_that_has_it_whole_waits_for_the_memory_of_those_who_shared_it() {
    let mut lab = lab();
    lab.add(1, [task("a").share(500), task("b").share(500), task("c")]);
    lab.left_on(0, 16);
    lab.ends("1.1", OK);
    lab.ends("1.2", OK);
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.left_on(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.3@0"]);
}

#[test]
fn those_who_share_it_wait_for_nobodys() {
    let mut lab = lab();
    lab.add(1, [task("a"), task("b").share(500)]);
    lab.pass(SECOND);
    lab.left_on(0, 16);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn what_another_run_has_left_is_waited_for() {
    let mut lab = Lab::built(&[24], None, |settings| settings.leases = true);
    lab.run(1);
    let share = LeasedDevice { share: Milli(500), attempts: 1, ..LeasedDevice::default() };
    lab.other_run(77, 0, &share);
    lab.add(1, [task("a")]);
    lab.left_on(0, 16);
    lab.feed(Input::OtherRuns(Vec::new()));
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    assert!(!lab.told().join("\n").contains("warning"));
    lab.left_on(0, 1);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn what_another_run_has_left_is_not_waited_for_for_ever() {
    let mut lab = Lab::built(&[24], None, |settings| settings.leases = true);
    lab.run(1);
    let whole =
        LeasedDevice { share: Milli::ONE, attempts: 1, whole: true, ..LeasedDevice::default() };
    lab.other_run(77, 0, &whole);
    lab.add(1, [task("a")]);
    lab.left_on(0, 16);
    lab.feed(Input::OtherRuns(Vec::new()));
    lab.pass(SECOND * 6);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.assert_told("warning: GPU 0 still holds 16.0 GiB that another run has left");
}

#[test]
fn strangers_that_come_later_are_named_once_and_not_waited_for() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 3]);
    lab.pass(SECOND * 2);
    lab.stranger(0, 10);
    ends_after(&mut lab, SECOND * 2);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    let told = lab.told().join("\n");
    let named = "warning: others hold 10.0 GiB of GPU 0, which a task has whole: process 90000";
    assert!(told.contains(named), "{told}");
    assert!(!told.contains("has left"), "{told}");
    lab.pass(SECOND * 2);
    lab.stranger(0, 12);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.3@0"]);
    assert!(!lab.told().join("\n").contains("warning"));
}

#[test]
fn what_is_left_beside_a_stranger_is_told_apart() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 2]);
    lab.pass(SECOND * 2);
    lab.stranger(0, 10);
    lab.left_on(0, 4);
    lab.ends("1.1", OK);
    lab.pass(SECOND * 6);
    let told = lab.told().join("\n");
    assert!(told.contains("others hold 10.0 GiB of GPU 0"), "{told}");
    let left = "still holds 4.0 GiB that its task has left";
    assert!(told.contains(left), "{told}");
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn one_that_is_listed_and_not_to_be_found_may_have_just_ended() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 3]);
    lab.pass(SECOND * 2);
    lab.unseen(0, 10);
    lab.ends("1.1", OK);
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.unseen(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    // If it stays, it is somebody's in a container.
    lab.pass(SECOND);
    lab.unseen(0, 10);
    lab.ends("1.2", OK);
    lab.pass(SECOND * 6);
    assert_eq!(lab.running(), ["1.3@0"]);
    let told = lab.told().join("\n");
    assert!(told.contains("others hold 10.0 GiB of GPU 0"), "{told}");
    assert!(!told.contains("has left"), "{told}");
}
