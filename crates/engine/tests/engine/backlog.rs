//! Plain tasks beyond those in line stay in the store.

use std::time::Duration;

use packhorse_core::SchedulerSettings;
use packhorse_engine::{Action, Input};
use packhorse_model::{Exit, RunId};

use crate::lab::{Lab, NewTask, OK, SECOND, task};

const MANY: usize = 5000;

fn lab() -> Lab {
    lab_with(SchedulerSettings::default().ageing)
}

fn lab_with(ageing: Option<Duration>) -> Lab {
    let mut lab = Lab::built(&[], Some(1), |settings| {
        settings.sampled = false;
        settings.scheduler.ageing = ageing;
    });
    lab.run(1);
    lab.add(1, vec![task("a"); MANY]);
    lab.end_input(1);
    lab
}

/// Ends what runs so many times.
fn work(lab: &mut Lab, times: usize) {
    for _ in 0..times {
        let first = lab.running.keys().next().expect("nothing runs").to_string();
        lab.ends(&first, OK);
    }
}

fn fetches(lab: &mut Lab) -> Vec<(u32, u32)> {
    lab.take_actions(|action| match action {
        Action::Fetch { after, limit, .. } => Some((after, limit)),
        _ => None,
    })
}

#[test]
fn they_are_fetched_when_their_turn_comes_near_and_run_in_order() {
    let mut lab = lab();
    assert_eq!(fetches(&mut lab), []);
    assert!(lab.why("1.4097").starts_with("task 1.4097 waits in line, with more than"));
    work(&mut lab, 4096 - 1024 + 1);
    assert_eq!(fetches(&mut lab), [(4096, 2048)]);
    lab.told();
    work(&mut lab, MANY - (4096 - 1024 + 1));
    assert_eq!(fetches(&mut lab), []);
    let started = lab.started();
    let numbers = started.iter().map(|start| start.split(['.', '#']).nth(1).unwrap());
    assert!(numbers.eq((1..=MANY).map(|number| number.to_string())));
    assert_eq!(lab.summary(1).succeeded, MANY as u64);
}

#[test]
fn one_that_asks_for_something_overtakes_them() {
    let mut lab = lab();
    lab.add(1, [task("urgent").priority(-1)]);
    work(&mut lab, 1);
    assert_eq!(lab.running(), ["1.5001@"]);
}

/// The last to start of those that arrived before all others and of `late`.
fn last_to_start(lab: &mut Lab, late: NewTask) -> String {
    lab.add(1, [late]);
    work(lab, MANY + 1);
    lab.started().pop().unwrap_or_default()
}

#[test]
fn one_that_is_as_urgent_and_arrives_later_does_not_overtake_them() {
    // What it says makes it another than the plain ones.
    let late = task("late").retries(1);
    for ageing in [None, Some(SECOND)] {
        let mut lab = lab_with(ageing);
        lab.sleep(SECOND);
        assert_eq!(last_to_start(&mut lab, late.clone()), "1.5001#1@");
    }
}

#[test]
fn waiting_in_the_store_makes_up_for_priority() {
    let mut lab = lab_with(Some(SECOND));
    lab.sleep(2 * SECOND);
    assert_eq!(last_to_start(&mut lab, task("late").priority(-1)), "1.5001#1@");
}

#[test]
fn what_is_in_the_store_when_the_run_stops_is_left() {
    let mut lab = lab();
    lab.stop(1, packhorse_engine::StopSignal::Interrupt);
    work(&mut lab, 1);
    assert_eq!(lab.summary(1).left, MANY as u64 - 1);
    assert_eq!(fetches(&mut lab), []);
}

#[test]
fn tasks_that_are_gone_from_the_store_are_told_and_make_the_run_fail() {
    let mut lab = lab();
    lab.answers.questions = false;
    work(&mut lab, 4096);
    assert!(lab.running.is_empty());
    assert!(!lab.is_over(1), "a page is on its way");
    lab.feed(Input::Fetched { run: RunId(1), tasks: Vec::new() });
    lab.assert_told("904 tasks are gone from the store");
    assert_eq!(lab.summary(1).rejected, 904);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
}

#[test]
fn a_page_that_comes_after_the_run_was_stopped_is_left() {
    let mut lab = lab();
    lab.answers.questions = false;
    work(&mut lab, 4000);
    lab.stop(1, packhorse_engine::StopSignal::Interrupt);
    lab.answer_next();
    assert_eq!(lab.running.len(), 1);
    work(&mut lab, 1);
    assert_eq!(lab.summary(1).left, 999);
}

#[test]
fn a_run_is_not_stuck_while_a_page_is_on_its_way() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("both").gpus(2).priority(9)]);
    lab.ends("1.1", packhorse_model::Outcome::Succeeded);
    lab.feed(Input::DeviceFailed {
        device: packhorse_model::DeviceId(1),
        reason: "Xid 79".to_owned(),
    });
    lab.add(1, [task("both").gpus(2).retries(1)]);
    lab.add(1, vec![task("a"); MANY]);
    lab.end_input(1);
    lab.answers.questions = false;
    work(&mut lab, 4096);
    assert!(lab.running.is_empty());
    assert!(!lab.is_over(1));
    lab.answer_next();
    assert_eq!(lab.running.len(), 1);
}

#[test]
fn a_source_that_makes_tasks_is_asked_for_as_many_as_there_is_room_for() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    assert_eq!(lab.engine.room(RunId(1)), 4096);
    lab.add(1, vec![task("a"); 4096]);
    assert_eq!(lab.engine.room(RunId(1)), 0);
    lab.stop(1, packhorse_engine::StopSignal::Interrupt);
    assert_eq!(lab.engine.room(RunId(1)), 0);
}

#[test]
fn a_plain_one_that_comes_later_does_not_overtake_them() {
    let mut lab = lab();
    work(&mut lab, 3000);
    lab.add(1, [task("later")]);
    work(&mut lab, MANY - 3000);
    assert_eq!(lab.running(), ["1.5001@"]);
}
