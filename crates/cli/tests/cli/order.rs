//! Who goes first, as far as the command line decides it.

use crate::machine::{Machine, holding};
use crate::support::{Done, World};

/// The order in which an early task of low priority and a later urgent one start,
/// both behind one that holds the only GPU.
fn order(ageing: &str) -> Vec<String> {
    let world = World::new();
    let gate = world.gate("gate");
    let mut running = world.start(["run", "--gpus", "0", "--ageing", ageing]);
    running.send("read x < gate\n");
    running.wait_for("1.1 started");
    running.send("#packhorse priority=1\ntrue early\n");
    // Until the run has it: then it ages.
    world.why("1.2");
    // Asking once more takes several milliseconds.
    world.packhorse(["why", "1.2"]);
    running.send("#packhorse priority=0\ntrue urgent\n");
    world.why("1.3");
    gate.pass(1);
    running.end_input();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    started(&done).split_off(1)
}

/// The tasks in the order of their starts.
fn started(done: &Done) -> Vec<String> {
    let started = done.stdout.lines();
    let started = started.filter(|line| line.contains(" started on "));
    let tasks = started.map(|line| line.split(' ').next().unwrap().to_owned());
    tasks.collect()
}

#[test]
fn waiting_makes_a_task_more_urgent_unless_that_is_off() {
    assert_eq!(order("1ms"), ["1.2", "1.3"]);
    assert_eq!(order("off"), ["1.3", "1.2"]);
    assert_eq!(order("1h"), ["1.3", "1.2"]);
}

#[test]
fn only_what_is_over_in_time_overtakes_on_what_is_kept() {
    let world = World::new();
    let _gate = world.gate("gate");
    // The second needs both GPUs, so the other one is kept for it. The first ends
    // by its time limit if nobody overtakes to open the gate.
    world.write(
        "tasks",
        "#packhorse timeout=30s\nread x < gate\n\
         #packhorse gpus=2\ntrue first in line\n\
         true of unknown length\n\
         #packhorse timeout=1h\ntrue for too long\n\
         #packhorse timeout=5s\necho > gate\n",
    );
    let done = world.packhorse(["run", "--gpus", "0,1", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(started(&done), ["1.1", "1.5", "1.2", "1.3", "1.4"], "{done:?}");
}

#[test]
fn nobody_overtakes_while_it_is_not_known_when_the_first_in_line_can_start() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write(
        "tasks",
        "read x < gate\n\
         #packhorse gpus=2\ntrue first in line\n\
         #packhorse timeout=5s\ntrue short\n",
    );
    let mut running = world.start(["run", "--gpus", "0,1", "tasks"]);
    running.wait_for("1.1 started");
    let why = world.why("1.3");
    assert!(why.contains("kept for 1.2"), "{why}");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(started(&done), ["1.1", "1.2", "1.3"], "{done:?}");
}

#[test]
fn what_would_be_left_over_beside_the_first_in_line_may_be_used() {
    let machine = Machine::new(1);
    // 8 of 23.5 GiB are free. When the first has ended there are 14, and 12 of
    // these are for the third: 2 are left over, whoever ends first.
    let task = |memory: &str| {
        let task = holding("1G", "gate");
        format!("#packhorse vram={memory} timeout=30s\n{task}\n")
    };
    let tasks = task("6G") + &task("9.5G");
    let tasks = tasks
        + "#packhorse vram=12G\ntrue first in line\n\
           #packhorse vram=3G\ntrue too much\n\
           #packhorse vram=2G\ntouch gate\n";
    machine.world.write("tasks", tasks);
    let done = machine.packhorse(&["run", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(started(&done), ["1.1", "1.2", "1.5", "1.3", "1.4"], "{done:?}");
}

#[test]
fn why_tells_of_tasks_that_run_or_are_over_too() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("1.1 started");
    let why = machine.packhorse(&["why", "1"]).stdout;
    assert!(why.contains("has been running"), "{why}");
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    let why = machine.packhorse(&["why", "1"]).stdout;
    assert!(why.contains("over: succeeded"), "{why}");
}
