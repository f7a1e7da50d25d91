//! GPUs that tasks have whole in runs that count no memory: who else is on them, and what
//! their last tenants have left.

use crate::machine::{Machine, holding};

#[test]
fn strangers_on_a_gpu_that_a_task_has_whole_are_named_once() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let stranger = machine.state.stranger(0, 10 << 30);
    let mut running = machine.start(&["run"]);
    let told = running.wait_for("run 1 started");
    let named = format!("; others hold 10.0 GiB of GPU 0: process {stranger} (");
    assert!(told.contains(&named), "{told}");
    assert!(told.contains("10.0 GiB)"), "{told}");
    running.send("read x < gate\ntrue\n");
    running.wait_for("1.1 started");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("others hold").count(), 1, "{done:?}");
}

#[test]
fn a_gpu_given_whole_waits_until_the_memory_of_its_last_task_is_gone() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run"]);
    // Long enough to be looked at, and something stays on the GPU when it ends.
    running.send("sleep 1.1\ntrue\n");
    running.wait_for("1.1 started");
    let left = machine.state.stranger(0, 10 << 30);
    running.wait_for("1.1 succeeded");
    let why = machine.packhorse(&["why", "1.2"]).stdout;
    let waits = "GPU 0 may still hold memory of its last task";
    assert!(why.contains(waits), "{why}");
    machine.state.stranger_leaves(0, left);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("still holds"), "{done:?}");
}

#[test]
fn strangers_that_come_later_are_named_once_and_not_waited_for() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run"]);
    // Each long enough to be looked at.
    running.send("sleep 1.1\nsleep 1.1\ntrue\n");
    running.wait_for("1.1 started");
    let mut stranger = machine.stranger("10G", "gate");
    machine.await_memory(0, 10 << 30);
    let told = running.wait_for("warning");
    let named = format!(
        "others hold 10.0 GiB of GPU 0, which a task has whole: process {} (fake-cuda",
        stranger.id()
    );
    assert!(told.contains(&named), "{told}");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("warning").count(), 1, "{done:?}");
    machine.world.write("gate", "");
    assert!(stranger.wait().unwrap().success());
}

#[test]
fn a_gpu_given_whole_waits_until_the_memory_of_another_run_is_gone() {
    let machine = Machine::new(1);
    machine.state.linger(0);
    machine.world.write("task", holding("10G", "gate"));
    let mut first = machine.start(&["run", "task"]);
    first.wait_for("1.1 started");
    machine.await_memory(0, 10 << 30);
    let mut second = machine.start(&["run", "--", "true"]);
    second.wait_for("run 2 started");
    let why = machine.world.why("2.1");
    assert!(why.contains("another run holds GPU 0"), "{why}");
    machine.world.write("gate", "");
    assert_eq!(first.finish().code, 0);
    let told = second.wait_for("warning");
    let left = "GPU 0 still holds 10.0 GiB that another run has left";
    assert!(told.contains(left), "{told}");
    let done = second.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let started = done.stdout.find("2.1 started").unwrap();
    assert!(done.stdout.find("warning").unwrap() < started, "{done:?}");
}
