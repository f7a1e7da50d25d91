//! Runs that know of each other.

use rustix::process::Signal;

use crate::machine::{Machine, holding, taking};

#[test]
fn two_runs_never_promise_the_same_memory() {
    let machine = Machine::new(1);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut first = machine.start(&["run", "--vram", "15G", "tasks"]);
    first.wait_for("1.1 started");
    let gpus = machine.packhorse(&["gpus"]).stdout;
    assert!(gpus.contains("15.0 GiB"), "{gpus}");
    let mut second = machine.start(&["run", "--vram", "15G", "tasks"]);
    second.wait_for("run 2 started");
    // A third one that fits beside the first does start.
    machine.world.write("small", taking("--peak 1G"));
    let done = machine.packhorse(&["run", "--vram", "5G", "small"]);
    assert_eq!(done.code, 0, "{done:?}");
    let why = machine.packhorse(&["why", "2.1"]).stdout;
    assert!(why.contains("waits"), "{why}");
    machine.world.write("gate", "");
    let first = first.finish();
    assert_eq!(first.code, 0, "{first:?}");
    let second = second.finish();
    assert_eq!(second.code, 0, "{second:?}");
}

#[test]
fn a_run_that_was_killed_holds_nothing_any_more() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut first = machine.start(&["run", "tasks"]);
    first.wait_for("1.1 started");
    let mut second = machine.start(&["run", "--", "true"]);
    second.wait_for("run 2 started");
    let why = machine.packhorse(&["why", "2.1"]).stdout;
    assert!(why.contains("waits"), "{why}");
    first.signal(Signal::KILL);
    let second = second.finish();
    assert_eq!(second.code, 0, "{second:?}");
    gate.pass(1);
}

#[test]
fn without_leases_runs_do_not_wait_for_each_other() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut first = machine.start(&["run", "tasks"]);
    first.wait_for("1.1 started");
    let done = machine.packhorse(&["run", "--no-leases", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn leases_need_no_driver() {
    let world = crate::support::World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "7", "tasks"]);
    first.wait_for("1.1 started");
    let done = world.packhorse(["run", "--gpus", "8", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let mut second = world.start(["run", "--gpus", "7", "--", "true"]);
    second.wait_for("run 3 started");
    let why = world.packhorse(["why", "3.1"]).stdout;
    assert!(why.contains("GPU 7"), "{why}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}
