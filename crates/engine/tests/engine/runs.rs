//! Two runs in one engine.

use packhorse_engine::{Input, StopSignal};
use packhorse_model::{DeviceId, Exit, StopMode};

use crate::lab::{FAILED, INTERRUPTED, Lab, OK, task};

/// Two runs with so many tasks each.
fn two_runs(gpus: usize, tasks: usize) -> Lab {
    let mut lab = Lab::with_gpus(gpus);
    for run in [1, 2] {
        lab.run(run);
        lab.add(run, vec![task("python train.py"); tasks]);
        lab.end_input(run);
    }
    lab
}

#[test]
fn they_share_the_devices_by_one_line() {
    let mut lab = two_runs(2, 2);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@1", "2.1@0"]);
    lab.ends("1.2", OK);
    assert_eq!(lab.running(), ["2.1@0", "2.2@1"]);
}

#[test]
fn room_is_left_for_what_was_seen_while_one_of_them_may_bring_more() {
    let places = |both_ended: bool| {
        let mut lab = Lab::with_gpus(3);
        for run in [1, 2] {
            lab.run(run);
        }
        lab.add(1, [task("a")]);
        lab.end_input(1);
        let halves = vec![task("b").share(500); 2];
        lab.add_some(2, halves, both_ended);
        if both_ended {
            lab.end_input(2);
        }
        lab.running()
    };
    assert_eq!(places(false), ["1.1@0", "2.1@1", "2.2@1"]);
    assert_eq!(places(true), ["1.1@0", "2.1@1", "2.2@2"]);
}

#[test]
fn one_is_over_while_the_other_goes_on_and_each_has_its_summary() {
    let mut lab = two_runs(1, 1);
    lab.ends("1.1", FAILED);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
    assert!(!lab.is_over(2));
    lab.ends("2.1", OK);
    assert_eq!((lab.summary(2).succeeded, lab.summary(2).failed), (1, 0));
    assert_eq!(lab.summary(2).exit, Exit::Success);
}

#[test]
fn stopping_one_leaves_the_other_alone() {
    let mut lab = two_runs(2, 2);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@1", "2.1@0"]);
    lab.stop(1, StopSignal::Terminate);
    assert_eq!(lab.stops(), [("1.2".to_owned(), StopMode::Terminate)]);
    lab.ends("1.2", INTERRUPTED);
    assert_eq!(lab.summary(1).exit, Exit::Signal(15));
    assert_eq!(lab.running(), ["2.1@0", "2.2@1"], "it has the GPU now");
}

#[test]
fn what_waits_of_a_stopped_run_does_not_keep_the_other_waiting() {
    let mut lab = Lab::with_gpus(2);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("a"), task("b").gpus(2)]);
    lab.add(2, [task("c")]);
    assert_eq!(lab.running(), ["1.1@0"], "1.2 is first in line, and needs both");
    lab.stop(1, StopSignal::Interrupt);
    assert_eq!(lab.running(), ["1.1@0", "2.1@1"]);
}

#[test]
fn priorities_count_across_runs() {
    let mut lab = two_runs(1, 1);
    lab.add(2, [task("urgent").priority(-5)]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["2.2@0"]);
}

#[test]
fn a_run_that_is_stopped_halfway_through_its_input_lets_the_other_start() {
    let mut lab = Lab::with_gpus(2);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add_some(1, [task("a")], true);
    lab.stop(1, StopSignal::Interrupt);
    assert!(lab.is_over(1));
    lab.add(2, [task("b")]);
    assert_eq!(lab.running(), ["2.1@0"]);
}

#[test]
fn what_comes_in_for_a_stopped_run_is_kept_and_holds_nobody_up() {
    let mut lab = Lab::with_gpus(2);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("a")]);
    lab.stop(1, StopSignal::Interrupt);
    lab.add_some(1, [task("b"), task("c")], true);
    lab.add(2, [task("d")]);
    assert_eq!(lab.running(), ["1.1@0", "2.1@1"]);
    lab.ends("1.1", OK);
    assert_eq!((lab.summary(1).succeeded, lab.summary(1).left), (1, 2));
}

#[test]
fn one_that_waits_for_an_answer_does_not_keep_the_other_waiting() {
    let mut lab = Lab::with_gpus(2);
    lab.answers.questions = false;
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("python a.py").vram_auto()]);
    lab.add(2, [task("b")]);
    assert_eq!(lab.running(), ["2.1@0"]);
    assert!(lab.why("1.1").contains("has just arrived"));
    lab.answer_next();
    assert_eq!(lab.running(), ["1.1@1", "2.1@0"]);
}

#[test]
fn one_that_was_stopped_before_an_answer_came_leaves_nothing_behind() {
    let mut lab = Lab::with_gpus(1);
    lab.answers.questions = false;
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("python a.py").vram_auto()]);
    lab.answers.closes = false;
    lab.stop(1, StopSignal::Interrupt);
    let close = lab.open.pop_back().unwrap();
    lab.feed(close);
    // The answer comes between the last record and the word that it is written.
    lab.answer_next();
    lab.answer_next();
    assert_eq!(lab.summary(1).left, 1);
    assert!(!lab.engine.has_waiting());
    assert_eq!(lab.why("1.1"), "run 1 does not wait for task 1.1");
}

#[test]
fn what_one_learns_the_other_knows() {
    let mut lab = Lab::with_gpus(1);
    for run in [1, 2] {
        lab.run(run);
        lab.add(run, [task("python a.py").vram_auto()]);
    }
    assert_eq!(lab.running(), ["1.1@0"], "nothing is known, so it is alone");
    lab.holds("1.1", 4);
    lab.ends("1.1", OK);
    lab.pass(crate::lab::A_LOOK);
    assert_eq!(lab.running(), ["2.1@0"]);
    assert!(lab.promised("2.1") < 9.0);
}

#[test]
fn a_run_that_waits_for_a_broken_gpu_ends_when_nothing_else_can_be_done() {
    let mut lab = Lab::with_gpus(2);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("a").gpus(2)]);
    lab.add(2, [task("b")]);
    lab.end_input(1);
    lab.feed(Input::DeviceFailed { device: DeviceId(1), reason: "Xid 79".to_owned() });
    lab.ends("1.1", INTERRUPTED);
    assert_eq!(lab.running(), ["2.1@0"]);
    assert!(!lab.is_over(1), "the other one's GPU may not be the last");
    lab.ends("2.1", OK);
    lab.assert_told("a task waits for GPUs that were taken out");
    assert_eq!(lab.summary(1).left, 1);
    assert!(!lab.is_over(2), "its input is open");
}

#[test]
fn one_that_is_stopped_halfway_through_its_input_holds_nobody_up_while_it_ends() {
    let mut lab = Lab::with_gpus(2);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("a")]);
    lab.add_some(1, [task("b")], true);
    lab.add(2, [task("c")]);
    assert_eq!(lab.running(), ["1.1@0"], "more is to come");
    lab.stop(1, StopSignal::Interrupt);
    assert_eq!(lab.running(), ["1.1@0", "2.1@1"]);
}

#[test]
fn one_does_not_wait_for_the_probe_of_another_that_was_stopped() {
    let unknown = || task("python a.py --epochs 9").vram_auto().probe("{} --epochs 1");
    let mut lab = Lab::with_gpus(1);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("other"), unknown(), unknown()]);
    lab.add(2, [unknown()]);
    lab.stop(1, StopSignal::Interrupt);
    lab.add(1, [unknown().priority(-1)]);
    lab.started();
    lab.ends("1.1", OK);
    assert_eq!(lab.started(), ["2.1#0@0"]);
}
