//! Whose turn it is to decide: one run at a time.

use packhorse_leases::{LeaseOwner, Leases};
use packhorse_model::{Bytes, LeaseContent, LeasedDevice, Milli, RunId};
use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::support::{Running, World, wait_until};

/// This test is another run.
fn run_of_bob(world: &World) -> Leases {
    let owner =
        LeaseOwner { user: "bob".to_owned(), run: Some(RunId(77)), ..LeaseOwner::default() };
    Leases::open(&world.leases(), owner).unwrap()
}

/// What is told by one who has GPU 0 whole.
fn gpu_0() -> LeaseContent {
    LeaseContent {
        held: vec![LeasedDevice {
            device: "0".into(),
            memory: Bytes(0),
            share: Milli(1000),
            attempts: 1,
            whole: true,
        }],
        claim: None,
    }
}

/// Has a run wait for the lock under which all runs decide, and which another one has: before
/// it answers a question, it tries to look at what others hold.
pub(super) fn await_wait_for_lock(world: &World, run: u32) {
    wait_until(&world.home(), || {
        let done = world.packhorse(["why", &format!("{run}.99")]);
        done.stderr.contains(&format!("there is no task {run}.99"))
    });
}

#[test]
fn a_gpu_that_was_free_before_the_lock_was_ours_may_not_be_free_any_more() {
    let world = World::new();
    let mut leases = run_of_bob(&world);
    let (nothing, gpu) = (LeaseContent::default(), gpu_0());
    leases.lock().unwrap().publish(&gpu).unwrap();
    let mut running = world.start(["run", "--gpus", "0", "--", "true"]);
    running.wait_for("run 1 started");
    assert!(world.why("1.1").contains("run 77 of bob"));

    let mut guard = leases.lock().unwrap();
    guard.publish(&nothing).unwrap();
    // It has heard that the GPU is free, and cannot take it yet.
    await_wait_for_lock(&world, 1);
    guard.publish(&gpu).unwrap();
    drop(guard);
    let why = world.why("1.1");
    assert!(why.contains("run 77 of bob"), "{why}");
    leases.lock().unwrap().publish(&nothing).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn while_another_run_decides_ctrl_c_is_heard() {
    let world = World::new();
    let mut leases = run_of_bob(&world);
    let guard = leases.lock().unwrap();
    let running = world.start(["run", "--gpus", "0", "--", "true"]);
    await_wait_for_lock(&world, 1);
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(!done.stdout.contains("1.1 started"), "{done:?}");
    drop(guard);
}

#[test]
fn one_that_never_ends_its_turn_is_not_waited_for() {
    let world = World::new();
    let mut leases = run_of_bob(&world);
    let guard = leases.lock().unwrap();
    let done = world.packhorse(["run", "--gpus", "0", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let told = format!("for three seconds (process {})", std::process::id());
    assert!(done.stdout.contains(&told), "{done:?}");
    drop(guard);
}

#[test]
fn a_run_that_waits_for_its_store_at_its_end_keeps_nothing_from_others() {
    let world = World::new();
    let done = world.packhorse(["run", "--slots", "1", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut leases = run_of_bob(&world);
    let somebody = rusqlite::Connection::open(world.database()).unwrap();
    somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut command = world.command(["run", "--gpus", "0", "-g", "0.5", "tasks"]);
    command.env("PACKHORSE_STORE_PATIENCE", "50ms");
    let mut running = Running::start(command);
    running.wait_for("2.1 started");
    let guard = leases.lock().unwrap();
    assert_eq!(guard.others().count(), 1);
    // It asks for its turn when its task is over.
    gate.pass(1);
    running.wait_for("the last results are not written yet");
    drop(guard);
    let mut guard = leases.lock().unwrap();
    assert!(guard.warning().is_none(), "it has the lock");
    assert_eq!(guard.others().count(), 0, "it has the GPU");
    drop(guard);
    somebody.execute_batch("ROLLBACK").unwrap();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_run_that_cannot_see_what_others_hold_starts_nothing_until_it_can() {
    let world = World::new();
    let mut leases = run_of_bob(&world);
    let mut running = world.start(["run", "--gpus", "0"]);
    running.send("true\n");
    running.wait_for("1.1 succeeded");
    leases.lock().unwrap().publish(&gpu_0()).unwrap();
    let limit = |pid, current| {
        let current = Some(current);
        let maximum = Some(1000);
        prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    limit(running.pid(), 3);
    running.send("true\n");
    running.wait_for("what other runs hold cannot be seen at the moment: Too many open files");
    limit(running.pid(), 1000);
    let why = world.why("1.2");
    assert!(why.contains("run 77 of bob"), "{why}");
    leases.lock().unwrap().publish(&LeaseContent::default()).unwrap();
    running.end_input();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}
