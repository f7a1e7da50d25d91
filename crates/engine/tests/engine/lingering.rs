//! Memory that stays when its task is over.

use crate::lab::{A_LOOK, Lab, OK, SECOND, task};

/// One task has ended, and 16 GiB are still shown on its GPU. The next needs them.
fn lab() -> Lab {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(20), task("b").vram(20)]);
    lab.holds("1.1", 16);
    lab.stranger(0, 16);
    lab.ends("1.1", OK);
    lab
}

#[test]
fn the_gpu_counts_as_taken_until_it_is_gone() {
    let mut lab = lab();
    lab.pass(SECOND);
    assert!(lab.running().is_empty());
    lab.stranger(0, 0);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert!(!lab.told().join("\n").contains("warning"));
}

#[test]
fn even_if_nobody_has_looked_since_the_end() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(20), task("b").vram(20)]);
    lab.holds("1.1", 16);
    lab.answers.samples = false;
    lab.ends("1.1", OK);
    assert!(lab.running().is_empty(), "it may still be there");
    lab.answers.samples = true;
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn after_five_seconds_somebody_is_told_who_is_there() {
    let mut lab = lab();
    lab.told();
    assert!(lab.engine.names_processes(0));
    lab.pass(SECOND * 4);
    assert!(lab.told().is_empty());
    lab.pass(SECOND * 2);
    lab.assert_told(
        "warning of 1.1: GPU 0 still holds 16.0 GiB that its task has left; on it the driver \
         lists process 90000 (python, ada); it counts as others' memory",
    );
    assert!(!lab.engine.names_processes(0));
    lab.pass(SECOND * 10);
    assert!(lab.told().is_empty(), "once is enough");
    assert!(lab.running().is_empty());
    lab.stranger(0, 0);
    lab.pass(SECOND * 2);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn what_strangers_held_before_is_not_taken_for_it() {
    let mut lab = Lab::with_gpus(1);
    lab.stranger(0, 2);
    lab.run(1);
    lab.add(1, [task("a").vram(20), task("b").vram(20)]);
    lab.holds("1.1", 16);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}
