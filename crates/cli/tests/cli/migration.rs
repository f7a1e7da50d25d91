//! The state folder of the last version: what its binary did, ours does with it.
//!
//! `data/version-2` among the tests of the store was made with that binary; what is in
//! it stands there.

use std::path::Path;

use packhorse_fake_nvml::fake_cuda_path;
use packhorse_test_parts::needs;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::support::{Done, World, finish};

const MADE_IN: &str = "/tmp/packhorse-fixture/work";

/// Puts a copy of it in place of the world's state folder. Its runs were started in the
/// folder that commands run in.
fn put(world: &World) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/data/version-2");
    let home = world.home();
    world.make_home();
    fs_err::copy(data.join("packhorse.db"), home.join("packhorse.db")).unwrap();
    fs_err::create_dir(home.join("slates")).unwrap();
    for file in fs_err::read_dir(data.join("slates")).unwrap() {
        let file = file.unwrap();
        let mut bytes = fs_err::read(file.path()).unwrap();
        let boot = fs_err::read("/proc/sys/kernel/random/boot_id").unwrap();
        bytes[32..][..boot.len()].copy_from_slice(&boot);
        fs_err::write(home.join("slates").join(file.file_name()), bytes).unwrap();
    }
    for run in 1..=11 {
        fs_err::create_dir_all(home.join(format!("runs/{run}/logs"))).unwrap();
    }
    let work = world.work();
    let work = work.to_str().unwrap();
    let database = rusqlite::Connection::open(home.join("packhorse.db")).unwrap();
    let update = "UPDATE run SET cwd = CAST(?1 AS BLOB), settings = replace(settings, ?2, ?1)";
    database.execute(update, [work, MADE_IN]).unwrap();
    let update = "UPDATE task SET folder = CAST(?1 || '/d1' AS BLOB) \
                  WHERE folder = CAST(?2 || '/d1' AS BLOB)";
    assert_eq!(database.execute(update, [work, MADE_IN]).unwrap(), 2);
}

fn world() -> World {
    let world = World::new();
    put(&world);
    world
}

fn json(done: &Done) -> Value {
    assert_eq!(done.code, 0, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

/// How the tasks of a run are by now.
fn outcomes(world: &World, run: &str) -> Vec<String> {
    let shown = world.packhorse(["show", run, "--json"]).events();
    let tasks = shown.iter().skip(1);
    tasks.map(|task| task["outcome"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn runs_are_listed_and_shown_as_they_were() {
    let world = world();
    let list = json(&world.packhorse(["ls", "--json"]));
    let brief: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["run"].as_u64().unwrap(), run["state"].as_str().unwrap()))
        .collect();
    let states = "finished interrupted finished finished interrupted interrupted finished \
                  finished finished finished finished";
    let wanted: Vec<_> = (1..=11).rev().zip(states.split_whitespace()).collect();
    assert_eq!(brief, wanted);
    let shown = world.packhorse(["show", "2"]).stdout;
    for line in [
        "run 2  finished\n",
        "  started  2026-11-16 15:25:49, took 226ms\n",
        "  tasks    7: 6 succeeded, 1 failed, 0 running, 0 left\n",
        "2.2      succeeded              0ms  GPU 0    [b] true\n",
        "2.4      exit status 1          1ms  GPU 0,1  false\n",
    ] {
        assert!(shown.contains(line), "{line}{shown}");
    }
    // What a killed run had not committed is there as well.
    assert_eq!(outcomes(&world, "11"), ["succeeded", "failed", "skipped"]);
    let task = json(&world.packhorse(["show", "9.1", "--json"]));
    assert_eq!(task["tries"].as_array().unwrap().len(), 9);
}

#[test]
fn interrupted_runs_go_on() {
    let world = world();
    world.write("held", "held\n");
    let done = world.packhorse(["resume", "7"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("3 succeeded"), "{done:?}");
    assert_eq!(world.packhorse(["logs", "7.3"]).stdout, "later\n");
    let done = world.packhorse(["resume", "6"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2 tasks at a time"), "{done:?}");
    assert_eq!(world.packhorse(["logs", "6.5"]).stdout, "held\n0.3 32 b\n");
    assert_eq!(outcomes(&world, "6"), ["succeeded"; 5]);
    let done = world.packhorse(["resume", "6"]);
    assert!(done.stderr.contains("nothing to do"), "{done:?}");
    // A new run has the next number.
    let done = world.packhorse("run --slots 1 -- true".split(' '));
    assert!(done.stdout.contains("run 12 ended"), "{done:?}");
}

#[test]
fn failed_tasks_run_again_as_they_were_given() {
    let world = world();
    let done = world.packhorse(["retry", "3", "--json"]);
    assert_eq!(done.code, 1, "{done:?}");
    let words = json!(["sh", "-c", "exit 3", "a b", ""]);
    let events = done.events();
    let end = events.iter().find(|event| event["event"] == "finished");
    let end = end.unwrap();
    assert_eq!((&end["command"], &end["detail"]), (&words, &json!(3)));
    assert_eq!(end["attempts"], 2);
    // The second fails again, and what comes after it is skipped again.
    world.write("held2", "");
    let done = world.packhorse(["retry", "11"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("ended"), "done\n");
    assert_eq!(outcomes(&world, "11"), ["succeeded", "failed", "skipped"]);
}

#[test]
fn a_table_is_consumed_on() {
    needs!(Python);
    let machine = Machine::new(2);
    let world = &machine.world;
    put(world);
    fs_err::create_dir(world.work().join("d1")).unwrap();
    world.write("d1/t.py", "print('trained')\n");
    let folder = world.work().join("d1");
    let row = format!("{},python3,t.py,5,1,2G,1,2h,1,one\n", folder.display());
    let rest = "elsewhere,python3,t.py,1,1,,,,,\n";
    let header = "Directory,Executable,Filename,Epochs,Priority,VRAM,GPUs,Timeout,Retries,Name\n";
    // The row that failed, as it was read, is still in the file.
    let saved = row.replace(world.work().to_str().unwrap(), MADE_IN);
    world.write("tasks.csv", format!("{header}{saved}{rest}"));
    let done = machine.packhorse(&["retry", "5"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["logs", "5.1"]).stdout, "trained\n");
    assert_eq!(world.read("tasks.csv"), format!("{header}{rest}"));
}

#[test]
fn an_export_is_what_was_asked_for() {
    let world = world();
    let exported = world.packhorse(["export", "2"]).events();
    assert_eq!(
        exported[1],
        json!({
            "command": "true", "name": "b", "after": ["first"], "folder": world.work(),
            "gpus": 0.5, "vram": 9_u64 << 30, "gpu_model": "Fake", "signature": "käse",
            "cores": 1, "cpu": 1.5, "ram": 1 << 30, "priority": -1, "retries": 2,
            "timeout": 7200.0, "grace": 3.0,
        })
    );
    let exported = world.packhorse(["export", "4"]).events();
    let bytes = json!({"bytes": r"echo caf\xe9 \\xff"});
    assert_eq!(exported[0]["command"], bytes);
    world.write("held", "");
    let exported = world.packhorse(["export", "6"]).stdout;
    let words = ["run", "--slots", "2", "--tasks", "-"];
    let done = world.packhorse_with(words, exported);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["logs", "12.5"]).stdout, "0.3 32 b\n");
}

#[test]
fn what_was_learned_and_what_was_broken_is_known() {
    let machine = Machine::new(3);
    put(&machine.world);
    let peaks = machine.world.packhorse(["peaks"]).stdout;
    assert!(peaks.contains("work: train --peak 5G --hold-looks "), "{peaks}");
    let programs = machine.world.work().join("bin");
    fs_err::create_dir(&programs).unwrap();
    fs_err::os::unix::fs::symlink(fake_cuda_path(), programs.join("train")).unwrap();
    let path = std::env::var("PATH").unwrap();
    // Its shape was measured, so it is not probed.
    for (peak, attempts) in [("5G", &[1][..]), ("6G", &[0, 1])] {
        let tasks = json!({"command": format!("train --peak {peak} --hold-looks 4")});
        machine.world.write("tasks.jsonl", format!("{tasks}\n"));
        let probe = ["run", "--vram", "auto", "--probe", "{} --exit 0", "--json"];
        let mut command = machine.command(&[&probe[..], &["--tasks", "tasks.jsonl"]].concat());
        command.env("PATH", format!("{}:{path}", programs.display()));
        let done = finish(command);
        assert_eq!(done.code, 0, "{done:?}");
        let events = done.events();
        let started = events.iter().filter(|event| event["event"] == "started");
        let started: Vec<_> = started.map(|event| event["attempt"].as_u64().unwrap()).collect();
        assert_eq!(started, attempts, "{peak}");
    }
    let gpus = machine.packhorse(&["gpus"]).stdout;
    assert!(gpus.contains("Xid 79"), "{gpus}");
    let done = machine.packhorse(&["gpus", "--restore", "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    let gpus = machine.packhorse(&["gpus"]).stdout;
    assert!(!gpus.contains("Xid 79"), "{gpus}");
}
