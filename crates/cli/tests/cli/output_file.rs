//! `--output file`: tasks write into their logs themselves.

use rustix::process::Signal;

use crate::support::{Running, World, finish, is_alive, receive, release};

#[test]
fn a_task_goes_on_writing_when_its_run_is_killed() {
    let world = World::new();
    let gate = world.gate("gate");
    let said = world.fifo("said");
    world.write(
        "commands",
        "true\necho first; echo $$ > said; read x < gate; echo second; echo third >&2; echo over > said; read x < gate; echo last",
    );
    let mut running = world.start(["run", "--slots", "2", "--output", "file", "commands"]);
    running.wait_for("1.1 succeeded");
    let pid = receive(&said);
    running.signal(Signal::KILL);
    running.finish();
    let mut follower = world.start(["logs", "-f", "1.2"]);
    follower.wait_for("first");
    gate.pass(1);
    assert_eq!(receive(&said), "over\n");
    assert!(is_alive(&pid));
    assert_eq!(world.packhorse(["logs", "1.2"]).stdout, "first\nsecond\nthird\n");
    gate.pass(1);
    // It is over when the task is, which nobody looks after any more.
    assert_eq!(follower.finish().stdout, "first\nsecond\nthird\nlast\n");
}

#[test]
fn it_can_be_set_for_all_runs_and_a_resumed_run_keeps_it() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut command = world.command(["run", "--slots", "1"]);
    command.env("PACKHORSE_OUTPUT", "file");
    let mut running = Running::start(command);
    let say = "readlink /proc/self/fd/1; readlink /proc/self/fd/2";
    running.send(format!("{say}; read x < gate\n{say}\n"));
    running.end_input();
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    gate.pass(1);
    running.finish();
    assert_eq!(world.packhorse(["resume"]).code, 0);
    for task in ["1.1", "1.2"] {
        let path = world.packhorse(["logs", task, "--path"]).stdout;
        assert_eq!(world.packhorse(["logs", task]).stdout, path.repeat(2));
    }
    let mut config = world.command(["config"]);
    config.env("PACKHORSE_OUTPUT", "file");
    let config = finish(config).stdout;
    assert!(config.contains("PACKHORSE_OUTPUT"), "{config}");
    let mut wrong = world.command(["run", "--slots", "1", "--", "true"]);
    wrong.env("PACKHORSE_OUTPUT", "tape");
    let wrong = finish(wrong);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("PACKHORSE_OUTPUT"), "{wrong:?}");
}

#[test]
fn the_file_may_be_one_that_the_task_names_and_each_attempt_has_its_own() {
    let world = World::new();
    let input = "#packhorse log=deep/own.log retries=1\necho try $PACKHORSE_ATTEMPT; false\n";
    let done = world.packhorse_with(["run", "--slots", "1", "--output", "file"], input);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.contains("| try"), "{done:?}");
    assert_eq!(world.read("deep/own.log"), "try 1\n");
    assert_eq!(world.read("deep/own.2.log"), "try 2\n");
    assert_eq!(world.packhorse(["logs", "1"]).stdout, "try 2\n");
}

#[test]
fn a_task_whose_log_cannot_be_made_is_not_started() {
    let world = World::new();
    world.write("folder", "a file");
    let input = "#packhorse log=folder/own.log\ntouch ran\ntrue\n";
    let done = world.packhorse_with(["run", "--slots", "1", "--output", "file"], input);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("cannot open its log"), "{done:?}");
    assert!(done.stdout.contains("1.2 succeeded"), "{done:?}");
    assert!(!world.work().join("ran").exists());
}

#[test]
fn a_pipe_in_the_place_of_a_log_is_not_waited_for() {
    let world = World::new();
    world.fifo("pipe");
    let input = "#packhorse log=pipe\necho hello\ntrue\n";
    for (output, started) in [("file", false), ("log", true)] {
        let options = ["run", "--slots", "1", "--output", output];
        let done = world.packhorse_with(options, input);
        assert_eq!(done.code, i32::from(!started), "{done:?}");
        assert!(done.stdout.contains("is a pipe, not a file"), "{done:?}");
        assert!(done.stdout.contains(".2 succeeded"), "{done:?}");
    }
}

#[test]
fn what_left_its_group_and_cleared_its_environment_is_known_by_the_log_it_holds() {
    let world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    let gate = world.gate("gate");
    world.fifo("never");
    world.write("stray", "echo $$ > said; exec cat never");
    let mut running = world.start(["run", "--slots", "2", "--output", "file"]);
    // With another task beside it, nothing else says whose it is.
    running.send("read x < gate\nenv -i PATH=\"$PATH\" setsid sh stray & cat over\n");
    let pid = receive(&said);
    release(&over);
    running.wait_for("1.2 succeeded");
    assert!(!is_alive(&pid));
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
}
