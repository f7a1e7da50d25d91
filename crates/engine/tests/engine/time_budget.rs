//! A time that is over at a known moment.

use std::sync::Arc;
use std::time::Duration;

use packhorse_engine::{Input, StopMode, StopSignal, TimeBudget};
use packhorse_model::{Command, Exit, RunId, TaskSpec};

use crate::lab::{INTERRUPTED, Lab, OK, task};

const HOUR: Duration = Duration::from_hours(1);

/// One task at a time, and an hour for all of them.
fn lab(seen: &[(&str, u64)]) -> Lab {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    let seen = seen.iter().map(|(command, minutes)| {
        let command = Command::Line(command.as_bytes().to_vec());
        let took = Duration::from_mins(*minutes);
        (RunId(1), Arc::new(command), Arc::new(TaskSpec::default()), took)
    });
    lab.feed(Input::TimeBudget(Box::new(TimeBudget {
        ends: lab.now + HOUR,
        whole: HOUR,
        seen: seen.collect(),
    })));
    lab
}

#[test]
fn what_is_known_not_to_finish_is_left_to_a_later_session() {
    let mut lab = lab(&[("long --x 1", 20)]);
    let tasks = [task("other"), task("long --x 2"), task("short"), task("long --x 3")];
    lab.add(1, tasks);
    lab.end_input(1);
    assert_eq!(lab.started(), ["1.1#1@"]);
    lab.sleep(Duration::from_mins(50));
    lab.ends("1.1", OK);
    assert_eq!(lab.started(), ["1.3#1@"]);
    lab.ends("1.3", OK);
    let summary = lab.summary(1);
    assert_eq!((summary.succeeded, summary.left), (2, 2));
    assert_eq!(summary.exit, Exit::TasksFailed);
}

#[test]
fn a_time_limit_says_how_long_a_task_takes_if_nobody_has_seen_one() {
    for (seen, started) in
        [(&[][..], vec!["1.1#1@", "1.3#1@"]), (&[("b", 5)], vec!["1.1#1@", "1.2#1@"])]
    {
        let mut lab = lab(seen);
        let limit = Duration::from_mins(30);
        lab.add(1, [task("a"), task("b").timeout(limit), task("c")]);
        lab.sleep(Duration::from_mins(40));
        lab.ends("1.1", OK);
        assert_eq!(lab.started(), started);
    }
}

#[test]
fn what_would_not_finish_later_either_is_tried() {
    let mut lab = lab(&[("long", 90)]);
    lab.add(1, [task("long"), task("long")]);
    assert_eq!(lab.started(), ["1.1#1@"]);
    lab.sleep(Duration::from_mins(30));
    lab.ends("1.1", OK);
    assert!(lab.started().is_empty());
}

#[test]
fn how_long_tasks_take_is_seen() {
    let mut lab = lab(&[]);
    let took = Duration::from_mins(25);
    lab.add(1, [task("a --x 1"), task("a --x 2"), task("a --x 3")]);
    for task in ["1.1", "1.2"] {
        lab.sleep(took);
        lab.ends_after(task, OK, None, took);
    }
    assert_eq!(lab.started(), ["1.1#1@", "1.2#1@"]);
}

#[test]
fn what_still_runs_at_the_end_is_ended() {
    let mut lab = lab(&[]);
    lab.add(1, [task("a"), task("b")]);
    lab.end_input(1);
    lab.sleep(Duration::from_mins(59));
    assert!(lab.stops().is_empty());
    lab.pass(Duration::from_mins(1));
    assert_eq!(lab.stops(), [("1.1".to_owned(), StopMode::Terminate)]);
    lab.ends("1.1", INTERRUPTED);
    let summary = lab.summary(1);
    assert_eq!((summary.left, summary.exit), (2, Exit::TasksFailed));
}

#[test]
fn whoever_asked_for_an_end_is_known_though_the_time_is_over_too() {
    let asked = |signal| Input::Stop { run: RunId(1), signal };
    // Ctrl-C, and then the time is over before what runs has finished.
    let mut first = lab(&[]);
    first.add(1, [task("a"), task("b")]);
    first.end_input(1);
    first.feed(asked(StopSignal::Interrupt));
    first.pass(HOUR);
    first.ends("1.1", INTERRUPTED);
    assert_eq!(first.summary(1).exit, Exit::Signal(2));
    // The time is over, and at that very moment somebody cancels.
    let mut second = lab(&[]);
    second.add(1, [task("a"), task("b")]);
    second.end_input(1);
    second.pass(HOUR);
    second.feed(asked(StopSignal::Terminate));
    second.ends("1.1", INTERRUPTED);
    assert_eq!(second.summary(1).exit, Exit::Signal(15));
}

#[test]
fn no_more_run_at_a_time_than_is_said() {
    let mut lab = Lab::built(&[24, 24, 24, 24], None, |settings| {
        settings.at_most = Some(2);
    });
    lab.run(1);
    lab.add(1, vec![task("a"); 4]);
    assert_eq!(lab.running().len(), 2);
    assert!(lab.running()[1].ends_with("@1"), "they are on GPUs");
}
