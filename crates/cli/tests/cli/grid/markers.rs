//! `.packhorse.json`: what the folder of a test says of it.

use serde_json::Value;

use packhorse_model::Marker;
use packhorse_test_parts::needs;

use crate::support::{World, finish, is_alive, receive};

const ONE: &str = "scheduler_config: {gpu: ['0']}\ntest_config: [{a: [1]}]\n";

#[test]
fn a_marker_holds_all_that_is_known_of_a_test() {
    needs!(Programs);
    let world = World::new();
    let git = |words: &[&str]| {
        let mut command = world.program("git", words);
        command.env("GIT_CONFIG_COUNT", "2");
        for (index, (key, value)) in [("user.name", "x"), ("user.email", "x")].iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{index}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        let done = finish(command);
        assert_eq!(done.code, 0, "{done:?}");
        done.stdout.trim().to_owned()
    };
    world.write("code", "1");
    git(&["init", "-q"]);
    git(&["add", "code"]);
    git(&["commit", "-qm", "first"]);
    let commit = git(&["rev-parse", "HEAD"]);
    assert_eq!(world.grid(ONE, &["--", "echo"]).code, 0);
    let marker = world.marker("results/a-1,");
    for (key, wanted) in [
        ("packhorse", Value::from(env!("CARGO_PKG_VERSION"))),
        ("task", "1.1".into()),
        ("outcome", "succeeded".into()),
        ("detail", Value::Null),
        ("params", serde_json::json!({"a": 1})),
        ("command", serde_json::json!(["echo", "--a", "1"])),
        ("attempts", 1.into()),
        ("gpus", serde_json::json!(["0"])),
        ("peak", Value::Null),
        ("git", serde_json::json!({"commit": commit, "dirty": false})),
        ("metrics", serde_json::json!({})),
    ] {
        assert_eq!(marker[key], wanted, "{key}: {marker}");
    }
    assert!(!marker["host"].as_str().unwrap().is_empty());
    let number = |key: &str| marker[key].as_f64().unwrap();
    let took = number("ended") - number("started");
    assert!((took - number("seconds")).abs() < 1e-3, "{marker}");

    world.write("code", "2");
    assert_eq!(world.grid(ONE, &["--force", "--", "sh", "-c", "exit 3"]).code, 1);
    let marker = world.marker("results/a-1,");
    assert_eq!(marker["git"]["dirty"], true);
    assert_eq!((&marker["outcome"], &marker["detail"]), (&"failed".into(), &3.into()));
}

#[test]
fn what_a_test_printed_as_metrics_is_in_its_marker_and_among_the_results() {
    let world = World::new();
    let file = "scheduler_config: {gpu: ['0']}\ntest_config: [{a: [1, 2]}]\n";
    // Only what the last attempt printed counts.
    let script = r#"
        for loss in 9 5 7; do echo "packhorse: {\"loss\": $loss$1, \"step\": 3}"; done
        test -e tried-$1 || { touch tried-$1; echo 'packhorse: {"first": 1}'; exit 1; }"#;
    world.write("script", script);
    let words = ["--retries", "1", "--", "sh", "script", "{a}"];
    assert_eq!(world.grid(file, &words).code, 0);
    let marker = world.marker("results/a-2,");
    let loss = serde_json::json!({"last": 72, "lowest": 52, "highest": 92, "count": 3});
    assert_eq!(marker["metrics"], serde_json::json!({"loss": loss}));
    let done = world.packhorse(["results", "results", "--csv", "--sort", "-loss"]);
    assert_eq!(done.code, 0, "{done:?}");
    let rows: Vec<&str> = done.stdout.lines().collect();
    assert!(rows[0].contains("loss"), "{done:?}");
    assert!(rows[1].contains("52") && rows[2].contains("51"), "{done:?}");
}

#[test]
fn what_succeeded_is_skipped_and_what_did_not_runs_again() {
    let world = World::new();
    // How many times it ran, and whether it ran now.
    let mut runs = 0;
    let mut ran = |world: &World, words: &[&str]| {
        let command = ["--", "sh", "-c", "echo >> count; exit $(cat code)"];
        world.grid(ONE, &[words, &command].concat());
        let before = std::mem::replace(&mut runs, world.read("count").len());
        runs > before
    };
    world.write("code", "1");
    assert!(ran(&world, &[]), "nothing was there");
    assert!(ran(&world, &[]), "it had failed");
    world.write("code", "0");
    assert!(ran(&world, &[]));
    assert!(!ran(&world, &[]), "it had succeeded");
    assert!(ran(&world, &["--force"]));
    let marker = "results/a-1,/.packhorse.json";
    for (content, again) in [
        (r#"{"outcome": "running"}"#, true),
        (r#"{"outcome": "interrupted"}"#, true),
        (r#"{"outcome": "killed"}"#, true),
        ("", true),
        ("nonsense", true),
        (r#"{"outcome": "succeeded", "of the future": []}"#, false),
    ] {
        world.write(marker, content);
        assert_eq!(ran(&world, &[]), again, "{content}");
    }
    // As the original leaves it.
    fs_err::remove_file(world.work().join(marker)).unwrap();
    assert!(!ran(&world, &[]), "a folder without a marker is done");
}

#[test]
fn failed_tests_are_retried_in_their_folders() {
    let world = World::new();
    let file = ONE.replace("[1]", "[1, 2]");
    let task = "test -e go || test {a} = 1";
    assert_eq!(world.grid(&file, &["--", "sh", "-c", task]).code, 1);
    assert_eq!(world.marker("results/a-2,")["outcome"], "failed");
    world.write("go", "");
    assert_eq!(world.packhorse(["retry"]).code, 0);
    let marker = world.marker("results/a-2,");
    assert_eq!((&marker["outcome"], &marker["task"]), (&"succeeded".into(), &"1.2".into()));
    assert_eq!(marker["attempts"], 2);
}

#[test]
fn a_run_that_is_killed_leaves_no_test_that_looks_done() {
    let world = World::new();
    let pid = world.fifo("pid");
    let _gate = world.gate("gate");
    let task = "echo $$ > pid; read x < gate";
    world.write("tests.yaml", ONE);
    let running = world.start(["grid", "tests.yaml", "--", "sh", "-c", task]);
    let leader = receive(&pid);
    assert_eq!(world.marker("results/a-1,")["outcome"], "running");
    running.signal(rustix::process::Signal::KILL);
    running.finish();
    let list = world.grid(ONE, &["--list"]);
    assert_eq!(list.stdout, "running      results/a-1,\n");
    assert!(is_alive(&leader), "it goes on without us");
    let done = world.grid(ONE, &["--force", "--", "true"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("as task 1.1\nhint: wait for it"), "{done:?}");
    let pid = leader.trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
    let done = world.grid(ONE, &["--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.marker("results/a-1,")["outcome"], "succeeded");
}

#[test]
fn what_a_killed_run_was_just_making_is_removed_later() {
    let world = World::new();
    for (name, minutes) in [(".packhorse-1.1-7", 20), (".packhorse-2.1-8", 0)] {
        let folder = world.work().join("results").join(name);
        fs_err::create_dir_all(&folder).unwrap();
        world.write(&format!("results/{name}/.packhorse.json"), "{}");
        let made = std::time::SystemTime::now() - std::time::Duration::from_mins(minutes);
        let folder = fs_err::File::open(folder).unwrap().into_file();
        folder.set_modified(made).unwrap();
    }
    assert_eq!(world.grid(ONE, &["--", "true"]).code, 0);
    let there = |name: &str| world.work().join("results").join(name).exists();
    assert!(!there(".packhorse-1.1-7") && there(".packhorse-2.1-8") && there("a-1,"));
}

#[test]
fn two_runs_are_never_at_work_in_one_folder() {
    let world = World::new();
    let pid = world.fifo("pid");
    let gate = world.gate("gate");
    let task = "echo $$ > pid; read x < gate";
    world.write("tests.yaml", ONE);
    let running = world.start(["grid", "tests.yaml", "--", "sh", "-c", task]);
    receive(&pid);
    // It comes by another door, and was not compared with what runs.
    let line = r#"{"command": "touch ran", "results": "results/a-1,"}"#;
    world.write("tasks", line);
    let words = ["run", "--slots", "1", "--tasks", "tasks"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 1, "{done:?}");
    let told = "is in use: its test still runs, as task 1.1";
    assert!(done.stdout.contains(told), "{done:?}");
    assert!(!world.work().join("ran").exists());
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    assert_eq!(world.marker("results/a-1,")["outcome"], "succeeded");
    assert_eq!(world.packhorse(words).code, 0);
}

/// A marker that says that a test runs, with some of it changed.
fn running_marker(marker: &Value, changes: &[(&str, &str)]) -> String {
    let mut marker = marker.clone();
    marker["outcome"] = Marker::RUNNING.into();
    for (key, value) in changes {
        marker[*key] = (*value).into();
    }
    marker.to_string()
}

#[test]
fn what_is_left_alone_can_be_run_without_what_is_done() {
    let world = World::new();
    let file = ONE.replace("[1]", "[1, 2]");
    let task = ["--", "sh", "-c", "echo {a} >> ran"];
    assert_eq!(world.grid(&file, &task).code, 0);
    let marker = world.marker("results/a-2,");
    let elsewhere = [("home", "another"), ("host", "node7")];
    world.write("results/a-2,/.packhorse.json", running_marker(&marker, &elsewhere));
    let done = world.grid(&file, &task);
    assert_eq!(done.code, 1, "{done:?}");
    let told = "warning: `results/a-2,` is left alone: task 1.2 of another state folder or machine \
        runs there, on node7 since ";
    assert!(done.stderr.contains(told), "{done:?}");
    let hint = "\nhint: wait for it; if it is over, --force=left-alone runs it again, and nothing \
        that is done\n";
    assert!(done.stderr.contains(hint), "{done:?}");
    let listed = world.grid(&file, &["--dry-run", "--", "true"]).stdout;
    assert_eq!(listed, "# skipped, succeeded: results/a-1,\n# left alone: results/a-2,\n");
    assert_eq!(world.read("ran"), "1\n2\n");
    let done = world.grid(&file, &[&["--force=left-alone"], &task[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("ran"), "1\n2\n2\n");
    // As other programs call it, the option runs all.
    world.write("results/a-2,/.packhorse.json", running_marker(&marker, &elsewhere));
    assert_eq!(world.grid(&file, &[&["--force"], &task[..]].concat()).code, 0);
    assert_eq!(world.read("ran"), "1\n2\n2\n1\n2\n");
}

#[test]
fn a_run_in_a_copy_of_the_state_folder_is_another_run() {
    let world = World::new();
    let task = ["--", "sh", "-c", "echo {a} > ran"];
    assert_eq!(world.grid(ONE, &["--", "true"]).code, 0);
    let marker = world.marker("results/a-1,");
    // An image of a container may have a state folder in it: each container has its id.
    let copy = "01234567-89ab-7cde-8f01-23456789abcd";
    let file = "results/a-1,/.packhorse.json";
    world.write(file, running_marker(&marker, &[("run", copy)]));
    let done = world.grid(ONE, &task);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("`results/a-1,` is left alone: task 1.1 of"), "{done:?}");
    // Its run has the number that the next one has here.
    world.write(file, running_marker(&marker, &[("run", copy), ("task", "2.1")]));
    world.write("tasks", r#"{"command": "touch ran", "results": "results/a-1,"}"#);
    let done = world.packhorse(["run", "--slots", "1", "--tasks", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    let told = "2.1 not started: `results/a-1,` is in use: task 2.1 of another state folder or \
        machine runs there, on ";
    assert!(done.stdout.contains(told), "{done:?}");
    let hint = "; if that is over, remove `results/a-1,/.packhorse.json`";
    assert!(done.stdout.contains(hint), "{done:?}");
    assert!(!world.work().join("ran").exists());
    // The run of this state folder is over.
    world.write(file, running_marker(&marker, &[]));
    assert_eq!(world.grid(ONE, &task).code, 0);
    assert!(world.work().join("ran").exists());
}

#[test]
fn a_slow_git_holds_nobody_up_and_its_answer_is_in_every_marker() {
    let world = World::new();
    let commit = "05c98607c6e2b71b2a4e9eaf42b1cf2ff9a13b01";
    let git = format!("#!/bin/sh\nread x < gate\necho '# branch.oid {commit}'\n");
    fs_err::create_dir(world.work().join("bin")).unwrap();
    world.write("bin/git", git);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(world.work().join("bin/git"), mode).unwrap();
    world.fifo("gate");
    // Git answers when the first test has ended.
    let task = "test {a} = 1 || echo > gate";
    world.write("tests.yaml", ONE.replace("[1]", "[1, 2]"));
    let mut command = world.command(["grid", "tests.yaml", "--", "sh", "-c", task]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}/bin:{path}", world.work().display()));
    assert_eq!(finish(command).code, 0);
    for folder in ["results/a-1,", "results/a-2,"] {
        assert_eq!(world.marker(folder)["git"]["commit"], commit);
    }
}

#[test]
fn an_interrupted_test_says_so() {
    let world = World::new();
    let _gate = world.gate("gate");
    world.write("tests.yaml", ONE);
    let mut running = world.start(["grid", "tests.yaml", "--", "sh", "-c", "read x < gate"]);
    running.wait_for("1.1 started");
    running.signal(rustix::process::Signal::INT);
    running.wait_for("stopping");
    running.signal(rustix::process::Signal::INT);
    running.finish();
    assert_eq!(world.marker("results/a-1,")["outcome"], "interrupted");
    assert_eq!(world.grid(ONE, &["--", "true"]).code, 0);
}

#[test]
fn every_door_leaves_markers_and_they_are_there_before_the_end_is_told() {
    let world = World::new();
    let gate = world.gate("gate");
    let tasks = r#"{"command": "true", "results": "out/a", "params": {"x": [1]}}
{"command": "nothing-is-called-so", "results": "out/b"}
{"command": "read x < gate", "results": "out/c", "retries": 1}
{"command": "true"}
"#;
    world.write("tasks.jsonl", tasks);
    let mut running = world.start(["run", "--tasks", "tasks.jsonl", "--slots", "1", "--json"]);
    // While another task keeps the run busy, so that its end writes nothing.
    let ended = |task: &str| format!(r#""event":"finished","task":"{task}""#);
    running.wait_for(&ended("1.1"));
    assert_eq!(world.marker("out/a")["outcome"], "succeeded");
    assert_eq!(world.marker("out/a")["params"]["x"][0], 1);
    running.wait_for(&ended("1.2"));
    assert_ne!(world.marker("out/b")["outcome"], "succeeded");
    gate.pass(1);
    assert_eq!(running.finish().code, 1);
    assert_eq!(world.marker("out/c")["outcome"], "succeeded");
    let names = fs_err::read_dir(world.work().join("out")).unwrap();
    assert_eq!(names.count(), 3, "nothing temporary is left");
}

#[test]
fn a_folder_that_cannot_be_made_fails_its_test_alone() {
    let world = World::new();
    fs_err::create_dir(world.work().join("results")).unwrap();
    world.write("results/a-1,", "a file");
    let file = ONE.replace("[1]", "[1, 2]");
    let done = world.grid(&file, &["--", "true"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 1 succeeded, 1 failed"), "{done:?}");
    assert_eq!(world.read("results/a-1,"), "a file");
    let names = fs_err::read_dir(world.work().join("results")).unwrap();
    assert_eq!(names.count(), 2);
}
