//! Who goes first, as far as the command line decides it.

use crate::support::World;

/// The order in which an early task of low priority and a later urgent one start,
/// both behind one that holds the only GPU.
fn order(ageing: &str) -> Vec<String> {
    let world = World::new();
    let gate = world.gate("gate");
    let mut running = world.start(["run", "--gpus", "0", "--ageing", ageing]);
    running.send("read x < gate\n");
    running.wait_for("1.1 started");
    running.send("#packhorse priority=1\ntrue early\n");
    // Until the run has it: then it ages, by more than a millisecond meanwhile.
    while !world
        .packhorse(["why", "1.2"])
        .stdout
        .contains("1.2 waits for")
    {}
    running.send("#packhorse priority=0\ntrue urgent\n");
    while !world
        .packhorse(["why", "1.3"])
        .stdout
        .contains("1.3 waits for")
    {}
    gate.pass(1);
    running.end_input();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let started = done.stdout.lines();
    let started = started.filter(|line| line.contains(" started on "));
    let tasks = started.map(|line| line.split(' ').next().unwrap().to_owned());
    tasks.skip(1).collect()
}

#[test]
fn waiting_makes_a_task_more_urgent_unless_that_is_off() {
    assert_eq!(order("1ms"), ["1.2", "1.3"]);
    assert_eq!(order("off"), ["1.3", "1.2"]);
    assert_eq!(order("1h"), ["1.3", "1.2"]);
}
