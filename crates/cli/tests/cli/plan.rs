//! `packhorse plan`: what would run where and when.

use std::io::Write as _;

use serde_json::Value;

use crate::machine::{Machine, holding, taking};
use crate::support::{World, finish};
use crate::terminal::Terminal;

const GIB: u64 = 1 << 30;

/// The tasks of a plan in the order of their starts, each with where it runs.
fn starts(plan: &Value) -> Vec<(u64, &str)> {
    let tasks = plan["tasks"].as_array().unwrap().iter();
    let start = |task| {
        let task: &Value = task;
        let on = task["gpus"][0].as_str().unwrap_or("nowhere");
        (task["task"].as_u64().unwrap(), on)
    };
    tasks.map(start).collect()
}

fn commands(plan: &Value) -> Vec<&str> {
    let tasks = plan["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["command"].as_str().unwrap()).collect()
}

fn plan(world: &World, words: &[&str]) -> Value {
    let done = world.packhorse([&["plan", "--json"], words].concat());
    assert_eq!(done.code, 0, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

impl Machine {
    fn plan(&self, words: &[&str]) -> Value {
        let done = self.packhorse(&[&["plan", "--json"], words].concat());
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }
}

#[test]
fn a_plan_shows_what_would_run_where_and_when() {
    let machine = Machine::new(2);
    let task = taking("--peak 9G --hold-looks 6");
    machine.world.write("tasks", format!("{task}\n").repeat(6));
    let plan = |words: &[&str]| {
        let done = machine.packhorse(&[&["plan", "tasks", "--json"], words].concat());
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str::<Value>(&done.stdout).unwrap()
    };
    // Nothing is known of them: each has a GPU to itself, for nobody knows how long.
    let unknown = plan(&["--vram", "auto"]);
    assert!(unknown["expected_end_seconds"].is_null(), "{unknown}");
    assert_eq!(unknown["durations_unknown"], 6);
    // A round is no time.
    for task in unknown["tasks"].as_array().unwrap() {
        assert!(task["start_seconds"].is_null(), "{unknown}");
        assert!(task["end_seconds"].is_null(), "{unknown}");
    }
    assert_eq!(unknown["tasks"][5]["round"], 3);
    let chart = machine.packhorse(&["plan", "tasks", "--vram", "auto"]);
    // Once they are measured, they share.
    assert!(chart.stdout.contains("after at most 3 rounds"), "{chart:?}");
    let assumed = plan(&["--vram", "auto", "--assume", "10s"]);
    assert_eq!(assumed["expected_end_seconds"], 30.0);
    assert_eq!(assumed["is_bound"], false);
    assert_eq!(assumed["durations_unknown"], 6);
    let words = ["plan", "tasks", "--vram", "auto", "--assume", "10s"];
    let chart = machine.packhorse(&words);
    assert!(chart.stdout.contains("in about 30s"), "{chart:?}");
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let rounds = |plan: &Value| {
        let starts = plan["tasks"].as_array().unwrap().iter();
        let mut starts: Vec<f64> =
            starts.map(|task| task["start_seconds"].as_f64().unwrap()).collect();
        starts.dedup();
        starts.len()
    };
    let known = plan(&["--vram", "auto"]);
    assert!(known["expected_end_seconds"].as_f64() > Some(0.0), "{known}");
    assert_eq!(known["is_bound"], true);
    assert_eq!(rounds(&known), 2);
    // With more GPUs than there are.
    assert_eq!(rounds(&plan(&["--vram", "auto", "--gpus", "3"])), 1);
    let chart = machine.packhorse(&["plan", "tasks", "--vram", "auto"]);
    assert!(chart.stdout.contains("GPU 1"), "{chart:?}");
    assert!(chart.stdout.contains("expected end: in at most "), "{chart:?}");
    // Nothing was run.
    assert!(!machine.packhorse(&["ls"]).stdout.contains("plan"));
}

#[test]
fn a_plan_needs_no_driver() {
    let world = World::new();
    world.write("tasks", "train\ntrain\ntrain\n");
    let done = world.packhorse(["plan", "tasks", "--gpus", "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("after 2 rounds"), "{done:?}");
    let words = ["plan", "tasks", "--gpus", "2", "--vram", "15G"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("--gpu-memory"), "{done:?}");
    let done = world.packhorse(words.into_iter().chain(["--gpu-memory", "24G"]));
    assert!(done.stdout.contains("after 2 rounds"), "{done:?}");
}

#[test]
fn a_plan_for_a_model_that_is_not_here_says_which_are() {
    let machine = Machine::new(2);
    machine.world.write("tasks", "train\n");
    for more in [&[][..], &["--vram", "1G"]] {
        let words = ["plan", "tasks", "--gpus", "2", "--gpu-model", "XYZ"];
        let done = machine.packhorse(&[&words[..], more].concat());
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("`XYZ`"), "{done:?}");
        assert!(done.stderr.contains("NVIDIA Fake 24GB"), "{done:?}");
        assert!(!done.stderr.contains("driver"), "{done:?}");
    }
}

#[test]
fn gpus_are_imagined_where_the_driver_has_none_to_use() {
    let machine = Machine::new(0);
    machine.world.write("tasks", "train\ntrain\n");
    let done = machine.packhorse(&["plan", "tasks", "--gpus", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("after 2 rounds"), "{done:?}");
}

#[test]
fn a_plan_tells_what_could_never_run_and_what_would_be_skipped_for_it() {
    let machine = Machine::new(1);
    machine.world.write(
        "tasks",
        "#packhorse vram=99G name=a\ntrain\n\
         #packhorse after=a name=b\ntrain\n\
         #packhorse after=b\ntrain\n\
         train\n",
    );
    let words = ["plan", "tasks", "--vram", "1G", "--assume", "10s"];
    let chart = machine.packhorse(&words);
    assert_eq!(chart.code, 1, "{chart:?}");
    let lines: Vec<&str> = chart.stderr.lines().collect();
    let first = "task 1 could never run: it needs 99.0 GiB";
    assert!(lines[0].starts_with(first), "{chart:?}");
    for (skipped, first) in [(2, 1), (3, 2)] {
        let line = format!(
            "task {skipped} would be skipped: it comes after task {first}, which would not run"
        );
        assert!(lines.contains(&line.as_str()), "{line} not in {chart:?}");
    }
    assert!(!chart.stderr.contains("must be submitted"), "{chart:?}");
    let done = machine.packhorse(&[&words[..], &["--json"]].concat());
    assert_eq!(done.code, 1, "{done:?}");
    let plan: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 1, "{plan}");
    let reason = plan["refused"][1]["reason"].as_str().unwrap();
    assert!(reason.contains("after task 1, which would not run"), "{plan}");
}

#[test]
fn a_table_is_planned_as_it_would_be_run() {
    let world = World::new();
    fs_err::create_dir(world.work().join("code")).unwrap();
    world.write("code/train.sh", "");
    world.write(
        "t.csv",
        "Directory,Executable,Filename,Epochs,Priority,GPUs\n\
         code,sh,train.sh,8,2,\ncode,sh,train.sh --x,6,1,2\ncode,sh,train.sh,4,1,\n",
    );
    let short = plan(&world, &["t.csv", "-g", "1", "--gpus", "0,1"]);
    let long = ["csv", "t.csv", "-g", "1", "--gpus", "0,1", "--json"];
    let done = world.packhorse([&["plan"], &long[..]].concat());
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), short);
    // By priority, the second with both GPUs.
    let wanted = [(2, "GPU 0"), (3, "GPU 0"), (1, "GPU 1")];
    assert_eq!(starts(&short), wanted);
    assert_eq!(commands(&short)[0], "sh train.sh --x --epochs=6 --id=1");
    // Batches of one are run in their order.
    let batches = ["csv", "t.csv", "-g", "1", "--gpus", "0", "1", "--num", "1"];
    let done = world.packhorse([&["plan"], &batches[..], &["--json"]].concat());
    let batches: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(starts(&batches)[0], (1, "GPU 0"));
    // No ids were taken.
    let done = world.packhorse(["csv", "t.csv", "-g", "1", "--gpus", "0,1"]);
    assert!(done.stdout.contains("--epochs=6 --id=1"), "{done:?}");

    world.write("t.csv", "Directory,Executable,Filename,Epochs,Priority\nx,sh,y,z,1\n");
    let done = world.packhorse(["plan", "t.csv", "--gpus", "0"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("nothing was planned"), "{done:?}");
    world.write("tasks", "a\n");
    for files in [["t.csv", "tasks"], ["tasks", "t.csv"], ["t.csv", "t.csv"]] {
        let done = world.packhorse([&["plan"], &files[..]].concat());
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("one after the other"), "{done:?}");
    }
}

#[test]
fn task_lines_sweeps_and_single_commands_are_planned_too() {
    let world = World::new();
    let lines = "{\"command\": [\"a\", \"b c\"], \"name\": \"n\"}\n{\"command\": \"d\", \"after\": [\"n\"]}\n";
    world.write("t.jsonl", lines);
    world.write("t.txt", lines);
    let gpus = ["--gpus", "0,1"];
    for words in [&["t.jsonl"][..], &["--tasks", "t.txt"]] {
        let planned = plan(&world, &[words, &gpus].concat());
        assert_eq!(commands(&planned), ["a 'b c'", "d"]);
        assert_eq!(planned["tasks"][1]["round"], 2, "{planned}");
    }
    let sweep = ["sweep", "train {lr}", "-p", "lr", "-1", "0", "1", "--order", "grid"];
    let done = world.packhorse([&["plan"], &sweep[..], &gpus, &["--json"]].concat());
    let planned: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(commands(&planned), ["train -1", "train 0", "train 1"]);
    assert_eq!(planned["tasks"][2]["round"], 2, "{planned}");
    let done = world.packhorse(["plan", "run", "--gpus", "0", "--json", "--", "train", "x"]);
    let planned: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(commands(&planned), ["train x"]);
    world.write("null", "a\nb\0c\0");
    let planned = plan(&world, &["-0", "null", "--gpus", "0"]);
    assert_eq!(commands(&planned).len(), 2);
}

#[test]
fn grids_and_experiments_are_planned_without_a_word_on_what_they_are() {
    let world = World::new();
    let gpus = ["--gpus", "0,1"];
    let grid = "{\"test_config\": [{\"lr\": [1, 2, 3]}], \"command\": \"train {lr}\"}";
    let experiments = "name: DEFAULT\npath: results\nrepetitions: 3\niterations: 1\ncommand: train {rep}\n---\n\
                       name: a\nparams: {x: 1}\n";
    for (file, text, door) in [
        ("tests.yaml", grid.to_owned(), "grid"),
        ("tests.json", grid.to_owned(), "grid"),
        ("tests.py", format!("config = {grid}"), "grid"),
        ("config.yml", experiments.to_owned(), "exp"),
    ] {
        world.write(file, text);
        let planned = plan(&world, &[&[file], &gpus[..]].concat());
        assert_eq!(planned["tasks"].as_array().unwrap().len(), 3, "{planned}");
        let words = [&["plan", door, file, "--json"], &gpus[..]].concat();
        assert_eq!(world.packhorse(words).json(), planned, "{file}");
    }
    world.write("jobs.yaml", "train 1\ntrain 2\n");
    let done = world.packhorse(["plan", "jobs.yaml", "--gpus", "0"]);
    assert_eq!(done.code, 2, "{done:?}");
    for door in ["grid", "exp", "run"] {
        let hint = format!("`packhorse plan {door} jobs.yaml`");
        assert!(done.stderr.contains(&hint), "{done:?}");
    }
    let done = world.packhorse(["plan", "run", "jobs.yaml", "--gpus", "0", "--json"]);
    assert_eq!(commands(&done.json()), ["train 1", "train 2"]);
    let done = world.packhorse(["plan", "tests.yaml", "tests.json"]);
    assert!(done.stderr.contains("one after the other"), "{done:?}");
}

#[test]
fn what_strangers_hold_is_counted() {
    let machine = Machine::new(2);
    machine.world.write("tasks", "train\n".repeat(3));
    let stranger = machine.state.stranger(0, 20 * GIB);
    let planned = machine.plan(&["tasks", "--vram", "9G"]);
    let wanted = [(1, "GPU 1"), (2, "GPU 1"), (3, "GPU 1")];
    assert_eq!(starts(&planned), wanted, "{planned}");
    // Without memory to count, others go first; and some are not to be counted.
    let planned = machine.plan(&["tasks", "-g", "1", "--assume", "5s"]);
    assert_eq!(starts(&planned)[..2], [(1, "GPU 1"), (2, "GPU 0")]);
    let pid = stranger.to_string();
    let words = ["tasks", "--vram", "9G", "--ignore-process", &pid];
    let planned = machine.plan(&words);
    assert!(starts(&planned).iter().any(|on| on.1 == "GPU 0"), "{planned}");
    // What is imagined is free.
    let words = ["tasks", "--vram", "9G", "--gpus", "3"];
    let planned = machine.plan(&words);
    assert!(starts(&planned).iter().all(|on| on.1 != "GPU 0"), "{planned}");
    assert!(starts(&planned).iter().any(|on| on.1 == "GPU 2"), "{planned}");

    let words = ["tasks", "--vram", "9G", "--gpus", "0"];
    let done = machine.packhorse(&[&["plan"], &words[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("would wait: 1, 2, 3"), "{done:?}");
    let told = "task 1 waits for 9.0 GiB of GPU memory (3.5 GiB free): \
                processes of others hold 20.0 GiB of GPU 0";
    assert!(done.stderr.contains(told), "{done:?}");
    let planned = machine.plan(&[&words[..], &["--assume", "5s"]].concat());
    assert_eq!(planned["waiting"], serde_json::json!([1, 2, 3]));
    assert!(planned["expected_end_seconds"].is_null(), "{planned}");
}

#[test]
fn what_other_runs_hold_is_counted() {
    let machine = Machine::new(2);
    machine.world.write("holding", holding("1G", "gate"));
    machine.world.write("tasks", "train\n".repeat(2));
    let mut running = machine.start(&["run", "holding"]);
    running.wait_for("1.1 started on GPU 0");
    let words = ["tasks", "--assume", "10s"];
    let planned = machine.plan(&words);
    assert_eq!(starts(&planned), [(1, "GPU 1"), (2, "GPU 1")], "{planned}");
    let planned = machine.plan(&[&words[..], &["--no-leases"]].concat());
    assert_eq!(starts(&planned), [(1, "GPU 1"), (2, "GPU 0")], "strangers: {planned}");
    machine.world.write("gate", "");
    assert_eq!(running.finish().code, 0);
    let planned = machine.plan(&words);
    assert_eq!(starts(&planned), [(1, "GPU 0"), (2, "GPU 1")], "{planned}");
}

#[test]
fn gpus_that_were_taken_out_are_left_out() {
    let machine = Machine::new(2);
    machine.world.write("holding", holding("1G", "gate"));
    machine.world.write("tasks", "train\n".repeat(2));
    let mut running = machine.start(&["run", "--vram", "20G", "holding"]);
    running.wait_for("1.1 started on GPU 0");
    machine.state.xid(0, 79);
    running.wait_for("GPU 0 is taken out");
    machine.world.write("gate", "");
    assert_eq!(running.finish().code, 0);
    let done = machine.packhorse(&["plan", "tasks"]);
    assert!(done.stderr.contains("GPU 0 is left out: "), "{done:?}");
    assert!(!done.stdout.contains("GPU 0"), "{done:?}");
    let planned = machine.plan(&["tasks"]);
    assert_eq!(starts(&planned), [(1, "GPU 1"), (2, "GPU 1")], "{planned}");
    // So many are wanted: one more is imagined.
    assert_eq!(starts(&machine.plan(&["tasks", "--gpus", "2"]))[1].0, 2);
    let planned = machine.plan(&["tasks", "--gpus", "2"]);
    assert_eq!(planned["tasks"][1]["round"], 1, "{planned}");
    machine.packhorse(&["gpus", "--restore", "0"]);
    // One that is lost at the moment.
    machine.state.lose(1);
    let planned = machine.plan(&["tasks", "--vram", "20G"]);
    assert_eq!(starts(&planned), [(1, "GPU 0"), (2, "GPU 0")], "{planned}");
}

#[test]
fn a_plan_takes_at_most_300_bytes_for_each_line() {
    let world = World::new();
    let lines: Vec<String> =
        (0..40_000).map(|it| format!("python train.py --lr 0.{it}\n")).collect();
    world.write("commands", lines.concat());
    // 20 MiB for the program, in KiB, and the rest for the lines. What is used is limited, not
    // measured.
    let limit = 20 * 1024 + 40_000 * 300 / 1024;
    for json in ["", "--json"] {
        let line = format!("ulimit -d {limit}; exec $0 plan --slots 4 {json} commands");
        let packhorse = env!("CARGO_BIN_EXE_packhorse");
        let done = finish(world.program("bash", ["-c", &line, packhorse]));
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
}

#[test]
fn long_work_shows_on_a_terminal_how_far_it_is() {
    let world = World::new();
    let fifo = world.fifo("slow");
    let mut command = world.command(["plan", "--slots", "1", "slow"]);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(command, 80, 24);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut pipe = fs_err::OpenOptions::new().write(true).open(fifo).unwrap();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            pipe.write_all(b"# a remark is no task\n").unwrap();
        }
        pipe.write_all(b"true\n").unwrap();
    });
    terminal.wait_for(" reading: 0 tasks");
    stop.send(()).unwrap();
    writer.join().unwrap();
    assert_eq!(terminal.finish(), 0);
    let screen = terminal.screen();
    assert!(screen.iter().all(|line| !line.contains("reading")), "{screen:#?}");
}
