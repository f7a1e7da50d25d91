//! Processes that outlive their leader: none does.

use packhorse_model::{Outcome, StopMode};
use packhorse_supervisor::{Children, EndNotice};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::support::{ALL_CHILDREN, World, alone, is_alive, line, receive, release, task};

/// Waits for the end of a child, and leaves it to be reaped.
const ENDED: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOWAIT);

/// What a process left behind does: it says that it is where it wants to be, and
/// stays for ever.
const STRAY: &str = "echo $$ > said; exec cat never";

/// Runs an attempt that leaves a process behind in this way, and checks that it is
/// gone when the end is told.
#[track_caller]
fn assert_ended(mut world: World, leave: &str) {
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    world.start(1, &line(format!("{leave} cat over")));
    let pid = receive(&said);
    assert!(is_alive(&pid));
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert!(!is_alive(&pid), "{:?}", world.events);
    assert_eq!(world.troubles(1), ["a process it left behind was ended"]);
    assert!(world.supervisor.is_idle());
}

#[test]
fn a_background_process_is_ended() {
    assert_ended(World::new(), "sh stray &");
}

#[test]
fn a_process_with_a_session_of_its_own_is_ended() {
    assert_ended(World::new(), "setsid sh stray &");
}

#[test]
fn a_process_that_forked_twice_is_ended() {
    assert_ended(World::new(), "setsid sh -c 'sh stray & exit' &");
}

#[test]
fn a_session_inside_a_session_is_ended() {
    assert_ended(World::new(), "setsid sh -c 'setsid sh stray & wait' &");
}

#[test]
fn a_process_that_cleared_its_environment_is_ended() {
    assert_ended(World::new(), "env -i PATH=\"$PATH\" sh stray &");
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    assert_ended(World::new(), "(trap '' TERM; exec setsid sh stray) &");
}

#[test]
fn without_mark_and_group_it_is_ended_if_all_children_are_ours() {
    if alone("leftovers::without_mark_and_group_it_is_ended_if_all_children_are_ours") {
        let leave = "env -i PATH=\"$PATH\" setsid sh stray &";
        for children in ALL_CHILDREN {
            assert_ended(World::with(children), leave);
        }
    }
}

#[test]
fn without_mark_and_group_it_is_known_by_the_pipe_it_holds() {
    if !alone("leftovers::without_mark_and_group_it_is_known_by_the_pipe_it_holds") {
        return;
    }
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    let other = world.fifo("other");
    world.start(2, &line("cat other"));
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    world.start(1, &line("env -i PATH=\"$PATH\" setsid sh stray & cat over"));
    let pid = receive(&said);
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert!(!is_alive(&pid));
    assert!(world.supervisor.is_led(task(2)));
    release(&other);
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
}

#[test]
fn what_belongs_to_nobody_is_ended_at_last() {
    if !alone("leftovers::what_belongs_to_nobody_is_ended_at_last") {
        return;
    }
    let mut world = World::with(Children::All(EndNotice::Sigchld));
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.start(2, &line("cat never"));
    world.write("stray", STRAY);
    let leave = "env -i PATH=\"$PATH\" setsid sh stray > /dev/null 2>&1 & cat over";
    world.start(1, &line(leave));
    let pid = receive(&said);
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert!(is_alive(&pid), "it could be the other's");
    world.supervisor.stop(task(2), StopMode::Kill);
    world.supervisor.finish();
    assert!(!is_alive(&pid));
    assert_eq!(world.outcome_of(2), Outcome::Interrupted);
}

#[test]
fn the_whole_tree_is_stopped() {
    let mut world = World::new();
    let said = world.fifo("said");
    let tree = "sleep 1000 & first=$!; (setsid sleep 1001; :) & echo $$ $first $! > said; wait";
    world.start(1, &line(tree));
    let pids = receive(&said);
    assert_eq!(pids.split_whitespace().count(), 3, "{pids}");
    world.supervisor.stop(task(1), StopMode::Terminate);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    for pid in pids.split_whitespace() {
        assert!(!is_alive(pid), "{pid} of {pids}");
    }
    let troubles = world.troubles(1);
    assert_eq!(troubles, [""; 0], "it had no chance to clean up");
}

#[test]
fn stragglers_are_asked_before_they_are_killed() {
    let mut world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", "trap 'echo asked >> out; exit' TERM; echo > said; read x < never & wait");
    world.start(1, &line("setsid sh stray & cat over"));
    receive(&said);
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert_eq!(world.read("out"), "asked\n");
}

#[test]
fn several_are_counted() {
    let mut world = World::new();
    world.fifo("never");
    let end = world.run(1, &line("cat never & cat never & cat never & exit 0"));
    assert_eq!(end.outcome, Outcome::Succeeded);
    assert_eq!(world.troubles(1), ["3 processes it left behind were ended"]);
}

#[test]
fn only_the_processes_of_the_attempt_that_ended_are_ended() {
    let mut world = World::new();
    let [said, gate] = ["said", "gate"].map(|name| world.fifo(name));
    world.fifo("never");
    // Its helper is in a session of its own, and has lost its parent.
    world.start(1, &line("(setsid sh -c 'echo $$ > said; exec cat gate' &); cat never"));
    let helper = receive(&said);
    let end = world.run(2, &line("cat never & exit 0"));
    assert_eq!(end.outcome, Outcome::Succeeded);
    assert_eq!(world.troubles(2).len(), 1);
    assert!(is_alive(&helper), "it belongs to an attempt that goes on");
    let number = helper.trim().parse().unwrap();
    assert_eq!(world.supervisor.owner_of(number), Some(task(1)));
    release(&gate);
    world.supervisor.stop(task(1), StopMode::Kill);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    assert_eq!(world.supervisor.owner_of(std::process::id()), None);
}

#[test]
fn the_next_attempt_does_not_get_what_a_process_left_behind_writes() {
    let mut world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    // It answers SIGTERM and stays: only SIGKILL ends it.
    world.write("stray", "trap 'echo last words' TERM; echo > said; while :; do cat never; done");
    world.start(1, &line("setsid sh stray & cat over"));
    receive(&said);
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    world.run(2, &line("echo mine"));
    assert_eq!(world.log(2, 1), "mine\n");
}

#[test]
fn a_stranger_that_holds_the_pipe_does_not_write_to_the_next_log() {
    let mut world = World::new();
    let [said, over, gate] = ["said", "over", "gate"].map(|name| world.fifo(name));
    // Neither mark nor group: it is let be, with the pipe for its output.
    world.write("stray", "echo $$ > said; read x < gate; echo intruder");
    let leave = "env -i PATH=\"$PATH\" setsid sh stray & cat over";
    world.start(1, &line(leave));
    let pid = receive(&said);
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Succeeded);
    assert!(is_alive(&pid));
    let hold = world.fifo("hold");
    world.start(2, &line("echo mine; cat hold"));
    let stray = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let handle = rustix::process::pidfd_open(stray, rustix::process::PidfdFlags::empty()).unwrap();
    release(&gate);
    let mut poll = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut poll, None).unwrap();
    release(&hold);
    assert_eq!(world.outcome_of(2), Outcome::Succeeded);
    assert_eq!(world.log(2, 1), "mine\n");
}

#[test]
fn orphans_that_end_while_their_attempt_runs_do_not_pile_up() {
    if !alone("leftovers::orphans_that_end_while_their_attempt_runs_do_not_pile_up") {
        return;
    }
    for children in ALL_CHILDREN.into_iter().chain([Children::Marked]) {
        let mut world = World::with(children);
        let [one, two, gate] = ["one", "two", "gate"].map(|name| world.fifo(name));
        // Each loses its parent, says so and ends.
        let orphan = |fifo| format!("(sh -c 'echo $$ > {fifo}' &)");
        let orphans = format!("{}; {}; cat gate", orphan("one"), orphan("two"));
        world.start(1, &line(orphans));
        let pids = [receive(&one), receive(&two)];
        let exists = |pid: &String| {
            packhorse_proc::ProcEntry::of(pid.trim().parse().unwrap()).stat().is_ok()
        };
        while pids.iter().any(exists) {
            waitid(WaitId::All, ENDED).unwrap();
            world.supervisor.reap_orphans();
        }
        assert!(world.supervisor.is_led(task(1)));
        release(&gate);
        assert_eq!(world.outcome_of(1), Outcome::Succeeded);
        assert_eq!(world.troubles(1), [""; 0]);
    }
}

#[test]
fn an_attempt_is_over_also_when_its_last_straggler_was_reaped_in_between() {
    let mut world = World::new();
    let [said, over] = ["said", "over"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", STRAY);
    world.start(1, &line("(trap '' TERM; exec setsid sh stray) & cat over"));
    let pid = receive(&said);
    release(&over);
    while world.supervisor.is_led(task(1)) {
        world.wait();
    }
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    waitid(WaitId::Pid(pid), ENDED).unwrap();
    world.supervisor.reap_orphans();
    assert!(rustix::process::test_kill_process(pid).is_err());
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::Succeeded);
    assert!(end.took < std::time::Duration::from_secs(2), "{end:?}");
}
