//! GPUs that tasks have to themselves, in runs that count no memory.

use std::time::Duration;

use packhorse_engine::{Input, ProcessEvent};
use packhorse_model::AttemptEnd;

use crate::lab::{A_LOOK, Lab, OK, SECOND, id, task};

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
    lab.stranger(0, 16);
    ends_after(&mut lab, SECOND * 2);
    assert!(lab.running().is_empty());
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.stranger(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn it_does_not_wait_for_ever() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 2]);
    lab.pass(SECOND * 2);
    lab.stranger(0, 16);
    ends_after(&mut lab, SECOND * 2);
    lab.pass(SECOND * 7);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.assert_told("still holds 16.0 GiB that its task has left");
}

#[test]
fn after_a_short_one_nobody_looks() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 2]);
    lab.pass(A_LOOK);
    lab.samples();
    lab.answers.samples = false;
    ends_after(&mut lab, A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert_eq!(lab.samples(), 0);
}

#[test]
fn strangers_that_come_later_are_waited_for_once() {
    let mut lab = lab();
    lab.add(1, vec![task("a"); 3]);
    lab.pass(SECOND * 2);
    lab.stranger(0, 2);
    ends_after(&mut lab, SECOND * 2);
    lab.pass(SECOND * 6);
    lab.assert_told("GPU 0 still holds 2.0 GiB");
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.pass(SECOND * 2);
    let start = lab.running.remove(&id("1.2")).unwrap();
    lab.feed(Input::Process(ProcessEvent::Ended(AttemptEnd {
        task: id("1.2"),
        attempt: start.attempt,
        outcome: OK,
        message: None,
        took: SECOND * 2,
    })));
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.3@0"]);
}
