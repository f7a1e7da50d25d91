//! Which GPUs are meant, and what may be done with them: numbers that mean two things, compute
//! modes, small cards.

use packhorse_fake_nvml::{FakeComputeMode, FakeDevice, FakeMig, FakeProcess, Mig};

use crate::machine::{Machine, taking};
use crate::support::{Done, Running, finish};

fn uuid(index: u32) -> String {
    FakeDevice::new(index).uuid
}

impl Machine {
    fn run_with(&self, variable: &str, value: &str, words: &[&str]) -> Done {
        let mut command = self.command(&[&["run"], words].concat());
        command.env(variable, value);
        finish(command)
    }

    fn set_mode(&self, index: u32, mode: FakeComputeMode) {
        self.state.change(index, |device| device.compute_mode = mode);
    }
}

#[test]
fn gpus_outside_of_what_the_environment_allows_are_an_error_that_names_both() {
    let machine = Machine::new(4);
    let seen = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES > seen"];
    let words = |gpus| [&["--gpus", gpus], &seen[..]].concat();
    let done = machine.run_with("CUDA_VISIBLE_DEVICES", "2,3", &words("0,1"));
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    let both = "--gpus names 0,1, and CUDA_VISIBLE_DEVICES allows 2 and 3";
    assert!(done.stderr.contains(both), "{done:?}");
    assert!(!machine.world.work().join("seen").exists());
    let done = machine.run_with("CUDA_VISIBLE_DEVICES", "2,3", &words("2,3"));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen"), "2\n");
}

#[test]
fn a_run_inside_a_task_may_name_other_gpus_unless_slurm_has_given_them() {
    let machine = Machine::new(4);
    for (job, code) in [(None, 0), (Some("7"), 2)] {
        let mut command = machine.command(&["run", "--gpus", "0", "--", "true"]);
        command.env("CUDA_VISIBLE_DEVICES", "2,3").env("PACKHORSE_TASK", "1.1");
        command.envs(job.map(|job| ("SLURM_JOB_ID", job)));
        let done = finish(command);
        assert_eq!(done.code, code, "{done:?}");
    }
}

#[test]
fn tasks_run_where_they_are_counted_whatever_order_programs_count_in() {
    let machine = Machine::new(2);
    // To CUDA, the fastest is the first.
    machine.state.change(1, |device| device.speed = 9);
    let words = ["--gpus", "0", "--output", "inherit", "--"];
    let program = taking("");
    let words = [&words[..], &[program.trim()]].concat();
    let done = machine.run_with("CUDA_DEVICE_ORDER", "FASTEST_FIRST", &words);
    assert!(done.stdout.contains(&format!("device 0: {}", uuid(0))), "{done:?}");
    let done = machine.run_with("CUDA_DEVICE_ORDER", "PCI_BUS_ID", &words);
    assert!(done.stdout.contains(&format!("device 0: {}", uuid(0))), "{done:?}");
    // A task may say it for itself.
    let own = serde_json::json!({"command": taking("> own"),
        "env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}});
    machine.world.write("tasks.jsonl", own.to_string());
    let done = machine.packhorse(&["run", "--gpus", "0", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("own"), format!("device 0: {}\n", uuid(0)));
}

#[test]
fn a_task_is_not_given_two_mig_instances() {
    let machine = Machine::new(2);
    let parts = vec![FakeMig::new(1, 0), FakeMig::new(1, 1)];
    machine.state.change(1, |device| device.mig = Mig::Enabled(parts.clone()));
    let both = format!("{},{}", parts[0].uuid, parts[1].uuid);
    for gpus in [both.as_str(), "all"] {
        let done = machine.packhorse(&["run", "--gpus", gpus, "-g", "2", "--", "touch", "ran"]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("a program sees a single MIG instance"), "{done:?}");
        assert!(!machine.world.work().join("ran").exists());
    }
    let done = machine.packhorse(&["run", "--gpus", &both, "-g", "1", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    // Beside whole GPUs, those are taken.
    let machine = Machine::new(3);
    machine.state.change(0, |device| device.mig = Mig::Enabled(parts.clone()));
    let seen = ["-g", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES > seen"];
    let done = machine.packhorse(&[&["run"], &seen[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen"), format!("{},{}\n", uuid(1), uuid(2)));
}

#[test]
fn a_gpu_for_one_process_is_not_shared() {
    let machine = Machine::new(2);
    for index in 0..2 {
        machine.set_mode(index, FakeComputeMode::ExclusiveProcess);
    }
    for sharing in [["-g", "0.5"], ["--vram", "4G"], ["--vram", "auto"]] {
        let done = machine.packhorse(&[&["run"], &sharing[..], &["--", "touch", "ran"]].concat());
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("EXCLUSIVE_PROCESS"), "{done:?}");
        assert!(!machine.world.work().join("ran").exists());
    }
    let done = machine.packhorse(&["run", "--", taking("").trim()]);
    assert_eq!(done.code, 0, "{done:?}");
    // Where others can be shared, those are.
    machine.set_mode(1, FakeComputeMode::Default);
    machine.world.write("tasks", format!("{}\n", taking("")).repeat(4));
    let done = machine.packhorse(&["run", "-g", "0.5", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches(" started on GPU 1").count(), 4, "{done:?}");
}

#[test]
fn a_gpu_for_one_process_that_a_stranger_has_is_waited_for() {
    let machine = Machine::new(1);
    machine.set_mode(0, FakeComputeMode::ExclusiveProcess);
    let stranger = machine.state.stranger(0, 1 << 30);
    let mut running = Running::start(machine.command(&["run", "--", taking("").trim()]));
    running.wait_for("run 1 started");
    let why = machine.world.why("1.1");
    assert!(why.contains("a stranger's program has GPU 0, which takes one process"), "{why}");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    // A desktop only draws.
    let desktop = FakeProcess {
        kind: packhorse_fake_nvml::ProcessKind::Graphics,
        ..FakeProcess::pretended(4_000_000, 1 << 30)
    };
    machine.state.process(&uuid(0), &desktop);
    let done = machine.packhorse(&["run", "--", taking("").trim()]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn compute_modes_are_shown_and_what_is_prohibited_is_not_used() {
    let machine = Machine::new(3);
    machine.set_mode(0, FakeComputeMode::Prohibited);
    machine.set_mode(1, FakeComputeMode::ExclusiveProcess);
    let shown = machine.packhorse(&["gpus"]).stdout;
    assert!(shown.contains("compute prohibited"), "{shown}");
    assert!(shown.contains("one process at a time"), "{shown}");
    let json = machine.packhorse(&["gpus", "--json"]).json();
    let modes = ["prohibited", "exclusive-process", "default"];
    assert_eq!([0, 1, 2].map(|at| json[at]["compute_mode"].as_str().unwrap()), modes);
    let done = machine.packhorse(&["run", "--", "true"]);
    assert!(
        done.stderr.contains("GPU 0 is left out: it is in compute mode PROHIBITED"),
        "{done:?}"
    );
    assert!(done.stdout.starts_with("run 1 started, on GPUs 1, 2\n"), "{done:?}");
    let done = machine.packhorse(&["run", "--gpus", "0", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("nvidia-smi -i 0 -c DEFAULT"), "{done:?}");
}

#[test]
fn a_small_card_for_the_screen_is_left_out_unless_it_is_named() {
    let machine = Machine::new(3);
    machine.state.change(0, |device| {
        device.memory_total = 4 << 30;
        device.display_active = Some(true);
    });
    machine.world.write("tasks", taking("--peak 9G"));
    let done = machine.packhorse(&["run", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let word =
        "GPU 0 is left out: it has only 4.0 GiB of memory, less than a quarter of the largest";
    assert_eq!(done.stderr.matches(word).count(), 1, "{done:?}");
    assert!(done.stdout.starts_with("run 1 started, on GPUs 1, 2\n"), "{done:?}");
    for (variable, value, gpus) in [("A", "", "0,1"), ("CUDA_VISIBLE_DEVICES", "0,1", "all")] {
        let done = machine.run_with(variable, value, &["--gpus", gpus, "--", "true"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        assert!(done.stdout.contains("started, on GPUs 0, 1"), "{done:?}");
    }
}
