//! Runs that tasks of other runs start.

use super::kill;
use crate::machine::Machine;
use crate::support::{World, finish, wait_until};

const PACKHORSE: &str = env!("CARGO_BIN_EXE_packhorse");

#[test]
fn a_run_inside_a_task_uses_the_gpus_of_the_task() {
    for driver in [true, false] {
        let machine = Machine::new(2);
        let world = &machine.world;
        let command = |words: &[&str]| {
            if driver { machine.command(words) } else { world.command(words) }
        };
        for inner in ["run", "run --gpus 1"] {
            world.write("tasks", format!("{PACKHORSE} {inner} -- touch ran"));
            let done = finish(command(&["run", "--gpus", "1", "tasks"]));
            assert_eq!(done.code, 0, "{done:?}");
            fs_err::remove_file(world.work().join("ran")).unwrap();
        }
    }
}

#[test]
fn a_run_inside_a_task_waits_for_other_gpus_of_the_run_around_it() {
    let world = World::new();
    let gate = world.gate("gate");
    let inner = format!("{PACKHORSE} run --gpus 0,1 -g 2 -- touch ran");
    world.write("tasks", format!("read x < gate\n{inner}\n"));
    let mut running = world.start(["run", "--gpus", "0,1", "tasks"]);
    running.wait_for("1.2 started");
    world.await_gpus("waits for it");
    let why = world.packhorse(["why", "2.1"]).stdout;
    assert!(why.contains("another run holds GPU 0 (run 1 of"), "{why}");
    assert!(!world.work().join("ran").exists());
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(world.work().join("ran").exists());
}

/// Waits until a task has made a file.
fn await_file(world: &World, name: &str) {
    let path = world.work().join(name);
    wait_until(&world.work(), || path.exists());
}

#[test]
fn runs_inside_tasks_keep_nothing_for_one_that_waits_for_the_run_around_them() {
    let world = World::new();
    let gate = world.gate("gate");
    for name in ["one", "other"] {
        // When the second of these is over, the claim is old enough to count.
        let tasks = format!("touch {name}-began; read x < gate\nsleep 0.3\ntouch {name}-ran\n");
        world.write(name, tasks);
    }
    let inner = |name| format!("{PACKHORSE} run {name}\n");
    world.write("tasks", inner("one") + &inner("other"));
    let outer = world.start(["run", "--gpus", "0,1", "tasks"]);
    await_file(&world, "one-began");
    await_file(&world, "other-began");
    let third = world.start(["run", "--gpus", "0,1", "-g", "2", "--", "true"]);
    world.await_gpus("waits for it");
    gate.pass(2);
    let done = outer.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(world.work().join("one-ran").exists());
    assert!(world.work().join("other-ran").exists());
    assert_eq!(third.finish().code, 0);
}

#[test]
fn a_run_inside_a_task_goes_on_when_the_run_around_it_is_killed() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("inner", "touch began; read x < gate\nsleep 0.3\ntouch ran\n");
    let inner = format!("{PACKHORSE} run inner > out 2>&1; touch over");
    world.write("tasks", inner);
    let outer = world.start(["run", "--gpus", "0", "tasks"]);
    await_file(&world, "began");
    kill(outer);
    gate.pass(1);
    await_file(&world, "over");
    assert!(world.work().join("ran").exists());
}

#[test]
fn what_a_run_inside_a_task_holds_of_the_task_counts_once() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("inner", "touch began; read x < gate");
    let mut outer = world.start(["run", "--gpus", "0", "-g", "0.5"]);
    outer.send(format!("{PACKHORSE} run -g 0.5 inner\n"));
    await_file(&world, "began");
    // There is room for one more beside it.
    outer.send("touch beside\n");
    await_file(&world, "beside");
    gate.pass(1);
    let done = outer.finish();
    assert_eq!(done.code, 0, "{done:?}");
}
