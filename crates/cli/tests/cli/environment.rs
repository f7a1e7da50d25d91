//! What tasks find in their environment: the person's, the run's, their own and ours.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{World, finish};

/// The variables that a task wrote down with `env -0`.
fn variables(world: &World, name: &str) -> BTreeMap<String, String> {
    let text = world.read(name);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.collect()
}

#[test]
fn a_task_may_have_any_number_of_variables() {
    let world = World::new();
    let many: BTreeMap<String, String> =
        (0..500).map(|n| (format!("VARIABLE_{n}"), format!("{n} = \"$HOME\"\n'"))).collect();
    let task = json!({"command": "env -0 > out", "env": many});
    world.write("tasks.jsonl", format!("{task}\n"));
    let done = world.packhorse(["run", "--slots", "1", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    let found = variables(&world, "out");
    for (name, value) in &many {
        assert_eq!(found.get(name), Some(value), "{name}");
    }
    assert_eq!(found["PACKHORSE_TASK"], "1.1");
}

#[test]
fn a_tasks_own_outrank_those_of_the_run_which_outrank_the_persons() {
    let world = World::new();
    let own = json!({"command": "env -0 > own", "env": {"A": "task", "EMPTY": ""}});
    let plain = json!({"command": "env -0 > plain"});
    world.write("tasks.jsonl", format!("{own}\n{plain}\n"));
    let words = "run --slots 1 --env A=run --env B=run=2 --env EMPTY=no --tasks tasks.jsonl";
    let mut command = world.command(words.split(' '));
    command.envs([("A", "person"), ("B", "person"), ("C", "person")]);
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    for (file, wanted) in [
        ("own", [("A", "task"), ("B", "run=2"), ("C", "person"), ("EMPTY", "")]),
        ("plain", [("A", "run"), ("B", "run=2"), ("C", "person"), ("EMPTY", "no")]),
    ] {
        let found = variables(&world, file);
        for (name, value) in wanted {
            assert_eq!(found[name], value, "{name} of {file}");
        }
    }
}

#[test]
fn what_the_person_gives_tasks_outranks_what_we_would() {
    let world = World::new();
    let own = json!({"command": "env -0 > own", "cores": 1,
        "env": {"CUDA_VISIBLE_DEVICES": "9", "OMP_NUM_THREADS": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}});
    let plain = json!({"command": "env -0 > plain", "cores": 1});
    world.write("tasks.jsonl", format!("{own}\n{plain}\n"));
    let words = "run --gpus 3 --env MKL_NUM_THREADS=5 --tasks tasks.jsonl";
    let done = world.packhorse(words.split(' '));
    assert_eq!(done.code, 0, "{done:?}");
    let own = variables(&world, "own");
    assert_eq!(own["CUDA_VISIBLE_DEVICES"], "9");
    assert_eq!(own["OMP_NUM_THREADS"], "7");
    assert_eq!(own["CUDA_DEVICE_ORDER"], "FASTEST_FIRST");
    let plain = variables(&world, "plain");
    assert_eq!(plain["CUDA_VISIBLE_DEVICES"], "3");
    assert_eq!(plain["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    for found in [&own, &plain] {
        assert_eq!(found["MKL_NUM_THREADS"], "5");
    }
}

#[test]
fn variables_of_the_run_are_kept_for_another_session() {
    let world = World::new();
    let commands = "env -0 > out; test -e fixed\n";
    let words = ["run", "--slots", "1", "--env", "SEED=1"];
    assert_eq!(world.packhorse_with(words, commands).code, 1);
    world.write("fixed", "");
    world.write("out", "");
    assert_eq!(world.packhorse(["retry"]).code, 0);
    assert_eq!(variables(&world, "out")["SEED"], "1");
}

#[test]
fn a_value_that_is_no_text_reaches_the_tasks() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let command = "printf %s \"$ODD\" > out";
    let words = ["run", "--slots", "1", "--env", "", "--", "sh", "-c", command];
    let mut words = words.map(std::ffi::OsStr::new);
    words[4] = std::ffi::OsStr::from_bytes(b"ODD=caf\xe9");
    let done = world.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    let bytes = fs_err::read(world.work().join("out")).unwrap();
    assert_eq!(bytes, b"caf\xe9");
}

#[test]
fn a_variable_without_a_name_or_a_value_is_refused() {
    let world = World::new();
    for wrong in ["SEED", "=1"] {
        let words = ["run", "--slots", "1", "--env", wrong, "--", "touch", "out"];
        let done = world.packhorse(words);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("it is not NAME=VALUE"), "{done:?}");
    }
    assert!(!world.work().join("out").exists());
}

#[test]
fn a_run_within_a_task_is_a_run_of_its_own() {
    let world = World::new();
    let inner =
        format!("{} run --slots 1 -q -- sh -c 'env -0 > out'", env!("CARGO_BIN_EXE_packhorse"));
    let task = json!({"command": inner, "params": {"lr": 1}, "results": "made"});
    world.write("tasks.jsonl", format!("{task}\n"));
    let done = world.packhorse(["run", "--gpus", "3", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    let found = variables(&world, "out");
    assert_eq!(found["PACKHORSE_RUN"], "2");
    assert_eq!(found["PACKHORSE_TASK"], "2.1");
    for ours in ["PACKHORSE_PARAMS", "PACKHORSE_RESULTS", "PACKHORSE_GPUS"] {
        assert_eq!(found.get(ours), None, "{ours}");
    }
    // In slots, the GPU of the task around it is its own.
    assert_eq!(found["CUDA_VISIBLE_DEVICES"], "3");
}
