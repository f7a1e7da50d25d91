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
    let why = machine.packhorse(&["why", "1.3"]);
    assert!(why.stdout.contains("9.0 GiB"), "{why:?}");
    assert!(why.stdout.contains("GPU 0"), "{why:?}");
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
    // It is only known to wait once the devices were looked at.
    let why = loop {
        let why = machine.packhorse(&["why", "1.1"]);
        if why.stdout.contains("20") {
            break why;
        }
    };
    assert!(why.stdout.contains("GPU 0"), "{why:?}");
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
    let task = taking("--peak 5G --steps 2 --step-time 60ms --hold 400ms");
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
    let task = taking("--peak 7G --child --hold 300ms");
    let words: Vec<&str> = task.split(' ').collect();
    let done = machine.packhorse(&[&["probe", "--json", "--"], &words[..]].concat());
    let probe: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(probe["peak"], 7 * GIB, "{done:?}");
}

#[test]
fn a_probe_is_remembered_and_shows_how_well_it_looked() {
    let machine = Machine::new(1);
    let task = taking("--peak 3G --hold 400ms --utilisation 60");
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
    let task = format!("{} --peak 4G --hold", program.display());
    machine
        .world
        .write("tasks", format!("{task} 201ms\n{task} 202ms\n"));
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
fn one_that_runs_out_of_memory_gets_more_then_a_gpu_to_itself_then_a_larger_one() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.memory_total = 80 * GIB;
        device.name = "NVIDIA Fake 80GB".to_owned();
    });
    let task = taking("--peak 40G --steps 20 --step-time 20ms");
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
    let task = taking("--peak 30G --steps 6 --step-time 150ms --oom silent");
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
fn a_gpu_is_free_only_when_the_driver_shows_the_memory_gone() {
    let machine = Machine::new(1);
    machine.state.linger(0);
    let first = taking("--peak 20G --hold 300ms");
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
        let why = machine.packhorse(&["why", &format!("{run}.2")]).stdout;
        assert!(why.contains("waits"), "{option:?}: {why}");
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
    let pause = std::time::Instant::now();
    while pause.elapsed() < std::time::Duration::from_millis(2600) {
        machine.packhorse(&["ls"]);
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
    // Until it has its memory.
    while !machine.packhorse(&["gpus"]).stdout.contains("20.0 GiB") {}
    let counted = taking("--peak 9G");
    running.send(format!("#packhorse vram=9G gpus=0.2\n{counted}\n"));
    running.end_input();
    loop {
        let why = machine.packhorse(&["why", "1.2"]).stdout;
        if why.contains("waits") {
            assert!(why.contains("9.0 GiB"), "{why}");
            break;
        }
        assert!(!why.contains("over"), "{why}");
    }
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
}

#[test]
fn the_ladder_is_not_undone_by_what_others_teach() {
    let machine = Machine::new(1);
    // All of one shape: most take little, one takes much, and says so late.
    let small = taking("--peak 1G --hold 150ms");
    let large = taking("--peak 14G --hold 150ms");
    let mut tasks = String::new();
    for number in 0..12 {
        let task = if number == 4 { &large } else { &small };
        tasks += &format!("#packhorse signature=one vram=auto\n{task}\n");
    }
    machine.world.write("tasks", tasks);
    let done = machine.packhorse(&["run", "--json", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let attempts = done
        .events()
        .into_iter()
        .filter(|event| event["event"] == "finished" && event["task"] == "1.5")
        .map(|event| event["attempts"].as_u64().unwrap())
        .next();
    assert!(attempts.is_some_and(|attempts| attempts <= 4), "{done:?}");
}
