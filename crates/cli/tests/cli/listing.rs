//! Runs after their end: `ls`, `show`, `why`.

use rustix::process::Signal;

use crate::again::run;
use crate::support::World;

#[test]
fn runs_are_listed_the_newest_first() {
    let world = World::new();
    run(&world, "true\n");
    run(&world, "true\nexit 3\n");
    let list = world.packhorse(["ls"]).stdout;
    let rows: Vec<Vec<_>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..2], ["RUN", "STATE"], "{list}");
    assert_eq!(rows[1][..2], ["2", "finished"], "{list}");
    assert_eq!(rows[1][5..9], ["2", "1", "1", "0"], "{list}");
    assert!(list.contains("run --slots 1"), "{list}");
    assert_eq!(rows[2][..2], ["1", "finished"], "{list}");
    assert_eq!(rows.len(), 3, "{list}");

    let runs = world.packhorse(["ls", "--json", "-n", "1"]).json();
    assert_eq!(runs.as_array().unwrap().len(), 1);
    assert_eq!(runs[0]["run"], 2);
    assert_eq!(runs[0]["succeeded"], 1);
    assert_eq!(runs[0]["failed"], 1);
    assert_eq!(runs[0]["exit"], 1);
}

#[test]
fn a_run_is_shown_with_its_tasks() {
    let world = World::new();
    run(&world, "true\nexit 3\nno-such-command\n");
    let shown = world.packhorse(["show"]).stdout;
    assert!(shown.starts_with("run 1  finished\n"), "{shown}");
    assert!(shown.contains(&world.work().display().to_string()), "{shown}");
    assert!(shown.contains("3: 1 succeeded, 2 failed, 0 running, 0 left"), "{shown}");
    assert!(shown.contains("`packhorse retry 1`"), "{shown}");
    let task = |number: &str| {
        let line = shown.lines().find(|line| line.starts_with(number));
        line.unwrap_or_else(|| panic!("no {number} in {shown}"))
    };
    assert!(task("1.1").contains(" succeeded "), "{shown}");
    assert!(task("1.2").contains(" exit status 3 "), "{shown}");
    assert!(task("1.3").contains("(command not found: no-such-command)"), "{shown}");

    let failed = world.packhorse(["show", "1", "--failed"]).stdout;
    assert!(!failed.contains("1.1 "), "{failed}");
    assert!(failed.contains("1.2 ") && failed.contains("1.3 "), "{failed}");

    let objects = world.packhorse(["show", "1", "--failed", "--json"]).events();
    assert_eq!(objects[0]["run"], 1);
    assert_eq!(objects[1]["task"], "1.2");
    assert_eq!(objects[1]["outcome"], "failed");
    assert_eq!(objects[1]["detail"], 3);
    assert_eq!(objects[2]["outcome"], "not-started");
    assert_eq!(objects.len(), 3);
}

#[test]
fn a_task_is_shown_with_its_attempts() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--gpus", "GPU-7", "--retries", "1"],
        "echo $PACKHORSE_ATTEMPT; test $PACKHORSE_ATTEMPT = 2\n",
    );
    assert_eq!(done.code, 0, "{done:?}");
    let shown = world.packhorse(["show", "1.1"]).stdout;
    assert!(shown.starts_with("task 1.1  succeeded\n"), "{shown}");
    for line in ["  attempt 1", "    outcome  exit status 1 after", "  attempt 2", "GPU-7"] {
        assert!(shown.contains(line), "no {line} in {shown}");
    }
    let task = world.packhorse(["show", "1.1", "--json"]).json();
    assert_eq!(task["attempts"], 2);
    assert_eq!(task["tries"][0]["outcome"], "failed");
    assert_eq!(task["tries"][1]["outcome"], "succeeded");
    let log = task["tries"][0]["log"].as_str().expect("a log");
    assert!(std::path::Path::new(log).exists());
}

#[test]
fn what_does_not_exist_is_said() {
    let world = World::new();
    for words in ["show", "retry", "resume", "logs 1"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{words}: {done:?}");
        assert!(done.stderr.contains("no run yet"), "{words}: {done:?}");
    }
    run(&world, "true\n");
    for words in ["show 7", "retry 7", "resume 7", "show 7.1", "show 1.9", "logs 1.9"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{words}: {done:?}");
        assert!(done.stderr.contains('7') || done.stderr.contains('9'), "{words}: {done:?}");
    }
}

#[test]
fn no_runs_are_asked_for_is_not_that_there_are_none() {
    let world = World::new();
    assert_eq!(world.packhorse(["ls", "-n", "0"]).stdout, "no runs yet\n");
    run(&world, "true\n");
    let list = world.packhorse(["ls", "-n", "0"]).stdout;
    assert!(list.starts_with("RUN"), "{list}");
    assert_eq!(list.lines().count(), 1, "{list}");
}

#[test]
fn a_run_that_goes_on_is_not_said_to_have_taken_its_time() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("read x < gate\n");
    running.wait_for("1.1 started");
    let started = |shown: &str| {
        let line = shown.lines().find(|line| line.starts_with("  started  "));
        line.unwrap_or_else(|| panic!("{shown}")).to_owned()
    };
    let meanwhile = started(&world.packhorse(["show"]).stdout);
    assert!(meanwhile.ends_with(" ago"), "{meanwhile}");
    running.end_input();
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    let afterwards = started(&world.packhorse(["show"]).stdout);
    assert!(afterwards.contains(", took "), "{afterwards}");
}

#[test]
fn whoever_asks_a_run_that_does_not_answer_is_told_what_to_try() {
    let world = World::new();
    let _gate = world.gate("gate");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("read x < gate\n");
    running.wait_for("1.1 started");
    running.signal(Signal::STOP);
    let stopped = rustix::process::WaitOptions::UNTRACED;
    rustix::process::waitpid(Some(running.pid()), stopped).unwrap();
    let asking = [&["why", "1.1"][..], &["stop"]].map(|words| world.start(words));
    let hint = format!("kill -CONT {}", running.pid().as_raw_nonzero());
    for asking in asking {
        let done = asking.finish();
        assert_eq!(done.code, 2, "{done:?}");
        let said = "run 1: it did not answer in 5 s";
        assert!(done.stderr.contains(said), "{done:?}");
        assert!(done.stderr.contains(&hint), "{done:?}");
    }
    // It was asked all the same.
    running.signal(Signal::CONT);
    assert_eq!(running.finish().code, 143);
}

#[test]
fn of_a_task_that_does_not_exist_nobody_says_why_it_waits() {
    let world = World::new();
    let gate = world.gate("gate");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("read x < gate\ntrue\n");
    world.why("1.2");
    let done = world.packhorse(["why", "1.99"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    let wanted = "error: there is no task 1.99 yet: its run still reads input\nhint: ";
    assert!(done.stderr.starts_with(wanted), "{done:?}");
    running.end_input();
    let wanted = "error: there is no task 1.99\nhint: `packhorse show 1` lists the tasks\n";
    assert_eq!(world.packhorse(["why", "99"]).stderr, wanted);
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    // Nor when it is over.
    assert_eq!(world.packhorse(["why", "1.99"]).stderr, wanted);
}
