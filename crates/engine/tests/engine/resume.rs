//! Runs that go on after an earlier session.

use packhorse_engine::{Action, Input, StoredTask};
use packhorse_model::RunId;

use crate::lab::{FAILED, INTERRUPTED, Lab, NewTask, OK, id, task};

fn stored(number: u32, attempts: u32, new: NewTask) -> StoredTask {
    let (spec, after) = new.parts();
    StoredTask {
        id: packhorse_model::TaskId::new(RunId(1), number),
        spec,
        after,
        outcome: None,
        attempts,
    }
}

fn resumed(lab: &mut Lab, known: u32, tasks: Vec<StoredTask>) {
    lab.run_with(1, |new| new.resumed = Some(known));
    lab.feed(Input::Resumed { run: RunId(1), tasks, more: false });
}

#[test]
fn attempts_are_numbered_on() {
    let mut lab = Lab::with_gpus(1);
    resumed(&mut lab, 3, vec![stored(3, 2, task("a").retries(1))]);
    assert_eq!(lab.started(), ["1.3#3@0"]);
    lab.assert_told("run 1 has 1 so far");
    lab.ends("1.3", FAILED);
    lab.assert_told("retrying 1.3#3");
    assert_eq!(lab.started(), ["1.3#4@0"]);
    lab.end_input(1);
    lab.ends("1.3", OK);
    assert_eq!(lab.summary(1).succeeded, 1);
}

#[test]
fn what_is_seen_of_an_attempt_counts_however_it_is_numbered() {
    let mut lab = Lab::with_gpus(1);
    let tasks = vec![stored(1, 4, task("a").vram(4)), stored(2, 0, task("b").vram(8))];
    resumed(&mut lab, 2, tasks);
    lab.ends("1.2", INTERRUPTED);
    lab.holds("1.1", 20);
    lab.run(2);
    lab.add(2, [task("c").vram(8)]);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn new_tasks_get_the_next_numbers() {
    let mut lab = Lab::with_gpus(2);
    resumed(&mut lab, 7, vec![stored(2, 0, task("a"))]);
    lab.add(1, [task("b")]);
    assert_eq!(lab.running(), ["1.2@0", "1.8@1"]);
}

#[test]
fn what_earlier_sessions_settled_is_looked_up() {
    let mut lab = Lab::with_gpus(2);
    lab.outcomes.insert(id("1.1"), OK);
    lab.outcomes.insert(id("1.2"), FAILED);
    let tasks = vec![stored(3, 0, task("a").after(1)), stored(4, 0, task("b").after(2))];
    resumed(&mut lab, 4, tasks);
    assert_eq!(lab.running(), ["1.3@0"]);
    lab.assert_told("finished 1.4: skipped");
}

#[test]
fn one_that_runs_again_is_waited_for_and_not_looked_up() {
    let mut lab = Lab::with_gpus(2);
    let tasks = vec![stored(1, 1, task("a")), stored(2, 0, task("b").after(1))];
    resumed(&mut lab, 2, tasks);
    let asked = |action| matches!(action, Action::LookUpOutcome(_)).then_some(());
    assert!(lab.take_actions(asked).is_empty());
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn late_answers_keep_the_order() {
    let mut lab = Lab::with_gpus(1);
    lab.answers.questions = false;
    lab.outcomes.insert(id("1.1"), OK);
    lab.outcomes.insert(id("1.2"), OK);
    let tasks = vec![
        stored(3, 0, task("a").after(1)),
        stored(4, 0, task("b").after(2)),
        stored(5, 0, task("c")),
    ];
    resumed(&mut lab, 5, tasks);
    let second = lab.open.pop_back().unwrap();
    lab.feed(second);
    assert!(lab.running().is_empty(), "those behind wait for the first");
    lab.answer_next();
    assert_eq!(lab.running(), ["1.3@0"]);
    lab.ends("1.3", OK);
    assert_eq!(lab.running(), ["1.4@0"]);
}

#[test]
fn all_that_was_left_is_in_line_before_the_first_starts() {
    let mut lab = Lab::with_gpus(1);
    lab.run_with(1, |new| new.resumed = Some(2));
    let page = |tasks, more| Input::Resumed { run: RunId(1), tasks, more };
    lab.feed(page(vec![stored(1, 0, task("a"))], true));
    assert!(lab.running().is_empty());
    lab.feed(page(vec![stored(2, 0, task("b").priority(-1))], false));
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn a_run_of_which_nothing_is_left_is_over_at_once() {
    let mut lab = Lab::with_gpus(1);
    resumed(&mut lab, 9, Vec::new());
    lab.end_input(1);
    lab.assert_told("run 1 has 0");
    assert_eq!((lab.summary(1).succeeded, lab.summary(1).left), (0, 0));
}
