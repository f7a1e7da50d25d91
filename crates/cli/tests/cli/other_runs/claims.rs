//! Runs that wait for each other, and leave each other room.

use rustix::process::Signal;

use super::{kill, left_by};
use crate::support::World;

#[test]
fn a_run_that_waits_is_not_passed_over_again_and_again() {
    let world = World::new();
    // So many that a run which let them all go first would take for ever.
    world.write("many", "sleep 0.2\n".repeat(2000));
    let mut first = world.start(["run", "--gpus", "0", "-g", "0.5", "many"]);
    first.wait_for("1.4 started");
    let done = world.packhorse(["run", "--gpus", "0", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    // It goes on afterwards, and makes room again.
    let done = world.packhorse(["run", "--gpus", "0", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["stop", "1", "--now"]).code, 0);
    first.finish();
}

#[test]
fn who_waits_for_a_gpu_is_shown() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "7", "tasks"]);
    first.wait_for("1.1 started");
    let mut second = world.start(["run", "--gpus", "7", "--", "true"]);
    second.wait_for("run 2 started");
    let pid = first.pid().as_raw_nonzero();
    let why = world.why("2.1");
    assert!(why.contains("another run holds GPU 7 (run 1 of "), "{why}");
    assert!(why.contains(&format!(", process {pid})")), "{why}");
    let waits = format!(", process {} waits for it", second.pid().as_raw_nonzero());
    world.await_gpus(&waits);
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn a_killed_run_waits_for_nothing() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("part", "read x < gate");
    let mut first = world.start(["run", "--gpus", "0", "-g", "0.3", "part"]);
    first.wait_for("1.1 started");
    world.write("tasks", "#packhorse gpus=0.3\nread x < gate\ntrue\n");
    let mut second = world.start(["run", "--gpus", "0", "tasks"]);
    second.wait_for("2.1 started");
    world.await_gpus("waits for it");
    kill(second);
    let shown = world.packhorse(["gpus"]).stdout;
    assert!(shown.contains(&left_by(2)), "{shown}");
    assert!(!shown.contains("waits for it"), "{shown}");
    gate.pass(2);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn a_claim_of_a_run_that_is_stopped_does_not_count_for_ever() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut first = world.start(["run", "--gpus", "0"]);
    first.send("read x < gate\n");
    first.wait_for("1.1 started");
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    world.await_gpus("waits for it");
    second.signal(Signal::STOP);
    // When the second of these is due, the claim is old enough to count.
    first.send("sleep 0.3\necho late\n");
    gate.pass(1);
    first.wait_for("1.3 started");
    assert_eq!(first.finish().code, 0);
    second.signal(Signal::CONT);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn a_claim_of_a_run_that_starts_nothing_more_is_not_waited_for() {
    let world = World::new();
    let gates = ["one", "other"].map(|name| world.gate(name));
    world.write("tasks", "read x < one\nsleep 0.3\necho last\n");
    let mut first = world.start(["run", "--gpus", "0", "-g", "0.6", "tasks"]);
    first.wait_for("1.1 started");
    world.write("more", "#packhorse gpus=0.3\nread x < other\ntrue\n");
    let mut second = world.start(["run", "--gpus", "0", "more"]);
    second.wait_for("2.1 started");
    world.await_gpus("waits for it");
    gates[0].pass(1);
    // At the latest when the second of its tasks is over, the claim is old enough to count.
    first.wait_for("nothing runs");
    // It wants no more than what it holds from now on.
    second.signal(Signal::INT);
    let done = first.finish();
    assert_eq!(done.code, 0, "{done:?}");
    gates[1].pass(1);
    second.finish();
}

#[test]
fn a_run_that_waits_for_two_gpus_gets_them_from_runs_that_use_one_each() {
    let world = World::new();
    let gate = world.gate("gate");
    // They end so far apart that somebody who waits no longer would have given up.
    world.write("short", "read x < gate\nread x < gate\n");
    world.write("long", "read x < gate; sleep 3\nread x < gate\n");
    let start = |gpu, tasks| world.start(["run", "--gpus", gpu, tasks]);
    let mut runs = [start("0", "short"), start("1", "long")];
    runs[0].wait_for(".1 started");
    runs[1].wait_for(".1 started");
    let both = world.start(["run", "--gpus", "0,1", "-g", "2", "--", "true"]);
    world.await_gpus("waits for it");
    // A moment after which its claim counts.
    assert_eq!(world.packhorse(["run", "--gpus", "2", "--", "sleep", "0.2"]).code, 0);
    gate.pass(2);
    let done = both.finish();
    assert_eq!(done.code, 0, "{done:?}");
    gate.pass(2);
    for run in runs {
        assert_eq!(run.finish().code, 0);
    }
}
