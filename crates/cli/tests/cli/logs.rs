//! `packhorse logs`: what a task wrote.

use rustix::process::Signal;

use crate::support::{Done, Running, World, cut_short};

/// Runs these commands to their end, one after the other.
fn run(commands: &str) -> World {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1", "-q"], commands);
    assert!(done.code < 2, "{done:?}");
    world
}

/// Starts `command` as task 1.2, and returns when the store knows of it: what
/// has finished is told only when it is written, and 1.1 was read with it.
fn start(world: &World, command: &str) -> Running {
    let input = format!("true\n{command}\n");
    world.write("commands", input);
    let mut running = world.start(["run", "--slots", "2", "commands"]);
    running.wait_for("1.1 succeeded");
    running
}

const BOTH: &str = "echo out; echo err >&2; echo more\n";

fn lines(done: &Done) -> Vec<&str> {
    assert_eq!(done.code, 0, "{done:?}");
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn both_streams_are_shown_together_or_each_alone() {
    let world = run(BOTH);
    assert_eq!(lines(&world.packhorse(["logs", "1.1"])), ["err", "more", "out"]);
    let only = |stream| world.packhorse(["logs", "1.1", stream]).stdout;
    assert_eq!(only("--stdout"), "out\nmore\n");
    assert_eq!(only("--stderr"), "err\n");
}

#[test]
fn a_number_alone_is_a_task_of_the_latest_run() {
    let world = run("echo old\n");
    world.packhorse_with(["run", "--slots", "1"], "echo one\necho two\n");
    assert_eq!(world.packhorse(["logs", "2"]).stdout, "two\n");
    assert_eq!(world.packhorse(["logs", "1.1"]).stdout, "old\n");
}

#[test]
fn each_attempt_has_a_log_and_the_last_is_shown() {
    let command = "echo try $PACKHORSE_ATTEMPT; test $PACKHORSE_ATTEMPT = 2";
    let world = run(&format!("#packhorse retries=1\n{command}\n"));
    assert_eq!(world.packhorse(["logs", "1"]).stdout, "try 2\n");
    for (attempt, wanted) in [("1", "try 1\n"), ("2", "try 2\n")] {
        let done = world.packhorse(["logs", "1", "--attempt", attempt]);
        assert_eq!(done.stdout, wanted);
    }
    for attempt in ["0", "3"] {
        let done = world.packhorse(["logs", "1", "--attempt", attempt]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("2 attempts"), "{done:?}");
    }
}

#[test]
fn the_path_is_that_of_the_log_file() {
    let world = run("echo here\n");
    let done = world.packhorse(["logs", "1", "--path"]);
    let path = done.stdout.trim_end();
    assert!(path.starts_with(world.home().to_str().unwrap()), "{done:?}");
    let bytes = fs_err::read(path).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("here"));
}

#[test]
fn bytes_come_back_as_they_were_written() {
    let world = run(r"printf '\377\000\033[1m no end of line'");
    let output = world.command(["logs", "1"]).output().unwrap();
    assert_eq!(output.stdout, b"\xff\0\x1b[1m no end of line");
}

#[test]
fn a_task_that_wrote_nothing_is_said_to() {
    let world = run("true\n");
    let done = world.packhorse(["logs", "1"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""));
    assert!(done.stderr.contains("task 1.1 wrote nothing"), "{done:?}");
}

#[test]
fn a_task_that_is_not_there_is_an_error_with_a_hint() {
    let world = run("true\n");
    for (task, wanted) in [
        ("9", "there is no task 1.9"),
        ("1.9", "there is no task 1.9"),
        ("0", "counted from 1"),
        ("nine", "`nine` is not a task"),
    ] {
        let done = world.packhorse(["logs", task]);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{task}");
        assert!(done.stderr.contains(wanted), "{}", done.stderr);
    }
    let done = world.packhorse(["logs", "1.9"]);
    assert!(done.stderr.contains("hint: `packhorse show 1`"), "{done:?}");
}

#[test]
fn where_nothing_ever_ran_the_error_says_how_to_begin() {
    let done = World::new().packhorse(["logs", "1"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("there is no run yet"), "{done:?}");
    assert!(done.stderr.contains("packhorse run"), "{done:?}");
}

#[test]
fn a_running_task_is_followed_until_it_ends() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut running = start(&world, "echo first; read x < gate; echo second");
    let mut follower = world.start(["logs", "-f", "1.2"]);
    follower.wait_for("first");
    gate.pass(1);
    running.wait_for("1.2 succeeded");
    let done = follower.finish();
    assert_eq!(done.stdout, "first\nsecond\n");
    assert_eq!(done.code, 0, "{done:?}");
    running.finish();
}

#[test]
fn following_begins_before_the_first_word() {
    let world = World::new();
    let gate = world.gate("gate");
    let words = "read x < gate; echo one; read x < gate; echo two >&2";
    let running = start(&world, words);
    let mut follower = world.start(["logs", "-f", "2"]);
    gate.pass(1);
    follower.wait_for("one");
    gate.pass(1);
    assert_eq!(lines(&follower.finish()), ["one", "two"]);
    running.finish();
}

#[test]
fn following_goes_on_with_the_next_attempt() {
    let world = World::new();
    let gate = world.gate("gate");
    let command = "echo try $PACKHORSE_ATTEMPT; read x < gate; test $PACKHORSE_ATTEMPT = 2";
    let running = start(&world, &format!("#packhorse retries=1\n{command}"));
    let mut follower = world.start(["logs", "-f", "1.2"]);
    let mut first = world.start(["logs", "-f", "1.2", "--attempt", "1"]);
    follower.wait_for("try 1");
    first.wait_for("try 1");
    gate.pass(1);
    // Who asked for one attempt has seen it.
    assert_eq!(first.finish().stdout, "try 1\n");
    follower.wait_for("try 2");
    gate.pass(1);
    let done = follower.finish();
    assert_eq!(done.stdout, "try 1\ntry 2\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn following_ends_with_a_run_that_was_killed() {
    let world = World::new();
    let _gate = world.gate("gate");
    let running = start(&world, "echo first; read x < gate; echo second");
    let mut follower = world.start(["logs", "-f", "1.2"]);
    follower.wait_for("first");
    running.signal(Signal::KILL);
    let done = follower.finish();
    assert_eq!(done.stdout, "first\n");
    assert_eq!(done.code, 0, "{done:?}");
    running.finish();
}

#[test]
fn following_a_task_that_has_ended_shows_it_and_ends() {
    let world = run(BOTH);
    assert_eq!(lines(&world.packhorse(["logs", "-f", "1"])), ["err", "more", "out"]);
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    // More than a pipe holds.
    let world = run("yes | head -n 200000\n");
    let done = cut_short(world.command(["logs", "1"]));
    assert_eq!(done.stdout, "y\n");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn following_a_task_from_before_it_started_says_that_it_wrote_nothing() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("commands", "true\nread x < gate\ntrue\n");
    let mut running = world.start(["run", "--slots", "1", "commands"]);
    running.wait_for("1.2 started");
    let mut follower = world.start(["logs", "-f", "1.3"]);
    follower.wait_for_error("task 1.3 has not been started; its output is shown when it is");
    gate.pass(1);
    let done = follower.finish();
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert!(done.stderr.contains("task 1.3 wrote nothing"), "{done:?}");
    running.finish();
}

#[test]
fn a_task_that_could_not_be_started_says_why() {
    let world = run("no-such-command a\n");
    for words in [&["logs", "1"][..], &["logs", "-f", "1"]] {
        let done = world.packhorse(words);
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
        let wanted = "task 1.1 could not be started: command not found: no-such-command\n";
        assert_eq!(done.stderr, wanted);
    }
}
