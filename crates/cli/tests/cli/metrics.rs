//! Lines such as `packhorse: {"loss": 0.1}` in what tasks write.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Done, World};

/// The values of the `metrics` events, with their steps.
fn told(done: &Done) -> Vec<(Value, Value)> {
    let events = done.events().into_iter();
    let metrics = events.filter(|event| event["event"] == "metrics");
    metrics.map(|event| (event["values"].clone(), event["step"].clone())).collect()
}

fn warnings(done: &Done) -> Vec<Value> {
    let events = done.events().into_iter();
    events.filter(|event| event["event"] == "warning").collect()
}

/// A run of one command line, its events.
fn run(world: &World, options: &str, line: &str) -> Done {
    let words = format!("run --slots 1 --json {options}");
    let done = world.packhorse_with(words.split_whitespace(), line.to_owned() + "\n");
    assert_eq!(done.code, 0, "{done:?}");
    done
}

#[test]
fn metrics_are_told_and_kept_whatever_the_stream_and_the_line_end() {
    let world = World::new();
    let line = r#"
        echo training; echo 'packhorse: {"loss": 0.5, "step": 1}';
        printf 'packhorse: {"loss"'; printf ': 0.25, "step": 2}\r\n';
        printf 'tqdm 10%%\rpackhorse: {"lr": 1}\rtqdm 20%%\n';
        echo ' packhorse: {"not": 1}'; echo 'see packhorse: {"not": 1}';
        printf 'packhorse: {"loss": 0.375, "epoch": 3}'
    "#;
    let done = run(&world, "", &line.replace('\n', " "));
    let wanted = [
        (json!({"loss": 0.5}), json!(1)),
        (json!({"loss": 0.25}), json!(2)),
        (json!({"lr": 1}), json!(null)),
        (json!({"epoch": 3, "loss": 0.375}), json!(null)),
    ];
    assert_eq!(told(&done), wanted, "{}", done.stdout);
    assert_eq!(warnings(&done), [] as [Value; 0]);
    let loss = json!({"last": 0.375, "lowest": 0.25, "highest": 0.5, "count": 3});
    let events = done.events();
    let finished = events.iter().find(|event| event["event"] == "finished");
    assert_eq!(finished.unwrap()["metrics"]["loss"], loss);
    let task = world.packhorse(["show", "1.1", "--json"]).json();
    assert_eq!(task["metrics"]["loss"], loss);
    assert_eq!(task["tries"][0]["metrics"]["loss"], loss);
    let names: Vec<_> = task["metrics"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["epoch", "loss", "lr"]);
    let shown = world.packhorse(["show", "1.1"]).stdout;
    let wanted = "metric   loss 0.375 (lowest 0.25, highest 0.5, 3 values)";
    assert!(shown.contains(wanted), "{shown}");
}

#[test]
fn standard_error_counts_as_well() {
    let world = World::new();
    let line = r#"printf 'packhorse: {"a"'; printf 'packhorse: {"b": 2}\n' >&2; echo ': 1}'"#;
    let done = run(&world, "", line);
    let mut values: Vec<String> = told(&done).iter().map(|(it, _)| it.to_string()).collect();
    values.sort_unstable();
    assert_eq!(values, [r#"{"a":1}"#, r#"{"b":2}"#]);
}

#[test]
fn the_values_of_the_attempt_that_counts_are_shown() {
    let world = World::new();
    let line = r#"if test $PACKHORSE_ATTEMPT = 1; then echo 'packhorse: {"loss": 0.01, "old": 1}'; exit 1; else echo 'packhorse: {"loss": 0.5}'; fi"#;
    run(&world, "--retries 1", line);
    let results = world.packhorse(["results", "--json"]).json();
    let once = json!({"last": 0.5, "lowest": 0.5, "highest": 0.5, "count": 1, "best": 0.5});
    assert_eq!(results[0]["metrics"], json!({"loss": once}));
    let tries = world.packhorse(["show", "1.1", "--json"]).json()["tries"].clone();
    assert_eq!(tries[0]["metrics"]["old"]["last"], 1);
    assert_eq!(tries[1]["metrics"]["loss"]["last"], 0.5);
}

#[test]
fn a_line_that_is_not_right_is_a_warning_once_a_task_and_no_error() {
    let world = World::new();
    let line = r#"for i in 1 2 3; do echo "packhorse: {\"loss\": oops}"; echo 'packhorse: hi' >&2; done; echo 'packhorse: {"ok": 1}'; test $PACKHORSE_ATTEMPT = 2"#;
    let done = run(&world, "--retries 1", line);
    let warnings = warnings(&done);
    let [warning] = &warnings[..] else {
        panic!("{warnings:#?}");
    };
    assert_eq!(warning["task"], "1.1");
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("a line of metrics is ignored"), "{message}");
    assert_eq!(told(&done).len(), 2, "the others count");
}

#[test]
fn nothing_is_left_for_the_task_that_comes_next() {
    for output in ["log", "file"] {
        let world = World::new();
        let lines = "echo 'packhorse: no'; echo 'packhorse: {\"a\": 1}'; printf 'packhorse: {\"a'\n\
                     echo 'packhorse: no'; echo 'packhorse: {\"a\": 2}'";
        let done = run(&world, &format!("--output {output}"), lines);
        let values: Vec<Value> = told(&done).into_iter().map(|(values, _)| values).collect();
        assert_eq!(values, [json!({"a": 1}), json!({"a": 2})], "{output}");
        let about = warnings(&done).into_iter().map(|it| it["task"].clone());
        assert_eq!(about.collect::<Vec<_>>(), ["1.1", "1.2"], "{output}");
    }
}

#[test]
fn with_output_file_metrics_are_read_at_the_end() {
    let world = World::new();
    // More than is read at once, and a line over the border of two pieces.
    let line = r#"head -c 20000000 /dev/zero | tr '\0' x; echo; echo 'packhorse: {"loss": 1}' >&2; printf 'packhorse: {"loss": 2}'"#;
    let done = run(&world, "--output file", line);
    let values: Vec<Value> = told(&done).into_iter().map(|(values, _)| values).collect();
    assert_eq!(values, [json!({"loss": 1}), json!({"loss": 2})]);
    let results = world.packhorse(["results", "--json"]).json();
    assert_eq!(results[0]["metrics"]["loss"]["count"], 2);
}

#[test]
fn a_log_that_the_task_removed_or_that_is_no_file_does_no_harm() {
    let world = World::new();
    let task = json!({"command": "echo 'packhorse: {\"loss\": 1}'; rm own.log", "log": "own.log"});
    let null = json!({"command": "echo 'packhorse: {\"loss\": 2}'", "log": "/dev/null"});
    world.write("tasks.jsonl", format!("{task}\n{null}\n"));
    let words = "run --slots 1 --json --output file --tasks tasks.jsonl";
    let done = world.packhorse(words.split(' '));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(told(&done), [(json!({"loss": 1}), Value::Null)]);
}

#[test]
fn with_output_inherit_there_are_none() {
    let world = World::new();
    let line = r#"echo 'packhorse: {"loss": 1}' >&2"#;
    let done = world.packhorse_with(["run", "--slots", "1", "--output", "inherit"], line);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("packhorse: {"), "{done:?}");
    let results = world.packhorse(["results", "--json"]).json();
    assert_eq!(results[0]["metrics"], json!({}));
}

#[test]
fn the_report_has_the_last_values_and_no_line_of_its_own() {
    let world = World::new();
    let line = r#"echo 'packhorse: {"loss": 2}'; echo 'packhorse: {"loss": 0.123456, "a": 1, "b": 2, "c": 3}'"#;
    let done = world.packhorse_with(["run", "--slots", "1"], line);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stdout);
    assert!(lines[2].starts_with("1.1 succeeded in "), "{lines:?}");
    assert!(lines[2].ends_with("s (a 1, b 2, c 3, …)"), "{lines:?}");
    let shown = world.packhorse(["show", "1"]).stdout;
    assert!(shown.trim_end().ends_with("(a 1, b 2, c 3, …)"), "{shown}");
}

#[test]
fn a_task_that_prints_a_great_many_is_told_all_and_kept_in_a_summary() {
    const MANY: usize = 200_000;
    let world = World::new();
    let line = format!(r#"seq {MANY} | sed 's/.*/packhorse: {{"loss": &, "step": &}}/'"#);
    let done = run(&world, "", &line);
    let steps: Vec<Value> = told(&done).into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps.len(), MANY);
    assert_eq!((&steps[0], &steps[MANY - 1]), (&json!(1), &json!(MANY)));
    let task = world.packhorse(["show", "1.1", "--json"]).json();
    let wanted = json!({"last": MANY, "lowest": 1, "highest": MANY, "count": MANY});
    assert_eq!(task["metrics"]["loss"], wanted);
    let size = fs_err::metadata(world.database()).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes");
}

#[test]
fn what_was_printed_before_a_run_was_stopped_is_kept() {
    let world = World::new();
    let _gate = world.gate("gate");
    let mut running = world.start(["run", "--slots", "1", "--json", "--output", "lines"]);
    running.send("echo 'packhorse: {\"loss\": 3}'; echo ready; read x < gate\n");
    running.end_input();
    running.wait_for("\"line\":\"ready\"");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    let results = world.packhorse(["results", "--json"]).json();
    assert_eq!(results[0]["outcome"], "interrupted");
    assert_eq!(results[0]["metrics"]["loss"]["last"], 3);
    let names: BTreeMap<String, Value> =
        serde_json::from_value(results[0]["metrics"].clone()).unwrap();
    assert_eq!(names.len(), 1);
}

/// Four tests, of which the second and third diverge: one after it was the best of all, as
/// Python writes NaN, and one from the start.
fn diverged() -> World {
    let world = World::new();
    let outputs = [
        r#"echo 'packhorse: {"loss": 0.5}'"#,
        r#"printf 'packhorse: {"loss": 0.01, "acc": 0.25}\npackhorse: {"loss": NaN, "acc": 0.75, "step": 2}\n'"#,
        r#"echo 'packhorse: {"loss": "-Infinity"}'"#,
        r#"printf 'packhorse: {"loss": Infinity}\npackhorse: {"loss": 0.4}\n'"#,
    ];
    let lines = outputs.iter().zip(1..).map(|(command, lr)| {
        json!({ "command": command, "params": { "lr": lr } }).to_string() + "\n"
    });
    world.write("tasks", lines.collect::<String>());
    world
}

#[test]
fn a_run_that_has_diverged_comes_last_and_is_marked_everywhere() {
    let world = diverged();
    let done = world.packhorse(["run", "--slots", "1", "--json", "--tasks", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(warnings(&done), [] as [Value; 0]);
    let values = told(&done);
    assert_eq!(values[2], (json!({"loss": "NaN", "acc": 0.75}), json!(2)));
    assert_eq!(values[3].0, json!({"loss": "-Infinity"}));

    let order = |words: &[&str]| -> Vec<String> {
        let tests = world.packhorse([&["results", "--json"], words].concat()).json();
        let tests = tests.as_array().unwrap().clone();
        tests.iter().map(|test| test["task"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(order(&["--sort", "loss"]), ["1.4", "1.1", "1.2", "1.3"]);
    assert_eq!(order(&["--sort", "-loss"]), ["1.1", "1.4", "1.2", "1.3"]);
    assert_eq!(order(&["--sort", "-loss.last"]), ["1.1", "1.4", "1.2", "1.3"]);

    let tests = world.packhorse(["results", "--json"]).json();
    let loss = json!({"last": "NaN", "lowest": 0.01, "highest": 0.01, "count": 2, "best": "NaN"});
    assert_eq!(tests[1]["metrics"]["loss"], loss);
    assert_eq!(tests[1]["metrics"]["acc"]["best"], 0.75);
    assert_eq!(tests[3]["metrics"]["loss"]["best"], 0.4);
    let marked: Vec<&Value> = (0..4).map(|test| &tests[test]["diverged"]).collect();
    assert_eq!(marked, [&json!([]), &json!(["loss"]), &json!(["loss"]), &json!([])]);

    let table = world.packhorse(["results", "--sort", "loss"]).stdout;
    let rows: Vec<Vec<&str>> =
        table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let [.., nan, infinite] = &rows[..] else { panic!("{table}") };
    assert_eq!(nan[..4], ["1.2", "2", "succeeded,", "diverged"], "{table}");
    assert_eq!(nan.last(), Some(&"NaN"), "{table}");
    assert_eq!(infinite.last(), Some(&"-inf"), "{table}");
    assert_eq!(table.matches("diverged").count(), 2, "{table}");

    let csv = world.packhorse(["results", "--csv"]).stdout;
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let row: Vec<&str> = csv.lines().nth(2).unwrap().split(',').collect();
    let field = |name: &str| row[header.iter().position(|title| *title == name).unwrap()];
    assert_eq!(["diverged", "loss", "loss.lowest"].map(field), ["loss", "NaN", "0.01"], "{csv}");

    let plot = world.packhorse(["results", "--plot", "lr", "loss"]).stdout;
    assert!(plot.starts_with("loss by lr: 2 tests of 4, 2 diverged\n"), "{plot}");
    assert!(plot.contains("best: loss 0.4 at lr 4 (1.4)"), "{plot}");
    let curves = world.packhorse(["results", "--plot", "step", "loss"]).stdout;
    assert!(curves.starts_with("loss by step: 3 values of 3 tests, 2 diverged"), "{curves}");
    assert!(curves.contains("best: loss 0.4 at step 2 (1.4)"), "{curves}");

    let shown = world.packhorse(["show", "1.2"]).stdout;
    let wanted = "metric   loss NaN (lowest 0.01, highest 0.01, 2 values)";
    assert!(shown.contains(wanted), "{shown}");
    assert!(world.packhorse(["show"]).stdout.contains("(acc 0.75, loss NaN)"));
}

#[test]
fn a_folder_of_results_knows_what_has_diverged() {
    let world = World::new();
    let command = r#"echo 'packhorse: {"loss": 0.5}'; echo 'packhorse: {"loss": NaN, "acc": 1}'"#;
    let line = json!({ "command": command, "results": "results/one", "params": { "lr": 1 } });
    world.write("tasks", line.to_string() + "\n");
    let done = world.packhorse(["run", "--slots", "1", "--tasks", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let marker = world.read("results/one/.packhorse.json");
    assert!(marker.contains(r#""last":"NaN""#) || marker.contains(r#""last": "NaN""#), "{marker}");
    let tests = world.packhorse(["results", "results", "--json"]).json();
    assert_eq!(tests[0]["diverged"], json!(["loss"]));
    assert_eq!(tests[0]["metrics"]["loss"]["lowest"], 0.5);
    assert_eq!(tests[0]["metrics"]["acc"]["last"], 1);
}
