//! `packhorse results`: what came of tests, from a run or from a folder.

use std::process::Command;

use serde_json::{Value, json};

use packhorse_test_parts::needs;

use crate::support::{Done, World, finish};
use crate::terminal::Terminal;

/// A folder `results` with the folders of four tests that ended, one that the original
/// made, and one with half a marker.
fn with_folder() -> World {
    let world = World::new();
    let tests = [
        ("a", 0.1, "GAN", "succeeded", 90.0, Some(0.5)),
        ("b", 0.01, "GAN", "succeeded", 3.0, Some(0.03125)),
        ("c", 1e-4, "VAE", "succeeded", 20.0, Some(10.0)),
        ("d", 1e-3, "VAE", "failed", 1.0, None),
    ];
    for (name, lr, method, outcome, seconds, loss) in tests {
        let metrics = loss.map_or_else(
            || json!({}),
            |loss| json!({"loss": {"last": loss + 1.0, "lowest": loss, "highest": 20, "count": 4}}),
        );
        let marker = json!({
            "packhorse": "0.1.0", "task": format!("3.{}", name.as_bytes()[0] - b'a' + 1),
            "outcome": outcome, "detail": (outcome == "failed").then_some(1),
            "params": {"lr": lr, "method": method, "epochs": 10, "note": "x, \"y\"\nz"},
            "command": "python train.py", "started": 1_700_000_000, "ended": 1_700_000_090,
            "seconds": seconds, "attempts": 1, "gpus": ["0"],
            "peak": if name == "a" { json!(5_368_709_120_u64) } else { Value::Null },
            "git": {"commit": "abc", "dirty": true}, "host": "ox", "metrics": metrics,
            "of a later version": [1, 2],
        });
        mark(&world, name, marker.to_string());
    }
    world
}

fn mark(world: &World, name: &str, text: impl AsRef<[u8]>) {
    let folder = world.work().join("results").join(name);
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join(".packhorse.json"), text).unwrap();
}

fn results(world: &World, words: &str) -> Done {
    let words = format!("results {words}");
    let done = world.packhorse(words.split_whitespace());
    assert_eq!(done.code, 0, "{done:?}");
    done
}

/// The cells of a table, by lines.
fn cells(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines();
    lines.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn a_folder_has_a_row_for_each_test() {
    let world = with_folder();
    let done = results(&world, "results");
    let rows = cells(&done.stdout);
    assert_eq!(done.stdout.lines().next().unwrap(), "all with epochs = 10, note = x, \"y\"␊z");
    let header = ["lr", "method", "OUTCOME", "TIME", "PEAK", "loss", "loss.last"];
    assert_eq!(rows[1], header, "{}", done.stdout);
    let first = ["0.1", "GAN", "succeeded", "1m30s", "5.0", "GiB", "0.5", "1.5"];
    assert_eq!(rows[2], first, "{}", done.stdout);
    assert_eq!(rows[5][..3], ["0.001", "VAE", "failed"], "{}", done.stdout);
    assert_eq!(rows.len(), 6, "{}", done.stdout);
    assert_eq!(done.stderr, "");
}

#[test]
fn folders_without_a_marker_and_damaged_ones_are_listed() {
    let world = with_folder();
    fs_err::create_dir_all(world.work().join("results/lr-1,")).unwrap();
    let done = results(&world, "results");
    assert!(done.stdout.contains("\nlr-1, "), "{}", done.stdout);
    mark(&world, "torn", "{\"outcome\": \"succ");
    let done = results(&world, "results");
    assert!(done.stderr.contains("results/torn/.packhorse.json"), "{done:?}");
    assert!(done.stderr.starts_with("warning: "), "{done:?}");
    let rows = cells(&done.stdout);
    assert_eq!(rows[1][0], "FOLDER", "{}", done.stdout);
    let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap();
    assert!(row("lr-1,").contains(&"unknown"), "{}", done.stdout);
    assert!(row("torn").contains(&"damaged"), "{}", done.stdout);
    let json = results(&world, "--json results");
    let tests: Value = serde_json::from_str(&json.stdout).unwrap();
    let outcomes = tests.as_array().unwrap().iter();
    let outcomes: Vec<&str> = outcomes.map(|it| it["outcome"].as_str().unwrap()).collect();
    let wanted = ["succeeded", "succeeded", "succeeded", "failed", "unknown", "damaged"];
    assert_eq!(outcomes, wanted);
}

#[test]
fn tests_are_sorted_by_anything_and_what_is_missing_comes_last() {
    let world = with_folder();
    let order = |sort: &str| {
        let done = results(&world, &format!("results --json --sort {sort}"));
        let tests: Value = serde_json::from_str(&done.stdout).unwrap();
        let tests = tests.as_array().unwrap().iter();
        tests.map(|test| test["folder"].as_str().unwrap().to_owned()).collect::<String>()
    };
    for (key, wanted) in [
        ("loss", "bacd"),
        ("-loss", "cabd"),
        ("loss.last", "bacd"),
        ("loss.highest", "abcd"),
        ("lr", "cdba"),
        ("-lr", "abdc"),
        ("method", "abcd"),
        ("time", "dbca"),
        ("-time", "acbd"),
        ("peak", "abcd"),
        ("-task", "dcba"),
        ("-folder", "dcba"),
        ("outcome", "dabc"),
    ] {
        assert_eq!(order(key), wanted, "--sort {key}");
    }
    for (words, wanted) in [
        ("--sort los", "hint: did you mean `loss`?"),
        ("--sort -los", "hint: did you mean `loss`?"),
        ("--sort banana", "hint: there are epochs, lr, method"),
        ("--sort step", "`--plot step loss` draws"),
    ] {
        let words = format!("results results {words}");
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
}

#[test]
fn csv_has_all_columns_and_quotes_what_needs_it() {
    needs!(Python);
    let world = with_folder();
    let done = results(&world, "results --csv");
    let python = "import csv, json, sys; print(json.dumps(list(csv.DictReader(sys.stdin))))";
    let mut command = Command::new("python3");
    command.args(["-c", python]);
    let read = crate::support::finish_with(command, &done.stdout).json();
    assert_eq!(read.as_array().unwrap().len(), 4);
    let first = &read[0];
    for (column, wanted) in [
        ("folder", "a"),
        ("task", "3.1"),
        ("lr", "0.1"),
        ("epochs", "10"),
        ("note", "x, \"y\"\nz"),
        ("outcome", "succeeded"),
        ("seconds", "90"),
        ("peak", "5368709120"),
        ("loss", "0.5"),
        ("loss.last", "1.5"),
        ("loss.highest", "20"),
        ("loss.count", "4"),
    ] {
        assert_eq!(first[column], wanted, "{column} in {first:#}");
    }
    assert_eq!((&read[3]["loss"], &read[3]["detail"]), (&json!(""), &json!("1")));
}

#[test]
fn json_has_everything() {
    let world = with_folder();
    let done = results(&world, "results --json --sort -loss.last");
    let tests: Value = serde_json::from_str(&done.stdout).unwrap();
    let test = &tests[1];
    assert_eq!(test["folder"], "a");
    assert_eq!(test["params"]["lr"], 0.1);
    assert_eq!(test["git"], json!({"commit": "abc", "dirty": true}));
    let loss = json!({"last": 1.5, "lowest": 0.5, "highest": 20, "count": 4, "best": 0.5});
    assert_eq!(test["metrics"]["loss"], loss);
    assert_eq!(test["peak"], 5_368_709_120_u64);
}

#[test]
fn a_run_has_a_row_for_each_task() {
    let world = World::new();
    let script = r#"echo "packhorse: {\"val_acc\": $1}"; exit $2"#;
    world.write("test.sh", script);
    let template = "sh test.sh {lr} {fail}";
    let words = ["-p", "lr", "0.5", "0.25", "-p", "fail", "0", "1", "--order", "grid"];
    let mut command = vec!["sweep", template];
    command.extend(words);
    command.extend(["--run", "--slots", "1", "-q"]);
    world.packhorse(command);
    let done = results(&world, "--sort -val_acc");
    let rows = cells(&done.stdout);
    let header = ["TASK", "fail", "lr", "OUTCOME", "TIME", "val_acc"];
    assert_eq!(rows[0], header, "{}", done.stdout);
    assert_eq!(rows[1][..4], ["1.1", "0", "0.5", "succeeded"], "{}", done.stdout);
    assert_eq!(rows[2][..4], ["1.2", "1", "0.5", "failed"], "{}", done.stdout);
    assert_eq!(rows[1][5], "0.5");
    assert_eq!(results(&world, "1").stdout, results(&world, "latest").stdout);
    // Commands without parameters are told apart by themselves.
    world.packhorse_with(["run", "--slots", "1", "-q"], "true one\ntrue two\n");
    let done = results(&world, "");
    let rows = cells(&done.stdout);
    assert_eq!(rows[0], ["TASK", "OUTCOME", "TIME", "COMMAND"]);
    assert_eq!(rows[2][3..], ["true", "two"]);
}

#[test]
fn a_task_of_a_run_knows_its_folder() {
    let world = World::new();
    let task = json!({"command": "true", "results": "out/a", "params": {"lr": 1}});
    world.packhorse_with(["run", "--slots", "1", "-q", "--tasks", "-"], task.to_string());
    let tests = world.packhorse(["results", "--json"]).json();
    let folder = world.work().join("out/a");
    assert_eq!(tests[0]["folder"], folder.to_str().unwrap());
}

#[test]
fn what_is_neither_a_run_nor_a_folder_is_an_error_with_advice() {
    let world = with_folder();
    world.write("file", "");
    for (what, wanted) in [
        ("99", "there is no run 99"),
        ("nowhere", "there is no folder `nowhere`"),
        ("file", "`file` is not a folder"),
        ("3.1", "there is no run 3"),
    ] {
        let done = world.packhorse(["results", what]);
        assert_eq!(done.code, 2, "{what}: {done:?}");
        assert!(done.stderr.contains(wanted), "{what}: {done:?}");
    }
    fs_err::create_dir(world.work().join("empty")).unwrap();
    let done = results(&world, "empty");
    assert_eq!(done.stderr, "there are no tests in `empty`\n");
    assert_eq!(results(&world, "empty --json").stdout, "[]\n");
    let done = world.packhorse(["results", "results", "--csv", "--json"]);
    assert_eq!(done.code, 2, "{done:?}");
}

#[test]
fn tests_are_drawn() {
    let world = with_folder();
    let done = results(&world, "results --plot lr loss");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "loss by lr: 3 tests of 4, lr logarithmic, loss logarithmic");
    assert_eq!(lines.len(), 23, "{}", done.stdout);
    assert!(lines.iter().all(|line| line.len() < 80), "{}", done.stdout);
    assert_eq!(done.stdout.matches('*').count(), 3, "{}", done.stdout);
    assert!(lines[1].contains("10 +*"), "{}", done.stdout);
    assert_eq!(lines[22], "best: loss 0.03125 at lr 0.01 (3.2)");
    let labels = cells(lines[21]);
    assert_eq!(labels[0], ["0.0001", "0.001", "0.01", "0.1"], "{}", done.stdout);

    let mut command = world.command("results results --plot method time".split(' '));
    command.env("LC_ALL", "C.UTF-8");
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "time by method: 4 tests");
    assert_eq!(cells(lines.last().unwrap())[0], ["GAN", "VAE"], "{done:?}");
    let is_braille = |c: char| ('\u{2801}'..='\u{28ff}').contains(&c);
    assert!(done.stdout.contains(is_braille), "{}", done.stdout);

    for (words, wanted) in [
        ("--plot lr outcome", "no test has both `lr` and a number as `outcome`"),
        ("--plot step loss", "the logs with the values of `loss` are gone"),
        ("--plot step time", "`time` has no value at each step"),
        ("--plot loss step", "`--plot step loss` draws"),
        ("--plot lr losss", "did you mean `loss`?"),
        ("--plot lr", "2 values required"),
    ] {
        let words = format!("results results {words}");
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
}

/// A run of two tests that print their loss at each of so many steps, in folders.
fn with_curves(steps: u32, output: &str) -> World {
    let world = World::new();
    let script = format!(
        "i=0; while [ $i -le {steps} ]; do i=$((i+1)); echo noise; \
         echo 'packhorse: {{\"loss\": '$((i*$1))', \"step\": '$i'}}'; done"
    );
    let task = |slope: u32| {
        let command = ["sh", "-c", &script, "sh", &slope.to_string()];
        let results = format!("out/{slope}");
        json!({"command": command, "results": results, "params": {"slope": slope}})
    };
    world.write("tasks.jsonl", format!("{}\n{}\n", task(1), task(3)));
    let words = ["run", "--slots", "2", "--output", output, "--tasks"];
    let done = world.packhorse(words.into_iter().chain(["tasks.jsonl"]));
    assert_eq!(done.code, 0, "{done:?}");
    world
}

#[test]
fn a_metric_is_drawn_by_its_steps() {
    for output in ["log", "file"] {
        let world = with_curves(9, output);
        for (what, both) in [("", true), ("1", true), ("out", true), ("1.1", false)] {
            let done = results(&world, &format!("{what} --plot step loss"));
            let lines: Vec<&str> = done.stdout.lines().collect();
            let title = if both {
                "loss by step: 20 values of 2 tests"
            } else {
                "loss by step: 10 values of 1 test"
            };
            assert_eq!(lines[0], title, "{output}, {what}: {done:?}");
            assert_eq!(lines[22], "best: loss 1 at step 1 (1.1)", "{done:?}");
            // Each is a line and not ten dots.
            let stars = done.stdout.matches('*').count();
            assert!((60..200).contains(&stars), "{what}: {}", done.stdout);
            // The steeper one is twenty high, and ends in the upper right corner.
            let top = lines[1..].iter().position(|line| line.contains('*'));
            assert_eq!(top, Some(0), "{}", done.stdout);
            assert!(lines[1].ends_with('*'), "{}", done.stdout);
            if what == "1.1" {
                let path = world.packhorse(["logs", "--path", "1.1"]).stdout;
                let test = &results(&world, "1.1 --json").json()[0];
                assert_eq!(test["log"], path.trim_end(), "{output}");
            }
            let labels = if both { ["30", "10"] } else { ["10", "10"] };
            for (label, line) in labels.iter().zip([lines[1], lines[21]]) {
                assert!(line.contains(label), "{}", done.stdout);
            }
        }
    }
}

#[test]
fn a_curve_needs_its_log() {
    let world = with_curves(3, "log");
    let log = world.packhorse(["logs", "--path", "1.1"]).stdout;
    fs_err::remove_file(log.trim_end()).unwrap();
    let done = results(&world, "out --plot step loss");
    assert!(done.stdout.contains("4 values of 1 test"), "{done:?}");
    assert_eq!(done.stderr, "warning: the log of 1 test is gone: loss is not drawn\n");
    let done = world.packhorse(["results", "1.1", "--plot", "step", "loss"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("are gone"), "{done:?}");
}

#[test]
fn a_parameter_that_is_called_step_is_one() {
    let world = World::new();
    let task = |n: u32| {
        let line = format!("packhorse: {{\"loss\": {n}}}");
        json!({"command": ["echo", line], "params": {"step": n}}).to_string() + "\n"
    };
    world.write("tasks.jsonl", (1..=3).map(task).collect::<String>());
    let done = world.packhorse(["run", "--slots", "1", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = results(&world, "--plot step loss");
    assert!(done.stdout.starts_with("loss by step: 3 tests\n"), "{done:?}");
    assert_eq!(done.stdout.matches('*').count(), 3, "{done:?}");
}

#[test]
fn a_narrow_terminal_gets_what_matters() {
    let world = with_folder();
    for name in ["e", "f"] {
        let long = format!("{name}{}", "x".repeat(60));
        let values: Value = (0..3)
            .map(|number| {
                let value = json!({"last": 2, "lowest": 1, "highest": 3, "count": 3});
                (format!("metric_{number}"), value)
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        let marker = json!({
            "outcome": "succeeded", "seconds": 1,
            "params": {"lr": 1, "method": long, "epochs": 10, "note": "x, \"y\"\nz"},
            "metrics": values,
        });
        mark(&world, name, marker.to_string());
    }
    let mut command = world.command(["results", "results"]);
    command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    let mut terminal = Terminal::start(command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    let text = terminal.text();
    assert!(text.contains("metric_2"), "{text}");
    assert!(text.contains("exxxxxx…"), "{text}");
    assert!(text.contains("--csv has it all"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with("hint"));
    for line in lines {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
}

#[test]
fn names_and_values_do_not_control_the_terminal() {
    let world = World::new();
    let marker = json!({
        "outcome": "\u{1b}[31mred", "params": {"\u{1b}[2J": "\u{1b}]0;x\u{7}"},
        "metrics": {"\u{1b}[1m": {"last": 1, "lowest": 1, "highest": 1, "count": 1}},
    });
    mark(&world, "\u{1b}[5m", marker.to_string());
    mark(&world, "b", "{");
    for words in ["results", "results --plot folder \u{1b}[1m"] {
        let done = results(&world, words);
        let all = done.stdout + &done.stderr;
        assert!(!all.contains(['\u{1b}', '\u{7}']), "{all:?}");
    }
}
