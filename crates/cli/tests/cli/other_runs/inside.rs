//! Runs that tasks of other runs start.

use crate::machine::Machine;
use crate::support::{World, finish};

const PACKHORSE: &str = env!("CARGO_BIN_EXE_packhorse");

#[test]
fn a_run_inside_a_task_uses_the_gpus_of_the_task() {
    for driver in [true, false] {
        let machine = Machine::new(2);
        let world = &machine.world;
        let command = |words: &[&str]| {
            if driver {
                machine.command(words)
            } else {
                world.command(words)
            }
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
    while !world.packhorse(["gpus"]).stdout.contains("waits for it") {}
    let why = world.packhorse(["why", "2.1"]).stdout;
    assert!(why.contains("another run holds GPU 0 (run 1 of"), "{why}");
    assert!(!world.work().join("ran").exists());
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(world.work().join("ran").exists());
}
