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
            "this user may have 1 processes and threads",
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

#[test]
fn tasks_get_the_default_of_the_signal_that_ends_writers_of_large_files() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "2"], "kill -XFSZ $$; exit 0\n");
    assert!(done.stdout.contains("SIGXFSZ"), "{done:?}");
}
