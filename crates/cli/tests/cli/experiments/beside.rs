//! Experiment files side by side with the original, cw2 2.5.1 as PyPI has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use packhorse_test_parts::{needs, test_python};
use serde_json::Value;

use crate::support::{World, finish};

/// What the script beside this file says.
fn original(world: &World, words: &[&str]) -> String {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli/experiments/beside.py");
    let script = script.to_str().unwrap();
    let done = finish(world.program(test_python(), [&[script], words].concat()));
    assert_eq!(done.code, 0, "{done:?}");
    done.stdout
}

/// Whole numbers and others are the same to everybody here.
fn as_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.iter().map(as_numbers).collect(),
        Value::Object(members) => {
            let members = members.iter();
            members.map(|(key, value)| (key.clone(), as_numbers(value))).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn random_files_are_expanded_named_and_cut_into_jobs_as_by_the_original() {
    needs!(Python);
    let world = World::new();
    original(&world, &["make", ".", "6", "40"]);
    let files: Vec<String> = (0..40).map(|file| format!("config{file}.yml")).collect();
    let words: Vec<&str> = files.iter().map(String::as_str).collect();
    let read = original(&world, &[&["read"], words.as_slice()].concat());
    let (mut compared, mut repetitions) = (0, 0);
    for line in read.lines() {
        let theirs: Value = serde_json::from_str(line).unwrap();
        let Some(configs) = theirs["configs"].as_array() else {
            continue;
        };
        let file = theirs["file"].as_str().unwrap();
        let option = match theirs["options"][0].as_str() {
            Some("debug") => vec!["--debug"],
            Some(_) => vec!["--debugall"],
            None => Vec::new(),
        };
        let words = [&["exp", file, "--list", "--json"], option.as_slice()].concat();
        let done = world.packhorse(words);
        if done.stderr.contains("would not run") {
            // The original leaves it out without a word.
            continue;
        }
        assert_eq!(done.code, 0, "{file}: {done:?}");
        let ours = done.events();
        let text = world.read(file);
        if done.stderr.contains("share a folder") {
            // There a run is skipped because the folder of another is not empty.
            continue;
        }
        // What is there twice is listed once.
        let mut seen = BTreeSet::new();
        let configs: Vec<Value> = configs
            .iter()
            .filter(|config| seen.insert(config["_rep_log_path"].to_string()))
            .map(as_numbers)
            .collect();
        let jobs = theirs["jobs"].as_array().unwrap().iter().zip(0_u64..);
        let mut job_of = BTreeMap::new();
        for (folders, job) in jobs {
            for folder in folders.as_array().unwrap() {
                job_of.entry(folder.to_string()).or_insert(job);
            }
        }
        for (ours, theirs) in ours.iter().zip(&configs) {
            assert_eq!(as_numbers(&ours["config"]), *theirs, "{file} {option:?}\n{text}");
            let folder = &ours["folder"];
            assert_eq!(ours["job"].as_u64(), job_of.get(&folder.to_string()).copied(), "{file}");
        }
        assert_eq!(ours.len(), configs.len(), "{file} {option:?}\n{text}");
        compared += 1;
        repetitions += ours.len();
    }
    assert!(compared > 80 && repetitions > 2000, "{compared} {repetitions}");
}

#[test]
fn what_is_written_back_is_what_the_original_writes() {
    needs!(Python);
    let world = World::new();
    let file = "{name: DEFAULT, path: ./p, repetitions: 2, params: {z: 'yes', f: 1e-3, g: .5, t: 12:30}}\n\
        ---\n{name: a, grid: {x: [[1, 2], {k: v}, \"tab\\t\"], n: {y: [~, no]}}, more: [1, {a: b}]}\n\
        ---\n{name: b}\n---\n{name: SLURM, time: 20, sbatch_args: {gres: 'gpu:1'}}\n";
    world.write("config.yml", file);
    original(&world, &["write", "config.yml"]);
    let theirs: Vec<String> = ["p/relative_config.yml", "p/a/relative_config_a.yml"]
        .iter()
        .map(|path| original(&world, &["yaml", path]))
        .collect();
    fs_err::remove_dir_all(world.work().join("p")).unwrap();
    assert_eq!(world.exp(file, &["--slots", "4", "--", "true"]).code, 0);
    let paths = ["p/relative_config.yml", "p/a/relative_config_a.yml"];
    for (path, theirs) in paths.iter().zip(theirs) {
        let ours = original(&world, &["yaml", path]);
        let read = |text: &str| as_numbers(&serde_json::from_str(text).unwrap());
        assert_eq!(read(&ours), read(&theirs), "{path}");
    }
    // The original reads ours as the same repetitions again.
    let read = original(&world, &["read", "p/relative_config.yml"]);
    let read: Value = serde_json::from_str(read.lines().next().unwrap()).unwrap();
    assert_eq!(read["configs"].as_array().unwrap().len(), 14);
}
