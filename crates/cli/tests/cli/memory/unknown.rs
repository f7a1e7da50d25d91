//! Tasks of kinds that nobody knows share a GPU once their memory rests.

use rustix::process::Signal;

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
    machine.world.write("packhorse.toml", "[pool]\nrest = \"never\"\n");
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
    machine.world.write("tasks", kinds(&[grows, holding("6G", "end")]));
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
fn one_that_grew_late_and_was_interrupted_is_remembered() {
    let machine = Machine::new(1);
    let grows = taking("--peak 10G --steps 2 --step-gate grow --hold-until-exists end");
    machine.world.write("tasks", kinds(&[grows, holding("1G", "end")]));
    let words = ["run", "--vram", "auto", "--rest", "100ms", "tasks"];
    let mut running = machine.start(&words);
    running.wait_for("1.2 started on GPU 0");
    machine.world.write("grow.2", "");
    machine.await_memory(0, 11 << 30);
    machine.await_looks(0, 4);
    running.signal(Signal::INT);
    running.wait_for("again");
    running.signal(Signal::INT);
    assert_eq!(running.finish().code, 130);
    let peaks = machine.packhorse(&["peaks", "kind1"]).stdout;
    assert!(peaks.contains("10.0 GiB         -"), "{peaks}");
    assert!(peaks.contains("grew late"), "{peaks}");
    // It may take as much again, and nobody knows how much more.
    let again = kinds(&[holding("3G", "end")]).repeat(2);
    machine.world.write("again", again);
    let mut running = machine.start(&["run", "--vram", "auto", "again"]);
    running.wait_for("2.1 started on GPU 0");
    let why = machine.world.why("2.2");
    assert!(why.contains("11.0 GiB of GPU memory or more"), "{why}");
    machine.world.write("end", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn probes_of_different_kinds_run_beside_tasks_that_are_known() {
    let machine = Machine::new(1);
    machine.world.write("tasks", kinds(&vec![holding("3G", "end"); 3]));
    let probe = "{} --hold-looks 6 --hold-until-exists tasks";
    let words = ["run", "--vram", "auto", "--probe", probe, "tasks"];
    let mut running = machine.start(&words);
    // No task ends before all were probed.
    for number in 1..=3 {
        running.wait_for(&format!("1.{number} probe: measured: 3.0 GiB"));
        running.wait_for(&format!("1.{number} started on GPU 0: "));
    }
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_task_whose_gpu_processes_are_not_its_own_is_measured_by_its_gpus_growth() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", kinds(&["read x < gate".to_owned(), "true".to_owned()]));
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
    assert!(show.contains("no process of its own was seen on its GPU"), "{show}");
    let peaks = machine.packhorse(&["peaks", "kind1"]).stdout;
    assert!(peaks.contains("5.0 GiB"), "{peaks}");
}

#[test]
fn tasks_that_ask_for_auto_where_nobody_knows_the_memory_have_a_gpu_each() {
    let world = crate::support::World::new();
    let gate = world.gate("gate");
    let line = "{\"command\": \"read x < gate\", \"vram\": \"auto\"}\n";
    world.write("tasks.jsonl", line.repeat(3));
    for (run, source) in [(1, "tasks.jsonl"), (2, "-")] {
        let mut running = world.start(["run", "--gpus", "0,1", "--tasks", source]);
        if source == "-" {
            running.send(line.repeat(3));
        }
        running.end_input();
        running.wait_for(&format!("{run}.1 started on GPU 0"));
        running.wait_for(&format!("{run}.2 started on GPU 1"));
        let why = world.why(&format!("{run}.3"));
        assert!(why.contains("waits for a GPU"), "{why}");
        gate.pass(3);
        assert_eq!(running.finish().code, 0);
    }
}
