//! A file system without locks, as a filter of system calls pretends it.

use std::process::Command;

use packhorse_test_parts::needs;

use crate::support::{World, finish};

/// A program for the kernel (classic BPF) that answers `flock` with this error, and lets every
/// other system call through.
fn without_flock(errno: i32) -> Vec<u8> {
    const ALLOW: u32 = 0x7fff_0000;
    const ERROR: u32 = 0x0005_0000;
    let flock = u32::try_from(libc::SYS_flock).unwrap();
    let errno = u32::try_from(errno).unwrap();
    // Operation, jumps if true and if false, operand.
    let program: [(u16, u8, u8, u32); 4] = [
        // Loads the number of the call.
        (0x20, 0, 0, 0),
        (0x15, 0, 1, flock),
        (0x06, 0, 0, ERROR | errno),
        (0x06, 0, 0, ALLOW),
    ];
    let line = |(code, yes, no, operand): (u16, u8, u8, u32)| {
        [&code.to_ne_bytes()[..], &[yes, no], &operand.to_ne_bytes()].concat()
    };
    program.into_iter().flat_map(line).collect()
}

#[test]
fn a_file_that_cannot_be_locked_is_named_with_the_way_out() {
    needs!(Podman);
    for (errno, word) in [
        (libc::ENOSYS, "Function not implemented"),
        (libc::EOPNOTSUPP, "Operation not supported"),
        (libc::ENOLCK, "No locks available"),
    ] {
        let world = World::new();
        let filter = world.write("filter", without_flock(errno));
        let without = |words: &[&str]| {
            let own = world.command(words);
            let mut command: Command = world.program("sh", ["-c"]);
            let bwrap = format!(
                "exec bwrap --dev-bind / / --seccomp 9 \"$0\" \"$@\" 9< {}",
                filter.display()
            );
            command.arg(bwrap).arg(own.get_program()).args(own.get_args());
            finish(command)
        };
        let run = ["run", "--slots", "1", "--", "touch", "started"];
        let done = without(&run);
        let told = |home: &str| format!("error: `{home}/runs/1/lock` cannot be locked: {word}");
        let home = world.home().display().to_string();
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(done.stderr.starts_with(&told(&home)), "{done:?}");
        assert!(done.stderr.contains("\nhint: its file system has no locks"), "{done:?}");
        assert!(done.stderr.contains("set PACKHORSE_HOME to"), "{done:?}");
        assert!(!world.work().join("started").exists());
        // The number of the first run is used up. A run that is there says the same.
        assert_eq!(world.packhorse(["run", "--slots", "1", "--", "true"]).code, 0);
        for words in [&["resume", "2"][..], &["stop", "2"], &["ls"]] {
            let done = without(words);
            assert_eq!(done.code, 2, "{done:?}");
            assert!(done.stderr.contains("cannot be locked"), "{done:?}");
        }
    }
}
