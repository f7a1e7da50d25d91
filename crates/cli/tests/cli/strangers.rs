//! Programs on the GPUs that no run started: seen before a task is placed, and named in a
//! run's first line.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use packhorse_fake_nvml::{FakeDevice, FakeProcess, ProcessKind};

use crate::machine::{Machine, holding, taking};

const GIB: u64 = 1 << 30;

/// A living process that is ended with this.
struct Program(Child);

impl Program {
    /// One that calls itself so.
    fn called(name: &str) -> Self {
        let mut command = Command::new("cat");
        command.arg0(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A process has no command line until the kernel has loaded its program.
        let (stdin, stdout) = (child.stdin.as_mut().unwrap(), child.stdout.as_mut().unwrap());
        std::io::Write::write_all(stdin, b"x").unwrap();
        std::io::Read::read_exact(stdout, &mut [0]).unwrap();
        Self(child)
    }

    /// It holds so much of a GPU.
    fn on(&self, machine: &Machine, gpu: u32, memory: u64, kind: ProcessKind) {
        let process = FakeProcess { kind, ..FakeProcess::real(self.0.id(), memory) };
        machine.state.process(&FakeDevice::new(gpu).uuid, &process);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_task_is_not_placed_beside_strangers_where_anything_else_fits() {
    let machine = Machine::new(2);
    let stranger = Program::called("python");
    stranger.on(&machine, 0, 20 * GIB, ProcessKind::Compute);
    machine.world.write("tasks", taking("--peak 9G"));
    for share in ["1", "0.5", "0.25"] {
        let done = machine.packhorse(&["run", "--gpus", "0,1", "-g", share, "tasks"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stdout.contains(".1 started on GPU 1: "), "{done:?}");
        assert!(!done.stdout.contains("attempt"), "{done:?}");
        let first = done.stdout.lines().next().unwrap();
        let who = format!(
            "started, on GPUs 0, 1; others hold 20.0 GiB of GPU 0: process {} (python of root, 20.0 GiB)",
            stranger.0.id()
        );
        assert!(first.ends_with(&who), "{first}");
        assert_eq!(done.stdout.matches("others hold").count(), 1, "{done:?}");
    }
}

#[test]
fn of_gpus_with_strangers_the_one_is_taken_that_has_most_left() {
    let machine = Machine::new(2);
    machine.state.stranger(0, 20 * GIB);
    machine.state.stranger(1, 4 * GIB);
    machine.world.write("tasks", taking("--peak 9G"));
    for share in ["1", "0.5"] {
        let done = machine.packhorse(&["run", "-g", share, "tasks"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stdout.contains(".1 started on GPU 1: "), "{done:?}");
        assert!(!done.stdout.contains("attempt"), "{done:?}");
    }
}

#[test]
fn tasks_of_another_run_are_no_strangers() {
    let machine = Machine::new(2);
    machine.world.write("task", holding("10G", "gate"));
    let mut first = machine.start(&["run", "--gpus", "0", "-g", "0.5", "task"]);
    first.wait_for("1.1 started");
    machine.await_memory(0, 10 * GIB);
    let done = machine.packhorse(&["run", "-g", "0.5", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("others hold"), "{done:?}");
    machine.world.write("gate", "");
    assert_eq!(first.finish().code, 0);
}

#[test]
fn what_a_stranger_calls_itself_does_not_control_the_terminal() {
    let machine = Machine::new(1);
    let stranger = Program::called("/tmp/\x1b[2J\x1b]0;evil\x07\nrun 9 started\u{9b}31m");
    stranger.on(&machine, 0, GIB, ProcessKind::Compute);
    let done = machine.packhorse(&["run", "--", "true"]);
    let first = done.stdout.lines().next().unwrap();
    assert!(first.contains("others hold 1.0 GiB of GPU 0: process"), "{first}");
    assert!(!done.stdout.replace('\n', "").contains(char::is_control), "{done:?}");
    assert_eq!(done.stdout.lines().count(), 4, "{done:?}");
}

#[test]
fn programs_are_told_who_is_there() {
    let machine = Machine::new(2);
    let (python, desktop) = (Program::called("python"), Program::called("Xorg"));
    python.on(&machine, 1, 3 * GIB, ProcessKind::Compute);
    desktop.on(&machine, 1, 2 * GIB, ProcessKind::Graphics);
    // Too little to speak of.
    desktop.on(&machine, 0, 4 << 20, ProcessKind::Graphics);
    let done = machine.packhorse(&["run", "--json", "--", "true"]);
    let events = done.events();
    let wanted = serde_json::json!([{
        "gpu": "1",
        "memory": 5 * GIB,
        "processes": [
            { "pid": python.0.id(), "who": "python of root", "memory": 3 * GIB, "draws": false },
            { "pid": desktop.0.id(), "who": "Xorg of root", "memory": 2 * GIB, "draws": true },
        ],
    }]);
    assert_eq!(events[0]["strangers"], wanted);
}

#[test]
fn a_desktop_does_not_keep_a_gpu_from_tasks_that_are_placed_by_memory() {
    let machine = Machine::new(1);
    let desktop = Program::called("gnome-shell");
    desktop.on(&machine, 0, 1600 << 20, ProcessKind::Graphics);
    for vram in ["auto", "measure"] {
        machine.world.write("tasks", taking(&format!("--peak 4G --oom-exit {}", vram.len())));
        let done = machine.packhorse(&["run", "--vram", vram, "tasks"]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    machine.world.write("tasks", format!("{}\n", holding("8G", "gate")).repeat(2));
    let mut running = machine.start(&["run", "--vram", "11G", "tasks"]);
    running.wait_for("1 started");
    let why = machine.world.why("3.2");
    assert!(why.contains("(10.9 GiB free)"), "what it draws with is not given out: {why}");
    machine.world.write("gate", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_program_that_computes_and_draws_is_a_stranger() {
    let machine = Machine::new(2);
    let game = Program::called("blender");
    game.on(&machine, 0, 2 * GIB, ProcessKind::Both);
    let done = machine.packhorse(&["run", "--", "true"]);
    assert!(done.stdout.contains("1.1 started on GPU 1"), "{done:?}");
    assert!(!done.stdout.contains("only draws"), "{done:?}");
}
