//! GPU memory: promised, seen, learned, run out of. All through the real NVML
//! calls, against a pretended driver.

use packhorse_fake_nvml::fake_cuda_path;

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
    let words = [
        "run",
        "--vram",
        "9G",
        "--ignore-process",
        &stranger,
        "tasks",
    ];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_task_that_nothing_is_known_of_is_alone_until_it_was_measured() {
    let machine = Machine::new(1);
    let task = taking("--peak 5G --steps 2 --step-looks 3 --hold-looks 6");
    machine.world.write("tasks", format!("{task}\n").repeat(4));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(started_together(&done.stdout), 1, "{}", done.stdout);
    // The three others fit beside each other by what the first one showed.
    let rest = done.stdout.split_once("1.1 succeeded").unwrap().1;
    assert_eq!(started_together(rest), 3, "{rest}");
    let peaks = machine.packhorse(&["peaks", "--json"]);
    let peaks: serde_json::Value = serde_json::from_str(&peaks.stdout).unwrap();
    assert_eq!(peaks[0]["peak"], 5 * GIB);
    assert_eq!(peaks[0]["samples"], 4);
    assert_eq!(peaks[0]["model"], "NVIDIA Fake 24GB");
    // What was learned holds for the next run from its first task on.
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 4, "{}", done.stdout);
    // Unless it is forgotten.
    machine.packhorse(&["peaks", "--forget"]);
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 1, "{}", done.stdout);
}

#[test]
fn memory_of_child_processes_counts() {
    let machine = Machine::new(1);
    let task = taking("--peak 7G --child --hold-looks 6");
    let words: Vec<&str> = task.split(' ').collect();
    let done = machine.packhorse(&[&["probe", "--json", "--"], &words[..]].concat());
    let probe: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(probe["peak"], 7 * GIB, "{done:?}");
}

#[test]
fn a_probe_is_remembered_and_shows_how_well_it_looked() {
    let machine = Machine::new(1);
    let task = taking("--peak 3G --hold-looks 6 --utilisation 60");
    let words: Vec<&str> = task.split(' ').collect();
    let done = machine.packhorse(&[&["probe", "--"], &words[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("peak memory   3.0 GiB"), "{done:?}");
    assert!(done.stdout.contains("apart"), "{done:?}");
    assert!(done.stdout.contains("60 % at most"), "{done:?}");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 2, "{}", done.stdout);
}

#[test]
fn the_persons_own_probe_runs_first_and_once_for_each_shape() {
    let machine = Machine::new(1);
    let program = fake_cuda_path();
    let task = format!("{} --peak 4G --hold-looks", program.display());
    machine
        .world
        .write("tasks", format!("{task} 5\n{task} 6\n"));
    let words = [
        "run",
        "--vram",
        "auto",
        "--probe",
        "{} --utilisation 7",
        "tasks",
    ];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 1, "{}", done.stdout);
    assert!(
        done.stdout.contains("1.1 probe: measured: 4.0 GiB"),
        "{}",
        done.stdout
    );
    let rest = done.stdout.split_once("probe: measured").unwrap().1;
    assert_eq!(started_together(rest), 2, "{rest}");
    let show = machine.packhorse(&["show", "1.1"]).stdout;
    assert!(show.contains("  probe\n"), "{show}");
    let log = machine.packhorse(&["logs", "1.1", "--attempt", "1"]);
    assert_eq!(log.code, 0, "{log:?}");
}

#[test]
fn one_of_a_shape_is_measured_while_those_like_it_wait_and_others_do_not() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G");
    machine.world.write(
        "tasks",
        format!("#packhorse signature=one\n{task}\n").repeat(2)
            + &format!("#packhorse signature=other\n{task}\n"),
    );
    let probe = "{} --hold-until-exists gate";
    let mut running = machine.start(&["run", "--vram", "auto", "--probe", probe, "tasks"]);
    running.wait_for("1.1 started on GPU ");
    let why = machine.world.why("1.2");
    assert_eq!(why, "1.2 waits until one like it has been measured\n");
    running.wait_for("1.3 started on GPU ");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn if_a_probe_fails_the_next_of_its_shape_is_measured() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G --hold-looks 6");
    machine.world.write("tasks", format!("{task}\n").repeat(3));
    let probe = "if mkdir first; then exit 1; fi; {}";
    let done = machine.packhorse(&["run", "--vram", "auto", "--probe", probe, "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 2, "{}", done.stdout);
    assert!(
        done.stdout.contains("1.2 probe: measured: 4.0 GiB"),
        "{}",
        done.stdout
    );
}

#[test]
fn the_most_urgent_of_a_shape_is_the_one_that_is_measured() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G --hold-looks 6");
    machine.world.write(
        "tasks",
        format!("#packhorse priority=1\n{task}\n{task}\n{task}\n"),
    );
    let done = machine.packhorse(&["run", "--vram", "auto", "--probe", "{}", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 1, "{}", done.stdout);
    assert!(done.stdout.contains("1.2 probe: measured"), "{done:?}");
}

#[test]
fn probes_share_a_gpu_if_somebody_said_how_much_they_take_at_most() {
    let machine = Machine::new(1);
    let task = taking("--peak 4G");
    let line = |kind: &str| format!("#packhorse signature={kind}\n{task}\n");
    machine
        .world
        .write("tasks", ["a", "b", "c"].map(line).concat());
    let probe = "{} --hold-until-exists gate";
    let mut running = machine.start(&["run", "--vram", "9G", "--probe", probe, "tasks"]);
    running.wait_for("1.1 started on GPU 0 (probe)");
    running.wait_for("1.2 started on GPU 0 (probe)");
    let why = machine.world.why("1.3");
    assert!(why.contains("waits for 9.0 GiB"), "{why}");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn what_a_task_gets_is_what_was_seen_on_the_models_it_may_run_on() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.memory_total = 80 * GIB;
        device.name = "NVIDIA Fake 80GB".to_owned();
    });
    let run = |gpu: &str, peak: &str| {
        let task = taking(&format!("--peak {peak} --hold-looks 6"));
        machine.world.write("tasks", task);
        let words = ["run", "tasks", "--vram=auto", "--signature=s", "--gpus"];
        let done = machine.packhorse(&[&words[..], &[gpu]].concat());
        assert_eq!(done.code, 0, "{done:?}");
    };
    run("0", "5G");
    run("1", "20G");
    // Two fit beside each other by what was seen on this model.
    let task = holding("5G", "gate");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let words = ["run", "tasks", "--vram=auto", "--signature=s"];
    let mut running = machine.start(&[&words[..], &["--gpu-model", "24GB"]].concat());
    running.wait_for("3.2 started on GPU 0");
    machine.world.write("gate", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn one_that_runs_out_of_memory_gets_more_then_a_gpu_to_itself_then_a_larger_one() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.memory_total = 80 * GIB;
        device.name = "NVIDIA Fake 80GB".to_owned();
    });
    let task = taking("--peak 40G --steps 5 --step-looks 3 --hold-looks 6");
    machine.world.write("tasks", &task);
    let words = [
        "run",
        "--gpus",
        "0,1",
        "--vram",
        "10G",
        "--retries",
        "0",
        "tasks",
    ];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stdout
            .contains("out of GPU memory (PyTorch: CUDA out of memory)")
    );
    assert!(done.stdout.contains("1.1 succeeded"), "{done:?}");
    let show = machine.packhorse(&["show", "1.1"]).stdout;
    assert!(show.contains("note     out of GPU memory"), "{show}");
    assert!(show.contains("memory   40.0 GiB at most"), "{show}");
}

#[test]
fn one_that_fits_nowhere_fails_with_the_reason() {
    let machine = Machine::new(1);
    for (oom, sign) in [
        ("pytorch", "CUDA out of memory"),
        ("tensorflow", "OOM when allocating tensor"),
        ("jax", "RESOURCE_EXHAUSTED"),
        ("cublas", "CUBLAS_STATUS_ALLOC_FAILED"),
    ] {
        let task = taking(&format!("--peak 30G --steps 3 --oom {oom}"));
        machine.world.write("tasks", &task);
        let done = machine.packhorse(&["run", "--vram", "10G", "tasks"]);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.stdout.contains(sign), "{oom}: {}", done.stdout);
        assert!(
            done.stdout.contains("a GPU to itself"),
            "{oom}: {}",
            done.stdout
        );
    }
}

#[test]
fn one_that_dies_without_a_word_on_a_full_gpu_ran_out_of_memory() {
    let machine = Machine::new(1);
    let task = taking("--peak 30G --steps 6 --step-looks 4 --oom silent");
    machine.world.write("tasks", &task);
    let done = machine.packhorse(&["run", "--vram", "10G", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(
        done.stdout.contains("its GPU had no memory left"),
        "{}",
        done.stdout
    );
}

#[test]
fn a_person_can_add_signs_of_running_out() {
    let machine = Machine::new(1);
    machine
        .world
        .write("signs", "# ours\nall is lost\nexit 77\n");
    for task in ["echo all is lost; exit 3", "exit 77"] {
        machine.world.write("tasks", task);
        let mut command = machine.command(&["run", "--vram", "10G", "tasks"]);
        command.env("PACKHORSE_OOM_TEXTS", machine.world.work().join("signs"));
        let done = crate::support::finish(command);
        assert!(
            done.stdout.contains("out of GPU memory"),
            "{task}: {done:?}"
        );
    }
    machine.world.write("signs", "exit never\n");
    let mut command = machine.command(&["run", "--vram", "10G", "tasks"]);
    command.env("PACKHORSE_OOM_TEXTS", machine.world.work().join("signs"));
    let done = crate::support::finish(command);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("signs:1: `exit never`"), "{done:?}");
}

#[test]
fn the_victim_of_a_neighbour_runs_again_without_using_up_its_retries() {
    let machine = Machine::new(1);
    // It is promised 4 GiB and takes 18, one step at a time.
    let greedy = taking("--peak 18G --steps 2 --step-gate step --hold-until-exists end");
    // It keeps to its 8 GiB, but takes the second half late.
    let victim = taking("--peak 8G --steps 2 --step-gate half");
    machine.world.write(
        "tasks",
        format!("#packhorse vram=4G\n{greedy}\n#packhorse vram=8G\n{victim}\n"),
    );
    let mut running = machine.start(&["run", "--json", "tasks"]);
    running.wait_for("\"1.2\"");
    machine.world.write("step.1", "");
    machine.world.write("half.1", "");
    machine.world.write("step.2", "");
    // Until the greedy one is seen to have outgrown its promise.
    loop {
        let gpus = machine.packhorse(&["gpus", "--json"]);
        let gpus: serde_json::Value = serde_json::from_str(&gpus.stdout).unwrap();
        if gpus[0]["held_by"][0]["memory"].as_u64() > Some(20 * GIB) {
            break;
        }
    }
    machine.world.write("half.2", "");
    let line = running.wait_for("\"retrying\"");
    assert!(line.contains("because 1.1 outgrew"), "{line}");
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn after_16_times_another_ones_doing_is_as_good_as_its_own() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--retries", "1"]);
    let greedy = holding("5G", "end");
    running.send(format!("#packhorse vram=1G\n{greedy}\n"));
    running.wait_for("1.1 started");
    // Until it is seen to have outgrown its promise.
    loop {
        let gpus = machine.packhorse(&["gpus", "--json"]);
        let gpus: serde_json::Value = serde_json::from_str(&gpus.stdout).unwrap();
        if gpus[0]["held_by"][0]["memory"].as_u64() >= Some(5 * GIB) {
            break;
        }
    }
    let victim = "echo x >> tries; echo CUDA out of memory; exit 1";
    running.send(format!("#packhorse vram=1G\n{victim}\n"));
    running.wait_for("1.2 failed");
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    let spared = done.stdout.matches("no retry is used up").count();
    assert_eq!(spared, 16, "{}", done.stdout);
    // The first, 16 for nothing, and its own retry.
    assert_eq!(machine.world.read("tries").lines().count(), 18);
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
fn why_tells_of_tasks_that_run_or_are_over_too() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut running = machine.start(&["run", "tasks"]);
    running.wait_for("1.1 started");
    let why = machine.packhorse(&["why", "1"]).stdout;
    assert!(why.contains("has been running"), "{why}");
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    let why = machine.packhorse(&["why", "1"]).stdout;
    assert!(why.contains("over: succeeded"), "{why}");
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
    machine
        .state
        .change(1, |device| device.name = "NVIDIA H100 80GB".to_owned());
    machine
        .world
        .write("tasks", "echo $CUDA_VISIBLE_DEVICES > seen");
    let done = machine.packhorse(&["run", "--gpu-model", "h100", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("seen"), "1\n");
    machine.world.write(
        "tasks",
        "#packhorse model=H100\necho $CUDA_VISIBLE_DEVICES > seen2",
    );
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
        (
            "gpus=0 vram=2G",
            "it asks for GPU memory (vram), but for no GPU",
        ),
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
    machine
        .world
        .write("tasks", "#packhorse model=H100 vram=40G\ntouch out\n");
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
fn one_that_asked_for_no_memory_and_ran_out_waits_for_strangers_and_then_runs() {
    let machine = Machine::new(1);
    let stranger = machine.state.stranger(0, 20 * GIB);
    machine.world.write("tasks", taking("--peak 9G"));
    let mut running = machine.start(&["run", "tasks"]);
    let line = running.wait_for("1.1 attempt 1");
    assert!(line.contains("a GPU to itself"), "{line}");
    running.wait_for("nothing runs: 1.1 waits");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn mps_takes_no_file_for_its_answer() {
    let machine = Machine::new(1);
    machine.world.write("tasks", "true");
    let done = machine.packhorse(&["run", "--mps", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = machine.packhorse(&["run", "--mps", "false", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn one_that_strangers_left_no_room_runs_again_when_they_are_gone() {
    let machine = Machine::new(1);
    let task = taking("--peak 9G --steps 2 --step-gate step");
    machine.world.write("tasks", &task);
    let mut running = machine.start(&["run", "--vram", "9G", "tasks"]);
    running.wait_for("1.1 started");
    // They come while it is half-way.
    let stranger = machine.state.stranger(0, 18 * GIB);
    machine.world.write("step.2", "");
    let line = running.wait_for("1.1 attempt 1");
    assert!(line.contains("because others hold"), "{line}");
    assert!(line.contains("no retry is used up"), "{line}");
    machine.state.stranger_leaves(0, stranger);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("it runs again with"), "{done:?}");
}

#[test]
fn a_task_that_comes_after_a_pause_finds_strangers_that_came_meanwhile() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--vram", "9G"]);
    running.send(taking("--peak 1G\n"));
    running.wait_for("1.1 succeeded");
    // As long as the last look at the GPU counts.
    let uuid = packhorse_fake_nvml::FakeDevice::new(0).uuid;
    let (mut looks, mut pause) = (0, std::time::Instant::now());
    while pause.elapsed() < std::time::Duration::from_millis(2600) {
        machine.packhorse(&["ls"]);
        let by_now = machine.state.looks(&uuid).unwrap();
        if by_now != looks {
            (looks, pause) = (by_now, std::time::Instant::now());
        }
    }
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

#[test]
fn the_ladder_is_not_undone_by_what_others_teach() {
    let machine = Machine::new(1);
    let mut running = machine.start(&["run", "--json"]);
    // All of one shape: most take little, one takes much.
    let one_shape = |task: &str| format!("#packhorse signature=one vram=auto\n{task}\n");
    let small = one_shape(&taking("--peak 1G --hold-looks 6"));
    let large = one_shape(&taking("--peak 14G"));
    running.send(&small);
    running.wait_for("\"finished\"");
    let neighbour = holding("12G", "gate");
    running.send(format!("#packhorse vram=12G\n{neighbour}\n"));
    machine.await_memory(0, 12 * GIB);
    // It runs out of memory until it gets so much that it has to wait.
    running.send(&large);
    machine.world.why("1.3");
    running.send(small.repeat(3));
    for _ in 0..3 {
        running.wait_for("\"finished\"");
    }
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let events = done.events();
    let retries = events
        .iter()
        .filter(|event| event["event"] == "retrying" && event["task"] == "1.3");
    let given: Vec<f64> = retries
        .filter_map(|event| {
            let given = event["note"].as_str()?.split_once("it runs again with ")?.1;
            given.strip_suffix(" GiB")?.parse().ok()
        })
        .collect();
    assert!(given.len() > 3, "{given:?}");
    assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
}

#[test]
fn what_went_wrong_with_a_probe_is_said() {
    for (probe, said) in [
        (
            "exit 3 # {}",
            "1.1 probe: failed, so it does not tell how much memory is needed: exit status 3",
        ),
        ("no-such-program {}", "command not found: no-such-program"),
        (
            "true {}",
            "1.1 probe: it ended before its memory could be measured",
        ),
    ] {
        let machine = Machine::new(1);
        let task = taking("--peak 4G --hold-looks 6");
        machine.world.write("tasks", task);
        let words = ["run", "--vram", "auto", "--probe", probe, "tasks"];
        let done = machine.packhorse(&words);
        assert_eq!(done.code, 0, "{probe}: {done:?}");
        let line = done.stdout.lines().find(|line| line.contains("probe: "));
        // The task itself was measured instead.
        let peaks = machine.packhorse(&["peaks"]).stdout;
        assert!(peaks.contains("4.0 GiB"), "{probe}: {peaks}");
        assert!(
            line.is_some_and(|line| line.contains(said)),
            "{probe}: {done:?}"
        );
    }
}
