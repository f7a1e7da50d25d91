//! Logs and folders of results that tasks have for themselves.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{World, receive, release};

const RUN: [&str; 3] = ["run", "--slots", "1"];

#[test]
fn two_tasks_with_one_log_or_folder_of_results_are_a_mistake_with_both_places() {
    let world = World::new();
    fs_err::create_dir_all(world.work().join("real/deep")).unwrap();
    std::os::unix::fs::symlink("real", world.work().join("link")).unwrap();
    for (key, word) in [("log", "log"), ("results", "folder of results")] {
        for (one, other) in [
            (format!("{key}=a"), format!("{key}=./a")),
            (format!("{key}=real/a"), format!("{key}=link/deep/../a")),
            (format!("folder=real {key}=a"), format!("{key}=real/a")),
        ] {
            let text = format!("#packhorse {one}\ntouch ran\n\n#packhorse {other}\ntouch ran\n");
            world.write("tasks", text);
            for door in
                [&["run", "--slots", "1", "tasks"][..], &["plan", "run", "--slots", "1", "tasks"]]
            {
                let done = world.packhorse(door);
                assert_eq!(done.code, 2, "{one} {other}: {done:?}");
                let first = format!("is already the {word} of the task at line 2\nhint: ");
                assert!(done.stderr.contains("error: tasks:5: "), "{done:?}");
                assert!(done.stderr.contains(&first), "{done:?}");
            }
        }
    }
    // In another language, and in another file.
    world.write("one", "{\"command\": \"touch ran\", \"log\": \"a\"}\n");
    world.write("other", "\n{\"command\": \"touch ran\", \"log\": \"real/../a\"}\n");
    let done = world.packhorse(RUN.into_iter().chain(["--tasks", "one", "--tasks", "other"]));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("error: other:2: `log=real/../a` is already"), "{done:?}");
    assert!(done.stderr.contains("of the task at one:1"), "{done:?}");
    assert!(!world.work().join("ran").exists());
}

#[test]
fn settings_that_give_all_tasks_one_folder_of_results_are_refused_by_every_door() {
    let world = World::new();
    world.write("packhorse.toml", "[task]\nresults = \"out\"\n[pool]\nslots = 1\n");
    world.write("tasks", "touch ran\ntouch ran\n");
    let done = world.packhorse(["run", "tasks"]);
    let shared = "`results=out` is already the folder of results of the task at line 1";
    assert!(done.code == 2 && done.stderr.contains(shared), "{done:?}");
    let done = world.packhorse(["sweep", "--run", "touch ran {x}", "-p", "x", "1", "2"]);
    assert!(done.code == 2 && done.stderr.contains("the folder `out`"), "{done:?}");
    assert!(!world.work().join("ran").exists());
    // In folders of their own they are apart.
    fs_err::create_dir(world.work().join("a")).unwrap();
    fs_err::create_dir(world.work().join("b")).unwrap();
    world.write("tasks", "#packhorse folder=a\ntouch ran\n#packhorse folder=b\ntouch ran\n");
    let done = world.packhorse(["run", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(world.work().join("b/out/.packhorse.json").exists());
}

#[test]
fn of_tasks_that_arrive_the_later_one_is_refused() {
    let world = World::new();
    let mut running = world.start(RUN.into_iter().chain(["--tasks", "-"]));
    running.send("{\"command\": \"echo first\", \"log\": \"a.log\"}\n");
    running.wait_for("1.1 succeeded");
    // Its file is there by now.
    running.send("{\"command\": \"echo second\", \"log\": \"./a.log\"}\n");
    running.send("{\"command\": \"echo third\", \"log\": \"b.log\"}\n");
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    let place = "error: standard input:2: `log=./a.log` is already the log of the task at line 1";
    let told = done.stdout.clone() + &done.stderr;
    assert!(told.contains("a line was not run") && told.contains(place), "{done:?}");
    assert_eq!((world.read("a.log"), world.read("b.log")), ("first\n".into(), "third\n".into()));
}

#[test]
fn devices_and_pipes_are_for_all_tasks() {
    let world = World::new();
    world.write("tasks", "#packhorse log=/dev/null\ntrue\n#packhorse log=/dev/null\ntrue\n");
    let done = world.packhorse(RUN.into_iter().chain(["tasks"]));
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_rerun_keeps_the_logs_of_the_run_before_and_says_so_once() {
    let world = World::new();
    let task = |name: &str| {
        format!("#packhorse log={name}.log retries=1\necho $(cat word) $PACKHORSE_ATTEMPT; false\n")
    };
    world.write("tasks", task("a") + &task("b"));
    let words = || RUN.into_iter().chain(["tasks"]);
    world.write("word", "first");
    let done = world.packhorse(words());
    assert!(done.code == 1 && !done.stdout.contains("earlier run"), "{done:?}");
    // Another attempt of the same run has a log of its own.
    assert_eq!(
        (world.read("a.log"), world.read("a.2.log")),
        ("first 1\n".into(), "first 2\n".into())
    );
    world.write("word", "second");
    let done = world.packhorse(words());
    assert_eq!(done.stdout.matches("is the log of an earlier run").count(), 1, "{done:?}");
    assert!(done.stdout.contains("a.log~ now, and so are others like it"), "{done:?}");
    for name in ["a", "b"] {
        assert_eq!(world.read(&format!("{name}.log~")), "first 1\n");
        assert_eq!(world.read(&format!("{name}.2.log~")), "first 2\n");
        assert_eq!(world.read(&format!("{name}.log")), "second 1\n");
    }
    // The same run goes on: nothing is renamed.
    world.write("word", "third");
    let done = world.packhorse(["retry"]);
    assert!(!done.stdout.contains("earlier run"), "{done:?}");
    assert_eq!(
        (world.read("a.log"), world.read("a.log~")),
        ("second 1\n".into(), "first 1\n".into())
    );
    // One that writes nothing does not pass off what another wrote as its own.
    world.write("tasks", "#packhorse log=a.log\ntrue\n");
    assert_eq!(world.packhorse(words()).code, 0);
    assert_eq!((world.read("a.log"), world.read("a.log~2")), (String::new(), "second 1\n".into()));
}

#[test]
fn a_log_that_a_task_still_writes_is_neither_renamed_nor_emptied() {
    let world = World::new();
    let (up, go) = (world.fifo("up"), world.fifo("go"));
    world.write("other", "#packhorse log=t.log\necho b\n");
    for output in ["log", "file"] {
        // Before it has written anything, and after.
        for first in ["", "echo begun; "] {
            let task = format!("{first}echo > up; cat go; echo RESULT-OF-A");
            world.write("tasks", format!("#packhorse log=t.log\n{task}\n"));
            let words = RUN.into_iter().chain(["--output", output]);
            let running = world.start(words.clone().chain(["tasks"]));
            receive(&up);
            for _ in 0..2 {
                let done = world.packhorse(words.clone().chain(["other"]));
                assert_eq!(done.code, 1, "{done:?}");
                let told = done.stdout.clone() + &done.stderr;
                assert!(told.contains("another task still writes to its log"), "{done:?}");
            }
            release(&go);
            assert_eq!(running.finish().code, 0);
            let begun = if first.is_empty() { "" } else { "begun\n" };
            assert_eq!(world.read("t.log"), format!("{begun}RESULT-OF-A\n"));
            assert!(!world.work().join("t.log~").exists());
            fs_err::remove_file(world.work().join("t.log")).unwrap();
        }
    }
}

#[test]
fn no_earlier_log_is_lost_and_each_run_shows_its_own() {
    let world = World::new();
    world.write("tasks", "#packhorse log=t.log\ncat word\n");
    for word in ["first", "second", "", "third"] {
        world.write("word", word);
        assert_eq!(world.packhorse(RUN.into_iter().chain(["tasks"])).code, 0);
    }
    let names = ["t.log~", "t.log~2", "t.log"];
    assert_eq!(names.map(|name| world.read(name)), ["first", "second", "third"]);
    for (run, log, text) in
        [("1.1", "t.log~", "first"), ("2.1", "t.log~2", "second"), ("4.1", "t.log", "third")]
    {
        let done = world.packhorse(["logs", run]);
        assert_eq!((done.code, done.stdout.as_str()), (0, text), "{done:?}");
        let done = world.packhorse(["logs", "--path", run]);
        assert!(done.stdout.ends_with(&format!("/{log}\n")), "{done:?}");
    }
    // What another run wrote is not shown where this one wrote nothing.
    let done = world.packhorse(["logs", "3.1"]);
    assert!(done.stdout.is_empty() && done.stderr.contains("wrote nothing"), "{done:?}");
    fs_err::remove_file(world.work().join("t.log~")).unwrap();
    let done = world.packhorse(["logs", "1.1"]);
    assert!(done.code == 2 && done.stdout.is_empty(), "{done:?}");
    assert!(done.stderr.contains("is not there any more: another file has its name"), "{done:?}");
}

#[test]
fn a_log_where_another_attempt_of_a_task_has_its_own_is_a_mistake() {
    let world = World::new();
    for (one, other) in [("t.log", "t.2.log"), ("t", "./t.3"), (".t", ".t.2")] {
        for (first, second) in [
            (format!("{one} retries=2"), other.to_owned()),
            (other.to_owned(), format!("{one} retries=2")),
        ] {
            world.write(
                "tasks",
                format!("#packhorse log={first}\ntrue\n#packhorse log={second}\ntrue\n"),
            );
            let done = world.packhorse(RUN.into_iter().chain(["tasks"]));
            assert_eq!(done.code, 2, "{first} {second}: {done:?}");
            assert!(done.stderr.contains("error: tasks:4: "), "{done:?}");
            assert!(done.stderr.contains("of the task at line 2\nhint: "), "{done:?}");
        }
        world.write("tasks", format!("#packhorse log={one}\ntrue\n#packhorse log={other}\ntrue\n"));
        let done = world.packhorse(RUN.into_iter().chain(["--retries", "2", "tasks"]));
        assert_eq!(done.code, 2, "{done:?}");
        // Without retries they are apart.
        let done = world.packhorse(RUN.into_iter().chain(["tasks"]));
        assert_eq!(done.code, 0, "{done:?}");
    }
}

#[test]
fn a_log_is_made_with_the_umask_of_whoever_starts_the_run() {
    let world = World::new();
    world.write("tasks", "#packhorse log=new/a.log\necho hello\n");
    for (umask, file, folder) in [("027", 0o640, 0o750), ("002", 0o664, 0o775)] {
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let packhorse = env!("CARGO_BIN_EXE_packhorse");
        let words = ["-c", &script, packhorse, "run", "--slots", "1", "tasks"];
        let done = crate::support::finish(world.program("sh", words));
        assert_eq!(done.code, 0, "{done:?}");
        let mode = |name: &str| {
            let found = fs_err::metadata(world.work().join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("new/a.log"), mode("new")), (file, folder), "{umask}");
        fs_err::remove_dir_all(world.work().join("new")).unwrap();
    }
}

#[test]
fn resume_counts_every_line_whatever_has_become_of_its_paths() {
    let world = World::new();
    let task = |number: u32, log: &str| {
        format!("{{\"command\": \"echo {number} >> out\", \"log\": \"{log}\"}}\n")
    };
    world.write("tasks", task(1, "logs/a") + &task(2, "latest/a") + &task(3, "b") + &task(4, "c"));
    let done = world.packhorse(RUN.into_iter().chain(["--tasks", "tasks"]));
    assert_eq!(done.code, 0, "{done:?}");
    // As if it had been killed when it had read two lines.
    let database = rusqlite::Connection::open(world.database()).unwrap();
    let sql = "UPDATE run SET ended = NULL, exit = NULL, input_complete = 0; \
               DELETE FROM task WHERE id & 0xffffffff > 2; DELETE FROM tally";
    database.execute_batch(sql).unwrap();
    drop(database);
    fs_err::remove_file(world.work().join("out")).unwrap();
    fs_err::remove_dir_all(world.work().join("latest")).unwrap();
    std::os::unix::fs::symlink("logs", world.work().join("latest")).unwrap();
    let done = world.packhorse(["resume"]);
    assert!(done.code == 0 && done.stdout.contains("1.4 started: echo 4"), "{done:?}");
    assert_eq!(world.read("out"), "3\n4\n");
}
