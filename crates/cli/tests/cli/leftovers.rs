//! Processes that outlive their task: none does.

use crate::support::{World, is_alive, receive, release};

/// What a process left behind does: it says that it is where it wants to be,
/// and stays for ever.
const STRAY: &str = "echo $$ > said; exec cat never";

/// Runs a task that leaves a process behind in this way, and checks that it is
/// gone before the next task starts.
#[track_caller]
fn assert_ended(leave: &str) {
    let world = World::new();
    let [said, over, next] = ["said", "over", "next"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    let mut running = world.start(["run", "--slots", "1"]);
    running.send(format!("{leave} cat over\ncat next\n"));
    let pid = receive(&said);
    assert!(is_alive(&pid));
    release(&over);
    running.wait_for("1.2 started");
    let alive = is_alive(&pid);
    release(&next);
    let done = running.finish();
    assert!(!alive, "it lived on: {done:?}");
    assert_eq!(done.code, 0, "{done:?}");
    let warning = done.stdout.lines().find(|line| line.contains("warning"));
    let warning = warning.expect("a warning");
    assert!(warning.starts_with("1.1 warning: "), "{warning}");
    assert!(warning.contains("left behind"), "{warning}");
    assert!(warning.ends_with("ended"), "{warning}");
}

#[test]
fn a_background_process_is_ended() {
    assert_ended("sh stray &");
}

#[test]
fn a_process_with_a_session_of_its_own_is_ended() {
    assert_ended("setsid sh stray &");
}

#[test]
fn a_process_that_forked_twice_is_ended() {
    assert_ended("setsid sh -c 'sh stray & exit' &");
}

#[test]
fn a_session_inside_a_session_is_ended() {
    assert_ended("setsid sh -c 'setsid sh stray & wait' &");
}

#[test]
fn a_process_that_cleared_its_environment_is_ended() {
    assert_ended("env -i PATH=\"$PATH\" sh stray &");
}

#[test]
fn a_process_that_cleared_its_environment_in_a_session_of_its_own_is_ended() {
    assert_ended("env -i PATH=\"$PATH\" setsid sh stray &");
}

#[test]
fn a_process_that_ignores_sigterm_is_ended() {
    assert_ended("(trap '' TERM; exec setsid sh stray) &");
}

#[test]
fn a_packhorse_inside_a_task_ends_what_its_own_tasks_leave() {
    let world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    // Both count from 1.1 on: their processes carry the same marks.
    let packhorse = env!("CARGO_BIN_EXE_packhorse");
    let inner = format!("PACKHORSE_HOME=inner {packhorse} run --slots 1 commands.txt");
    world.write("commands.txt", "setsid sh stray & cat over\n");
    let mut running = world.start(["run", "--slots", "1", "--output", "lines"]);
    running.send(format!("{inner}\n"));
    let pid = receive(&said);
    release(&over);
    running.wait_for("1.1 | 1.1 warning: a process it left behind was ended");
    assert!(!is_alive(&pid));
    assert_eq!(running.finish().code, 0);
}

#[test]
fn one_that_ends_by_itself_when_the_task_has_is_not_worth_a_word() {
    let world = World::new();
    // As the helpers of Python's multiprocessing do: a pipe is closed, and they clean up.
    let helper = "trap 'touch asked' TERM; cat pipe; for _ in 1 2 3 4 5; do /bin/true; done";
    let task =
        format!("mkfifo pipe; sh -c '{}' & exec 3> pipe; exit 0\n", helper.replace('\'', "'\\''"));
    let done = world.packhorse_with(["run", "--slots", "1"], &task);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("warning"), "{done:?}");
    assert!(!world.work().join("asked").exists());
}

#[test]
fn several_are_counted() {
    let world = World::new();
    world.fifo("never");
    let done = world
        .packhorse_with(["run", "--slots", "1"], "cat never & cat never & cat never & exit 0\n");
    assert_eq!(done.code, 0, "{done:?}");
    let warning = "1.1 warning: 3 processes it left behind were ended";
    assert!(done.stdout.contains(warning), "{done:?}");
}

#[test]
fn nothing_outlives_the_run() {
    let world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("env -i PATH=\"$PATH\" setsid sh stray & cat over\n");
    let pid = receive(&said);
    release(&over);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!is_alive(&pid));
    assert!(done.stdout.contains("left behind"), "{done:?}");
}

#[test]
fn only_the_processes_of_the_task_that_ended_are_ended() {
    let world = World::new();
    let [said, gate] = ["said", "gate"].map(|name| world.fifo(name));
    world.fifo("never");
    let mut running = world.start(["run", "--slots", "2"]);
    // Its helper is in a session of its own, and has lost its parent.
    running.send("(setsid sh -c 'echo $$ > said; exec cat gate > got' &); cat never\n");
    let helper = receive(&said);
    running.send("cat never & exit 0\n");
    running.wait_for("1.2 warning");
    running.wait_for("1.2 succeeded");
    assert!(is_alive(&helper), "it belongs to a task that goes on");
    release(&gate);
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.finish().code, 143);
}

#[test]
fn the_next_task_does_not_get_what_a_process_left_behind_writes() {
    let world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    // It answers SIGTERM and stays: only SIGKILL ends it.
    world.write("stray", "trap 'echo last words' TERM; echo > said; while :; do cat never; done");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("setsid sh stray & cat over\necho mine\n");
    receive(&said);
    release(&over);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["logs", "1.2"]).stdout, "mine\n");
}

#[test]
fn a_flood_from_a_process_left_behind_does_not_reach_the_next_task() {
    let world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.write("stray", "echo $$ > said; exec yes");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("env -i PATH=\"$PATH\" setsid sh stray & cat over\necho mine\n");
    let pid = receive(&said);
    release(&over);
    running.wait_for("1.2 succeeded");
    assert!(!is_alive(&pid));
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["logs", "1.2"]).stdout, "mine\n");
}

#[test]
fn children_that_were_there_before_are_left_alone() {
    let world = World::new();
    let script = "sh -c 'trap exit TERM; echo $$ > pid; while :; do read x < never; done' > log 2>&1 & \
                  cat ready; exec \"$0\" run --slots 1 -- true";
    world.fifo("never");
    let [pid, ready] = ["pid", "ready"].map(|name| world.fifo(name));
    let binary = env!("CARGO_BIN_EXE_packhorse");
    let running = crate::support::Running::start(world.program("sh", ["-c", script, binary]));
    let child = receive(&pid);
    release(&ready);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(is_alive(&child), "{done:?}");
    let child = rustix::process::Pid::from_raw(child.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}
