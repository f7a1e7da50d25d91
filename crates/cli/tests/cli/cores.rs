//! Cores that tasks have for themselves, and how many threads they are told to start.

use std::collections::BTreeSet;
use std::path::Path;

use packhorse_fake_nvml::FakeDevice;
use serde_json::Value;

use crate::machine::{Machine, taking};
use crate::support::{Done, World, finish, finish_with};

/// What a task may run on, what it is told of that, and how many threads to start.
const TELL: &str = "sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status > $PACKHORSE_TASK; \
    echo ${PACKHORSE_CPU_CORES-unset} ${PACKHORSE_CORES-unset} >> $PACKHORSE_TASK; \
    echo ${OMP_NUM_THREADS-unset} ${MKL_NUM_THREADS-unset} ${OPENBLAS_NUM_THREADS-unset} \
    ${NUMEXPR_NUM_THREADS-unset} >> $PACKHORSE_TASK";

/// The cores that this test, and so what it starts, may use.
pub fn our_cores() -> BTreeSet<String> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .map(|core| core.to_string())
        .collect()
}

/// The parts that so many tasks have, if there is more than one core.
fn part(tasks: usize) -> String {
    let allowed = std::thread::available_parallelism().unwrap().get();
    match our_cores().len() {
        1 => "unset".to_owned(),
        _ => (allowed / tasks).max(1).to_string(),
    }
}

/// What a task has told: its cores by the kernel, by us, and its thread caps.
struct Told {
    allowed: BTreeSet<String>,
    named: String,
    caps: Vec<String>,
}

/// What the kernel writes as `0-2,5`.
pub fn core_list(text: &str) -> BTreeSet<String> {
    let mut cores = BTreeSet::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
        cores.extend((first..=last).map(|core| core.to_string()));
    }
    cores
}

fn told(world: &World, task: &str) -> Told {
    let text = world.read(task);
    let lines: Vec<&str> = text.lines().collect();
    let [allowed, named, caps] = lines[..] else {
        panic!("{task} has told `{text}`");
    };
    let (named, alias) = named.split_once(' ').unwrap();
    assert_eq!(named, alias, "both names mean the same");
    Told {
        allowed: core_list(allowed),
        named: named.to_owned(),
        caps: caps.split(' ').map(str::to_owned).collect(),
    }
}

/// The caps of task 1.1 of a run of so many tasks with these options.
fn caps(tasks: usize, words: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let world = World::new();
    world.write("tasks", format!("{TELL}\n").repeat(tasks));
    let words = format!("run tasks {words}");
    let mut command = world.command(words.split_whitespace());
    command.envs(variables.iter().copied());
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    told(&world, "1.1").caps
}

#[test]
fn cores_are_given_to_one_task_at_a_time_and_it_is_pinned_to_them() {
    let cores = our_cores();
    let tasks = cores.len() + 1;
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", format!("{TELL}; read x < gate\n").repeat(tasks));
    let slots = tasks.to_string();
    let mut running = world.start(["run", "tasks", "--slots", &slots, "-c", "1"]);
    running.wait_for(&format!("1.{} started", cores.len()));
    let why = world.why(&format!("1.{tasks}"));
    assert!(why.contains("waits for 1 core of one machine with 0 free"), "{why}");
    gate.pass(tasks);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");

    let mut given = BTreeSet::new();
    for number in 1..=cores.len() {
        let told = told(&world, &format!("1.{number}"));
        assert_eq!(told.allowed, BTreeSet::from([told.named.clone()]));
        given.insert(told.named);
    }
    assert_eq!(given, cores);
    // The one task too many had to wait for a core.
    let (before, _) = done.stdout.split_once(" succeeded in ").unwrap();
    assert_eq!(before.matches(" started").count(), cores.len() + 1, "{before}");
}

#[test]
fn with_auto_each_task_has_an_equal_part_of_the_cores_to_itself() {
    let cores = our_cores();
    let tasks = cores.len().min(2);
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", format!("{TELL}; read x < gate\n").repeat(3));
    let slots = tasks.to_string();
    let mut running = world.start(["run", "tasks", "--slots", &slots, "--cores", "auto"]);
    running.wait_for(&format!("1.{tasks} started"));
    gate.pass(3);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr, "");
    let mut seen = BTreeSet::new();
    for number in 1..=tasks {
        let told = told(&world, &format!("1.{number}"));
        assert_eq!(told.allowed.len(), cores.len() / tasks);
        assert_eq!(told.allowed, core_list(&told.named));
        assert!(told.allowed.is_subset(&cores));
        for core in told.allowed {
            assert!(seen.insert(core), "two tasks have a core in common");
        }
    }
    // It is kept with the run, as what it was: slots may be others.
    let shown = world.packhorse(["export", "1"]);
    assert!(!shown.stdout.contains("cores"), "{shown:?}");
}

#[test]
fn auto_is_a_setting_too_and_a_number_outranks_it() {
    let cores = our_cores().len();
    let world = World::new();
    let set = |words: &str| {
        let mut command = world.command(words.split(' ').chain(["--", "sh", "-c", TELL]));
        command.env("PACKHORSE_EQUAL_CORES", "true");
        let done = finish(command);
        assert_eq!(done.code, 0, "{done:?}");
    };
    set("run --slots 1");
    assert_eq!(told(&world, "1.1").allowed.len(), cores);
    assert_ne!(told(&world, "1.1").named, "unset");
    set("run --slots 1 -c 1");
    assert_eq!(told(&world, "2.1").allowed.len(), 1);
}

#[test]
fn more_tasks_than_cores_with_a_core_each_wait_and_that_is_said() {
    let cores = our_cores().len();
    let world = World::new();
    world.write("tasks", "true\n".repeat(2 * cores));
    let slots = (2 * cores).to_string();
    let words = ["--slots", &slots, "--cores", "auto"];
    let done = world.packhorse([&["run", "tasks"], &words[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("at a time, since each has a core to itself"));
    // A plan knows that, too.
    let plan = [&["plan", "tasks", "--json", "--assume", "10s"], &words[..]];
    let plan = world.packhorse(plan.concat());
    assert!(plan.stderr.contains("since each has a core to itself"));
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["expected_end_seconds"], 20.0);
}

#[test]
fn an_equal_part_needs_a_number_of_tasks() {
    let machine = Machine::new(1);
    let done = machine.packhorse(&["run", "--vram", "auto", "-c", "auto", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    let wanted = "it is not known how many run at a time";
    assert!(done.stderr.contains(wanted), "{}", done.stderr);
    let done = machine.packhorse(&["run", "--vram", "20G", "-c", "auto", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = machine.packhorse(&["run", "-c", "some", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("neither a whole number nor `auto`"));
}

#[test]
fn only_cores_that_packhorse_itself_may_use_are_given_out() {
    let last = our_cores().last().unwrap().clone();
    let world = World::new();
    world.write("tasks", format!("{TELL}\n").repeat(2));
    let restricted = |words: &str| {
        let binary = env!("CARGO_BIN_EXE_packhorse");
        let words = ["-c", &last, binary].into_iter().chain(words.split(' '));
        finish(world.program("taskset", words))
    };
    let done = restricted("run tasks --slots 2 -c 1");
    assert_eq!(done.code, 0, "{done:?}");
    for task in ["1.1", "1.2"] {
        assert_eq!(told(&world, task).named, last);
        assert_eq!(told(&world, task).allowed, BTreeSet::from([last.clone()]));
    }
    let done = restricted("run tasks --slots 2 -c auto");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(told(&world, "2.2").named, last);
    let done = restricted("run tasks --slots 2 -c 2");
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("2 cores of its own"), "{}", done.stderr);
}

fn sysfs(machine: &Machine, name: &str, text: &str) {
    let path = machine.world.work().join("sys").join(name);
    fs_err::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
    fs_err::write(path, text).unwrap();
}

/// The core of a task that has one, on a machine like this.
fn its_core(machine: &Machine, words: &[&str]) -> String {
    let done = machine.packhorse(&[words, &["-c", "1", "--", "sh", "-c", TELL]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    // `run 3 started, …`
    let run = done.stdout.split(' ').nth(1).unwrap();
    told(&machine.world, &format!("{run}.1")).named
}

#[test]
fn a_task_gets_the_cores_near_its_gpu() {
    let cores: Vec<u32> = our_cores().iter().map(|core| core.parse().unwrap()).collect();
    let (first, last) = (*cores.iter().min().unwrap(), *cores.iter().max().unwrap());
    let machine = Machine::new(0);
    // One is told by the driver, one by the kernel, and of one only the NUMA node is known.
    for (index, near) in [(0, vec![last]), (1, Vec::new()), (2, Vec::new())] {
        let mut device = FakeDevice::new(index);
        device.near_cores = near;
        machine.state.device(&device);
    }
    let pci = "bus/pci/devices/0000:0";
    sysfs(&machine, &format!("{pci}2:00.0/local_cpulist"), &format!("{last}\n"));
    sysfs(&machine, &format!("{pci}3:00.0/numa_node"), "1\n");
    sysfs(&machine, "devices/system/node/node1/cpulist", &format!("{last}\n"));
    for gpu in ["0", "1", "2"] {
        let core = its_core(&machine, &["run", "--gpus", gpu]);
        assert_eq!(core, last.to_string(), "GPU {gpu}");
    }
    // Whoever needs no GPU takes the first.
    let core = its_core(&machine, &["run", "--slots", "1"]);
    assert_eq!(core, first.to_string());
}

#[test]
fn what_the_kernel_says_of_cores_decides_which_are_taken() {
    let cores: Vec<u32> = our_cores().iter().map(|core| core.parse().unwrap()).collect();
    let last = *cores.iter().max().unwrap();
    let machine = Machine::new(0);
    // The last core is in the first part of the machine, all others are in the second.
    let others: Vec<String> =
        cores.iter().filter(|core| **core != last).map(u32::to_string).collect();
    sysfs(&machine, "devices/system/node/online", "0-1\n");
    sysfs(&machine, "devices/system/node/node0/cpulist", &last.to_string());
    sysfs(&machine, "devices/system/node/node1/cpulist", &others.join(","));
    let core = its_core(&machine, &["run", "--slots", "1"]);
    assert_eq!(core, last.to_string());
}

#[test]
fn threads_are_capped_where_a_task_has_not_all_cores() {
    let cores = our_cores().len();
    assert_eq!(caps(1, &format!("--slots 1 -c {cores}"), &[]), ["unset"; 4]);
    // On a machine with a single core there is nothing less than all.
    if cores > 1 {
        assert_eq!(caps(1, "--slots 1 -c 1", &[]), ["1"; 4]);
        let told = caps(2, &format!("--slots 2 -c {cores}"), &[]);
        assert_eq!(told, ["unset"; 4], "one after the other has all");
    }
}

#[test]
fn tasks_that_run_at_the_same_time_share_the_cores_by_their_threads() {
    let half = part(2);
    let half = [half.as_str(); 4];
    assert_eq!(caps(2, "--slots 2", &[]), half);
    assert_eq!(caps(9, "--slots 2", &[]), half);
    assert_eq!(caps(2, "--slots 9", &[]), half, "there are only two tasks");
    assert_eq!(caps(9, "--gpus 0,1", &[]), half);
    assert_eq!(caps(9, "--gpus 0 -g 0.5", &[]), half);
    assert_eq!(caps(9, "--gpus 0 -g 0.1 --max-per-gpu 2", &[]), half);
    assert_eq!(caps(9, "--gpus 0,1,2,3 -g 2", &[]), half);
    // One that has the machine to itself may use all of it.
    assert_eq!(caps(1, "--slots 9", &[]), ["unset"; 4]);
    assert_eq!(caps(9, "--slots 1", &[]), ["unset"; 4]);
    assert_eq!(caps(1, "--gpus 0,1", &[]), ["unset"; 4]);
    assert_eq!(caps(9, "--gpus 0,1 -g 2", &[]), ["unset"; 4]);
    // There is never less than one.
    assert_eq!(caps(100, "--slots 99", &[]), [part(99).as_str(); 4]);
}

#[test]
fn of_an_open_pipe_nobody_knows_how_many_tasks_come() {
    let world = World::new();
    let words = ["run", "--slots", "2"];
    let done = finish_with(world.command(words), format!("{TELL}\n"));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(told(&world, "1.1").caps, [part(2).as_str(); 4]);
}

#[test]
fn memory_tells_how_many_share_the_cores() {
    let machine = Machine::new(1);
    machine.world.write("tasks", format!("{TELL}\n").repeat(3));
    for (words, wanted) in [
        ("--vram 9G", part(2)),
        ("--vram 20G", "unset".to_owned()),
        // Each is alone until something is known of it.
        ("--vram auto", "unset".to_owned()),
    ] {
        let words: Vec<&str> = "run tasks".split(' ').chain(words.split(' ')).collect();
        let done = machine.packhorse(&words);
        assert_eq!(done.code, 0, "{done:?}");
        let run = done.stdout.split(' ').nth(1).unwrap();
        let told = told(&machine.world, &format!("{run}.1")).caps;
        assert_eq!(told, [wanted.as_str(); 4], "{words:?}");
    }
    // Once something is known of them, two fit at a time.
    let known = format!("{TELL}; {}\n", taking("--peak 9G --hold-looks 6"));
    machine.world.write("known", &known);
    let words = ["run", "known", "--vram", "auto", "--signature", "known"];
    assert_eq!(machine.packhorse(&words).code, 0);
    machine.world.write("known", known.repeat(2));
    assert_eq!(machine.packhorse(&words).code, 0);
    assert_eq!(told(&machine.world, "4.1").caps, ["unset"; 4]);
    assert_eq!(told(&machine.world, "5.1").caps, [part(2).as_str(); 4]);
}

#[test]
fn a_task_that_asks_for_more_has_a_larger_part() {
    let cores = our_cores().len();
    let world = World::new();
    let all = if cores > 1 { cores.to_string() } else { "unset".to_owned() };
    world
        .write("tasks", format!("{TELL}\n#packhorse gpus=2\n{TELL}\n#packhorse cores=1\n{TELL}\n"));
    let done = world.packhorse(["run", "tasks", "--gpus", "0,1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(told(&world, "1.1").caps, [part(2).as_str(); 4]);
    assert_eq!(told(&world, "1.2").caps, [all.as_str(); 4]);
    let one = if cores > 1 { "1" } else { "unset" };
    assert_eq!(told(&world, "1.3").caps, [one; 4]);
}

#[test]
fn tasks_of_a_group_share_the_cores_with_as_many_as_may_run_at_a_time() {
    let cores = our_cores().len();
    let world = World::new();
    let of = |group: &str| format!("#packhorse group={group} group_limit=1\n{TELL}\n");
    world.write("one", of("a").repeat(2));
    world.write("two", of("a") + &of("b"));
    for file in ["one", "two"] {
        let done = world.packhorse(["run", file, "--gpus", "0,1"]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let all = if cores > 1 { cores.to_string() } else { "unset".to_owned() };
    assert_eq!(told(&world, "1.1").caps, [all.as_str(); 4]);
    assert_eq!(told(&world, "2.1").caps, [part(2).as_str(); 4]);
}

#[test]
fn what_the_person_has_set_stays() {
    let half = part(2);
    let half = half.as_str();
    for words in ["--slots 2", "--slots 2 --env A=1"] {
        // The other libraries look at OpenMP's variable if they find none of their own.
        let set = caps(2, words, &[("OMP_NUM_THREADS", "7")]);
        assert_eq!(set, ["7", "unset", "unset", "unset"]);
        let set = caps(2, words, &[("MKL_NUM_THREADS", "7")]);
        assert_eq!(set, [half, "7", half, half]);
    }
    let set = caps(2, "--slots 2 --env OMP_NUM_THREADS=7", &[]);
    assert_eq!(set, ["7", "unset", "unset", "unset"]);
    let set = caps(1, "--slots 1 -c 1", &[("OMP_NUM_THREADS", "7")]);
    assert_eq!(set, ["7", "unset", "unset", "unset"]);
    // What is set for a single task counts for all of its libraries.
    let world = World::new();
    let own = format!("#packhorse env=OMP_NUM_THREADS=7\n{TELL}\n{TELL}\n");
    world.write("tasks", own);
    let done = world.packhorse(["run", "tasks", "--slots", "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    if our_cores().len() > 1 {
        assert_eq!(told(&world, "1.1").caps, ["7"; 4]);
    }
    assert_eq!(told(&world, "1.2").caps, [half; 4]);
}

#[test]
fn thread_caps_can_be_switched_off() {
    assert_eq!(caps(2, "--slots 2 --no-thread-caps", &[]), ["unset"; 4]);
    assert_eq!(caps(2, "--slots 2 -c 1 --no-thread-caps", &[]), ["unset"; 4]);
    let off = [("PACKHORSE_THREAD_CAPS", "false")];
    assert_eq!(caps(2, "--slots 2", &off), ["unset"; 4]);
}

#[test]
fn what_was_said_of_cores_holds_when_a_run_goes_on_elsewhere() {
    let world = World::new();
    world.write("tasks", format!("{TELL}; test -e go\n").repeat(2));
    for words in ["--no-thread-caps", "--cores auto"] {
        let run = "run tasks --gpus 0,1";
        let done = world.packhorse(run.split(' ').chain(words.split(' ')));
        assert_eq!(done.code, 1, "{done:?}");
    }
    world.write("go", "");
    for run in ["1", "2"] {
        let done = world.packhorse(["retry", run, "--slots", "2"]);
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert_eq!(told(&world, "1.1").caps, ["unset"; 4]);
    assert_ne!(told(&world, "2.1").named, "unset");
}

#[test]
fn the_originals_name_sets_no_new_variables() {
    let world = World::new();
    let link = world.work().join("simple_gpu_scheduler");
    fs_err::os::unix::fs::symlink(env!("CARGO_BIN_EXE_packhorse"), &link).unwrap();
    let command = world.program(link, ["--gpus", "0", "1"]);
    let done: Done = finish_with(command, format!("{TELL}\n").repeat(2));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(told(&world, "1.1").caps, ["unset"; 4]);
}
