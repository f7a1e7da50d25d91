//! What happens is told when the journal has it.

use packhorse_engine::{Action, Input, OutputMode};
use packhorse_model::{EventKind, ProcessEvent, RunId, Stream};

use crate::lab::{FAILED, Lab, OK, PATIENCE, id, task};

/// One task runs, nothing of it is written yet, and what could be told was.
fn lab() -> Lab {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.answers.commits = false;
    lab.add(1, [task("a").retries(1)]);
    lab.told();
    lab
}

fn warn(lab: &mut Lab, message: &str) {
    lab.feed(Input::Warning { task: None, message: message.to_owned() });
}

#[test]
fn nothing_is_told_before_it_is_written() {
    let mut lab = lab();
    lab.ends("1.1", FAILED);
    assert!(lab.told().is_empty());
    assert!(lab.engine.waits_for_journal());
    lab.commit_all();
    let told = lab.told();
    assert_eq!(told[0], "started 1.1#1");
    assert!(told[1].starts_with("retrying 1.1#1"), "{told:?}");
    assert_eq!(told[2], "started 1.1#2");
    assert!(!lab.engine.waits_for_journal());
}

#[test]
fn what_is_behind_waits_too_so_that_the_order_is_kept() {
    let mut lab = lab();
    warn(&mut lab, "something");
    assert!(lab.told().is_empty());
    lab.commit_all();
    let told = lab.told();
    let at = |text: &str| told.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("started 1.1") < at("something"), "{told:?}");
}

#[test]
fn a_part_that_is_written_is_told() {
    let mut lab = lab();
    lab.ends("1.1", OK);
    lab.committed = 2;
    lab.feed(lab.committed_input(None));
    let told = lab.told();
    assert!(told.contains(&"started 1.1#1".to_owned()), "{told:?}");
    assert!(!told.join("\n").contains("finished"), "{told:?}");
}

#[test]
fn a_journal_that_takes_too_long_keeps_nobody_in_the_dark() {
    let mut lab = lab();
    assert_eq!(lab.engine.wake_at(), Some(lab.now + PATIENCE));
    lab.pass(PATIENCE / 2);
    assert!(lab.told().is_empty());
    lab.pass(PATIENCE / 2);
    lab.assert_told("started 1.1#1");
}

#[test]
fn trouble_is_told_at_once_and_with_it_all_that_no_crash_could_lose() {
    let mut lab = lab();
    lab.trouble("the disk is full");
    let told = lab.told();
    assert_eq!(
        told[0],
        "warning: the disk is full; it is tried again; tasks go on, and what a crash could \
         lose is told later"
    );
    assert!(told.contains(&"started 1.1#1".to_owned()), "{told:?}");
    lab.trouble("the disk is full");
    assert!(lab.told().is_empty(), "once is enough");
    lab.ends("1.1", OK);
    lab.trouble("the disk is full");
    assert!(lab.told().is_empty(), "the journal does not know the task");
    // The first record is the task. How it ended is not written yet.
    lab.committed = 1;
    lab.trouble("the disk is full");
    lab.assert_told("finished 1.1");
}

#[test]
fn an_end_that_the_journal_could_not_keep_either_is_not_told() {
    let mut lab = lab();
    lab.committed = 1;
    lab.trouble("the disk is full");
    lab.told();
    lab.ends("1.1", OK);
    let kept = lab.records.len() as u64 - 1;
    let not_kept =
        Input::Committed { records: 1, kept, trouble: Some("the disk is full".to_owned()) };
    lab.feed(not_kept);
    lab.pass(PATIENCE * 3);
    assert!(lab.told().is_empty());
    assert_eq!(lab.engine.wake_at(), None, "nothing helps but a commit");
    lab.commit_all();
    lab.assert_told("finished 1.1");
}

#[test]
fn what_could_not_be_stored_at_all_is_told_as_such() {
    let mut lab = lab();
    lab.answers.closes = false;
    lab.trouble("the disk is full");
    lab.end_input(1);
    lab.ends("1.1", OK);
    lab.answer_next();
    lab.told();
    lab.feed(Input::Stored { run: RunId(1), lost: Some("nothing could be written".to_owned()) });
    let told = lab.told();
    let at = |text: &str| told.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("nothing could be written") < at("finished 1.1"), "{told:?}");
    assert_eq!(told.last().unwrap(), "run 1 ended with 1");
}

#[test]
fn after_the_trouble_things_wait_again() {
    let mut lab = lab();
    lab.trouble("the disk is full");
    lab.commit_all();
    lab.told();
    lab.ends("1.1", OK);
    assert!(lab.told().is_empty());
    lab.trouble("the disk is full");
    lab.assert_told("the disk is full");
}

#[test]
fn too_much_is_told_before_it_is_written() {
    let mut lab = lab();
    lab.expect_early();
    for _ in 0..10_000 {
        warn(&mut lab, "something");
    }
    lab.assert_told("started 1.1#1");
}

#[test]
fn a_task_that_writes_where_we_write_is_announced_first() {
    let mut lab = Lab::with_slots(1);
    lab.answers.commits = false;
    lab.run_with(1, |new| new.output = OutputMode::Inherit);
    lab.actions.clear();
    lab.add(1, [task("a")]);
    let kinds = lab.take_actions(|action| match action {
        Action::Tell(event) => Some(format!("{:?}", event.kind)),
        Action::Start(_) => Some("start".to_owned()),
        _ => None,
    });
    let at = |text: &str| kinds.iter().position(|kind| kind.starts_with(text)).unwrap();
    assert!(at("Started") < at("start"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| kind.starts_with("Started")).count(), 1);
}

#[test]
fn the_last_results_are_told_when_the_journal_stalls() {
    let mut lab = lab();
    lab.commit_all();
    lab.ends("1.1", OK);
    lab.feed(lab.committed_input(None));
    lab.feed(Input::Stalled("the last results are not written yet".to_owned()));
    let told = lab.told();
    let at = |text: &str| told.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("finished 1.1") < at("not written yet"), "{told:?}");
}

#[test]
fn a_run_is_over_when_its_last_record_is_safe() {
    let mut lab = lab();
    lab.answers.closes = false;
    lab.end_input(1);
    lab.ends("1.1", OK);
    lab.answer_next();
    assert!(!lab.is_over(1));
    lab.told();
    lab.feed(Input::Stored { run: RunId(1), lost: None });
    let told = lab.told();
    assert_eq!(told.last().unwrap(), "run 1 ended with 0");
    assert!(told.iter().any(|line| line.starts_with("finished 1.1")));
}

#[test]
fn a_run_is_announced_when_its_own_record_is_safe() {
    let mut lab = Lab::with_slots(1);
    lab.answers.commits = false;
    lab.run_with(1, |new| new.record = 1);
    assert!(lab.told().is_empty());
    lab.committed = 1;
    lab.feed(lab.committed_input(None));
    assert_eq!(lab.told()[0], "run 1 started");
}

#[test]
fn all_there_is_to_say_comes_before_a_task_that_writes_where_we_write() {
    let mut lab = Lab::with_slots(1);
    lab.answers.commits = false;
    lab.run_with(1, |new| new.output = OutputMode::Inherit);
    lab.add(1, [task("a").retries(2)]);
    lab.commit_all();
    lab.expect_early();
    lab.told();
    lab.ends("1.1", FAILED);
    let told = lab.told();
    assert!(told[0].starts_with("retrying 1.1#1"), "{told:?}");
    assert_eq!(told[1], "started 1.1#2");
    // The journal does not keep all.
    lab.feed(Input::Committed { records: lab.committed, kept: lab.committed, trouble: None });
    lab.ends("1.1", FAILED);
    assert_eq!(lab.told(), ["started 1.1#3"], "a crash would lose the rest");
    lab.commit_all();
    lab.assert_told("retrying 1.1#2");
}

#[test]
fn a_result_that_a_crash_could_lose_is_not_told_because_another_task_starts() {
    let mut lab = Lab::with_slots(1);
    lab.answers.commits = false;
    lab.run_with(1, |new| new.output = OutputMode::Inherit);
    lab.add(1, [task("a"), task("b")]);
    lab.told();
    lab.ends("1.1", OK);
    assert_eq!(lab.told(), ["started 1.2#1"], "the journal does not know the tasks");
    lab.commit_all();
    lab.assert_told("finished 1.1");
}

#[test]
fn a_result_that_a_crash_could_lose_is_not_told_because_of_much_output() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.answers.commits = false;
    lab.add(1, [task("a"), task("b")]);
    lab.expect_early();
    lab.told();
    lab.ends("1.1", OK);
    for _ in 0..65 {
        lab.feed(Input::Process(ProcessEvent::Output {
            task: id("1.2"),
            stream: Stream::Stdout,
            bytes: vec![b'x'; 1 << 20],
        }));
    }
    let told = lab.told_events();
    let count = |pick: fn(&EventKind) -> bool| told.iter().filter(|kind| pick(kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::Output { .. })), 65);
    assert_eq!(count(|kind| matches!(kind, EventKind::Finished(_))), 0);
    lab.commit_all();
    lab.assert_told("finished 1.1");
}

#[test]
fn no_end_is_told_of_a_task_that_the_journal_does_not_know_yet() {
    let mut lab = lab();
    lab.ends("1.1", FAILED);
    lab.ends("1.1", OK);
    lab.pass(PATIENCE * 3);
    let told = lab.told().join("\n");
    assert_eq!(told, "started 1.1#1", "a crash would lose the rest");
    assert_eq!(lab.engine.wake_at(), None, "nothing helps but a commit");
    // The first record is the task.
    lab.committed = 1;
    lab.feed(lab.committed_input(None));
    lab.pass(PATIENCE);
    lab.assert_told("finished 1.1");
}

#[test]
fn where_nothing_outlives_a_crash_ends_are_told_when_they_are_written() {
    let mut lab = Lab::with_slots(1);
    lab.run_with(1, |new| new.recoverable = false);
    lab.add(1, [task("a")]);
    lab.answers.commits = false;
    lab.told();
    lab.ends("1.1", OK);
    lab.pass(PATIENCE * 3);
    assert!(lab.told().is_empty());
    lab.commit_all();
    lab.assert_told("finished 1.1");
}
