//! What each repetition gets: GPUs, parts of them, cores.

use std::collections::BTreeSet;
use std::process::Command;

use packhorse_fake_nvml::Code;
use packhorse_test_parts::needs;

use crate::cores::our_cores;
use crate::machine::Machine;
use crate::support::{Done, Running, World, finish, telling};

/// What is said where no GPU is used.
const NO_GPU: &str = "there is no GPU here: repetitions run without one\n";

/// The first example of the original's manual, with its quote: half a GPU each.
const HALF_GPU: &str = r#"---
# Slurm config
name: "SLURM"
partition: "gpu"
job-name: "half_gpu_job"
time: 20
ntasks: 1
cpus-per-task: 8  # 4 CPUs per rep!
gpus_per_rep: 0.5
sbatch_args:
  gres: "gpu:1"
---
# Default
name: DEFAULT
reps_per_job: 2
reps_in_parallel: 2
path: results
---
name: exp
repetitions: 4
"#;

/// The second: one GPU each, of four that come together.
const FOUR_GPUS: &str = r#"---
# Slurm config
name: "SLURM"
partition: "accelerated"
job-name: "single_gpu_job"
time: 20
ntasks: 1
cpus-per-task: 16 # 4 CPUs per rep!
gpus_per_rep: 1
sbatch_args:
  gres: "gpu:4"  # Note how we request 4 GPUs here!
---
# Default
name: DEFAULT
reps_per_job: 4
reps_in_parallel: 4
path: results
---
name: exp
repetitions: 8
"#;

/// What a repetition tells that it has.
const TOLD: &str =
    "$CUDA_VISIBLE_DEVICES $PACKHORSE_CPU_CORES caps $OMP_NUM_THREADS $MKL_NUM_THREADS";

/// What the repetitions of `exp` said.
fn said(world: &World, count: usize) -> Vec<String> {
    let read = |rep| world.read(&format!("results/exp/log/rep_{rep:02}/out.log"));
    let said = (0..count).map(|rep| read(rep).trim().to_owned());
    said.collect()
}

impl Machine {
    fn exp(&self, file: &str, words: &[&str]) -> Done {
        self.world.write("config.yml", file);
        self.packhorse(&[&["exp", "config.yml"], words].concat())
    }

    /// Runs the file, while so many repetitions at a time meet. Returns what these said.
    fn meet(&self, file: &str, meetings: &[usize]) -> (Done, Vec<Vec<String>>) {
        self.world.write("config.yml", file);
        let command =
            self.command(&["exp", "config.yml", "--json", "--", "sh", "-c", &telling(TOLD)]);
        meet(&self.world, command, meetings)
    }
}

fn meet(world: &World, command: Command, meetings: &[usize]) -> (Done, Vec<Vec<String>>) {
    let mut meeting = world.meeting();
    let running = Running::start(command);
    let met = meetings.iter().map(|tasks| meeting.of(*tasks)).collect();
    (running.finish(), met)
}

#[test]
fn two_repetitions_share_a_gpu_as_in_the_first_example_of_the_manual() {
    let machine = Machine::new(1);
    let (done, met) = machine.meet(HALF_GPU, &[2, 2]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let on_gpu = |said: &String| said.starts_with("0 ");
    assert!(met.iter().flatten().all(on_gpu), "{met:?}");
    assert_eq!(most_at_once(&done.events()), 2);
    // No more than two, although there is room on another GPU; and that is said.
    let machine = Machine::new(2);
    let done = machine.exp(HALF_GPU, &["--json", "--", "true"]);
    assert_eq!(most_at_once(&done.events()), 2);
    assert_eq!(
        done.stderr,
        "warning: reps_in_parallel lets 2 run at a time, and 4 would fit\n\
         hint: leave it out, and as many run as fit\n"
    );
}

#[test]
fn four_repetitions_have_a_gpu_each_as_in_the_second_example_of_the_manual() {
    let machine = Machine::new(4);
    let (done, met) = machine.meet(FOUR_GPUS, &[4, 4]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let first: BTreeSet<&str> = met[0].iter().map(|said| &said[..2]).collect();
    assert_eq!(first, BTreeSet::from(["0 ", "1 ", "2 ", "3 "]), "{met:?}");
    assert_eq!(most_at_once(&done.events()), 4);
}

#[test]
fn two_repetitions_have_two_gpus_each_where_the_file_says_so() {
    let machine = Machine::new(4);
    let file = FOUR_GPUS.replace("gpus_per_rep: 1", "gpus_per_rep: 2");
    let file = file.replace("reps_in_parallel: 4\n", "");
    let (done, met) = machine.meet(&file, &[2, 2, 2, 2]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let gpus = |met: &[String]| {
        let gpus = met.iter().map(|said| said.split(' ').next().unwrap().to_owned());
        gpus.collect::<BTreeSet<_>>()
    };
    assert_eq!(gpus(&met[0]), BTreeSet::from(["0,1".to_owned(), "2,3".to_owned()]));
    // Later pairs depend on which GPUs are seen to be free first.
    for met in &met {
        let all: BTreeSet<_> =
            gpus(met).iter().flat_map(|pair| pair.split(',')).map(str::to_owned).collect();
        assert_eq!(all.len(), 4, "{met:?}");
    }
    assert_eq!(most_at_once(&done.events()), 2);
}

#[test]
fn devices_of_an_allocation_keep_their_numbers() {
    let machine = Machine::new(4);
    machine.world.write("config.yml", FOUR_GPUS);
    let mut command = machine.command(&["exp", "config.yml", "--", "sh", "-c", &telling(TOLD)]);
    command.env("CUDA_VISIBLE_DEVICES", "2,3");
    let (done, met) = meet(&machine.world, command, &[2, 2, 2, 2]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        done.stderr,
        "warning: reps_in_parallel of `exp` is 4, and 2 fit: no more than that run at a time\n"
    );
    let devices: BTreeSet<&str> = met[0].iter().map(|said| &said[..2]).collect();
    assert_eq!(devices, BTreeSet::from(["2 ", "3 "]));
}

#[test]
fn without_a_gpu_as_many_run_as_the_file_says() {
    let world = World::new();
    world.write("config.yml", HALF_GPU);
    let command = world.command(["exp", "config.yml", "--json", "--", "sh", "-c", &telling(TOLD)]);
    let (done, _) = meet(&world, command, &[2, 2]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr, NO_GPU);
    assert_eq!(most_at_once(&done.events()), 2);
    // One after the other, if it says nothing; and several experiments do not add up.
    let world = World::new();
    let file = "{name: DEFAULT, path: p}\n---\n{name: a, repetitions: 3}\n---\n{name: b, repetitions: 2}\n";
    let done = world.exp(file, &["--json", "--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, NO_GPU), "{done:?}");
    assert_eq!(most_at_once(&done.events()), 1);
    // What one says is not what another gets.
    let file = file.replace("name: b,", "name: b, reps_in_parallel: 2,");
    let done = world.exp(&file, &["-o", "--json", "--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, NO_GPU), "{done:?}");
    let of_a = |event: &serde_json::Value| event["task"].as_str() <= Some("2.3");
    let events: Vec<_> = done.events().into_iter().filter(of_a).collect();
    assert_eq!(most_at_once(&events), 1, "{events:?}");
}

#[test]
fn repetitions_do_not_run_without_a_gpu_because_the_driver_is_broken() {
    let machine = Machine::new(2);
    let wrong = |machine: &Machine, visible: Option<&str>| {
        machine.world.write("config.yml", HALF_GPU);
        let mut command = machine.command(&["exp", "config.yml", "--", "true"]);
        if let Some(list) = visible {
            command.env("CUDA_VISIBLE_DEVICES", list);
        }
        let done = finish(command);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(!machine.world.work().join("results").exists());
        done.stderr
    };
    let unknown = wrong(&machine, Some("7"));
    assert!(unknown.contains("there is no GPU `7`"), "{unknown}");
    let init = |code| machine.state.change_driver(|driver| driver.init = code);
    init(Some(Code::DriverNotLoaded));
    let broken = wrong(&machine, None);
    assert!(broken.contains("kernel module is not loaded"), "{broken}");
    init(None);
    for index in 0..2 {
        machine.state.lose(index);
    }
    let lost = wrong(&machine, None);
    assert!(lost.contains("none of the 2 works"), "{lost}");
    // One that has no GPUs is as good as none.
    let machine = Machine::new(0);
    let done = machine.exp(HALF_GPU, &["--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, NO_GPU), "{done:?}");
}

#[test]
fn a_machine_whose_gpus_are_hidden_has_none() {
    let machine = Machine::new(2);
    machine.world.write("config.yml", "{name: exp, path: results, repetitions: 2}");
    let mut command = machine.command(&["exp", "config.yml", "--json", "--", "true"]);
    command.env("CUDA_VISIBLE_DEVICES", "");
    let done = finish(command);
    assert_eq!((done.code, done.stderr.as_str()), (0, NO_GPU), "{done:?}");
    assert_eq!(most_at_once(&done.events()), 1);
}

#[test]
fn each_experiment_keeps_to_its_own_number_at_a_time() {
    let world = World::new();
    let file = "{name: DEFAULT, path: p, repetitions: 6}\n---\n{name: a, reps_in_parallel: 3}\n---\n\
        {name: b, reps_in_parallel: 1}\n---\n{name: c}\n";
    let gate = world.gate("gate");
    world.write("config.yml", file);
    let words = ["exp", "config.yml", "--slots", "9", "--", "sh", "-c", "read x < gate"];
    let mut running = world.start(words);
    running.wait_for("1.17 started");
    for (task, why) in [
        ("1.4", "1.4 waits: 3 of its group `a` run or will at once, and no more may\n"),
        ("1.8", "1.8 waits: 1 of its group `b` runs or will at once, and no more may\n"),
    ] {
        assert_eq!(world.packhorse(["why", task]).stdout, why);
    }
    gate.pass(18);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn cores_are_shared_as_the_scheduler_of_the_file_says() {
    needs!(Cores);
    let cores = std::thread::available_parallelism().unwrap().get();
    let of = |scheduler: &str| {
        let machine = Machine::new(1);
        let file =
            HALF_GPU.replace("gpus_per_rep", &format!("scheduler: {scheduler}\ngpus_per_rep"));
        let (done, mut met) = machine.meet(&file, &[2, 2]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        met.swap_remove(0)
    };
    // Each has its own, and as many as the other: also if nobody is named.
    for scheduler in ["horeka", "null"] {
        let said = of(scheduler);
        let sets: Vec<BTreeSet<&str>> =
            said.iter().map(|said| said.split(' ').nth(1).unwrap().split(',').collect()).collect();
        assert!(sets.iter().all(|set| set.len() == cores / 2), "{said:?}");
        assert!(sets[0].is_disjoint(&sets[1]), "{said:?}");
    }
    let said = of("mp");
    assert!(said.iter().all(|said| said.starts_with("0 caps ")), "{said:?}");
    // Each starts as many threads as its share.
    let share = cores / 2;
    let said = of("kluster");
    assert!(said.iter().all(|said| said.ends_with(&format!("caps {share} {share}"))), "{said:?}");
}

#[test]
fn without_gpus_cores_are_cut_into_equal_parts() {
    let machine = Machine::new(2);
    let file = "{name: DEFAULT, path: results, repetitions: 4}\n---\n{name: exp}\n---\n\
        {name: SLURM, scheduler: cpu_distribute, cpus_per_rep: 1}\n";
    let script = "echo x$CUDA_VISIBLE_DEVICES $PACKHORSE_CORES";
    let done = machine.exp(file, &["--json", "--", "sh", "-c", script]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    for said in said(&machine.world, 4) {
        let (gpus, cores) = said.split_once(' ').unwrap();
        assert_eq!((gpus, cores.split(',').count()), ("x", 1), "{said}");
    }
    // Whatever GPUs there are to be used otherwise.
    machine.world.write("packhorse.toml", "[pool]\ngpus = [\"0\"]\n");
    let done = machine.exp(file, &["-o", "--json", "--", "sh", "-c", script]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(said(&machine.world, 4)[0].starts_with("x "));
}

#[test]
fn cores_are_shared_where_there_is_not_one_for_each() {
    let slots = our_cores().len() + 1;
    let machine = Machine::new(1);
    let file = format!(
        "{{name: exp, path: results, repetitions: {slots}}}\n---\n\
         {{name: SLURM, gpus_per_rep: 1/{slots}}}\n"
    );
    let (done, met) = machine.meet(&file, &[slots]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(met[0].iter().all(|said| said.starts_with("0 caps 1")), "{met:?}");
}

#[test]
fn equal_parts_are_those_of_as_many_as_run_at_a_time() {
    // Two would fit, and the file says one.
    let file = HALF_GPU.replace("reps_in_parallel: 2", "reps_in_parallel: 1");
    let asking = file.replace("gpus_per_rep", "scheduler: horeka\ngpus_per_rep");
    for file in [asking, file] {
        let machine = Machine::new(1);
        let done = machine.exp(&file, &["--", "sh", "-c", "echo $PACKHORSE_CPU_CORES"]);
        assert_eq!(done.code, 0, "{done:?}");
        for said in said(&machine.world, 4) {
            assert_eq!(said.split(',').count(), our_cores().len(), "{said}");
        }
    }
}

#[test]
fn as_many_run_as_the_cores_that_each_asks_for_let_fit() {
    let cores = our_cores().len();
    let world = World::new();
    let file = format!(
        "{{name: exp, path: results, repetitions: {cores}}}\n---\n\
         {{name: SLURM, cpus_per_rep: 1}}\n"
    );
    world.write("config.yml", &file);
    let words = ["exp", "config.yml", "--", "sh", "-c", &telling(TOLD)];
    let (done, met) = meet(&world, world.command(words), &[cores]);
    assert_eq!((done.code, done.stderr.as_str()), (0, NO_GPU), "{done:?}");
    let distinct: BTreeSet<&String> = met[0].iter().collect();
    assert_eq!(distinct.len(), cores, "{met:?}");
    // No more than the file allows.
    let file = file.replace("path:", "reps_in_parallel: 1, path:");
    let done = world.exp(&file, &["-o", "--json", "--", "true"]);
    assert_eq!(most_at_once(&done.events()), 1, "{done:?}");
}

#[test]
fn too_many_cores_are_cut_for_the_file_and_refused_for_an_option() {
    let cores = our_cores().len();
    let world = World::new();
    let file = "{name: exp, path: results}\n---\n{name: SLURM, cpus_per_rep: 9999}\n";
    let done = world.exp(file, &["--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let told = format!("warning: cpus_per_rep asks for 9999 cores, and there are {cores} here");
    assert!(done.stderr.contains(&told), "{done:?}");
    let file = "{name: exp, path: results}";
    let done = world.exp(file, &["-o", "-c", "9999", "--", "true"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    assert!(!done.stderr.contains("cpus_per_rep"), "{done:?}");
    assert!(done.stderr.contains("a task could never run"), "{done:?}");
}

#[test]
fn threads_are_capped_for_kluster_whatever_is_set() {
    let world = World::new();
    let file = "{name: exp, path: results, repetitions: 2, reps_in_parallel: 2}\n---\n\
        {name: SLURM, scheduler: kluster}\n";
    world.write("config.yml", file);
    let of = |words: &[&str]| {
        let task = "echo caps $OMP_NUM_THREADS";
        let words = [&["exp", "config.yml", "-o"], words, &["--", "sh", "-c", task]];
        let mut command = world.command(words.concat());
        command.env("PACKHORSE_THREAD_CAPS", "false");
        assert_eq!(finish(command).code, 0);
        said(&world, 1).remove(0)
    };
    let allowed = std::thread::available_parallelism().unwrap().get();
    if allowed > 1 {
        assert_eq!(of(&[]), format!("caps {}", allowed / 2));
    }
    assert_eq!(of(&["--no-thread-caps"]), "caps");
}

#[test]
fn a_repetition_for_kluster_that_runs_alone_starts_as_many_threads_as_with_the_others() {
    needs!(Cores);
    let allowed = std::thread::available_parallelism().unwrap().get();
    let machine = Machine::new(2);
    let file = "{name: DEFAULT, path: results, reps_in_parallel: 1}\n---\n{name: exp}\n---\n\
        {name: other}\n---\n{name: SLURM, scheduler: kluster, gpus_per_rep: 1}\n";
    for _ in 0..2 {
        let done = machine.exp(file, &["--", "sh", "-c", "echo caps $OMP_NUM_THREADS"]);
        assert_eq!(done.code, 0, "{done:?}");
        let told = format!("caps {}", allowed / 2);
        assert_eq!(said(&machine.world, 1), [told]);
        // It alone runs again.
        fs_err::remove_dir_all(machine.world.work().join("results/exp")).unwrap();
    }
}

#[test]
fn options_win_over_what_the_file_says() {
    let machine = Machine::new(2);
    let words = ["--json", "-g", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"];
    let done = machine.exp(HALF_GPU, &words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("is 2, and 1 fit"), "{}", done.stderr);
    assert_eq!(said(&machine.world, 4), ["0,1"; 4]);
    let done = machine.exp(HALF_GPU, &["-o", "--slots", "1", "--json", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(most_at_once(&done.events()), 1);
    let done = machine
        .exp(HALF_GPU, &["-o", "--gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(said(&machine.world, 4), ["1"; 4]);
}

/// How many tasks ran at the same time, at most.
fn most_at_once(events: &[serde_json::Value]) -> i32 {
    let (mut now, mut most) = (0, 0);
    for event in events {
        match event["event"].as_str() {
            Some("started") => now += 1,
            Some("finished") => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}
