//! What is submitted, and what jobs do with it.

use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE, library_path};
use packhorse_slurm_lab::{CpuBinding, LabSettings, SlurmVersion};
use packhorse_test_parts::needs;

use super::{Cluster, lines};
use crate::machine::taking;
use crate::support::{Running, finish_with};

#[test]
fn tasks_run_on_the_devices_that_their_job_was_given() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    // Two jobs share the node: the second has the devices 2 and 3. All eight tasks, two on each
    // device, are there at once before one of them goes on.
    let gate = cluster.world.gate("gate");
    let task = "echo $CUDA_VISIBLE_DEVICES $PACKHORSE_TASK; echo here >> here; read x < gate";
    let words = ["run", "--slurm", "--gres", "gpu:2", "-g", "0.5", "--time", "10", "--jobs", "2"];
    let done = cluster.packhorse_with(words, lines(task, 8));
    assert_eq!(done.code, 0, "{done:?}");
    let job = cluster.job(1);
    assert_eq!(done.stdout, format!("run 1: 8 tasks in 2 jobs, submitted to Slurm as {job}\n"));
    assert!(done.stderr.contains("packhorse slurm wait 1"), "{done:?}");
    cluster.wait_for_lines("here", 8);
    let status = cluster.packhorse(["slurm", "status", "--json"]).json();
    let running = status["running_tasks"].as_array().unwrap();
    assert_eq!((running.len(), running[0]["node"].as_str()), (8, Some("n1")));
    gate.pass(8);
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
    let mut logs = cluster.logs(1, 8);
    for (log, number) in logs.iter_mut().zip(1..) {
        assert!(log.ends_with(&format!(" 1.{number}")), "{log}");
        log.truncate(1);
    }
    logs.sort();
    assert_eq!(logs, ["0", "0", "1", "1", "2", "2", "3", "3"]);
    let shown = cluster.packhorse(["show", "1"]).stdout;
    assert!(shown.contains("n1 GPU 3") && shown.contains("8 succeeded"), "{shown}");
}

#[test]
fn a_task_has_the_seed_that_is_shown_of_it_in_every_job() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = ["run", "--slurm", "--wait", "--time", "10", "--gres", "gpu:1"];
    let done = cluster.packhorse_with(words, lines("echo $PACKHORSE_SEED; test -e good", 2));
    assert_eq!(done.code, 1, "{done:?}");
    cluster.world.write("good", "");
    let done = cluster.packhorse(["slurm", "resume", "1", "--failed", "--wait"]);
    assert_eq!(done.code, 0, "{done:?}");
    let seeds = [1, 2].map(|task| {
        let task = format!("1.{task}");
        let shown = cluster.packhorse(["show", &task, "--json"]).json();
        for attempt in ["1", "2"] {
            let log = cluster.packhorse(["logs", &task, "--attempt", attempt]).stdout;
            assert_eq!(log.trim(), shown["seed"].to_string(), "{shown}");
        }
        shown["seed"].clone()
    });
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn gpus_may_be_asked_for_in_every_way_that_slurm_has() {
    needs!(Slurm);
    let cluster = Cluster::start();
    for (asked, run) in [
        (&["--gres", "gpu:titanrtx:2"][..], 1),
        (&["--sbatch=--gpus=2"], 2),
        (&["--sbatch=--gpus-per-node=titanrtx:2"], 3),
    ] {
        let words = ["run", "--slurm", "--wait", "-g", "1", "--time", "10"];
        let gate = cluster.world.gate(&format!("gate{run}"));
        let task = format!("echo $CUDA_VISIBLE_DEVICES; echo here >> here; read x < gate{run}");
        let running = cluster.start_with(words.iter().chain(asked), lines(&task, 2));
        cluster.wait_for_lines("here", 2 * run as usize);
        gate.pass(2);
        assert_eq!(running.finish().code, 0);
        let mut devices = cluster.logs(run, 2);
        devices.sort();
        assert_eq!(devices, ["0", "1"], "{asked:?}");
    }
}

#[test]
fn a_run_looks_as_if_it_were_here() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.world.write("packhorse.toml", "[slurm]\npartition = \"main\"\ntime = 5\n");
    let tasks =
        "#packhorse name=first\necho one; pwd\nexit 3\n#packhorse after=first\necho three\n";
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--env", "LETTER=x"];
    let done = cluster.packhorse_with(words, tasks);
    assert_eq!(done.code, 1, "{done:?}");
    for line in [
        "run 1 started, on Slurm as job ",
        "1.1 started on n1 GPU 0: echo one; pwd",
        "1.2 failed after",
        "run 1 ended: 2 succeeded, 1 failed in",
    ] {
        assert!(done.stdout.contains(line), "{line}: {}", done.stdout);
    }
    let script = fs_err::read_to_string(cluster.folder(1).join("script.sh")).unwrap();
    assert!(script.contains("--partition=main") && script.contains("--time=00:05:00"), "{script}");
    assert_eq!(cluster.outcomes(1), ["succeeded", "failed", "succeeded"]);
    let log = cluster.packhorse(["logs", "1.1"]).stdout;
    assert_eq!(log, format!("one\n{}\n", cluster.world.work().display()));
    let listed = cluster.packhorse(["ls", "--json"]).json();
    assert_eq!((&listed[0]["state"], &listed[0]["exit"]), (&"finished".into(), &1.into()));
    let exported = cluster.packhorse(["export", "1"]);
    assert_eq!(exported.stdout.lines().count(), 3);

    // What failed runs again on the cluster, with its next attempt.
    let again = cluster.packhorse(["retry", "1"]);
    assert!(again.stdout.starts_with("run 1: 1 task in 1 job, submitted"), "{again:?}");
    assert_eq!(cluster.packhorse(["slurm", "wait", "1"]).code, 1);
    let task = cluster.packhorse(["show", "1.2", "--json"]).json();
    assert_eq!((&task["outcome"], &task["attempts"]), (&"failed".into(), &2.into()));
}

#[test]
fn the_events_are_those_of_a_run_that_is_here() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = ["run", "--slurm", "--wait", "--json", "--slots", "2"];
    let task = "echo 'packhorse: {\"loss\": 0.5}'";
    let done = cluster.packhorse_with(words, lines(task, 2));
    let events = done.events();
    let names = events.iter().map(|event| event["event"].as_str().unwrap());
    let mut names: Vec<&str> = names.collect();
    names[2..].sort_unstable();
    assert_eq!(
        names,
        [
            "run-started",
            "known",
            "finished",
            "finished",
            "metrics",
            "metrics",
            "run-ended",
            "started",
            "started"
        ]
    );
    let started = events.iter().find(|event| event["event"] == "started").unwrap();
    assert_eq!((&started["node"], &started["gpus"]), (&"n1".into(), &serde_json::json!([])));
    let results = cluster.packhorse(["results", "1", "--json"]).json();
    assert_eq!(results[0]["metrics"]["loss"]["last"], 0.5);
}

#[test]
fn thousands_of_tasks_need_few_jobs() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = [
        "run",
        "--slurm",
        "--wait",
        "--quiet",
        "--slots",
        "8",
        "--jobs",
        "4",
        "--task-time",
        "10ms",
    ];
    let tasks: Vec<String> = (1..=2000).map(|number| format!("echo {number}")).collect();
    let tasks = tasks.join(
        "
",
    );
    let done = cluster.packhorse_with(words, tasks);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 2000 succeeded"), "{done:?}");
    let jobs = fs_err::read_to_string(cluster.folder(1).join("jobs.jsonl")).unwrap();
    assert!(jobs.contains("\"elements\":[[0,4]]"), "{jobs}");
    let logs = cluster.logs(1, 2000);
    assert!(logs.iter().zip(1..).all(|(log, number): (_, u32)| *log == number.to_string()));
}

#[test]
fn jobs_wait_in_the_queue_for_nodes_that_are_drained() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let node = |state: &str| {
        let mut scontrol = cluster.lab.command("scontrol");
        let words = ["update", "nodename=n[1-2]", state, "reason=x"];
        cluster.lab.output(scontrol.args(words));
    };
    node("state=drain");
    let done = cluster.packhorse_with(["run", "--slurm", "--gres", "gpu:1"], "true\n");
    assert_eq!(done.code, 0, "{done:?}");
    node("state=resume");
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn jobs_keep_to_the_cores_that_they_were_given() {
    needs!(Slurm, Cores);
    for binding in [CpuBinding::None, CpuBinding::Affinity] {
        let settings =
            LabSettings { nodes: 1, cpus: 2, gpus_per_node: 0, binding, ..LabSettings::default() };
        let cluster = Cluster::with(settings);
        // Two jobs with a core each, at once.
        let gate = cluster.world.gate("gate");
        let task = "grep Cpus_allowed_list /proc/self/status; echo here >> here; read x < gate";
        let words = [
            "run",
            "--slurm",
            "--cpus-per-task",
            "1",
            "--jobs",
            "2",
            "--task-time",
            "1h",
            "--time",
            "1h",
        ];
        let done = cluster.packhorse_with(words, lines(task, 2));
        assert_eq!(done.code, 0, "{done:?}");
        cluster.wait_for_lines("here", 2);
        gate.pass(2);
        assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
        let mut logs = cluster.logs(1, 2);
        logs.sort();
        let core = |log: &String| log.rsplit('\t').next().unwrap().to_owned();
        let given: Vec<String> = logs.iter().map(core).collect();
        assert!(given.iter().all(|core| core.parse::<u32>().is_ok()), "{given:?}");
        assert_ne!(given[0], given[1], "{binding:?}");
    }
}

#[test]
fn sweeps_and_csv_files_go_to_the_cluster_too() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let sweep = ["sweep", "--run", "echo {a}", "-p", "a", "1", "2", "--slurm", "--wait"];
    let done = cluster.packhorse(sweep);
    assert!(done.code == 0, "{done:?}");
    let mut logs = cluster.logs(1, 2);
    logs.sort();
    assert_eq!(logs, ["1", "2"]);
    fs_err::create_dir(cluster.world.work().join("code")).unwrap();
    cluster.world.write("code/train.sh", "echo $*\n");
    let rows = "Directory,Executable,Filename,Epochs,Priority\ncode,sh,train.sh,7,0\n";
    cluster.world.write("rows.csv", rows);
    let csv = ["csv", "rows.csv", "--consume", "--slurm", "--gres", "gpu:1"];
    let refused = cluster.packhorse(csv);
    assert!(refused.stderr.contains("add --wait"), "{refused:?}");
    let done = cluster.packhorse(csv.iter().chain(&["--wait"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(cluster.logs(2, 1)[0].contains("--epochs=7"), "{done:?}");
    assert_eq!(cluster.world.read("rows.csv").lines().count(), 1);
}

#[test]
fn what_jobs_learn_of_gpu_memory_is_known_here_and_to_the_next() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let state = FakeState::new(cluster.world.work().join("state"));
    state.device(&FakeDevice::new(0));
    let run = |tasks: &str, count: usize| {
        let words =
            ["run", "--slurm", "--wait", "--gres", "gpu:1", "--vram", "auto", "--time", "1h"];
        let mut command = cluster.command(words);
        command.env("PACKHORSE_NVML_LIBRARY", library_path()).env(STATE_VARIABLE, state.path());
        let done = finish_with(command, lines(tasks, count));
        assert_eq!(done.code, 0, "{done:?}");
        done.stdout
    };
    run(&taking("--peak 5G --hold-looks 6"), 1);
    let peaks = cluster.packhorse(["peaks", "--json"]).json();
    assert_eq!(peaks.as_array().unwrap().len(), 1, "{peaks}");
    let told = run(&taking("--peak 5G --hold-looks 6"), 3);
    let before = told.split(" succeeded in ").next().unwrap();
    assert_eq!(before.matches(" started on n1 GPU 0").count(), 3, "{told}");
}

const GRID: &str = "scheduler_config: {gpu: ['0', '1']}\ncommand: sh -c 'read x < gate; echo $CUDA_VISIBLE_DEVICES'\ntest_config:\n- a: [1, 2]\n  b: [3]\n";

#[test]
fn tests_of_a_grid_have_the_devices_of_their_job_and_are_marked_by_it() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    // Somebody else has the devices that the file and the settings name.
    let other = cluster.world.gate("other");
    let mut sbatch = cluster.lab.command("sbatch");
    sbatch.current_dir(cluster.world.work());
    let wrapped = "echo here >> here; read x < other";
    cluster.lab.output(sbatch.args(["--gres=gpu:2", "--wrap", wrapped]));
    cluster.wait_for_lines("here", 1);
    cluster.world.write("packhorse.toml", "[pool]\ngpus = [\"0\"]\n");
    cluster.world.write("tests.yaml", GRID);
    let gate = cluster.world.gate("gate");
    let words = ["grid", "tests.yaml", "--slurm", "--gres", "gpu:2"];
    let done = cluster.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    cluster.wait_for_run(1);
    // Who starts them once more is told that they run, on whatever node.
    let again = cluster.packhorse(words);
    assert!(again.code == 2 && again.stderr.contains("is in use"), "{again:?}");
    gate.pass(2);
    assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
    let log = |task| cluster.packhorse(["logs", task]).stdout;
    let mut devices = ["1.1", "1.2"].map(log);
    devices.sort();
    assert_eq!(devices, ["2\n", "3\n"]);
    let words_of_run = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--time", "5"];
    let done = cluster.packhorse_with(words_of_run, "echo $CUDA_VISIBLE_DEVICES\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.logs(2, 1), ["2"]);
    other.pass(1);
    let marked = cluster.packhorse(["results", "results", "--json"]).json();
    let marked = marked.as_array().unwrap();
    assert_eq!(marked.len(), 2);
    assert!(marked.iter().all(|test| test["outcome"] == "succeeded" && test["host"] == "n1"));
    let again = cluster.packhorse(words);
    assert!(again.stderr.contains("nothing to do: 2 tests are done"), "{again:?}");
}

#[test]
fn folders_with_odd_names_are_no_trouble() {
    needs!(Slurm, Slurm24);
    for version in [SlurmVersion::Host, SlurmVersion::V24_11] {
        let settings = LabSettings { version, ..LabSettings::default() };
        let cluster = Cluster::with(settings);
        let folder = cluster.world.work().join("50%a 5\" it's");
        let mut command = cluster.command(["run", "--slurm", "--wait", "--slurm-folder"]);
        command.arg(&folder);
        let done = finish_with(command, "true\n");
        assert_eq!(done.code, 0, "{done:?}");
        let wrote = fs_err::read_dir(folder.join("1/slurm")).unwrap();
        let wrote: Vec<_> = wrote.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(wrote.len(), 1, "{wrote:?}");
        assert!(wrote[0].to_str().unwrap().ends_with("_0.out"), "{wrote:?}");
    }
}

#[test]
fn what_was_typed_counts_before_variables() {
    needs!(Slurm);
    let settings = LabSettings {
        // Where Slurm knows of GPUs, it says itself that a job has none.
        gpus_per_node: 0,
        slurm_conf: vec!["PartitionName=other Nodes=ALL State=UP".to_owned()],
        ..LabSettings::default()
    };
    let cluster = Cluster::with(settings);
    // And a job without GPUs has none, whatever the shell has that submitted it.
    let words =
        ["run", "--slurm", "--wait", "--partition", "main", "--time", "10", "--cpus-per-task", "2"];
    let mut command = cluster.command(words);
    command
        .env("SBATCH_PARTITION", "other")
        .env("SBATCH_TIMELIMIT", "7")
        .env("CUDA_VISIBLE_DEVICES", "0");
    let gate = cluster.world.gate("gate");
    let mut running = Running::start(command);
    running.send(lines("echo here >> here; read x < gate", 2));
    running.end_input();
    cluster.wait_for_lines("here", 2);
    let mut squeue = cluster.lab.command("squeue");
    let told = cluster.lab.output(squeue.args(["-h", "-o", "%P %l"]));
    assert_eq!(told.trim(), "main 10:00");
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("GPU"), "{done:?}");
}

#[test]
fn slurm_24_11_does_the_same() {
    needs!(Slurm24);
    let settings = LabSettings { version: SlurmVersion::V24_11, ..LabSettings::default() };
    let cluster = Cluster::with(settings);
    let gate = cluster.world.gate("gate");
    let words =
        ["run", "--slurm", "--wait", "--gres", "gpu:2", "-g", "0.5", "--time", "10", "--jobs", "2"];
    let task = "echo $CUDA_VISIBLE_DEVICES; echo here >> here; read x < gate";
    let mut running = cluster.start_with(words, lines(task, 8));
    cluster.wait_for_lines("here", 8);
    let status = cluster.packhorse(["slurm", "status", "--json"]).json();
    assert_eq!(status["elements"][0]["phase"], "running", "{status}");
    // Somebody puts one of the jobs back: what ran in it runs again.
    let mut scontrol = cluster.lab.command("scontrol");
    let element = format!("{}_0", cluster.job(1));
    cluster.lab.output(scontrol.args(["requeue", &element]));
    for _ in 0..4 {
        running.wait_for("its job was cut off; no retry is used up");
    }
    gate.pass(8);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 8 succeeded"), "{done:?}");
    let mut devices = cluster.logs(1, 8);
    devices.sort();
    assert_eq!(devices, ["0", "0", "1", "1", "2", "2", "3", "3"]);

    let words = ["run", "--slurm", "--partition", "nope"];
    let refused = cluster.packhorse_with(words, "true\n");
    let told = "invalid partition specified: nope";
    assert!(refused.stderr.contains(told), "{refused:?}");
    let words = ["run", "--slurm", "--gres", "gpu:1", "--time", "10"];
    cluster.packhorse_with(words, "sleep 1000\n");
    cluster.wait_for_run(2);
    let done = cluster.packhorse(["slurm", "cancel"]);
    assert!(done.stderr.contains("run 2 has stopped"), "{done:?}");
    assert_eq!(cluster.outcomes(2), ["interrupted"]);
}
