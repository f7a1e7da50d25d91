//! Limits of the shell under which nothing can run.

use std::os::unix::fs::chown;

use crate::support::{Done, World, finish};

/// An ordinary user: root is not held to the limit on processes.
const USER: u32 = 54_321;

/// `packhorse run` of one task, after these words of Bash.
fn run_after(world: &World, words: &str) -> Done {
    world.write("commands", "true\n");
    let line = format!("{words} $0 run --slots 1 commands");
    finish(world.program("bash", ["-c", &line, env!("CARGO_BIN_EXE_packhorse")]))
}

#[test]
fn a_limit_that_is_too_low_is_named() {
    packhorse_test_parts::needs!(Root);
    for (limit, wanted) in [
        ("ulimit -f 0; exec", "the limit on the size of files is 0 KiB: `ulimit -f unlimited`"),
        ("ulimit -s 100; exec", "the limit on the stack is 100 KiB"),
        (
            "exec setpriv --reuid 54321 --regid 54321 --clear-groups prlimit --nproc=1",
            "the limit on this user's processes and threads is 1",
        ),
    ] {
        let world = World::new();
        chown(world.work().parent().unwrap(), Some(USER), Some(USER)).unwrap();
        chown(world.work(), Some(USER), Some(USER)).unwrap();
        let done = run_after(&world, limit);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{limit}: {done:?}");
        assert!(done.stderr.contains(wanted), "{limit}: {}", done.stderr);
        assert!(done.stderr.contains("hint: "), "{limit}: {}", done.stderr);
    }
}

/// Before a task has run whose result could not be stored; and what needs no thread, works.
#[test]
fn where_no_thread_can_be_started_no_task_is_and_runs_can_be_looked_at() {
    packhorse_test_parts::needs!(Root);
    let world = World::new();
    for path in [world.work().parent().unwrap(), &world.work()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let as_user = "exec setpriv --reuid 54321 --regid 54321 --clear-groups";
    world.write("commands", "touch ran; echo out\n");
    let limited = |limit: &str, words: &str| {
        let line = format!("{as_user} {limit} $0 {words}");
        finish(world.program("bash", ["-c", &line, env!("CARGO_BIN_EXE_packhorse")]))
    };
    let done = limited("prlimit --nproc=1", "run --slots 1 commands");
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    assert!(done.stderr.contains("cannot start a thread that stores results: "), "{done:?}");
    assert!(!world.work().join("ran").exists());
    assert_eq!(limited("", "run --slots 1 commands").code, 0);
    for words in ["ls", "show", "logs 2.1", "--version"] {
        let done = limited("prlimit --nproc=1", words);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{words}: {done:?}");
    }
    let done = limited("prlimit --nproc=1", "stop 2");
    assert!(!done.stderr.contains("thread"), "{done:?}");
}

#[test]
fn tasks_get_the_default_of_the_signal_that_ends_writers_of_large_files() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "2"], "kill -XFSZ $$; exit 0\n");
    assert!(done.stdout.contains("SIGXFSZ"), "{done:?}");
}
