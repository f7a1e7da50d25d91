//! Tasks that start, end, and are tried again.

use packhorse_engine::{Action, Input, StopSignal};
use packhorse_model::{AttemptEnd, Exit, Outcome, ProcessEvent, Record, RunId, StopMode, Stream};

use crate::lab::{FAILED, Lab, OK, SECOND, id, task};

#[test]
fn tasks_start_in_their_order_as_gpus_become_free() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a"), task("b"), task("c")]);
    lab.end_input(1);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"]);
    lab.ends("1.2", OK);
    assert_eq!(lab.running(), ["1.1@0", "1.3@1"]);
    lab.ends("1.1", OK);
    lab.ends("1.3", OK);
    let summary = lab.summary(1);
    assert_eq!((summary.succeeded, summary.failed, summary.left), (3, 0, 0));
    assert_eq!(summary.exit, Exit::Success);
}

#[test]
fn a_failed_task_is_tried_again_as_often_as_it_may() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").retries(1)]);
    lab.end_input(1);
    lab.ends("1.1", FAILED);
    lab.assert_told("retrying 1.1#1, 0 left");
    lab.ends("1.1", FAILED);
    lab.assert_told("finished 1.1: exit status 1");
    assert_eq!(lab.started(), ["1.1#1@0", "1.1#2@0"]);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
}

#[test]
fn whoever_sets_the_clock_does_not_change_how_long_things_took() {
    const HOUR: i64 = 3_600_000_000;
    for set in [-HOUR, HOUR] {
        let mut lab = Lab::with_slots(1);
        lab.run(1);
        lab.add(1, [task("a")]);
        lab.end_input(1);
        lab.clock_set = set;
        lab.pass(SECOND);
        lab.ends("1.1", OK);
        let mut times = lab.records.iter().filter_map(|(_, record)| match record {
            Record::Started(start) => Some(start.at),
            Record::AttemptEnded(end) => Some(end.at),
            Record::RunEnded { at, .. } => Some(*at),
            _ => None,
        });
        let started = times.next().unwrap();
        for ended in times {
            assert_eq!(ended, started + SECOND, "{:?}", lab.records);
        }
        assert_eq!(lab.summary(1).took, SECOND);
    }
}

#[test]
fn the_journal_has_every_step_of_a_task_in_order() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.add(1, [task("a").retries(1)]);
    lab.end_input(1);
    lab.ends("1.1", FAILED);
    lab.ends("1.1", OK);
    let kinds: Vec<String> = lab
        .records
        .iter()
        .map(|(_, entry)| match entry {
            Record::Tasks(tasks) => format!("{} tasks", tasks.len()),
            Record::Started(start) => format!("started {}", start.attempt),
            Record::AttemptEnded(end) if end.is_final => format!("{} final", end.attempt),
            Record::AttemptEnded(end) => format!("{} again", end.attempt),
            Record::InputComplete { .. } => "complete".to_owned(),
            Record::RunEnded { .. } => "over".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    let wanted = "1 tasks, started 1, complete, 1 again, started 2, 2 final, over";
    assert_eq!(kinds.join(", "), wanted);
}

#[test]
fn one_that_could_never_run_is_refused_with_the_reason() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(48), task("b")]);
    lab.end_input(1);
    lab.assert_told("finished 1.1: could not be started");
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    assert_eq!((lab.summary(1).failed, lab.summary(1).succeeded), (1, 1));
}

#[test]
fn what_comes_after_a_failure_is_skipped() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a"), task("b").after(1), task("c").after(2), task("d")]);
    lab.end_input(1);
    lab.ends("1.1", FAILED);
    let told = lab.told().join("\n");
    assert!(told.contains("finished 1.2: skipped"), "{told}");
    assert!(told.contains("finished 1.3: skipped"), "{told}");
    assert_eq!(lab.running(), ["1.4@0"]);
    lab.ends("1.4", OK);
    assert_eq!((lab.summary(1).failed, lab.summary(1).succeeded), (3, 1));
}

#[test]
fn the_most_urgent_of_those_that_arrive_together_goes_first() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add_some(1, [task("a")], true);
    assert!(lab.running().is_empty(), "more is to come");
    lab.add_some(1, [task("b"), task("c").priority(-1)], false);
    assert_eq!(lab.running(), ["1.3@0"]);
}

#[test]
fn a_page_from_the_store_does_not_cut_short_what_arrives_together() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add_some(1, [task("a")], true);
    let (run, tasks) = (RunId(1), Vec::new());
    lab.feed(Input::Fetched { run, tasks });
    assert!(lab.running().is_empty(), "more is to come");
}

#[test]
fn an_attempt_that_cannot_be_started_says_why() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").retries(3)]);
    lab.end_input(1);
    lab.ends_saying("1.1", Outcome::NotStarted, Some("no such file"));
    lab.assert_told("finished 1.1: could not be started no such file");
    assert_eq!(lab.started().len(), 1, "another attempt would fail the same");
}

#[test]
fn output_is_told_in_whole_lines_and_before_the_end() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.add(1, [task("a")]);
    lab.told();
    for bytes in [&b"one\ntw"[..], b"o\nlast"] {
        lab.feed(Input::Process(ProcessEvent::Output {
            task: id("1.1"),
            stream: Stream::Stdout,
            bytes: bytes.to_vec(),
        }));
    }
    lab.ends("1.1", OK);
    let wanted =
        ["output 1.1: one", "output 1.1: two", "output 1.1: last", "finished 1.1: succeeded "];
    assert_eq!(lab.told(), wanted);
}

#[test]
fn rejected_lines_count_and_make_the_run_fail() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.feed(Input::Rejected {
        run: RunId(1),
        tasks: 2,
        message: Some("line 3 is no task".to_owned()),
    });
    lab.assert_told("warning: line 3 is no task");
    lab.end_input(1);
    assert_eq!(lab.summary(1).rejected, 2);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
}

#[test]
fn a_run_goes_on_until_its_input_has_ended() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.add(1, [task("a")]);
    lab.ends("1.1", OK);
    assert!(!lab.is_over(1));
    lab.assert_told("run 1 has 1 so far");
    lab.end_input(1);
    lab.assert_told("run 1 has 1");
    assert_eq!(lab.summary(1).exit, Exit::Success);
}

#[test]
fn what_was_not_read_of_the_input_is_left() {
    let mut lab = Lab::with_slots(1);
    lab.answers.closes = false;
    lab.run(1);
    lab.end_input(1);
    lab.feed(Input::Close { run: RunId(1), unread: 5 });
    lab.feed(Input::Stored { run: RunId(1), lost: None });
    assert_eq!(lab.summary(1).left, 5);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
}

#[test]
fn a_run_whose_last_record_is_lost_does_not_claim_success() {
    let mut lab = Lab::with_slots(1);
    lab.answers.closes = false;
    lab.run(1);
    lab.end_input(1);
    lab.answer_next();
    lab.told();
    lab.feed(Input::Stored { run: RunId(1), lost: Some("the disk is full".to_owned()) });
    let told = lab.told();
    assert!(told[0].starts_with("warning: the disk is full"), "{told:?}");
    assert_eq!(told[1], "run 1 ended with 1");
    assert!(!lab.summary(1).stored);
}

#[test]
fn the_end_of_an_attempt_that_does_not_run_changes_nothing() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a"), task("b")]);
    lab.end_input(1);
    let twice =
        AttemptEnd { task: id("1.1"), attempt: 2, outcome: OK, message: None, took: SECOND };
    lab.feed(Input::Process(ProcessEvent::Ended(twice)));
    lab.stop(1, StopSignal::Terminate);
    assert_eq!(lab.stops(), [("1.1".to_owned(), StopMode::Terminate)]);
    assert!(!lab.is_over(1), "1.1 is alive");
}

#[test]
fn a_question_is_answered_to_whom_it_came_from() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a"), task("b")]);
    assert!(lab.why("1.1").starts_with("1.1 has been running on GPU 0"));
    assert!(lab.why("1.2").starts_with("1.2 waits"));
    assert_eq!(lab.why("1.9"), "there is no task 1.9 yet: its run still reads input");
    assert_eq!(lab.why("2.1"), "run 2 does not wait for task 2.1");
    lab.feed(Input::AskWhy { task: id("1.1"), reply_to: 3 });
    let to = lab.take_actions(|action| match action {
        Action::Reply { to, .. } => Some(to),
        _ => None,
    });
    assert_eq!(to, [3]);
}

#[test]
fn an_attempt_that_is_said_to_have_ended_twice_has_ended_once() {
    let mut lab = Lab::with_gpus(2);
    lab.answers.questions = false;
    lab.run(1);
    lab.add(1, [task("a"), task("b")]);
    lab.end_input(1);
    let first = lab.running[&id("1.1")].clone();
    lab.ends("1.1", FAILED);
    lab.running.insert(first.task, first);
    lab.ends("1.1", FAILED);
    while !lab.open.is_empty() {
        lab.answer_next();
    }
    lab.stop(1, StopSignal::Interrupt);
    assert!(!lab.is_over(1), "1.2 is alive");
}
