//! Ctrl-C, SIGTERM and their like.

use packhorse_engine::{Action, StopMode, StopSignal};
use packhorse_model::Exit;

use crate::lab::{FAILED, INTERRUPTED, Lab, OK, SECOND, task};

use StopSignal::{Hangup, Interrupt, Quit, Terminate};

/// Two tasks run, and one waits.
fn lab() -> Lab {
    let mut lab = Lab::with_slots(2);
    lab.run(1);
    lab.add(1, vec![task("a"); 3]);
    lab.end_input(1);
    lab.told();
    lab
}

fn modes(lab: &mut Lab) -> Vec<StopMode> {
    lab.stops().into_iter().map(|(_, mode)| mode).collect()
}

#[test]
fn ctrl_c_lets_what_runs_end_and_starts_nothing_more() {
    let mut lab = lab();
    lab.stop(1, Interrupt);
    assert_eq!(lab.told(), ["run 1 Draining with 2"]);
    assert!(lab.stops().is_empty());
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@"]);
    lab.ends("1.2", OK);
    assert_eq!((lab.summary(1).succeeded, lab.summary(1).left), (2, 1));
    assert_eq!(lab.summary(1).exit, Exit::Signal(2));
}

#[test]
fn the_second_ends_what_runs_and_the_third_kills_it() {
    let mut lab = lab();
    lab.stop(1, Interrupt);
    lab.stop(1, Interrupt);
    assert_eq!(modes(&mut lab), [StopMode::Terminate; 2]);
    lab.stop(1, Interrupt);
    assert_eq!(modes(&mut lab), [StopMode::Kill; 2]);
    assert!(lab.told().contains(&"run 1 Killing with 2".to_owned()));
}

#[test]
fn the_fourth_gives_up_on_what_outlives_that() {
    let mut lab = lab();
    lab.stop(1, Quit);
    lab.ends("1.2", INTERRUPTED);
    lab.actions.clear();
    lab.stop(1, Interrupt);
    let abandoned = lab.take_actions(|action| match action {
        Action::Abandon(task) => Some(task.to_string()),
        _ => None,
    });
    assert_eq!(abandoned, ["1.1"]);
}

#[test]
fn what_was_interrupted_is_left() {
    let mut lab = lab();
    lab.stop(1, Terminate);
    assert_eq!(modes(&mut lab), [StopMode::Terminate; 2]);
    lab.ends("1.1", INTERRUPTED);
    lab.ends("1.2", OK);
    let summary = lab.summary(1);
    assert_eq!((summary.succeeded, summary.failed, summary.left), (1, 0, 2));
    assert_eq!(summary.exit, Exit::Signal(15));
}

#[test]
fn sigterm_twice_within_a_second_is_one_request() {
    let mut lab = lab();
    lab.stop(1, Terminate);
    lab.stops();
    lab.pass(SECOND / 2);
    lab.stop(1, Terminate);
    assert!(lab.stops().is_empty());
    lab.pass(SECOND);
    lab.stop(1, Terminate);
    assert_eq!(modes(&mut lab), [StopMode::Kill; 2]);
}

#[test]
fn each_signal_has_its_exit_status() {
    for (signal, exit) in [(Interrupt, 2), (Quit, 3), (Terminate, 15), (Hangup, 1)] {
        let mut lab = lab();
        lab.stop(1, signal);
        lab.ends("1.1", INTERRUPTED);
        lab.ends("1.2", INTERRUPTED);
        assert_eq!(lab.summary(1).exit, Exit::Signal(exit));
        assert_eq!(lab.summary(1).left, 3);
    }
}

#[test]
fn one_that_had_nothing_left_to_do_is_done() {
    let mut lab = Lab::with_slots(2);
    lab.run(1);
    lab.add(1, [task("a"), task("b")]);
    lab.end_input(1);
    lab.stop(1, Interrupt);
    lab.ends("1.1", OK);
    lab.ends("1.2", FAILED);
    assert_eq!(lab.summary(1).exit, Exit::TasksFailed);
}

#[test]
fn one_that_fails_while_the_run_stops_waits_for_the_next_session() {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.add(1, [task("a").retries(2)]);
    lab.end_input(1);
    lab.stop(1, Interrupt);
    lab.ends("1.1", FAILED);
    assert_eq!(lab.summary(1).left, 1);
    assert_eq!(lab.started().len(), 1);
}

#[test]
fn input_is_kept_unless_there_is_a_hurry() {
    for (signal, kept) in [(Interrupt, true), (Terminate, true), (Quit, false)] {
        let mut lab = Lab::with_slots(1);
        lab.run(1);
        lab.stop(1, signal);
        let keeps = lab.take_actions(|action| match action {
            Action::RunIdle { keep_input, .. } => Some(keep_input),
            _ => None,
        });
        assert_eq!(keeps, [kept]);
    }
}

#[test]
fn an_end_that_is_still_judged_is_waited_for_and_not_stopped_again() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a")]);
    lab.answers.questions = false;
    lab.ends("1.1", FAILED);
    lab.stop(1, Terminate);
    assert!(lab.stops().is_empty());
    assert!(!lab.is_over(1));
    lab.answer_next();
    assert_eq!((lab.summary(1).failed, lab.summary(1).left), (1, 0));
}
