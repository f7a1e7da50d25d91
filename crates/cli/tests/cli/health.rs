//! GPUs that break: taken out, shown, put back.

use packhorse_fake_nvml::{FakeDevice, FakeProcess};
use rustix::process::Signal;

use crate::machine::{Machine, holding};
use crate::support::{Done, Running, finish};

#[test]
fn tasks_on_a_gpu_that_is_lost_run_again_elsewhere() {
    for by_xid in [false, true] {
        let machine = Machine::new(2);
        let task = holding("1G", "gate");
        machine.world.write("tasks", format!("{task}\n").repeat(2));
        let mut running = machine.start(&["run", "--vram", "20G", "tasks"]);
        running.wait_for("1.2 started");
        if by_xid {
            machine.state.xid(1, 79);
        } else {
            machine.state.lose(1);
        }
        running.wait_for("GPU 1 is taken out");
        running.wait_for("no retry is used up");
        machine.world.write("gate", "");
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        // It stays out until somebody puts it back.
        machine.state.find_again(1);
        let gpus = machine.packhorse(&["gpus"]).stdout;
        assert!(gpus.contains("taken out"), "{gpus}");
        let done = machine.packhorse(&["run", "--gpus", "0,1", "--", "true"]);
        assert!(done.stdout.contains("GPU 1 was taken out"), "{done:?}");
        let done = machine.packhorse(&["gpus", "--restore", "1"]);
        assert_eq!(done.code, 0, "{done:?}");
        let gpus = machine.packhorse(&["gpus"]).stdout;
        assert!(!gpus.contains("taken out"), "{gpus}");
    }
}

#[test]
fn a_program_that_fails_by_itself_takes_no_gpu_out() {
    let machine = Machine::new(1);
    machine.world.write("tasks", "exit 3");
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("run 1 started");
    machine.state.xid(0, 31);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.contains("taken out"), "{done:?}");
}

#[test]
fn when_every_gpu_is_lost_the_rest_is_kept_for_later() {
    let machine = Machine::new(1);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--vram", "2G", "tasks"]);
    running.wait_for("1.1 started");
    machine.state.lose(0);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("packhorse resume 1"), "{done:?}");
    machine.state.find_again(0);
    machine.packhorse(&["gpus", "--restore", "0"]);
    machine.world.write("gate", "");
    let done = machine.packhorse(&["resume", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_gpu_that_stops_answering_is_taken_out() {
    let machine = Machine::new(2);
    let task = holding("1G", "gate");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let mut command = machine.command(&["run", "--vram", "20G", "tasks"]);
    command.env("PACKHORSE_DRIVER_PATIENCE", "2s");
    let mut running = Running::start(command);
    running.wait_for("1.2 started");
    machine.state.hang(1);
    running.wait_for("GPU 1 is taken out: the driver has not answered for 2s");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    machine.state.answer(1);
}

#[test]
fn only_the_broken_gpu_of_a_group_is_taken_out() {
    let machine = Machine::new(2);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--gpus", "0+1", "--vram", "2G", "tasks"]);
    running.wait_for("1.1 started");
    machine.state.lose(0);
    let line = running.wait_for("is taken out");
    assert!(line.contains("GPU 0+1"), "{line}");
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    machine.state.find_again(0);
    let gpus = machine.packhorse(&["gpus", "--json"]);
    let gpus: serde_json::Value = serde_json::from_str(&gpus.stdout).unwrap();
    assert!(gpus[0]["taken_out"].is_string(), "{gpus}");
    assert!(gpus[1]["taken_out"].is_null(), "{gpus}");
    let done = machine.packhorse(&["gpus", "--restore", "0+1"]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// A machine whose first GPU hangs, and a way to ask it that loses patience soon.
struct Hanging {
    machine: Machine,
}

impl Hanging {
    fn new() -> Self {
        let machine = Machine::new(2);
        machine.state.hang(0);
        Self { machine }
    }

    fn packhorse(&self, words: &[&str]) -> Done {
        let mut command = self.machine.command(words);
        command.env("PACKHORSE_DRIVER_PATIENCE", "100ms");
        finish(command)
    }
}

#[test]
fn a_driver_that_does_not_answer_is_given_up_with_a_word() {
    let hanging = Hanging::new();
    let world = &hanging.machine.world;
    world.write("tasks", "touch started");
    let row = "Directory,Executable,Filename,Epochs,Priority\n.,sh,tasks,1,1\n";
    world.write("tasks.csv", row);
    for words in [
        &["gpus"][..],
        &["mps", "status"],
        &["run", "tasks"],
        &["run", "--gpus", "all", "tasks"],
        &["run", "--gpus", "0", "--vram", "1G", "tasks"],
        &["run", "--gpus", "0", "--gpu-model", "Fake", "tasks"],
        &["plan", "tasks"],
        &["probe", "--", "touch", "started"],
        &["csv", "tasks.csv"],
    ] {
        let done = hanging.packhorse(words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{words:?}");
        let told = |text: &str| done.stderr.matches(text).count();
        assert_eq!(told("the GPU driver does not answer yet"), 1, "{done:?}");
        assert_eq!(told("error: the GPU driver has not answered"), 1, "{done:?}");
        assert!(done.stderr.contains("hint: "), "{done:?}");
    }
    assert!(!world.work().join("started").exists());
}

#[test]
fn gpus_that_are_named_are_used_although_the_driver_does_not_answer() {
    let hanging = Hanging::new();
    let world = &hanging.machine.world;
    world.write("tasks", "echo $CUDA_VISIBLE_DEVICES > seen");
    let done = hanging.packhorse(&["run", "--gpus", "1", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("warning: the GPUs"), "{done:?}");
    assert_eq!(world.read("seen"), "1\n");
}

#[test]
fn a_driver_that_answers_late_is_waited_for() {
    let Hanging { machine } = Hanging::new();
    let running = machine.start(&["gpus"]);
    machine.state.await_hung_call(0).answer(0);
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(done.stdout.contains("NVIDIA Fake 24GB"), "{done:?}");
}

#[test]
fn waiting_for_a_driver_can_be_interrupted() {
    let Hanging { machine } = Hanging::new();
    let mut command = machine.command(&["run", "--", "true"]);
    command.env("PACKHORSE_DRIVER_PATIENCE", "1h");
    let running = Running::start(command);
    machine.state.await_hung_call(0);
    running.signal(Signal::INT);
    assert_eq!(running.finish().code, 130);
}

#[test]
fn a_patience_that_is_no_length_of_time_is_refused() {
    let machine = Machine::new(1);
    for words in [&["gpus"][..], &["run", "--", "true"]] {
        let mut command = machine.command(words);
        command.env("PACKHORSE_DRIVER_PATIENCE", "soon");
        let done = finish(command);
        assert_eq!(done.code, 2, "{done:?}");
        let named = done.stderr.contains("PACKHORSE_DRIVER_PATIENCE");
        assert!(named && done.stderr.contains("`soon`"), "{done:?}");
    }
}

#[test]
fn memory_that_stays_is_told_with_whoever_is_still_on_the_gpu() {
    let machine = Machine::new(1);
    // A stranger who really runs, was there before, and is to blame for nothing.
    let stranger = machine.world.program("sleep", ["1000"]).spawn();
    let mut stranger = stranger.unwrap();
    let there = FakeProcess::pretended(stranger.id(), 1 << 30);
    machine.state.process(&FakeDevice::new(0).uuid, &there);
    machine.state.linger(0);
    let (first, second) = (holding("9G", "first"), holding("2G", "second"));
    let text = format!("#packhorse vram=9G\n{first}\n#packhorse vram=1G\n{second}\n");
    machine.world.write("tasks", text);
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("1.2 started");
    machine.await_told(11 << 30);
    machine.world.write("first", "");
    let line = running.wait_for("1.1 warning: ");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(line.contains("GPU 0 still holds 9.0 GiB"), "{line}");
    let pid = stranger.id();
    assert!(line.contains(&format!("process {pid} (sleep of ")), "{line}");
    assert!(line.contains("(fake-cuda of task 1.2)"), "{line}");
    machine.state.release(0);
    machine.world.write("second", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn memory_that_stays_and_nobody_holds_is_told_as_such() {
    let machine = Machine::new(1);
    machine.state.linger(0);
    let last = machine.world.gate("last");
    let text = format!("{}\nread x < last\n", holding("9G", "gate"));
    machine.world.write("tasks", text);
    let mut running = machine.start(&["run", "--vram", "8G", "tasks"]);
    running.wait_for("1.2 started");
    machine.await_told(17 << 30);
    machine.world.write("gate", "");
    let line = running.wait_for("1.1 warning: ");
    assert!(line.contains("9.0 GiB"), "{line}");
    assert!(line.contains("the driver lists no process on it"), "{line}");
    last.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_gpu_that_does_not_answer_keeps_tasks_from_the_others_only_for_a_moment() {
    let machine = Machine::new(2);
    let mut running = machine.start(&["run"]);
    running.wait_for("run 1 started");
    machine.state.hang(1);
    running.send("#packhorse vram=2G\ntrue\n".repeat(4));
    running.end_input();
    let done = running.finish();
    machine.state.answer(1);
    assert_eq!(done.code, 0, "{done:?}");
    let told = done.stdout.matches("GPU 1 takes long to look at").count();
    assert_eq!(told, 1, "{}", done.stdout);
    // Nobody waited until it was taken out.
    assert!(!done.stdout.contains("is taken out"), "{}", done.stdout);
    assert_eq!(done.stdout.matches("started on GPU 0").count(), 4);
}
