//! Who runs where: shares of GPUs, several GPUs, groups.

use std::collections::BTreeMap;

use crate::cores::our_cores;
use crate::support::{Gate, Running, World};

/// Starts so many tasks that wait at the gate.
fn waiting(world: &World, options: &[&str], tasks: usize) -> (Running, Gate) {
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate\n".repeat(tasks));
    let running = world.start([&["run", "tasks"], options].concat());
    (running, gate)
}

/// The devices in a line such as `1.2 started on GPUs 0, 1: python train.py`.
fn devices(line: &str) -> Option<Vec<&str>> {
    let (_, rest) = line.split_once(" started on ")?;
    let (devices, _) = rest.split_once(": ")?;
    let devices = devices.trim_start_matches("GPUs ");
    Some(devices.trim_start_matches("GPU ").split(", ").collect())
}

/// How many tasks were on each GPU at the same time, at most.
fn most_at_once(output: &str) -> BTreeMap<&str, usize> {
    let mut on: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut most = BTreeMap::new();
    for line in output.lines() {
        let task = line.split(' ').next().unwrap_or_default();
        for device in devices(line).unwrap_or_default() {
            let tasks = on.entry(device).or_default();
            tasks.push(task);
            let before = most.entry(device).or_insert(0);
            *before = tasks.len().max(*before);
        }
        if line.contains(" succeeded in ") {
            for tasks in on.values_mut() {
                tasks.retain(|other| *other != task);
            }
        }
    }
    most
}

/// Starts tasks, waits until so many of them have started while none may end,
/// then lets all end. Gives what was printed.
fn play(options: &[&str], tasks: usize, at_once: usize) -> String {
    let world = World::new();
    let (mut running, gate) = waiting(&world, options, tasks);
    for number in 1..=at_once {
        running.wait_for(&format!("1.{number} started"));
    }
    gate.pass(tasks);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    done.stdout
}

#[test]
fn two_halves_share_a_gpu_and_a_third_waits() {
    let output = play(&["--gpus", "0", "-g", "0.5"], 3, 2);
    assert_eq!(most_at_once(&output), BTreeMap::from([("0", 2)]));
}

#[test]
fn three_thirds_fit_on_one_gpu_and_a_fourth_waits() {
    let output = play(&["--gpus", "0", "-g", "1/3"], 4, 3);
    assert_eq!(most_at_once(&output), BTreeMap::from([("0", 3)]));
}

#[test]
fn a_task_has_a_gpu_to_itself_unless_told_otherwise() {
    let output = play(&["--gpus", "0,1"], 3, 2);
    assert_eq!(most_at_once(&output), BTreeMap::from([("0", 1), ("1", 1)]));
}

#[test]
fn tasks_of_two_gpus_take_two_of_four() {
    let output = play(&["--gpus", "0,1,2,3", "-g", "2"], 3, 2);
    let all = ["0", "1", "2", "3"].map(|device| (device, 1));
    assert_eq!(most_at_once(&output), BTreeMap::from(all));
    for line in output.lines().filter(|line| line.contains("started on")) {
        assert_eq!(devices(line).unwrap().len(), 2, "{line}");
    }
}

#[test]
fn at_most_so_many_tasks_are_on_a_gpu() {
    let options = ["--gpus", "0", "-g", "0.1", "--max-per-gpu", "2"];
    let output = play(&options, 3, 2);
    assert_eq!(most_at_once(&output), BTreeMap::from([("0", 2)]));
}

#[test]
fn halves_use_all_gpus_while_nobody_waits_for_a_whole_one() {
    for options in
        [&["--gpus", "0,1", "-g", "0.5"][..], &["--gpus", "0,1", "-g", "0.5", "--place", "pack"]]
    {
        let output = play(options, 2, 2);
        let places: Vec<_> = output.lines().filter_map(devices).flatten().collect();
        assert_eq!(places, ["0", "1"]);
        let output = play(options, 4, 4);
        let places: Vec<_> = output.lines().filter_map(devices).flatten().collect();
        assert_eq!(places, ["0", "1", "0", "1"]);
    }
}

/// Where tasks that need these parts of GPUs start if there are three of those.
fn places_of(parts: [&str; 3]) -> Vec<String> {
    let world = World::new();
    let gate = world.gate("gate");
    let lines = parts.map(|part| format!("#packhorse gpus={part}\nread x < gate\n"));
    world.write("tasks", lines.concat());
    let mut running = world.start(["run", "--gpus", "0,1,2", "tasks"]);
    for number in 1..=3 {
        running.wait_for(&format!("1.{number} started"));
    }
    gate.pass(3);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let places = done.stdout.lines().filter_map(devices).flatten();
    places.map(String::from).collect()
}

#[test]
fn halves_share_a_gpu_for_one_that_waits_for_whole_ones() {
    assert_eq!(places_of(["0.5", "0.5", "2"]), ["0", "0", "1", "2"]);
}

#[test]
fn halves_leave_no_room_for_a_task_that_has_started() {
    assert_eq!(places_of(["1", "0.5", "0.5"]), ["0", "1", "2"]);
}

#[test]
fn spreading_uses_all_gpus_evenly() {
    let options = ["--gpus", "0,1", "-g", "0.25", "--place", "spread"];
    let output = play(&options, 4, 4);
    let places: Vec<_> = output.lines().filter_map(devices).flatten().collect();
    assert_eq!(places, ["0", "1", "0", "1"]);
}

#[test]
fn a_task_that_needs_the_whole_gpu_waits_for_those_that_share_it() {
    let world = World::new();
    let gate = world.gate("gate");
    let wait = "read x < gate";
    let input = format!("#packhorse gpus=0.5\n{wait}\n#packhorse gpus=1\n{wait}\n");
    world.write("tasks", input);
    let mut running = world.start(["run", "--gpus", "0", "tasks"]);
    running.wait_for("1.1 started");
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(most_at_once(&done.stdout), BTreeMap::from([("0", 1)]));
}

#[test]
fn a_task_sees_the_gpus_that_it_was_given() {
    for (gpus, options, wanted) in [
        (&["0+1", "2+3"][..], &[][..], ["0,1", "2,3"]),
        (&["0,1,2,3"], &["-g", "2"], ["0,1", "2,3"]),
        (&["0+1,2+3", "4+5,6+7"], &["-g", "2"], ["0,1,2,3", "4,5,6,7"]),
        (&["GPU-5c2", "MIG-7"], &[], ["GPU-5c2", "MIG-7"]),
        (&["7"], &["-g", "0.5"], ["7", "7"]),
    ] {
        let world = World::new();
        let gate = world.gate("gate");
        let command = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER > $PACKHORSE_TASK";
        world.write("tasks", format!("{command}; read x < gate\n").repeat(2));
        let words = [&["run", "tasks", "--gpus"], gpus, options].concat();
        let mut running = world.start(words);
        running.wait_for("1.2 started");
        gate.pass(2);
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        for (task, ids) in ["1.1", "1.2"].iter().zip(wanted) {
            assert_eq!(world.read(task), format!("{ids} PCI_BUS_ID\n"), "{gpus:?}");
        }
    }
}

#[test]
fn what_can_never_run_is_refused_before_anything_starts() {
    let cores = (our_cores().len() + 1).to_string();
    for (options, wanted) in [
        (&["--gpus", "0", "-g", "2"][..], "it needs 2 GPUs"),
        (&["--gpus", "0", "-c", &cores], "cores of its own"),
        (&["--slots", "1", "-g", "1"], "--slots uses none"),
        (&["--gpus", "0", "-g", "1.5"], "a part of one GPU"),
    ] {
        let world = World::new();
        world.write("tasks", "touch started\n");
        let done = world.packhorse([&["run", "tasks"], options].concat());
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(wanted), "{}", done.stderr);
        assert!(!world.work().join("started").exists());
    }
}

/// How `chrt` describes the way a process is scheduled.
fn scheduling(world: &World, pid: &str) -> String {
    let mut chrt = world.program("chrt", ["-p", pid]);
    let told = String::from_utf8(chrt.output().unwrap().stdout).unwrap();
    let line = told.lines().next().unwrap();
    line.rsplit(": ").next().unwrap().to_owned()
}

#[test]
fn we_wake_up_before_others_and_tasks_are_scheduled_as_ever() {
    let world = World::new();
    let gate = world.gate("gate");
    let said = world.fifo("said");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("echo $$ > said; read x < gate\n");
    let task = crate::support::receive(&said);
    let ours = running.pid().as_raw_nonzero().to_string();
    let wakes_first = "SCHED_OTHER|SCHED_RESET_ON_FORK";
    assert_eq!(scheduling(&world, &ours), wakes_first);
    assert_eq!(scheduling(&world, task.trim()), "SCHED_OTHER");
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    // Who has chosen otherwise is left alone, and so are the tasks.
    let words = ["-b", "0", env!("CARGO_BIN_EXE_packhorse"), "run"];
    let mut chosen = world.program("chrt", words);
    chosen.args(["--slots", "1", "--", "sh", "-c", "chrt -p $$"]);
    assert_eq!(crate::support::finish(chosen).code, 0);
    let log = world.packhorse(["logs", "2.1"]).stdout;
    assert!(log.contains(": SCHED_BATCH\n"), "{log}");
}
