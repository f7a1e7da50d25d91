//! GPU memory: promised and seen, ours and others'. All through the real NVML
//! calls, against a pretended driver.

mod kinds;
mod measuring;
mod running_out;
mod unknown;

use crate::machine::{Machine, holding, taking};

const GIB: u64 = 1 << 30;

/// Lines that say that a task started, up to the first that ended.
fn started_together(output: &str) -> usize {
    let before = output.split(" succeeded in ").next().unwrap();
    before.matches(" started on ").count()
}

#[test]
fn as_many_tasks_run_on_a_gpu_as_fit_into_its_memory() {
    let machine = Machine::new(1);
    let task = holding("9G", "gate");
    machine.world.write("tasks", format!("{task}\n").repeat(3));
    let mut running = machine.start(&["run", "--vram", "9G", "tasks"]);
    running.wait_for("1.2 started on GPU 0");
    let why = machine.world.why("1.3");
    assert!(why.contains("9.0 GiB"), "{why}");
    assert!(why.contains("GPU 0"), "{why}");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(started_together(&done.stdout), 2, "{}", done.stdout);
}

#[test]
fn strangers_memory_makes_tasks_wait_and_not_fail() {
    let machine = Machine::new(1);
    let stranger = machine.state.stranger(0, 20 * GIB);
    let task = taking("--peak 9G");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--vram", "9G", "tasks"]);
    running.wait_for("run 1 started");
    let why = machine.world.why("1.1");
    assert!(why.contains("others hold 20.0 GiB of GPU 0"), "{why}");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
}

#[test]
fn ignored_processes_hold_nothing_back() {
    let machine = Machine::new(1);
    let stranger = machine.state.stranger(0, 20 * GIB).to_string();
    let task = taking("--peak 2G");
    machine.world.write("tasks", &task);
    let words = ["run", "--vram", "9G", "--ignore-process", &stranger, "tasks"];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_gpu_is_free_only_when_the_driver_shows_the_memory_gone() {
    let machine = Machine::new(1);
    machine.state.linger(0);
    let first = taking("--peak 20G --hold-looks 6");
    let second = taking("--peak 9G");
    machine.world.write("tasks", format!("{first}\n{second}\n"));
    let mut running = machine.start(&["run", "--vram", "20G", "tasks"]);
    running.wait_for("1.1 succeeded");
    running.wait_for("1.1 warning: GPU 0 still holds 20.0 GiB");
    machine.state.release(0);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
}

#[test]
fn vram_needs_a_driver_that_knows_the_memory() {
    let world = crate::support::World::new();
    let done = world.packhorse(["run", "--gpus", "0", "--vram", "9G", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("no driver to ask"), "{done:?}");
}

#[test]
fn what_no_gpu_has_is_refused_before_anything_starts() {
    let machine = Machine::new(1);
    let done = machine.packhorse(&["run", "--vram", "30G", "--", "touch", "started"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("30.0 GiB"), "{done:?}");
    assert!(!machine.world.work().join("started").exists());
    let done = machine.packhorse(&["run", "--gpu-model", "H100", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("NVIDIA Fake 24GB"), "{done:?}");
}

#[test]
fn main_memory_and_busy_cores_are_counted() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate\n".repeat(2));
    let total = rustix::system::sysinfo();
    let most = total.totalram * u64::from(total.mem_unit) / 3 * 2;
    let ram = format!("{most}B");
    for option in [["--ram", ram.as_str()], ["--cpu", "0.6"]] {
        let few = ["taskset", "-c", "0"];
        let mut command = machine.command(&["run", "-g", "0.1"]);
        command.args(option).arg("tasks");
        if option[0] == "--cpu" {
            // On one core, so that two such tasks do not fit.
            let mut pinned = machine.world.program(few[0], &few[1..]);
            pinned.arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                if let Some(value) = value {
                    pinned.env(name, value);
                }
            }
            command = pinned;
        }
        let mut running = crate::support::Running::start(command);
        let line = running.wait_for(".1 started");
        let run = line.split('.').next().unwrap().to_owned();
        machine.world.why(&format!("{run}.2"));
        gate.pass(2);
        assert_eq!(running.finish().code, 0);
    }
}

#[test]
fn tasks_go_only_to_gpus_of_the_model_they_ask_for() {
    let machine = Machine::new(3);
    machine.state.change(1, |device| device.name = "NVIDIA H100 80GB".to_owned());
    machine.world.write("tasks", "echo $CUDA_VISIBLE_DEVICES > seen");
    let done = machine.packhorse(&["run", "--gpu-model", "h100", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen"), "1\n");
    machine.world.write("tasks", "#packhorse model=H100\necho $CUDA_VISIBLE_DEVICES > seen2");
    let done = machine.packhorse(&["run", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen2"), "1\n");
}

#[test]
fn a_wish_in_a_file_that_no_gpu_here_can_meet_starts_nothing() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.name = "NVIDIA H100 80GB".to_owned();
        device.memory_total = 80 * GIB;
    });
    let before = "touch out\n";
    for (wish, words) in [
        ("model=V100", "no GPU here is called `V100`"),
        ("gpus=0 vram=2G", "it asks for GPU memory (vram), but for no GPU"),
        (
            "model=24GB vram=40G",
            "it needs 40.0 GiB of GPU memory, but the largest GPU that it may use has 23.5 GiB",
        ),
    ] {
        let line = format!("{before}#packhorse {wish}\ntouch out\n");
        machine.world.write("tasks", line);
        let done = machine.packhorse(&["run", "tasks"]);
        assert_eq!(done.code, 2, "{done:?}");
        let place = "tasks:3: this task could never run: ";
        assert!(done.stderr.contains(&format!("{place}{words}")), "{done:?}");
        assert!(!machine.world.work().join("out").exists(), "{done:?}");
    }
    // What some GPU can give is no mistake.
    machine.world.write("tasks", "#packhorse model=H100 vram=40G\ntouch out\n");
    let done = machine.packhorse(&["run", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_model_in_a_pipe_that_no_gpu_here_has_is_refused_before_its_turn() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut running = machine.start(&["run"]);
    running.send("read x < gate\n");
    running.wait_for("1.1 started");
    running.send("#packhorse model=V100\ntouch out\n");
    // The only GPU is still taken.
    running.wait_for("no GPU is of a model that it may use");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!machine.world.work().join("out").exists(), "{done:?}");
}

#[test]
fn a_task_that_comes_after_a_pause_finds_strangers_that_came_meanwhile() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--vram", "9G"]);
    running.send(taking("--peak 1G\n"));
    running.wait_for("1.1 succeeded");
    // As long as the last look at the GPU counts.
    machine.await_no_look(std::time::Duration::from_millis(2600));
    let stranger = machine.state.stranger(0, 20 * GIB);
    running.send(taking("--peak 9G\n"));
    running.end_input();
    running.wait_for("nothing runs: 1.2 waits");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
}

#[test]
fn what_ran_before_anybody_counted_memory_counts_too() {
    let machine = Machine::new(1);
    let plain = holding("20G", "gate");
    let mut running = machine.start(&["run", "-g", "0.5"]);
    running.send(format!("{plain}\n"));
    running.wait_for("1.1 started");
    machine.await_memory(0, 20 * GIB);
    let counted = taking("--peak 9G");
    running.send(format!("#packhorse vram=9G gpus=0.2\n{counted}\n"));
    running.end_input();
    let why = machine.world.why("1.2");
    assert!(why.contains("9.0 GiB"), "{why}");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
}
