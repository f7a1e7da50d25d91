//! Tasks of kinds that nobody knows share a GPU once their memory rests.

use crate::machine::{Machine, holding, taking};

/// Task lines, each of a kind of its own.
fn kinds(tasks: &[String]) -> String {
    let mut lines = String::new();
    for (number, task) in tasks.iter().enumerate() {
        let kind = number + 1;
        lines += &format!("#packhorse signature=kind{kind}\n{task}\n");
    }
    lines
}

#[test]
fn the_next_of_an_unknown_kind_starts_when_the_memory_of_the_first_rests() {
    let machine = Machine::new(1);
    let tasks = kinds(&vec![holding("3G", "gate"); 6]);
    machine.world.write("tasks", tasks);
    let mut running = machine.start(&["run", "--vram", "auto", "--rest", "100ms", "tasks"]);
    for number in 1..=6 {
        running.wait_for(&format!("1.{number} started on GPU 0"));
    }
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
}

#[test]
fn with_rest_never_one_of_an_unknown_kind_is_alone() {
    let machine = Machine::new(1);
    machine
        .world
        .write("packhorse.toml", "[pool]\nrest = \"never\"\n");
    let task = taking("--peak 3G --hold-looks 12");
    machine.world.write("tasks", kinds(&[task.clone(), task]));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let (first, _) = done.stdout.split_once("1.1 succeeded").unwrap();
    assert!(!first.contains("1.2 started"), "{done:?}");
}

#[test]
fn one_that_grows_late_moves_the_last_that_came_away_and_is_remembered() {
    let machine = Machine::new(1);
    let grows = taking("--peak 17G --steps 2 --step-gate grow --hold-until-exists end");
    machine
        .world
        .write("tasks", kinds(&[grows, holding("6G", "end")]));
    let mut running = machine.start(&["run", "--vram", "auto", "--rest", "100ms", "tasks"]);
    running.wait_for("1.2 started on GPU 0");
    machine.await_memory(0, 29 << 29);
    machine.world.write("grow.2", "");
    running.wait_for(
        "1.2 attempt 1: moved away, because 1.1 grew to 17.0 GiB on GPU 0 after its memory had \
         rested; it runs again, and no retry is used up",
    );
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
    let peaks = machine.packhorse(&["peaks", "kind1"]).stdout;
    assert!(peaks.contains("grew late"), "{peaks}");
}

#[test]
fn probes_of_different_kinds_run_beside_tasks_that_are_known() {
    let machine = Machine::new(1);
    let task = taking("--peak 3G");
    machine.world.write("tasks", kinds(&vec![task; 3]));
    let probe = "{} --hold-looks 6";
    let words = ["run", "--vram", "auto", "--probe", probe, "tasks"];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        done.stdout.matches("measured: 3.0 GiB").count(),
        3,
        "{done:?}"
    );
}

#[test]
fn a_task_whose_gpu_processes_are_not_its_own_is_measured_by_its_gpus_growth() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write(
        "tasks",
        kinds(&["read x < gate".to_owned(), "true".to_owned()]),
    );
    let mut running = machine.start(&["run", "--vram", "auto", "--rest", "100ms", "tasks"]);
    running.wait_for("1.1 started on GPU 0");
    machine.await_looks(0, 4);
    // As a container does, which is no child of the task.
    let container = machine.state.stranger(0, 5 << 30);
    running.wait_for("1.2 started on GPU 0");
    gate.pass(1);
    running.wait_for("1.1 succeeded");
    machine.state.stranger_leaves(0, container);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let show = machine.packhorse(&["show", "1.1"]).stdout;
    assert!(show.contains("5.0 GiB at most"), "{show}");
    assert!(
        show.contains("no process of its own was seen on its GPU"),
        "{show}"
    );
    let peaks = machine.packhorse(&["peaks", "kind1"]).stdout;
    assert!(peaks.contains("5.0 GiB"), "{peaks}");
}

#[test]
fn tasks_that_ask_for_auto_where_nobody_knows_the_memory_have_a_gpu_each() {
    let world = crate::support::World::new();
    let line = "{\"command\": \"true\", \"vram\": \"auto\"}\n";
    world.write("tasks.jsonl", line.repeat(3));
    let done = world.packhorse(["run", "--gpus", "0,1", "--tasks", "tasks.jsonl"]);
    assert!(!done.stderr.contains("panicked"), "{done:?}");
    let done = world.packhorse_with(["run", "--gpus", "0,1", "--tasks", "-"], line);
    assert!(!done.stderr.contains("panicked"), "{done:?}");
}
