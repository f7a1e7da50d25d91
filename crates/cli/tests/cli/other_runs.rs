//! Runs that know of each other.

use rustix::process::Signal;

use crate::machine::{Machine, holding, taking};

#[test]
fn two_runs_never_promise_the_same_memory() {
    let machine = Machine::new(1);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut first = machine.start(&["run", "--vram", "15G", "tasks"]);
    first.wait_for("1.1 started");
    let gpus = machine.packhorse(&["gpus"]).stdout;
    assert!(
        gpus.contains("TAKEN") && gpus.contains("15.0 GiB"),
        "{gpus}"
    );
    let mut second = machine.start(&["run", "--vram", "15G", "tasks"]);
    second.wait_for("run 2 started");
    // What it was promised and what it was seen to hold of that is told once.
    let why = machine.world.why("2.1");
    let told = "(8.5 GiB free): other runs hold 15.0 GiB of GPU 0; it is first in line";
    assert!(why.contains(told), "{why}");
    // A third one that fits beside the first does start.
    machine.world.write("small", taking("--peak 1G"));
    let done = machine.packhorse(&["run", "--vram", "5G", "small"]);
    assert_eq!(done.code, 0, "{done:?}");
    machine.world.write("gate", "");
    let first = first.finish();
    assert_eq!(first.code, 0, "{first:?}");
    let second = second.finish();
    assert_eq!(second.code, 0, "{second:?}");
}

#[test]
fn a_run_that_was_killed_holds_nothing_any_more() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut first = machine.start(&["run", "tasks"]);
    first.wait_for("1.1 started");
    let mut second = machine.start(&["run", "--", "true"]);
    second.wait_for("run 2 started");
    machine.world.why("2.1");
    first.signal(Signal::KILL);
    let second = second.finish();
    assert_eq!(second.code, 0, "{second:?}");
    gate.pass(1);
}

#[test]
fn without_leases_runs_do_not_wait_for_each_other() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut first = machine.start(&["run", "tasks"]);
    first.wait_for("1.1 started");
    let done = machine.packhorse(&["run", "--no-leases", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn leases_need_no_driver() {
    let world = crate::support::World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "7", "tasks"]);
    first.wait_for("1.1 started");
    let done = world.packhorse(["run", "--gpus", "8", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let mut second = world.start(["run", "--gpus", "7", "--", "true"]);
    second.wait_for("run 3 started");
    let why = world.why("3.1");
    assert!(why.contains("GPU 7"), "{why}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn however_many_runs_there_are_no_gpu_goes_to_two_of_them() {
    let world = crate::support::World::new();
    // A folder for each GPU that is in use: it can be made only once.
    let task = "mkdir gpu-$CUDA_VISIBLE_DEVICES || echo twice >> overlaps; /bin/true; \
        /bin/true; rmdir gpu-$CUDA_VISIBLE_DEVICES\n";
    world.write("tasks", task.repeat(4));
    let start = |_| world.start(["run", "--gpus", "0,1", "-q", "tasks"]);
    let runs: Vec<_> = (0..60).map(start).collect();
    for run in runs {
        let done = run.finish();
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert!(!world.work().join("overlaps").exists());
}

#[test]
fn a_device_whose_share_is_given_out_still_has_memory_that_others_may_take() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut first = machine.start(&["run"]);
    // One that counts memory, so that its own look at the GPU is fresh.
    let half = "#packhorse gpus=0.5\nread x < gate\n".repeat(2);
    let counting = holding("1G", "go");
    let text = format!("{half}#packhorse vram=1G\n{counting}\n");
    first.send(text);
    first.wait_for("1.3 started");
    machine.world.write("second", holding("1G", "go"));
    let mut second = machine.start(&["run", "--vram", "15G", "second"]);
    second.wait_for("2.1 started");
    first.send("#packhorse vram=15G\ntrue\n");
    first.end_input();
    let why = machine.world.why("1.4");
    assert!(why.contains("other runs hold 15.0 GiB"), "{why}");
    machine.world.write("go", "");
    assert_eq!(second.finish().code, 0);
    gate.pass(2);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn what_others_could_not_be_told_is_told_again() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut running = machine.start(&["run"]);
    running.wait_for("run 1 started");
    // Something stands where the lease would be written.
    let pid = running.pid().as_raw_nonzero();
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let born = stat.split(' ').nth(21).unwrap();
    let user = rustix::process::getuid().as_raw();
    let leases = machine.world.work().parent().unwrap().join("leases");
    let obstacle = leases.join(format!("{user}-{pid}-{born}.new"));
    fs_err::create_dir_all(&obstacle).unwrap();
    running.send("read x < gate\n");
    running.wait_for("warning");
    fs_err::remove_dir(&obstacle).unwrap();
    while !machine.packhorse(&["gpus"]).stdout.contains("TAKEN") {}
    running.end_input();
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
}
