//! Groups of tasks of which only so many run at a time.

use packhorse_engine::StopSignal;
use packhorse_model::Exit;

use crate::lab::{FAILED, Lab, OK, task};

#[test]
fn no_more_of_a_group_run_than_its_limit_allows() {
    let mut lab = Lab::with_gpus(4);
    lab.run(1);
    let small = |name| task(name).group("small", 2);
    lab.add(1, [small("a"), small("b"), small("c"), task("d"), small("e")]);
    lab.end_input(1);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1", "1.4@2"]);
    lab.ends("1.4", OK);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@1", "1.3@0"]);
    lab.ends("1.2", OK);
    lab.ends("1.3", OK);
    assert_eq!(lab.running().len(), 1);
    lab.ends("1.5", OK);
    assert_eq!(lab.summary(1).succeeded, 5);
}

#[test]
fn each_group_has_its_own_limit_and_each_run_its_own_groups() {
    let mut lab = Lab::with_gpus(8);
    lab.run(1);
    lab.run(2);
    let tasks = |group: &'static str| ["x", "y"].map(|name| task(name).group(group, 1));
    lab.add(1, tasks("a"));
    lab.add(1, tasks("b"));
    lab.add(2, tasks("a"));
    assert_eq!(lab.running().len(), 3);
}

#[test]
fn the_most_urgent_of_a_group_goes_first_and_a_retry_keeps_its_room() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    let one = |name| task(name).group("g", 1);
    lab.add(1, [one("a").retries(1), one("b"), one("c").priority(-1)]);
    lab.end_input(1);
    // It arrived together with the others, and goes before them.
    lab.ends("1.1", FAILED);
    lab.ends("1.1", OK);
    lab.ends("1.3", OK);
    lab.ends("1.2", OK);
    assert_eq!(lab.summary(1).succeeded, 3);
}

#[test]
fn a_task_after_one_that_is_held_back_waits_for_it() {
    let mut lab = Lab::with_gpus(3);
    lab.run(1);
    let one = |name| task(name).group("g", 1);
    lab.add(1, [one("a"), one("b"), task("c").after(2), task("d").after(3)]);
    lab.end_input(1);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", FAILED);
    let told = lab.told();
    for skipped in ["finished 1.3: skipped", "finished 1.4: skipped"] {
        assert!(told.iter().any(|told| told.starts_with(skipped)), "{told:?}");
    }
    let summary = lab.summary(1);
    assert_eq!((summary.succeeded, summary.failed, summary.left), (1, 3, 0));
}

#[test]
fn a_task_that_cannot_start_yet_takes_no_room_in_its_group() {
    let mut lab = Lab::with_gpus(3);
    lab.run(1);
    let one = |name| task(name).group("g", 1);
    lab.add(1, [task("prep"), one("a").after(1), one("b")]);
    lab.end_input(1);
    assert_eq!(lab.running(), ["1.1@0", "1.3@1"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.3@1"]);
    lab.ends("1.3", OK);
    assert_eq!(lab.running().len(), 1);
}

#[test]
fn a_lower_limit_holds_back_nobody_but_its_own_task() {
    let mut lab = Lab::with_gpus(4);
    lab.run(1);
    let limited = |limit| task("x").group("g", limit);
    lab.add(1, [limited(2), limited(2), limited(1), limited(2), limited(2)]);
    lab.end_input(1);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@1"]);
    lab.ends("1.2", OK);
    // The third runs, and beside it one that may have a neighbour.
    assert_eq!(lab.running().len(), 2);
}

#[test]
fn what_is_held_back_is_left_when_the_run_is_stopped() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    let one = |name| task(name).group("g", 1);
    lab.add(1, [one("a"), one("b"), one("c")]);
    lab.end_input(1);
    lab.stop(1, StopSignal::Interrupt);
    lab.ends("1.1", OK);
    let summary = lab.summary(1);
    assert_eq!((summary.succeeded, summary.left), (1, 2));
    assert_eq!(summary.exit, Exit::Signal(2));
}

#[test]
fn a_task_that_is_held_back_knows_why() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    let one = |name| task(name).group("g", 1);
    lab.add(1, [one("a"), one("b"), one("c"), task("d").after(3)]);
    let why = |lab: &mut Lab, task| lab.why(task);
    assert_eq!(
        why(&mut lab, "1.2"),
        "1.2 waits: 1 of its group `g` runs or will at once, and no more may"
    );
    assert!(why(&mut lab, "1.3").ends_with("and one of them is in front of it"));
    assert_eq!(why(&mut lab, "1.4"), "1.4 waits until 1.3 has succeeded");
}
