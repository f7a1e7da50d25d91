//! `packhorse plan`: what would run where and when.

use crate::machine::{Machine, taking};

#[test]
fn a_plan_shows_what_would_run_where_and_when() {
    let machine = Machine::new(2);
    let task = taking("--peak 9G --hold 300ms");
    machine.world.write("tasks", format!("{task}\n").repeat(6));
    let plan = |words: &[&str]| {
        let done = machine.packhorse(&[&["plan", "tasks", "--json"], words].concat());
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str::<serde_json::Value>(&done.stdout).unwrap()
    };
    // Nothing is known of them: each has a GPU to itself, for nobody knows how long.
    let unknown = plan(&["--vram", "auto"]);
    assert!(unknown["expected_end_seconds"].is_null(), "{unknown}");
    assert_eq!(unknown["durations_unknown"], 6);
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let rounds = |plan: &serde_json::Value| {
        let starts = plan["tasks"].as_array().unwrap().iter();
        let mut starts: Vec<f64> = starts
            .map(|task| task["start_seconds"].as_f64().unwrap())
            .collect();
        starts.dedup();
        starts.len()
    };
    let known = plan(&["--vram", "auto"]);
    assert!(
        known["expected_end_seconds"].as_f64() > Some(0.5),
        "{known}"
    );
    assert_eq!(rounds(&known), 2);
    // With more GPUs than there are.
    assert_eq!(rounds(&plan(&["--vram", "auto", "--gpus", "3"])), 1);
    let chart = machine.packhorse(&["plan", "tasks", "--vram", "auto"]);
    assert!(chart.stdout.contains("GPU 1"), "{chart:?}");
    assert!(chart.stdout.contains("expected end: in "), "{chart:?}");
    // Nothing was run.
    assert!(!machine.packhorse(&["ls"]).stdout.contains("plan"));
}

#[test]
fn a_plan_needs_no_driver() {
    let world = crate::support::World::new();
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
