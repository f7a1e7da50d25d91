//! `packhorse grid`: a test for each combination of parameters, with folders for results.

mod markers;

use serde_json::{Value, json};

use crate::support::{Done, World, cut_short};

const SEED: &str = r#"
# The sample of the original's README.
config = {
    "scheduler_config": {
        "gpu": ["0", "1", "2"]
    },

    "global_config": {
        "num_run": 5,
        "num_epoch": 200,
    },

    "test_config": [
        {
            "method": ["GAN", "ALI"],
            "num_packing": [1],
            "num_zmode": [1]
        },
        {
            "method": ["WGAN"],
            "num_packing": [3],
            "num_zmode": [1, 2]
        }
    ]
}
"#;

impl World {
    /// Runs `packhorse grid tests.yaml` with this file.
    fn grid(&self, file: &str, words: &[&str]) -> Done {
        self.write("tests.yaml", file);
        self.packhorse([&["grid", "tests.yaml"], words].concat())
    }

    fn marker(&self, folder: &str) -> Value {
        let text = self.read(&format!("{folder}/.packhorse.json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{folder}: {error}: {text}"))
    }
}

#[test]
fn the_sample_of_the_original_runs_with_any_command() {
    let world = World::new();
    world.write("config.py", SEED);
    let task = "echo $CUDA_VISIBLE_DEVICES $PACKHORSE_PARAMS > $PACKHORSE_RESULTS/got; echo $*";
    let done = world.packhorse(["grid", "config.py", "--", "sh", "-c", task, "sh"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let tests = ["GAN 1 1", "ALI 1 1", "WGAN 3 1", "WGAN 3 2"];
    for test in tests {
        let mut words = test.split(' ');
        let [method, packing, zmode] = [(); 3].map(|()| words.next().unwrap());
        let name = format!("method-{method},num_packing-{packing},num_zmode-{zmode},");
        let got = world.read(&format!("results/{name}/got"));
        let (gpu, params) = got.split_once(' ').unwrap();
        assert!(["0", "1", "2"].contains(&gpu), "{got}");
        let params: Value = serde_json::from_str(params).unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        let wanted = json!({
            "num_run": 5, "num_epoch": 200, "method": method,
            "num_packing": number(packing), "num_zmode": number(zmode),
        });
        assert_eq!(params, wanted);
        assert_eq!(
            world.read(&format!("results/{name}/worker.log")),
            format!(
                "--num_run 5 --num_epoch 200 --method {method} --num_packing {packing} --num_zmode {zmode}\n"
            )
        );
        let log = world.read("scheduler.log");
        for verb in ["receives", "finishes"] {
            let count = log.matches(&format!(" {verb} task {name}\n")).count();
            assert_eq!(count, 1, "{log}");
        }
    }
    let log = world.read("scheduler.log");
    for gpu in 0..3 {
        let line = format!(" gpu{gpu} finished\n");
        assert_eq!(log.matches(&line).count(), 1, "{log}");
    }
    // A date, a time, who and what.
    let first = log.lines().next().unwrap();
    assert!(first.starts_with("20") && first.as_bytes()[19] == b' ', "{first}");

    let again = world.packhorse(["grid", "config.py", "--", "false"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stderr.contains("nothing to do: 4 tests are done"), "{again:?}");
}

#[test]
fn skipped_tests_are_in_the_scheduler_log() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['7'], scheduler_log_file_path: logs/s.log}\n\
                command: 'true'\ntest_config: [{a: [1]}]";
    assert_eq!(world.grid(file, &[]).code, 0);
    let more = file.replace("[1]", "[1, 2]");
    let done = world.grid(&more, &[]);
    assert!(done.stderr.contains("1 test is done, and skipped"), "{done:?}");
    let log = world.read("logs/s.log");
    let lines: Vec<&str> = log.lines().map(|line| &line[20..]).collect();
    assert_eq!(
        lines,
        [
            "gpu0 receives task a-1,",
            "gpu0 finishes task a-1,",
            "gpu0 finished",
            "gpu0 skips task a-1,",
            "gpu0 receives task a-2,",
            "gpu0 finishes task a-2,",
            "gpu0 finished",
        ]
    );
    let quiet = file.replace("logs/s.log", "null").replace("a: [1]", "b: [1]");
    assert_eq!(world.grid(&quiet, &[]).code, 0);
    assert!(!world.work().join("scheduler.log").exists());
    assert_eq!(world.read("logs/s.log"), log);
}

#[test]
fn gpus_are_those_of_the_file_or_of_the_command_line() {
    let world = World::new();
    let file = |gpus: &str| {
        format!(
            "scheduler_config: {{gpu: {gpus}, log_file: gpu, force_rerun: true}}\n\
             command: 'echo \"$CUDA_VISIBLE_DEVICES\" #'\ntest_config: [{{a: [1]}}]"
        )
    };
    let gpu = |gpus: &str, words: &[&str]| {
        let done = world.grid(&file(gpus), words);
        assert_eq!(done.code, 0, "{done:?}");
        world.read("results/a-1,/gpu").trim().to_owned()
    };
    assert_eq!(gpu("['3']", &[]), "3");
    assert_eq!(gpu("[['2', '3']]", &[]), "2,3");
    assert_eq!(gpu("['2,3']", &[]), "2,3");
    assert_eq!(gpu("['3']", &["--gpus", "5+6"]), "5,6");
    assert_eq!(gpu("['3']", &["--slots", "1"]), "");

    let none = world.grid("command: 'true'", &[]);
    assert_eq!(none.code, 2);
    assert!(none.stderr.contains("scheduler_config has no `gpu`"), "{none:?}");
    assert!(none.stderr.contains("--gpus"), "{none:?}");
}

#[test]
fn a_gpu_that_is_named_twice_has_two_tests_at_a_time() {
    let world = World::new();
    let (first, second) = (world.fifo("first"), world.fifo("second"));
    let file = "scheduler_config: {gpu: ['0', '0']}\n\
                command: 'case {a} in 1) cat first;; 2) echo > first; echo $CUDA_VISIBLE_DEVICES > second;; esac'\n\
                test_config: [{a: [1, 2]}]";
    world.write("tests.yaml", file);
    // The first test ends only if the second runs beside it.
    let running = world.start(["grid", "tests.yaml"]);
    let _ = first;
    assert_eq!(crate::support::receive(&second), "0\n");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn output_that_nobody_wants_is_thrown_away_in_every_attempt() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0'], log_file: null}\n\
                command: 'echo lost; test -e $PACKHORSE_RESULTS/x || ( touch $PACKHORSE_RESULTS/x; false ) #'\n\
                request: {retries: 1}\ntest_config: [{a: [1]}]";
    let done = world.grid(file, &["--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.marker("results/a-1,")["attempts"], 2);
    let mut files: Vec<_> = fs_err::read_dir(world.work().join("results/a-1,"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, [".packhorse.json", "x"]);
    assert!(!std::path::Path::new("/dev/null.2").exists());
    assert_eq!(world.packhorse(["logs", "1.1"]).stdout, "");
}

#[test]
fn tests_are_listed_with_their_states_and_commands_are_shown() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0']}\ncommand: 'test {a} != 2 && true'\n\
                test_config: [{a: [1, 2], b: [1e-3]}]";
    let list = world.grid(file, &["--list"]);
    assert_eq!(
        list.stdout,
        "new          results/a-1,b-0.001,\nnew          results/a-2,b-0.001,\n"
    );
    assert!(!world.home().exists() && !world.work().join("results").exists());
    assert_eq!(world.grid(file, &[]).code, 1);
    fs_err::create_dir(world.work().join("results/a-3,b-0.001,")).unwrap();
    let file = &file.replace("[1, 2]", "[1, 2, 3, 4]");
    let list = world.grid(file, &["--list"]);
    assert_eq!(
        list.stdout,
        "succeeded    results/a-1,b-0.001,\nfailed       results/a-2,b-0.001,\n\
         done         results/a-3,b-0.001,\nnew          results/a-4,b-0.001,\n"
    );
    let dry = world.grid(file, &["--dry-run"]);
    assert_eq!(
        dry.stdout,
        "# skipped, succeeded: results/a-1,b-0.001,\ntest 2 != 2 && true\n\
         # skipped, its folder is there: results/a-3,b-0.001,\ntest 4 != 2 && true\n"
    );
    let forced = world.grid(file, &["--dry-run", "--force", "--only", "a=1"]);
    assert_eq!(forced.stdout, "test 1 != 2 && true\n");
    let list = world.grid(file, &["--list", "--json", "--only", "a=2"]);
    assert_eq!(
        list.json(),
        json!({"folder": "results/a-2,b-0.001,", "state": "failed", "params": {"a": 2, "b": 0.001}})
    );
    world.write("tests.yaml", file);
    let first = cut_short(world.command(["grid", "tests.yaml", "--list"]));
    assert_eq!(first.code, 0, "{first:?}");
}

#[test]
fn only_some_tests_run_and_unknown_conditions_are_refused() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0']}\ncommand: echo\n\
                test_config: [{method: [GAN, ALI], k: [1, 2]}]";
    let done = world.grid(file, &["--only", "method=GAN", "--only", "k=2"]);
    assert_eq!(done.code, 0, "{done:?}");
    let list = world.grid(file, &["--list"]).stdout;
    assert_eq!(list.matches("succeeded").count(), 1, "{list}");
    assert!(list.contains("succeeded    results/k-2,method-GAN,\n"), "{list}");
    for (condition, wanted) in [
        ("methd=GAN", "did you mean `method`?"),
        ("method=GANN", "did you mean `GAN`?"),
        ("method", "KEY=VALUE"),
    ] {
        let done = world.grid(file, &["--only", condition]);
        assert_eq!(done.code, 2);
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
}

#[test]
fn mistakes_are_shown_in_their_lines_and_nothing_starts() {
    let world = World::new();
    let done = world.grid("scheduler_config:\n  gpu: ['0']\n  temp_foldr: x\ncommand: echo", &[]);
    assert_eq!(done.code, 2);
    let wanted = "error: there is no key `temp_foldr` in scheduler_config\n \
                  --> tests.yaml:3:3\n  |\n3 |   temp_foldr: x\n  |   ^^^^^^^^^^ unknown key\n  |\n  \
                  = hint: did you mean `temp_folder`?\n";
    assert_eq!(done.stderr, wanted);
    assert!(!world.home().exists());

    world.write("config.py", "import os\nconfig = {}");
    let done = world.packhorse(["grid", "config.py"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("config.py:1:1"), "{done:?}");
    assert!(done.stderr.contains("use the Python package"), "{done:?}");

    for (words, wanted) in [
        (&["grid"][..], "no file was given"),
        (&["grid", "nowhere.yaml"], "nowhere.yaml"),
        (&["grid", "config.py", "x.py"], "unexpected argument"),
        (&["grid", "config"], "could be written in anything"),
        (&["grid", "tests.yaml", "--list", "--dry-run"], "cannot be used with"),
    ] {
        let done = world.packhorse(words);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
    let done = world.grid("scheduler_config: {gpu: ['0']}", &[]);
    assert!(done.stderr.contains("says nothing of what to run"), "{done:?}");
    let done = world.grid("test_config: [{lr: [1]}]", &["--", "echo", "{lrr}"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("did you mean {lr}?"), "{done:?}");
    world.write("latin.yaml", b"command: caf\xe9");
    let done = world.packhorse(["grid", "latin.yaml"]);
    assert!(done.stderr.contains("not UTF-8"), "{done:?}");
}

#[test]
fn options_of_the_command_line_win_over_the_file() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0']}\nenv: {A: file, B: file}\n\
                request: {retries: 5}\ncommand: 'echo $A $B; false'\ntest_config: [{a: [1]}]";
    let done = world.grid(file, &["--env", "A=typed", "--retries", "1", "--json"]);
    assert_eq!(done.code, 1);
    assert_eq!(world.read("results/a-1,/worker.log"), "typed file\n");
    assert_eq!(world.marker("results/a-1,")["attempts"], 2);
    let export = world.packhorse(["export", "1"]).stdout;
    assert!(export.contains(r#""params":{"a":1}"#), "{export}");
}

#[test]
fn names_that_are_not_enough_are_told_of_before_anything_starts() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0'], config_string_value_maxlen: 2}\n\
                command: touch\ntest_config: [{v: [abc, abd, x/y, abc]}]";
    let done = world.grid(file, &["--", "sh", "-c", "echo {v}"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("2 tests would share a folder"), "{done:?}");
    assert!(done.stderr.contains("`v-ab,`"), "{done:?}");
    assert!(
        done.stderr.contains("1 test would have a folder name that is too long or has a `/`"),
        "{done:?}"
    );
    assert!(done.stderr.contains("each runs once"), "{done:?}");
    let folders = fs_err::read_dir(world.work().join("results")).unwrap();
    assert_eq!(folders.count(), 3);
    let list = world.grid(file, &["--list"]).stdout;
    assert_eq!(list.matches("succeeded    results/v-").count(), 3, "{list}");
}

#[test]
fn a_grid_can_be_planned() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0', '1']}\ncommand: echo\ntest_config: [{a: [1, 2, 3]}]";
    world.write("tests.yaml", file);
    let plan = world.packhorse(["plan", "grid", "tests.yaml", "--json"]).json();
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(plan["tasks"][0]["command"], "echo --a 1");
    world.grid(file, &["--only", "a=2"]);
    let plan = world.packhorse(["plan", "grid", "tests.yaml", "--json"]).json();
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 2);
    assert!(!world.work().join("results/a-1,").exists());
}

#[test]
fn a_run_goes_on_where_it_stopped_whatever_became_of_the_file() {
    let world = World::new();
    let gate = world.gate("gate");
    let file = "scheduler_config: {gpu: ['0']}\ncommand: 'read x < gate; echo {a}'\n\
                test_config: [{a: [1, 2, 3]}]";
    assert_eq!(world.grid(file, &["--only", "a=1", "--", "true"]).code, 0);
    world.write("tests.yaml", file);
    let mut running = world.start(["grid", "tests.yaml"]);
    running.wait_for("2.1 started");
    running.signal(rustix::process::Signal::INT);
    gate.pass(1);
    assert_eq!(running.finish().code, 130);
    world.write("tests.yaml", "nothing of it");
    gate.pass(1);
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("results/a-3,/worker.log"), "3\n");
    let log = world.read("scheduler.log");
    assert!(log.contains("gpu0 finishes task a-3,"), "{log}");
}
