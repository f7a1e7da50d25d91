//! What is done, and going on with experiments.

use crate::support::World;

const FOUR: &str = "{name: a, path: p, repetitions: 4, reps_in_parallel: 4}";

#[test]
fn what_has_succeeded_is_skipped_and_what_has_failed_runs_again() {
    let world = World::new();
    let script = "test {rep} != 2 || test -e mended";
    let words = ["--", "sh", "-c", script];
    let done = world.exp(FOUR, &words);
    assert_eq!(done.code, 1, "{done:?}");
    let states = world.listed(FOUR, &[]);
    assert_eq!(states[2], "failed p/a/log/rep_02");
    world.write("mended", "");
    let done = world.exp(FOUR, &words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("3 repetitions are done, and skipped; -o runs them again"));
    assert!(done.stdout.contains("1 succeeded"), "{done:?}");
    let done = world.exp(FOUR, &words);
    assert_eq!(done.stderr, "nothing to do: 4 repetitions are done\nhint: -o runs them again\n");
    let done = world.exp(FOUR, &[&["-o"], words.as_slice()].concat());
    assert!(done.stdout.contains("4 succeeded"), "{done:?}");
}

#[test]
fn what_was_only_tried_is_not_done() {
    let world = World::new();
    let run = |words: &[&str]| {
        let command = ["--json", "--", "sh", "-c", "echo $PACKHORSE_EXPERIMENT"];
        let done = world.exp(FOUR, &[words, &command].concat());
        assert_eq!(done.code, 0, "{done:?}");
        let events = done.events();
        let started = events.iter().filter(|event| event["event"] == "started");
        started.count()
    };
    for option in ["--debug", "--debugall"] {
        assert_eq!(run(&["-o", option]), 1);
        assert_eq!(run(&[option]), 0, "it has been tried");
        assert_eq!(world.listed(FOUR, &[option]), ["succeeded p/a/log/rep_00"]);
        assert_eq!(world.listed(FOUR, &[])[0], "debug p/a/log/rep_00");
    }
    assert_eq!(run(&[]), 4);
    // A result is better than a trial.
    assert_eq!(run(&["--debug"]), 0);
    assert_eq!(world.listed(FOUR, &[])[0], "succeeded p/a/log/rep_00");
}

#[test]
fn a_folder_of_the_original_is_done_if_something_is_in_it() {
    let world = World::new();
    for rep in 0..3 {
        let folder = world.work().join(format!("p/a/log/rep_0{rep}"));
        fs_err::create_dir_all(folder).unwrap();
    }
    world.write("p/a/log/rep_01/rep.csv", "x");
    let states = world.listed(FOUR, &[]);
    let words: Vec<&str> = states.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(words, ["new", "done", "new", "new"]);
    let done = world.exp(FOUR, &["--dry-run", "--", "run", "{rep}"]);
    assert_eq!(
        done.stdout,
        "run 0\n# skipped, its folder is there: p/a/log/rep_01\nrun 2\nrun 3\n"
    );
}

#[test]
fn a_run_goes_on_with_what_was_in_its_files() {
    let world = World::new();
    let file = "{name: a, path: p, import_path: base.yml, reps_in_parallel: 1}";
    world.write("base.yml", "{name: DEFAULT, repetitions: 4, params: {x: 1e-3}}");
    world.write("config.yml", file);
    let gate = world.gate("gate");
    let script = "read x < gate; test {rep} != 1 || test -e mended; echo {x} {rep} >> order";
    let words = ["exp", "config.yml", "--", "sh", "-c", &format!("set -e; {script}")];
    let mut running = world.start(words);
    gate.pass(2);
    running.wait_for("1.2 failed");
    running.wait_for("1.3 started");
    running.signal(rustix::process::Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, 143, "{done:?}");
    fs_err::remove_file(world.work().join("config.yml")).unwrap();
    fs_err::remove_file(world.work().join("base.yml")).unwrap();
    gate.pass(3);
    let done = world.packhorse(["resume", "1"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("order"), "1e-3 0\n1e-3 2\n1e-3 3\n");
    world.write("mended", "");
    let done = world.packhorse(["retry", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("order"), "1e-3 0\n1e-3 2\n1e-3 3\n1e-3 1\n");
    assert_eq!(world.read("p/a/log/rep_01/out.log"), "");
}

#[test]
fn a_repetition_that_still_runs_is_not_started_twice() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("config.yml", "{name: a, path: p, command: 'read x < gate'}");
    let mut running = world.start(["exp", "config.yml"]);
    running.wait_for("1.1 started");
    let done = world.packhorse(["exp", "config.yml", "-o"]);
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.contains("`p/a/log/rep_00` is in use: its test still runs, as task 1.1"),
        "{}",
        done.stderr
    );
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
}
