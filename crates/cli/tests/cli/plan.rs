//! `packhorse plan`: what would run where and when.

use crate::machine::{Machine, taking};

#[test]
fn a_plan_shows_what_would_run_where_and_when() {
    let machine = Machine::new(2);
    let task = taking("--peak 9G --hold-looks 6");
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
        known["expected_end_seconds"].as_f64() > Some(0.0),
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
    let plan: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(plan["tasks"].as_array().unwrap().len(), 1, "{plan}");
    let reason = plan["refused"][1]["reason"].as_str().unwrap();
    assert!(
        reason.contains("after task 1, which would not run"),
        "{plan}"
    );
}
