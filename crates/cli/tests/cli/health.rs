//! GPUs that break: taken out, shown, put back.

use crate::machine::{Machine, holding};

#[test]
fn tasks_on_a_gpu_that_is_lost_run_again_elsewhere() {
    for by_xid in [false, true] {
        let machine = Machine::new(2);
        let task = holding("1G", "gate");
        machine.world.write("tasks", format!("{task}\n").repeat(2));
        let mut running = machine.start(&["run", "--vram", "20G", "tasks"]);
        running.wait_for("1.2 started");
        if by_xid {
            machine.state.xid(1, 79);
        } else {
            machine.state.lose(1);
        }
        running.wait_for("GPU 1 is taken out");
        running.wait_for("no retry is used up");
        machine.world.write("gate", "");
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        // It stays out until somebody puts it back.
        machine.state.find_again(1);
        let gpus = machine.packhorse(&["gpus"]).stdout;
        assert!(gpus.contains("taken out"), "{gpus}");
        let done = machine.packhorse(&["run", "--gpus", "0,1", "--", "true"]);
        assert!(done.stdout.contains("GPU 1 was taken out"), "{done:?}");
        let done = machine.packhorse(&["gpus", "--restore", "1"]);
        assert_eq!(done.code, 0, "{done:?}");
        let gpus = machine.packhorse(&["gpus"]).stdout;
        assert!(!gpus.contains("taken out"), "{gpus}");
    }
}

#[test]
fn a_program_that_fails_by_itself_takes_no_gpu_out() {
    let machine = Machine::new(1);
    machine.world.write("tasks", "exit 3");
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("run 1 started");
    machine.state.xid(0, 31);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.contains("taken out"), "{done:?}");
}

#[test]
fn when_every_gpu_is_lost_the_rest_is_kept_for_later() {
    let machine = Machine::new(1);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--vram", "2G", "tasks"]);
    running.wait_for("1.1 started");
    machine.state.lose(0);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("packhorse resume 1"), "{done:?}");
    machine.state.find_again(0);
    machine.packhorse(&["gpus", "--restore", "0"]);
    machine.world.write("gate", "");
    let done = machine.packhorse(&["resume", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_gpu_that_stops_answering_is_taken_out() {
    let machine = Machine::new(2);
    let task = holding("1G", "gate");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let mut running = machine.start(&["run", "--vram", "20G", "tasks"]);
    running.wait_for("1.2 started");
    machine.state.hang(1);
    running.wait_for("GPU 1 is taken out: the driver has not answered");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    machine.state.answer(1);
}

#[test]
fn only_the_broken_gpu_of_a_group_is_taken_out() {
    let machine = Machine::new(2);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--gpus", "0+1", "--vram", "2G", "tasks"]);
    running.wait_for("1.1 started");
    machine.state.lose(0);
    let line = running.wait_for("is taken out");
    assert!(line.contains("GPU 0+1"), "{line}");
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    machine.state.find_again(0);
    let gpus = machine.packhorse(&["gpus", "--json"]);
    let gpus: serde_json::Value = serde_json::from_str(&gpus.stdout).unwrap();
    assert!(gpus[0]["taken_out"].is_string(), "{gpus}");
    assert!(gpus[1]["taken_out"].is_null(), "{gpus}");
    let done = machine.packhorse(&["gpus", "--restore", "0+1"]);
    assert_eq!(done.code, 0, "{done:?}");
}
