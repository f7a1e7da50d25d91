//! The seed that a task finds in its environment.

use rustix::process::Signal;

use crate::support::{World, finish_with, receive};

/// The seeds that a task has written down, one for each attempt.
fn seeds(world: &World, task: u32) -> Vec<u32> {
    world.read(&format!("seeds.{task}")).lines().map(|seed| seed.parse().unwrap()).collect()
}

const TASKS: &str = "\
echo $PACKHORSE_SEED >> seeds.1; test -e good
echo $PACKHORSE_SEED >> seeds.2; test -e good
";

#[test]
fn a_task_has_one_seed_at_every_attempt_and_no_other_task_has_it() {
    let world = World::new();
    let run = |words: &[&str], input: &str, code| {
        let mut command = world.command(words);
        // That of a task that runs packhorse is not that of the tasks inside.
        command.env("PACKHORSE_SEED", "7");
        let done = finish_with(command, input);
        assert_eq!(done.code, code, "{done:?}");
    };
    run(&["run", "--slots", "1", "--retries", "1"], TASKS, 1);
    run(&["retry", "1"], "", 1);
    world.write("good", "");
    run(&["retry", "1"], "", 0);
    for task in [1, 2] {
        let all = seeds(&world, task);
        assert_eq!(all.len(), 5, "{all:?}");
        let shown = world.packhorse(["show", &format!("1.{task}"), "--json"]).json();
        assert!(all.iter().all(|&seed| shown["seed"] == seed), "{all:?} {shown}");
        let text = world.packhorse(["show", &format!("1.{task}")]).stdout;
        assert!(text.contains(&format!("\n  seed     {}\n", all[0])), "{text}");
    }
    let first = seeds(&world, 1)[0];
    assert_ne!(first, seeds(&world, 2)[0], "two tasks of a run");

    run(&["run", "--slots", "1"], "echo $PACKHORSE_SEED > seeds.1", 0);
    assert_ne!(first, seeds(&world, 1)[0], "the same task of two runs");

    let elsewhere = World::new();
    elsewhere.packhorse_with(["run", "--slots", "1"], "echo $PACKHORSE_SEED > seeds.1");
    assert_ne!(first, seeds(&elsewhere, 1)[0], "run 1 of two state folders");
}

#[test]
fn a_resumed_task_has_the_seed_it_had() {
    let world = World::new();
    let here = world.fifo("here");
    world.fifo("never");
    let task = "echo $PACKHORSE_SEED > here; test -e good || read x < never\n";
    let mut running = world.start(["run", "--slots", "1"]);
    running.send(task);
    running.end_input();
    let before = receive(&here);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    world.write("good", "");
    let resumed = world.start(["resume"]);
    assert_eq!(receive(&here), before);
    assert_eq!(resumed.finish().code, 0);
    assert!(before.trim().parse::<u32>().is_ok(), "{before}");
}

#[test]
fn env_overrides_the_seed() {
    let world = World::new();
    let words = ["run", "--slots", "1", "--env", "PACKHORSE_SEED=3"];
    let done = world.packhorse_with(words, "echo $PACKHORSE_SEED > seeds.1");
    assert_eq!((done.code, seeds(&world, 1)), (0, vec![3]), "{done:?}");
}
