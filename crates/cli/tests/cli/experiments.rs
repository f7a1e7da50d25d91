//! `packhorse exp`: the repetitions of experiments, with folders for their results.

mod again;
mod beside;
mod devices;
mod elements;
mod files;
mod wrong;

use serde_json::{Value, json};

use crate::support::{Done, World, cut_short};

const FILE: &str = "\
name: DEFAULT
path: results
repetitions: 2
params: {seed: 1, net: {hidden: 3}}
---
name: plain
---
name: tuned
grid: {lr: [1e-3, 0.1], net: {hidden_size: [yes, 010]}}
";

impl World {
    /// Runs `packhorse exp config.yml` with this file.
    fn exp(&self, file: &str, words: &[&str]) -> Done {
        self.write("config.yml", file);
        self.packhorse([&["exp", "config.yml"], words].concat())
    }

    /// What `--list` prints, without blanks in the middle.
    fn listed(&self, file: &str, words: &[&str]) -> Vec<String> {
        let done = self.exp(file, &[&["--list"], words].concat());
        assert_eq!(done.code, 0, "{done:?}");
        let lines = done.stdout.lines();
        let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect()
    }

    fn json_of(&self, path: &str) -> Value {
        let text = self.read(path);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }
}

#[test]
fn repetitions_are_listed_by_the_names_that_the_original_gives_them() {
    let world = World::new();
    let listed = world.listed(FILE, &[]);
    let tuned = ["1e-3_net.hsTrue", "1e-3_net.hs8", "0.1_net.hsTrue", "0.1_net.hs8"];
    let runs = tuned.map(|name| format!("results/tuned/tuned__l{name}"));
    let runs = std::iter::once("results/plain".to_owned()).chain(runs);
    let wanted = runs.flat_map(|run| [0, 1].map(|rep| format!("new {run}/log/rep_0{rep}")));
    assert_eq!(listed, wanted.collect::<Vec<_>>());

    let done = world.packhorse(["exp", "config.yml", "--list", "--json", "-e", "tuned"]);
    let all = done.events();
    assert_eq!(all.len(), 8);
    let run = "results/tuned/tuned__l1e-3_net.hs8";
    let wanted = json!({
        "experiment": "tuned", "run": "tuned__l1e-3_net.hs8", "repetition": 1, "job": 3,
        "folder": format!("{run}/log/rep_01"), "state": "new",
        "config": {
            "name": "tuned", "path": run, "repetitions": 2, "log_path": format!("{run}/log"),
            "params": {"seed": 1, "net": {"hidden": 3, "hidden_size": 8}, "lr": 0.001},
            "_basic_path": "results", "_experiment_name": "tuned__l1e-3_net.hs8",
            "_nested_dir": "tuned", "_debug": false, "_rep_idx": 1,
            "_rep_log_path": format!("{run}/log/rep_01"),
        },
    });
    assert_eq!(all[3], wanted);
}

#[test]
fn all_parameters_together_have_a_place_in_a_command() {
    let world = World::new();
    let words = ["-e", "plain", "--dry-run", "--", "train", "{params}"];
    let done = world.exp(FILE, &words);
    let line = "train '{\"net\":{\"hidden\":3},\"seed\":1}'\n";
    assert_eq!((done.code, done.stdout), (0, line.repeat(2)), "{}", done.stderr);
}

#[test]
fn keys_that_are_numbers_stay_numbers_where_they_are_tried() {
    let world = World::new();
    let file = "{name: a, path: p, params: {steps: {1: a, '2': b}}, \
        grid: {steps: {1: [x], 2: [y]}, 3: [z]}}";
    let done = world.exp(file, &["--list", "--json"]);
    let params = r#""params":{"!dict":[["steps",{"!dict":[[1,"x"],["2","b"],[2,"y"]]}],[3,"z"]]}"#;
    assert!(done.stdout.contains(params), "{done:?}");
}

#[test]
fn whoever_has_seen_enough_may_stop_reading() {
    let world = World::new();
    let file = "{name: a, path: p, repetitions: 5000, list: {x: [1, 2, 3, 4]}}";
    world.write("config.yml", file);
    for words in [&["--list"][..], &["--list", "--json"], &["--expand"]] {
        let words = [&["exp", "config.yml"], words].concat();
        let done = cut_short(world.command(words));
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    }
}

#[test]
fn parameters_are_appended_as_they_were_written() {
    let world = World::new();
    let done = world.exp(FILE, &["-e", "tuned", "--dry-run", "--", "train"]);
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    let fixed = "train --seed 1 --net.hidden 3";
    assert_eq!(
        &lines[..4],
        [
            format!("{fixed} --net.hidden_size yes --lr 1e-3"),
            format!("{fixed} --net.hidden_size yes --lr 1e-3"),
            format!("{fixed} --net.hidden_size 010 --lr 1e-3"),
            format!("{fixed} --net.hidden_size 010 --lr 1e-3"),
        ]
    );
}

#[test]
fn a_repetition_finds_its_configuration_wherever_it_looks() {
    let world = World::new();
    let script = r#"
        echo "$@" > $PACKHORSE_RESULTS/words
        echo "$PACKHORSE_EXPERIMENT" > $PACKHORSE_RESULTS/experiment
        echo "$PACKHORSE_PARAMS" > $PACKHORSE_RESULTS/params
        cp "$1" $PACKHORSE_RESULTS/seen"#;
    world.write("script", script);
    let words = "{config} {rep} {lr} {net.hidden} {net} {repetitions} {_experiment_name}";
    let command = ["-e", "tuned", "--", "sh", "script"];
    let words: Vec<&str> = command.into_iter().chain(words.split(' ')).collect();
    let done = world.exp(FILE, &words);
    assert_eq!(done.code, 0, "{done:?}");
    let folder = "results/tuned/tuned__l1e-3_net.hs8/log/rep_01";
    let said = format!(
        "{folder}/config.json 1 1e-3 3 {{\"hidden\":3,\"hidden_size\":8}} 2 tuned__l1e-3_net.hs8\n"
    );
    assert_eq!(world.read(&format!("{folder}/words")), said);
    let config = world.json_of(&format!("{folder}/experiment"));
    assert_eq!(config["_rep_idx"], 1);
    assert_eq!(config["params"], world.json_of(&format!("{folder}/params")));
    assert_eq!(world.json_of(&format!("{folder}/seen")), config);
    assert_eq!(world.json_of(&format!("{folder}/config.json")), config);
}

#[test]
fn the_cores_of_a_repetition_are_in_its_configuration() {
    let world = World::new();
    let script = "cp {config} $PACKHORSE_RESULTS/seen; \
        printf %s \"$PACKHORSE_EXPERIMENT\" > $PACKHORSE_RESULTS/experiment; \
        echo $PACKHORSE_CPU_CORES";
    let file = "{name: a, path: p, params: {z: .inf}}\n---\n{name: SLURM, cpus_per_rep: 1}\n";
    let done = world.exp(file, &["--", "sh", "-c", script]);
    assert_eq!(done.code, 0, "{done:?}");
    let cores = world.read("p/a/log/rep_00/out.log");
    let config = world.read("p/a/log/rep_00/experiment");
    let last = format!(",\"cpu_cores\":[{}]}}", cores.trim());
    assert!(config.ends_with(&last), "{config}");
    assert!(config.contains(r#""params":{"z":{"!float":"inf"}}"#), "{config}");
    let seen = world.json_of("p/a/log/rep_00/seen");
    assert_eq!(world.json_of("p/a/log/rep_00/experiment"), seen);
}

#[test]
fn a_repetition_finds_its_configuration_in_the_order_of_the_file() {
    let world = World::new();
    let file = "{name: a, path: p, params: {z: 1, b: {y: .inf, x: {2: i, 1: j}}, a: 2}}";
    let script = "printf %s \"$PACKHORSE_EXPERIMENT\" > $PACKHORSE_RESULTS/experiment";
    let done = world.exp(file, &["--", "sh", "-c", script]);
    assert_eq!(done.code, 0, "{done:?}");
    let config = world.read("p/a/log/rep_00/experiment");
    let params = r#"{"z":1,"b":{"y":{"!float":"inf"},"x":{"!dict":[[2,"i"],[1,"j"]]}},"a":2}"#;
    assert!(config.contains(params), "{config}");
    let listed = world.exp(file, &["--list", "--json"]).stdout;
    assert!(listed.contains(params), "{listed}");
}

#[test]
fn parameters_that_are_too_long_for_a_variable_are_in_a_file() {
    let world = World::new();
    let numbers = vec!["12345678"; 20_000].join(", ");
    let file = format!("{{z: 1, name: a, path: p, params: {{long: [{numbers}], b: .inf, a: 2}}}}");
    let script =
        "echo \"$PACKHORSE_PARAMS $PACKHORSE_EXPERIMENT\" > seen; cp $PACKHORSE_CONFIG config";
    let done = world.exp(&file, &["--", "sh", "-c", script, "{rep}"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("seen"), " {}\n");
    let config = world.json_of("config");
    assert_eq!(config["params"]["long"].as_array().unwrap().len(), 20_000);
    // It is what the variable would have been.
    let config = world.read("config");
    assert!(config.starts_with("{\n  \"z\": 1,\n"), "{}", &config[..40]);
    assert!(config.contains(r#","b":{"!float":"inf"},"a":2}"#));
}

#[test]
fn output_goes_to_the_folder_of_a_repetition_unless_it_is_not_wanted() {
    let world = World::new();
    let file = "{name: a, path: p}";
    assert_eq!(world.exp(file, &["--", "echo", "hello"]).code, 0);
    assert_eq!(world.read("p/a/log/rep_00/out.log"), "hello\n");
    assert_eq!(world.packhorse(["logs", "1.1"]).stdout, "hello\n");
    let words = ["-o", "--noconsolelog", "--", "echo", "again"];
    assert_eq!(world.exp(file, &words).code, 0);
    assert_eq!(world.read("p/a/log/rep_00/out.log"), "hello\n");
    assert_eq!(world.packhorse(["logs", "2.1"]).stdout, "again\n");
}

#[test]
fn a_command_may_stand_in_the_file_and_each_experiment_may_have_its_own() {
    let world = World::new();
    let file = "\
        {name: DEFAULT, path: p, command: 'echo {a} > $PACKHORSE_RESULTS/got', params: {a: '1 2'}}\n\
        ---\n{name: one}\n---\n{name: two, command: [touch, 'p/{a}']}\n";
    assert_eq!(world.exp(file, &[]).code, 0);
    assert_eq!(world.read("p/one/log/rep_00/got"), "1 2\n");
    assert!(world.work().join("p/1 2").is_file());
    // What is given beside it wins.
    let done = world.exp(file, &["-o", "--dry-run", "--", "true"]);
    assert_eq!(done.stdout, "true --a '1 2'\n".repeat(2));
    let done = world.exp(file, &["-o", "--dry-run", "--plain-command", "--", "x", "{b}"]);
    assert_eq!(done.stdout, "x '{b}'\n".repeat(2));
}

#[test]
fn lists_and_ablations_are_expanded_one_after_the_other() {
    let world = World::new();
    let file = "\
        name: e\npath: p\nlist1: {a: [1, 2], b: [x, y]}\nablative--2: {c: [5], d: {e_f: [6, 7]}}\n";
    let names = ["_c5", "_d.ef6", "_d.ef7"];
    let names = ["a1_bx", "a2_by"].map(|first| names.map(|name| format!("{first}{name}")));
    let wanted: Vec<String> =
        names.iter().flatten().map(|name| format!("new p/e/e__{name}/log/rep_00")).collect();
    assert_eq!(world.listed(file, &[]), wanted);
    // The first of each, or every one of them; once, and in one job.
    let file = &format!("{file}repetitions: 3\niterations: 9\n");
    assert_eq!(world.listed(file, &["--debug"]), [wanted[0].clone()]);
    assert_eq!(world.listed(file, &["--debugall"]), wanted);
    let done = world.exp(file, &["--debug", "--list", "--json"]);
    let config = &done.events()[0]["config"];
    assert_eq!((&config["iterations"], &config["_debug"]), (&1.into(), &true.into()));
}

#[test]
fn jobs_are_cut_out_of_all_repetitions_of_a_name_and_one_can_be_run_by_itself() {
    let world = World::new();
    let file = "{name: DEFAULT, path: p, reps_per_job: 2}\n---\n{name: a, repetitions: 3}\n---\n\
        {name: b, repetitions: 3, reps_per_job: 3, list: {x: [1, 2]}}\n";
    let done = world.exp(file, &["--list", "--json"]);
    let jobs: Vec<u64> = done.events().iter().map(|rep| rep["job"].as_u64().unwrap()).collect();
    assert_eq!(jobs, [0, 0, 1, 2, 2, 2, 3, 3, 3]);
    assert_eq!(world.exp(file, &["-j", "1", "--", "true"]).code, 0);
    let states = world.listed(file, &[]);
    let (done, new): (Vec<_>, Vec<_>) =
        states.iter().partition(|line| line.starts_with("succeeded"));
    assert_eq!(done, ["succeeded p/a/log/rep_02"]);
    assert_eq!(new.len(), 8);
    let refused = world.exp(file, &["-j", "4", "--", "true"]);
    assert_eq!(refused.code, 2);
    assert_eq!(
        refused.stderr,
        "error: there is no job 4\nhint: there are 4 jobs, counted from 0\n"
    );
}

#[test]
fn the_time_may_stand_before_every_name() {
    let world = World::new();
    let listed = world.listed("{name: a, path: p, list: {x: [1]}}", &["-t"]);
    let path = listed[0].strip_prefix("new p/").unwrap();
    let (name, rest) = path.split_once('/').unwrap();
    let stamp = name.strip_suffix("_a").unwrap();
    let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(shape, "9999-999999");
    assert_eq!(rest, format!("{stamp}_a__x1/log/rep_00"));
}

#[test]
fn standard_input_is_a_file_too_and_runs_are_expanded_for_programs() {
    let world = World::new();
    let documents = "\
        {\"name\": \"a\", \"path\": \"p\", \"grid\": {\"x\": [1e-05, \"\\ud83d\\ude00\"]}}\n---\n\
        {\"name\": \"b\", \"path\": \"p\", \"repetitions\": 7}\n";
    let done = world.packhorse_with(["exp", "-", "--expand"], documents);
    let runs = done.events();
    let wanted = ["b", "a__x1e-05", "a__x😀"];
    let names: Vec<&str> =
        runs.iter().map(|run| run["_experiment_name"].as_str().unwrap()).collect();
    assert_eq!(names, wanted);
    assert_eq!(runs[0]["repetitions"], 7);
    assert_eq!(runs[0].get("_rep_idx"), None);
    assert_eq!(runs[1]["params"]["x"], 1e-5);
    let done = world.packhorse_with(["exp", "-", "--list", "-e", "a"], documents);
    assert_eq!(done.stdout.lines().count(), 2);
    // Nothing is written back that came from nowhere.
    let done = world.packhorse_with(["exp", "-", "-e", "b", "--", "true"], documents);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!world.work().join("p/b/relative_-_b.yml").exists());
    let top = fs_err::read_dir(world.work().join("p")).unwrap().count();
    assert_eq!(top, 1);
}

#[test]
fn parameters_inside_of_others_have_columns_of_their_own() {
    let world = World::new();
    let file = "{name: a, path: p, params: {net: {depth: 2, act: {kind: relu}}}, \
        grid: {net: {hidden: [64, 8]}}}";
    let task =
        "echo 'packhorse: {\"loss\": {net.hidden}}'".replace("{\"", "{{\"").replace("}}'", "}}}'");
    let done = world.exp(file, &["--", "sh", "-c", &task]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = world.packhorse(["results", "p", "--sort", "net.hidden"]);
    let lines: Vec<Vec<&str>> =
        done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(done.stdout.lines().next(), Some("all with net.act.kind = relu, net.depth = 2"));
    assert_eq!(lines[1][..2], ["net.hidden", "OUTCOME"], "{done:?}");
    assert_eq!((lines[2][0], lines[3][0]), ("8", "64"), "{done:?}");
    // For programs they are as they were.
    let done = world.packhorse(["results", "p", "--json"]);
    assert_eq!(done.json()[0]["params"]["net"]["act"]["kind"], "relu");
}

#[test]
fn a_plan_and_a_table_of_results_know_experiments() {
    let world = World::new();
    let file = "{name: a, path: p, repetitions: 4, reps_in_parallel: 2, command: 'true'}";
    world.write("config.yml", file);
    let done = world.packhorse(["plan", "exp", "config.yml", "--slots", "3", "--json"]);
    let plan = done.json();
    let rounds: Vec<u64> = plan["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["round"].as_u64().unwrap())
        .collect();
    assert_eq!(rounds, [1, 1, 2, 2], "{plan}");
    assert_eq!(world.exp(file, &[]).code, 0);
    for of in ["1", "p"] {
        let done = world.packhorse(["results", of, "--json"]);
        assert_eq!(done.json().as_array().unwrap().len(), 4, "{done:?}");
    }
}
