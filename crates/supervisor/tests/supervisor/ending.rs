//! Attempts that are ended: stopped, timed out, given up.

use std::time::Duration;

use packhorse_model::{Outcome, ProcessEvent, StopMode};
use packhorse_test_parts::needs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::support::{World, is_alive, line, receive, release, task};

const STUBBORN: &str =
    "trap 'echo asked >> out' TERM; echo $$ > said; while :; do read x < never; done";

#[test]
fn terminate_asks_and_the_end_of_the_grace_kills() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    let mut wanted = line(STUBBORN);
    wanted.grace = Duration::from_millis(100);
    world.start(1, &wanted);
    let pid = receive(&said);
    world.supervisor.stop(task(1), StopMode::Terminate);
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::Interrupted);
    assert!(end.took >= Duration::from_millis(100));
    assert!(!is_alive(&pid));
    assert_eq!(world.read("out"), "asked\n");
}

#[test]
fn kill_does_not_ask() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    world.start(1, &line(STUBBORN));
    let pid = receive(&said);
    world.supervisor.stop(task(1), StopMode::Kill);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    assert!(!is_alive(&pid));
    assert_eq!(world.read("out"), "");
}

#[test]
fn a_kill_does_not_wait_for_the_grace_of_an_earlier_terminate() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    world.start(1, &line(STUBBORN));
    receive(&said);
    world.supervisor.stop(task(1), StopMode::Terminate);
    world.supervisor.stop(task(1), StopMode::Kill);
    world.supervisor.stop(task(1), StopMode::Terminate);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
}

#[test]
fn a_stopped_process_is_woken_to_be_terminated() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.start(1, &line("trap 'echo woken >> out; exit 0' TERM; echo $$ > said; kill -STOP $$"));
    let pid = Pid::from_raw(receive(&said).trim().parse().unwrap()).unwrap();
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), stopped).unwrap();
    world.supervisor.stop(task(1), StopMode::Terminate);
    assert_eq!(world.outcome_of(1), Outcome::Interrupted);
    assert_eq!(world.read("out"), "woken\n");
}

#[test]
fn a_time_limit_asks_and_its_grace_kills() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    let mut wanted = line(STUBBORN);
    wanted.time_limit = Some(Duration::from_millis(300));
    wanted.grace = Duration::from_millis(50);
    world.start(1, &wanted);
    let pid = receive(&said);
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::TimedOut);
    assert!(end.took >= Duration::from_millis(350));
    assert!(!is_alive(&pid));
    assert_eq!(world.read("out"), "asked\n");
}

#[test]
fn a_time_limit_that_is_not_reached_changes_nothing() {
    let mut world = World::new();
    let mut wanted = line("true");
    wanted.time_limit = Some(Duration::MAX);
    wanted.grace = Duration::MAX;
    assert_eq!(world.run(1, &wanted).outcome, Outcome::Succeeded);
    wanted.time_limit = Some(Duration::from_hours(1));
    assert_eq!(world.run(2, &wanted).outcome, Outcome::Succeeded);
}

#[test]
fn of_many_time_limits_each_counts_for_its_own() {
    let mut world = World::new();
    for (number, limit) in [(1, 3_600_000), (2, 200), (3, 3_600_001), (4, 100)] {
        let mut wanted = line("exec sleep 1000");
        wanted.time_limit = Some(Duration::from_millis(limit));
        world.start(number, &wanted);
    }
    assert_eq!(world.outcome_of(4), Outcome::TimedOut);
    assert!(world.events.is_empty());
    assert_eq!(world.outcome_of(2), Outcome::TimedOut);
    assert_eq!(world.supervisor.running(), 2);
    for number in [1, 3] {
        world.supervisor.stop(task(number), StopMode::Kill);
        assert_eq!(world.outcome_of(number), Outcome::Interrupted);
    }
}

fn is_ending(event: &ProcessEvent) -> bool {
    matches!(event, ProcessEvent::Ending { .. })
}

#[test]
fn an_end_that_is_held_waits_for_permission() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    for how in [StopMode::Terminate, StopMode::Kill] {
        let mut wanted = line("echo $$ > said; exec cat never");
        wanted.hold_end = true;
        world.start(1, &wanted);
        let pid = receive(&said);
        world.supervisor.stop(task(1), how);
        world.supervisor.stop(task(1), how);
        let ending = world.wait_for(is_ending);
        let leader = pid.trim().parse().unwrap();
        let expected = ProcessEvent::Ending { task: task(1), leader };
        assert_eq!(ending, expected);
        assert!(is_alive(&pid));
        world.supervisor.proceed(task(1));
        let end = world.end_of(1);
        assert_eq!(end.outcome, Outcome::Interrupted);
        assert!(end.took < Duration::from_secs(2), "it was not waited for");
        assert!(world.events.is_empty(), "{:?}", world.events);
    }
}

#[test]
fn an_end_that_is_held_for_long_comes_all_the_same() {
    let mut world = World::new();
    let mut wanted = line("exec sleep 1000");
    wanted.hold_end = true;
    wanted.time_limit = Some(Duration::from_millis(1));
    world.start(1, &wanted);
    world.wait_for(is_ending);
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::TimedOut);
    assert!(end.took >= Duration::from_secs(2));
}

#[test]
fn a_rougher_stop_needs_no_permission() {
    let mut world = World::new();
    let mut wanted = line("exec sleep 1000");
    wanted.hold_end = true;
    world.start(1, &wanted);
    world.supervisor.stop(task(1), StopMode::Terminate);
    world.supervisor.stop(task(1), StopMode::Kill);
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::Interrupted);
    assert!(end.took < Duration::from_secs(2));
}

#[test]
fn what_fails_while_its_end_is_held_was_ended() {
    let mut world = World::new();
    let gate = world.fifo("gate");
    let outcomes = [(0, Outcome::Succeeded), (3, Outcome::Interrupted)];
    for (code, outcome) in outcomes {
        let mut wanted = line(format!("read x < gate; exit {code}"));
        wanted.hold_end = true;
        world.start(1, &wanted);
        world.supervisor.stop(task(1), StopMode::Terminate);
        world.wait_for(is_ending);
        release(&gate);
        assert_eq!(world.outcome_of(1), outcome);
        world.supervisor.proceed(task(1));
        assert!(world.supervisor.is_idle());
    }
}

#[test]
fn what_cannot_be_ended_can_be_given_up() {
    let mut world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    world.start(1, &line("echo $$ > said; exec cat never"));
    let pid = receive(&said);
    world.supervisor.abandon(task(1));
    let end = world.end_of(1);
    assert_eq!(end.outcome, Outcome::Interrupted);
    let told = "it did not end when it was killed, and still runs";
    assert_eq!(end.message.as_deref(), Some(told));
    assert!(world.supervisor.is_idle());
    assert!(is_alive(&pid));
    // Its slot is as good as new.
    assert!(world.run(2, &line("echo mine")).outcome.is_success());
    assert_eq!(world.log(2, 1), "mine\n");
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn one_that_is_stopped_as_soon_as_it_is_started_ends() {
    let mut world = World::new();
    world.run(1, &line("sleep 0"));
    for number in 2..200 {
        world.start(number, &line("sleep 1000"));
        world.supervisor.stop(task(number), StopMode::Terminate);
        assert_eq!(world.outcome_of(number), Outcome::Interrupted);
    }
}

#[test]
fn the_end_of_a_traced_process_is_told_when_its_tracer_lets_it_go() {
    needs!(Python);
    let mut world = World::new();
    let [said, gate, over] = ["said", "gate", "over"].map(|name| world.fifo(name));
    world.start(1, &line("echo $$ > said; read x < gate; exit 3"));
    let pid = receive(&said);
    // It is attached, lets the process end, and stays.
    world.write(
        "tracer.py",
        "import ctypes, os, sys\n\
         ptrace = ctypes.CDLL(None).ptrace\n\
         pid = int(sys.argv[1])\n\
         assert ptrace(0x4206, pid, 0, 0) == 0\n\
         open('said', 'w').close()\n\
         open('over').read()\n",
    );
    let mut tracer = std::process::Command::new("python3")
        .args(["tracer.py", pid.trim()])
        .current_dir(world.path(""))
        .spawn()
        .unwrap();
    receive(&said);
    let number = pid.trim().parse().unwrap();
    let program = Pid::from_raw(number).unwrap();
    let program = pidfd_open(program, PidfdFlags::empty()).unwrap();
    release(&gate);
    // It has ended, though its tracer has yet to take note of that.
    poll(&mut [PollFd::new(&program, PollFlags::IN)], None).unwrap();
    assert!(packhorse_proc::ProcEntry::of(number.cast_unsigned()).stat().unwrap().has_ended());
    // It is not awake all the time until then.
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let is_woken = |world: &World| {
        let readable = PollFlags::IN;
        let mut descriptors = [PollFd::new(&world.supervisor, readable)];
        poll(&mut descriptors, Some(&moment)) == Ok(1)
    };
    let mut wakes = 0;
    while is_woken(&world) {
        world.supervisor.drain(&mut world.events).unwrap();
        wakes += 1;
        assert!(wakes < 10);
    }
    assert!(world.supervisor.is_led(task(1)));
    release(&over);
    assert_eq!(world.outcome_of(1), Outcome::Failed { code: 3 });
    tracer.wait().unwrap();
}
