//! What tasks need is measured, learned and promised.

use packhorse_model::Outcome;

use crate::lab::{A_LOOK, FAILED, Lab, NewTask, OK, id, task};

/// One that nothing is known of, with a probe.
fn unknown() -> NewTask {
    task("python train.py --epochs 90").vram_auto().probe("{} --epochs 1")
}

fn lab(gpus: usize, tasks: usize) -> Lab {
    let mut lab = Lab::with_gpus(gpus);
    lab.run(1);
    lab.add(1, vec![unknown(); tasks]);
    lab
}

#[test]
fn the_first_is_measured_and_the_others_wait_for_that() {
    let mut lab = lab(2, 4);
    assert_eq!(lab.started(), ["1.1#0@0"], "and not on the other GPU either");
    let command = lab.running[&id("1.1")].command.to_text().into_owned();
    assert!(command.ends_with("--epochs 90 --epochs 1"), "{command}");
    assert!(lab.why("1.2").contains("until one like it has been measured"));
    lab.holds("1.1", 4);
    lab.ends("1.1", OK);
    lab.assert_told("measured: 4.0 GiB of GPU memory");
    lab.pass(A_LOOK);
    assert_eq!(lab.running().len(), 4);
    assert!(lab.promised("1.2") < 9.0);
    assert_eq!(lab.started()[0], "1.1#1@1", "the task itself is next");
}

#[test]
fn a_probe_that_fails_appoints_the_next() {
    let mut lab = lab(2, 3);
    lab.ends("1.1", FAILED);
    lab.assert_told("failed, so it does not tell how much memory is needed");
    let started = lab.started();
    assert!(started.contains(&"1.2#0@0".to_owned()), "{started:?}");
    assert!(started.contains(&"1.1#1@1".to_owned()), "{started:?}");
    assert_eq!(started.len(), 3, "the third waits for the second probe");
}

#[test]
fn a_probe_that_was_never_seen_appoints_the_next() {
    let mut lab = lab(2, 2);
    lab.ends("1.1", OK);
    lab.assert_told("it ended before its memory could be measured");
    assert!(lab.started().contains(&"1.2#0@0".to_owned()));
}

#[test]
fn a_more_urgent_newcomer_takes_the_probe_over() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("other")]);
    lab.add(1, [unknown()]);
    lab.add(1, [unknown().priority(-1)]);
    lab.started();
    lab.ends("1.1", OK);
    assert_eq!(lab.started(), ["1.3#0@0"]);
    assert!(lab.why("1.2").contains("until one like it has been measured"));
}

#[test]
fn a_probe_that_runs_is_not_taken_over() {
    let mut lab = lab(2, 1);
    lab.add(1, [unknown().priority(-1)]);
    assert_eq!(lab.started(), ["1.1#0@0"]);
}

#[test]
fn a_probe_that_is_refused_or_cancelled_is_not_waited_for() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a"), unknown().after(1), unknown()]);
    lab.started();
    lab.ends("1.1", FAILED);
    assert_eq!(lab.started(), ["1.3#0@0"]);
}

#[test]
fn a_probe_that_runs_out_of_memory_teaches_and_the_task_has_a_gpu_to_itself() {
    let mut lab = lab(1, 1);
    lab.logs.insert(id("1.1"), "CUDA out of memory".to_owned());
    lab.holds("1.1", 23);
    lab.ends("1.1", Outcome::Failed { code: 1 });
    lab.assert_told("out of GPU memory");
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
    assert!(lab.promised("1.1") > 23.0);
}

#[test]
fn one_of_which_nothing_is_known_has_a_gpu_to_itself() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 3]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"]);
    lab.add(1, [task("b").vram(1)]);
    assert_eq!(lab.running().len(), 2, "nobody joins them");
}

#[test]
fn what_was_learned_before_is_promised_from_the_start() {
    let mut lab = Lab::with_gpus(1);
    lab.learned("work: python a.py", 4);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 3]);
    assert_eq!(lab.running().len(), 3);
    assert!((4.0..5.0).contains(&lab.promised("1.1")));
}

#[test]
fn what_is_learned_changes_what_those_who_wait_ask_for() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 3]);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.holds("1.1", 4);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0", "1.3@0"]);
}

#[test]
fn an_attempt_that_failed_teaches_nothing() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 3]);
    lab.holds("1.1", 1);
    lab.ends("1.1", FAILED);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"], "it may have ended before it needed most");
}

#[test]
fn commands_of_another_shape_are_asked_for_once_each() {
    let mut lab = Lab::with_gpus(1);
    lab.answers.questions = false;
    lab.run(1);
    let a = || task("python a.py --seed 1").vram_auto();
    lab.add(1, [a(), task("python b.py").vram_auto(), a()]);
    assert_eq!(lab.open.len(), 2);
    assert!(lab.running().is_empty());
    let second = lab.open.pop_back().unwrap();
    lab.feed(second);
    assert!(lab.running().is_empty(), "the first in line is not known yet");
    lab.answer_next();
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_comes_after_others_keeps_nobody_waiting_for_its_probe() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a"), unknown().after(1), unknown()]);
    assert_eq!(lab.started(), ["1.3#0@0", "1.1#1@1"]);
}
