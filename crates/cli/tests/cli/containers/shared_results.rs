//! Several containers with the same folders of results.

use packhorse_test_parts::needs;

use super::podman::{Container, Podman};
use crate::support::{World, receive};

const TWO: &str = "scheduler_config: {gpu: ['0']}\ntest_config: [{a: [1, 2]}]\n";

/// Says that it runs, and waits until it may end.
const WAIT: &str = "echo > came; read x < gate";

#[test]
fn a_test_of_another_container_with_the_same_home_is_in_use_until_that_dies() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let came = world.fifo("came");
    let _gate = world.gate("gate");
    world.write("tests.yaml", TWO);
    let grid = |task| ["grid", "tests.yaml", "--", "sh", "-c", task];
    let mut first = podman.start("first", &[], &grid(WAIT));
    first.wait_for("started");
    receive(&came);
    for options in [&[][..], &["--hostname", "first"]] {
        let done = podman.packhorse("second", options, &grid("touch twice"));
        assert_eq!(done.code, 2, "{done:?}");
        let told = "`results/a-1,` is in use: its test still runs, as task 1.1\nhint: wait for it";
        assert!(done.stderr.contains(told), "{done:?}");
    }
    // By a door that was not compared with what runs.
    world.write("tasks", r#"{"command": "touch twice", "results": "results/a-1,"}"#);
    let lines = ["run", "--slots", "1", "--tasks", "tasks"];
    let done = podman.packhorse("second", &[], &lines);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("is in use: its test still runs, as task 1.1"), "{done:?}");
    assert!(!world.work().join("twice").exists());

    first.signal("KILL");
    first.finish();
    let done = podman.packhorse("second", &[], &grid("echo {a} >> ran"));
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert_eq!(world.read("ran"), "1\n2\n");
}

#[test]
fn a_test_that_may_run_in_a_container_with_another_home_is_left_alone_unless_forced() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let came = world.fifo("came");
    let _gate = world.gate("gate");
    world.write("tests.yaml", TWO);
    world.write("config.yml", "{name: exp, path: path, repetitions: 1}\n");
    let other = format!("PACKHORSE_HOME={}", world.work().join("other").display());
    let other = ["--env", other.as_str()];
    for (words, folder, forced) in [
        (&["grid", "tests.yaml"][..], "results/a-1,", "--force=left-alone"),
        (&["exp", "config.yml", "--slots", "1"], "path/exp/log/rep_00", "-o=left-alone"),
    ] {
        let words = |more: &[&'static str]| [words, more].concat();
        let mut first = podman.start("first", &[], &words(&["--", "sh", "-c", WAIT]));
        first.wait_for("started");
        receive(&came);
        let run = words(&["--", "sh", "-c", "echo $PACKHORSE_RESULTS >> ran"]);
        let done = podman.packhorse("second", &other, &run);
        assert_eq!(done.code, 1, "{done:?}");
        let told = format!("warning: `{folder}` is left alone: task ");
        assert!(done.stderr.contains(&told), "{done:?}");
        let host = " of another state folder or machine runs there, on first since 20";
        assert!(done.stderr.contains(host), "{done:?}");
        let way_out = format!("if it is over, {forced} runs it again");
        assert!(done.stderr.contains(&way_out), "{done:?}");
        assert!(!world.read("ran").contains(folder));
        let listed = podman.packhorse("second", &other, &words(&["--dry-run", "--", "true"]));
        assert!(listed.stdout.contains(&format!("# left alone: {folder}\n")), "{listed:?}");

        world.write("tasks", format!(r#"{{"command": "true", "results": "{folder}"}}"#));
        let lines = ["run", "--slots", "1", "--tasks", "tasks"];
        let done = podman.packhorse("second", &other, &lines);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.stdout.contains(host), "{done:?}");
        let hint = format!("; if that is over, remove `{folder}/.packhorse.json`");
        assert!(done.stdout.contains(&hint), "{done:?}");
        assert!(!done.stdout.contains("cannot make"), "{done:?}");

        // While the other one is at work, the log that it writes would be in the way.
        drop(first);
        let force = words(&[forced, "--", "sh", "-c", "echo $PACKHORSE_RESULTS >> ran"]);
        let done = podman.packhorse("second", &other, &force);
        assert_eq!(done.code, 0, "{done:?}");
        let ran = world.read("ran");
        assert_eq!(ran.lines().last().map(|line| line.ends_with(folder)), Some(true), "{ran}");
    }
}

#[test]
fn containers_that_start_at_once_run_each_test_once() {
    needs!(Podman, Root);
    let world = World::new();
    let podman = Podman::new(&world);
    let gate = world.gate("gate");
    world.write("tests.yaml", TWO.replace("[1, 2]", "[1, 2, 3, 4, 5, 6]"));
    // What an earlier run has left is taken over by one of them, and new folders are made.
    for test in [1, 2, 3] {
        fs_err::create_dir_all(world.work().join(format!("results/a-{test},"))).unwrap();
        let marker = r#"{"outcome": "interrupted"}"#;
        world.write(&format!("results/a-{test},/.packhorse.json"), marker);
    }
    let packhorse = env!("CARGO_BIN_EXE_packhorse");
    let start = "echo here; read x < gate; exec \"$0\" \"$@\"";
    let other = format!("PACKHORSE_HOME={}", world.work().join("other").display());
    let grid = ["grid", "tests.yaml", "--", "sh", "-c", "echo {a} >> ran"];
    let words = [&["sh", "-c", start, packhorse][..], &grid].concat();
    let containers = [("first", &[][..]), ("second", &["--env", &other])]
        .map(|(name, options)| podman.start_program(name, options, &words));
    let containers = containers.map(|mut container| {
        container.wait_for("here");
        container
    });
    gate.pass(2);
    let done = containers.map(Container::finish);
    for done in &done {
        let told = done.stdout.lines().filter(|line| line.contains(" not started: "));
        let mut lost = 0;
        for line in told {
            // What the other one has begun is in use; what it has done is kept.
            assert!(line.contains(" not started: `results/a-"), "{done:?}");
            assert!(line.contains(",` is in use: "), "{done:?}");
            lost += 1;
        }
        let is_left_alone = done.stderr.contains(" is left alone: ");
        assert_eq!(done.code, i32::from(lost > 0 || is_left_alone), "{done:?}");
    }
    let ran = world.read("ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["1", "2", "3", "4", "5", "6"]);
}
