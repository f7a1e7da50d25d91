use crate::SchedulerEvent::{HoldRun, UnholdRun};
use crate::{Now, explain};
use packhorse_model::{RunId, TaskId};

use crate::tests::lab::{FAILED, Lab, task};

#[test]
fn runs_share_devices_in_one_line() {
    let mut lab = Lab::default().node(2).start();
    assert_eq!(lab.submit(task(1).run(1)), "start 1 on 10");
    assert_eq!(lab.submit(task(2).run(2)), "start 2 on 11");
    lab.submit(task(3).run(1));
    lab.submit(task(4).run(2).priority(-1));
    assert_eq!(lab.done(1), "succeeded 1/1, start 4 on 10");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 11");
}

#[test]
fn the_same_number_in_two_runs_is_two_tasks() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).run(1));
    assert_eq!(lab.submit(task(1).run(2)), "start 1 on 11");
    let cancelled = lab.step(crate::SchedulerEvent::Cancel(TaskId::new(RunId(2), 1)));
    assert_eq!(cancelled, "stop 1#1");
    let stopping: Vec<bool> = lab.state.running().iter().map(|it| it.stopping).collect();
    assert_eq!(stopping, [false, true]);
}

#[test]
fn nothing_of_a_held_run_starts_and_the_others_go_on() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).run(1));
    lab.submit(task(2).run(2).priority(-1));
    lab.submit(task(3).run(1));
    lab.submit(task(4).run(2));
    assert_eq!(lab.step(HoldRun(RunId(2))), "");
    assert!(lab.state.held_runs.contains(&RunId(2)));
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
    assert_eq!(lab.submit(task(5).run(2).priority(-2)), "");
    assert_eq!(lab.done(3), "succeeded 3/1", "the device stays free");
    assert_eq!(lab.submit(task(6).run(1)), "start 6 on 10");
    assert_eq!(lab.step(UnholdRun(RunId(2))), "");
    assert_eq!(lab.done(6), "succeeded 6/1, start 5 on 10");
    assert_eq!(lab.done(5), "succeeded 5/1, start 2 on 10");
    assert_eq!(lab.done(2), "succeeded 2/1, start 4 on 10");
}

#[test]
fn nothing_is_kept_for_a_held_run() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).run(1));
    lab.submit(task(2).run(2).whole(2));
    assert_eq!(lab.submit(task(3).run(1)), "", "a device is kept for 2");
    assert_eq!(lab.reserved(), [10, 11]);
    assert_eq!(lab.step(HoldRun(RunId(2))), "start 3 on 11");
    assert!(lab.reserved().is_empty());
    lab.step(UnholdRun(RunId(2)));
    assert_eq!(lab.reserved(), [10, 11]);
}

#[test]
fn what_a_held_run_runs_goes_on_and_its_retries_wait() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).run(2).retries(1));
    lab.step(HoldRun(RunId(2)));
    assert_eq!(lab.end(1, FAILED), "retry 1#2");
    assert_eq!(lab.step(UnholdRun(RunId(2))), "start 1#2 on 10");
}

#[test]
fn a_dependency_of_a_held_run_waits_for_both() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3).after(&[1]));
    lab.step(HoldRun(RunId(1)));
    assert!(lab.why(2).contains("waits until 1.1"), "{}", lab.why(2));
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(lab.why(2), "1.2 waits: its run is held");
    assert_eq!(lab.cancel(3), "interrupted 3/0");
    assert_eq!(lab.step(UnholdRun(RunId(1))), "start 2 on 10");
}

#[test]
fn a_run_may_be_held_before_its_first_task_comes() {
    let mut lab = Lab::default().node(1).start();
    lab.step(HoldRun(RunId(7)));
    lab.step(HoldRun(RunId(7)));
    assert_eq!(lab.submit(task(1).run(7)), "");
    assert_eq!(lab.state.counts().blocked, 1);
    assert!(!lab.state.is_stuck());
    let held = TaskId::new(RunId(7), 1);
    let why = explain(&lab.state, held, Now::default(), &|_| String::new(), &|_| Vec::new());
    assert_eq!(why.as_deref(), Some("7.1 waits: its run is held"));
    assert_eq!(lab.step(UnholdRun(RunId(7))), "start 1 on 10");
    assert_eq!(lab.step(UnholdRun(RunId(7))), "");
}

#[test]
fn who_a_task_belongs_to_is_kept() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).owner(1000));
    lab.submit(task(2));
    let owners: Vec<u32> = lab.state.running().iter().map(|it| it.owner.0).collect();
    assert_eq!(owners, [1000, 0]);
}
