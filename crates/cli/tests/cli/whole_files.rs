//! What may be read, and how much of it.

use std::os::unix::fs::symlink;

use fs_err::File;

use crate::support::{Done, World, finish};

/// Runs a line of Bash, in which `$0` is `packhorse`.
fn shell(world: &World, line: &str) -> Done {
    finish(world.program("bash", ["-c", line, env!("CARGO_BIN_EXE_packhorse")]))
}

/// Fails unless the command was refused with these words.
fn assert_refused(words: &[&str], done: &Done, wanted: &[&str]) {
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{words:?}: {done:?}");
    for text in wanted {
        assert!(done.stderr.contains(text), "{words:?}: {}", done.stderr);
    }
}

#[test]
fn devices_are_no_input() {
    let world = World::new();
    for name in ["zero.yaml", "zero.csv", "zero.jsonl", "zero.txt"] {
        symlink("/dev/zero", world.work().join(name)).unwrap();
    }
    for words in [
        &["exp", "/dev/zero"][..],
        &["exp", "zero.yaml", "--list"],
        &["csv", "/dev/zero", "--slots", "1"],
        &["csv", "zero.csv", "--slots", "1", "--consume"],
        &["grid", "zero.yaml", "--slots", "1"],
        &["run", "/dev/zero", "--slots", "1"],
        &["run", "--tasks", "zero.jsonl", "--slots", "1"],
        &["plan", "zero.yaml", "--slots", "1"],
        &["plan", "zero.csv", "--slots", "1"],
        &["plan", "zero.txt", "--slots", "1"],
        &["plan", "zero.jsonl", "--slots", "1"],
    ] {
        let done = world.packhorse(words);
        assert_refused(words, &done, &["zero", "is a device, not a regular file"]);
    }
}

#[test]
fn settings_are_no_pipe_that_may_have_no_writer() {
    let world = World::new();
    world.fifo("fifo");
    world.write("bytes", b"\xff");
    let run = ["run", "--slots", "1", "--", "true"];
    for (variable, value, words, wanted) in [
        ("UNUSED", "", &["--config", "fifo", "config"][..], "fifo` is a pipe, not a regular file"),
        ("UNUSED", "", &["--config", ".", "config"], "is a folder, not a regular file"),
        ("UNUSED", "", &["--config", "bytes", "config"], "bytes` is not UTF-8"),
        ("PACKHORSE_SETTINGS", "fifo", &["config"], "fifo` is a pipe, not a regular file"),
        ("PACKHORSE_OOM_TEXTS", "fifo", &run, "`fifo` is a pipe, not a regular file"),
    ] {
        let mut command = world.command(words);
        command.env(variable, value);
        let done = finish(command);
        assert_refused(words, &done, &[wanted]);
        assert_eq!(done.stderr.matches('`').count(), 2, "the file is named once: {done:?}");
    }
    let line = "$0 config --config <(printf '[task]\\nretries = 7\\n')";
    let done = shell(&world, line);
    assert!(done.code == 0 && done.stdout.contains('7'), "{done:?}");
}

#[test]
fn an_import_is_a_regular_file_and_nothing_is_waited_for() {
    let world = World::new();
    world.fifo("fifo");
    world.write("nothing", "");
    for (path, wanted) in [
        ("fifo", "fifo` is a pipe, not a regular file"),
        ("/dev/zero", "`/dev/zero` is a device, not a regular file"),
        ("/dev/tty", "/dev/tty"),
        (".", "is a folder, not a regular file"),
    ] {
        world.write("exp.yml", format!("name: one\npath: out\nimport_path: {path}\n"));
        let words = ["exp", "exp.yml", "--list"];
        assert_refused(&words, &world.packhorse(words), &["exp.yml:3", wanted]);
    }
}

#[test]
fn a_file_that_is_read_as_a_whole_has_a_limit_that_is_named() {
    let world = World::new();
    for (name, megabytes, words) in [
        ("large.yaml", 64, &["grid", "large.yaml", "--list"][..]),
        ("large.yaml", 64, &["exp", "large.yaml", "--list"]),
        ("large.yaml", 64, &["plan", "large.yaml", "--slots", "1"]),
        ("large.csv", 256, &["csv", "large.csv", "--slots", "1"]),
    ] {
        // It takes no room on the disk.
        let file = File::create(world.work().join(name)).unwrap();
        file.set_len((megabytes << 20) + 1).unwrap();
        let limit = format!("`{name}` is larger than {megabytes} MiB");
        let limit = limit.trim_start_matches('`');
        assert_refused(words, &world.packhorse(words), &[limit]);
    }
    let mut command = world.command(["exp", "-", "--list"]);
    command.stdin(File::open("/dev/zero").unwrap().into_file());
    let wanted = ["`standard input` is larger than 64 MiB"];
    assert_refused(&["exp", "-"], &finish(command), &wanted);
}

#[test]
fn a_stream_without_an_end_of_line_is_given_up() {
    let world = World::new();
    let done = shell(&world, "cat /dev/zero | $0 run --slots 1 -q -");
    assert_eq!(done.code, 1, "{done:?}");
    let wanted = "a line of standard input is longer than 256 MiB: nothing more is read of it";
    assert!(done.stderr.contains(wanted) || done.stdout.contains(wanted), "{done:?}");
}

#[test]
fn pipes_are_read_by_every_door() {
    let world = World::new();
    world.write("exp.yml", "name: one\npath: out\nrepetitions: 2\nparams: {a: 1}\n");
    world.write("rows.csv", "Directory,Executable,Filename,Epochs,Priority\n.,true,rows.csv,1,0\n");
    world.write("commands", "true\n");
    for (line, wanted) in [
        ("$0 exp <(cat exp.yml) --list", "one"),
        ("cat exp.yml | $0 exp - --list", "one"),
        ("$0 run --slots 1 <(cat commands) <(cat commands)", "2 succeeded"),
        ("cat commands | $0 run --slots 1 -", "1 succeeded"),
        ("$0 plan run --slots 1 <(cat commands)", "expected end"),
        ("$0 csv --slots 1 <(cat rows.csv)", "1 succeeded"),
        ("$0 run --slots 1 /dev/null", "0 succeeded"),
    ] {
        let done = shell(&world, line);
        assert_eq!(done.code, 0, "{line}: {done:?}");
        assert!(done.stdout.contains(wanted), "{line}: {done:?}");
    }
}
