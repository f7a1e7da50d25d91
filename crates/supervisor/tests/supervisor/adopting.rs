//! Processes that somebody else started.

use std::process::{Command, Stdio};
use std::time::Duration;

use packhorse_model::{Outcome, StopMode};
use packhorse_proc::ProcEntry;
use packhorse_supervisor::AdoptedProcess;
use packhorse_test_parts::needs;

use crate::support::{World, alone, is_alive, receive, release, task};

fn adopted(leader: u32) -> AdoptedProcess {
    AdoptedProcess {
        task: task(1),
        attempt: 2,
        leader,
        start_time: ProcEntry::of(leader).stat().ok().map(|it| it.start_time),
        ran_before: Duration::from_mins(1),
        time_limit: None,
        grace: Duration::from_hours(1),
        hold_end: false,
    }
}

/// Starts a process that does not descend from us, marked as the task's attempt.
/// Its number comes through a fifo.
fn start_elsewhere(world: &World, script: &str) -> u32 {
    let said = world.fifo("said");
    world.write("script", &format!("echo $$ > said; {script}"));
    // The subreaper is above us: a process that is not ours keeps it from us.
    let keeper = "import ctypes, os, subprocess\n\
                  ctypes.CDLL(None).prctl(36, 1)\n\
                  subprocess.Popen(['setsid', 'sh', 'script'])\n\
                  os.close(1)\n\
                  while True:\n    \
                      try: os.wait()\n    \
                      except ChildProcessError: break\n";
    let mut keeper = Command::new("python3")
        .args(["-c", keeper])
        .current_dir(world.path(""))
        .env("PACKHORSE_HOME_ID", world.home_mark())
        .env("PACKHORSE_TASK", "1.1")
        .env("PACKHORSE_ATTEMPT", "2")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = receive(&said).trim().parse().unwrap();
    std::thread::spawn(move || keeper.wait());
    pid
}

#[test]
fn its_end_is_told_though_it_is_not_our_child() {
    needs!(Python);
    let mut world = World::new();
    let gate = world.fifo("gate");
    let leader = start_elsewhere(&world, "read x < gate; exit 5");
    world.supervisor.adopt(adopted(leader)).unwrap();
    assert!(world.supervisor.is_led(task(1)));
    assert_eq!(world.supervisor.owner_of(leader), Some(task(1)));
    release(&gate);
    let end = world.end_of(1);
    assert_eq!(end.attempt, 2);
    assert!(end.took >= Duration::from_mins(1));
    match end.message {
        None => assert_eq!(end.outcome, Outcome::Failed { code: 5 }),
        // An old kernel, and somebody was quicker than us.
        Some(told) => assert_eq!(told, "nobody could see how it ended"),
    }
}

#[test]
fn it_can_be_stopped_with_its_group_and_what_it_leaves() {
    needs!(Python);
    for how in [StopMode::Terminate, StopMode::Kill] {
        let mut world = World::new();
        world.fifo("never");
        let more = world.fifo("more");
        let leader = start_elsewhere(
            &world,
            "cat never & one=$!; setsid cat never & echo $one $! > more; wait",
        );
        let others = receive(&more);
        world.supervisor.adopt(adopted(leader)).unwrap();
        for pid in others.split_whitespace() {
            let pid = pid.parse().unwrap();
            assert_eq!(world.supervisor.owner_of(pid), Some(task(1)));
        }
        world.supervisor.stop(task(1), how);
        assert_eq!(world.outcome_of(1), Outcome::Interrupted);
        assert!(!is_alive(&leader.to_string()));
        for pid in others.split_whitespace() {
            assert!(!is_alive(pid), "{others}");
        }
        assert!(world.supervisor.is_idle());
    }
}

#[test]
fn its_time_limit_counts() {
    needs!(Python);
    let mut world = World::new();
    let leader = start_elsewhere(&world, "exec sleep 1000");
    let mut process = adopted(leader);
    process.time_limit = Some(Duration::from_millis(50));
    world.supervisor.adopt(process).unwrap();
    assert_eq!(world.outcome_of(1), Outcome::TimedOut);
}

#[test]
fn a_child_of_ours_is_reaped() {
    let mut world = World::new();
    let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
    world.supervisor.adopt(adopted(child.id())).unwrap();
    assert_eq!(world.outcome_of(1), Outcome::Failed { code: 7 });
    assert!(child.wait().is_err(), "nobody is left to wait for");
}

#[test]
fn another_process_of_the_same_number_is_not_adopted() {
    let mut world = World::new();
    let me = std::process::id();
    let mut process = adopted(me);
    process.start_time = process.start_time.map(|time| time + 1);
    let error = world.supervisor.adopt(process).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    for nobody in [0, u32::MAX, i32::MAX as u32] {
        let error = world.supervisor.adopt(adopted(nobody)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
    assert!(world.supervisor.is_idle());
}

#[test]
fn leftovers_of_a_run_are_ended_by_their_mark() {
    if !alone("adopting::leftovers_of_a_run_are_ended_by_their_mark") {
        return;
    }
    let world = World::new();
    world.fifo("never");
    let said = world.fifo("said");
    let mark = world.home_mark().to_owned();
    let start = |run: &str| {
        let child = Command::new("setsid")
            .args(["sh", "-c", "echo $$ > said; exec cat never"])
            .current_dir(world.path(""))
            .env("PACKHORSE_HOME_ID", &mark)
            .env("PACKHORSE_RUN", run)
            .spawn()
            .unwrap();
        receive(&said);
        child
    };
    let [mut one, mut two] = ["1", "2"].map(start);
    let of_run = packhorse_proc::RunProcesses { home: &mark, run: "1", leaders: &[] };
    let ended = packhorse_supervisor::end_leftovers(of_run, Duration::ZERO);
    assert_eq!(ended, 1);
    assert!(!one.wait().unwrap().success());
    assert!(is_alive(&two.id().to_string()));
    two.kill().unwrap();
    two.wait().unwrap();
}
