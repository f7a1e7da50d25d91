//! What can be typed, and what is said when it cannot be understood.

use crate::support::{World, finish_with};

#[test]
fn help_and_version_are_there_for_every_subcommand() {
    let world = World::new();
    let help = world.packhorse(["--help"]);
    assert_eq!(help.code, 0);
    let verbs = [
        "run",
        "sweep",
        "gpus",
        "ls",
        "show",
        "logs",
        "retry",
        "resume",
        "stop",
        "plan",
        "csv",
        "grid",
        "probe",
        "peaks",
        "why",
        "mps",
        "export",
        "config",
        "completions",
        "man",
    ];
    for verb in verbs {
        assert!(help.stdout.contains(&format!("\n  {verb} ")), "{verb}: {}", help.stdout);
        let done = world.packhorse([verb, "--help"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{verb}");
        assert!(done.stdout.contains(&format!("Usage: packhorse {verb}")), "{}", done.stdout);
    }
    let version = world.packhorse(["--version"]);
    assert_eq!(version.stdout, concat!("packhorse ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(!world.home().exists(), "help needs no state");
}

#[test]
fn what_is_not_understood_is_wrong_usage() {
    let world = World::new();
    for (words, wanted) in [
        (&[][..], "Usage: packhorse"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["swep"], "'sweep'"),
        (&["run", "--frobnicate"], "--frobnicate"),
        (&["run", "--gpus", "0", "--slots", "1"], "cannot be used with"),
        (&["run", "no-such-file"], "no-such-file"),
    ] {
        let done = world.packhorse(words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{words:?}");
        assert!(done.stderr.contains(wanted), "{words:?}: {}", done.stderr);
    }
}

#[test]
fn a_file_and_a_command_at_once_are_refused_in_any_order() {
    let world = World::new();
    world.write("commands.txt", "touch out\n");
    for words in [
        "run --gpus 0 commands.txt -- touch out",
        "run commands.txt --gpus 0 -- touch out",
        "run --gpus 0 -- touch out commands.txt",
    ] {
        let done = world.packhorse(words.split(' '));
        let one_command = words.ends_with("commands.txt");
        assert_eq!(done.code, if one_command { 0 } else { 2 }, "{words}: {done:?}");
        assert_eq!(world.work().join("out").exists(), one_command, "{words}");
        if !one_command {
            assert!(
                done.stderr.contains("commands.txt") || done.stderr.contains("FILE"),
                "{done:?}"
            );
        }
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let done = world.packhorse(["completions", shell]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{shell}");
        assert!(done.stdout.contains("sampling-mode"), "{shell}");
    }
    let bash = world.packhorse(["completions", "bash"]).stdout;
    let checked = finish_with(world.program("bash", ["-n"]), bash);
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));

    let done = world.packhorse(["man", "new/man1"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    let page = world.read("new/man1/packhorse-run.1");
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    assert!(page.contains("per\\-gpu") || page.contains("per-gpu"), "{page}");
    assert!(world.work().join("new/man1/packhorse.1").exists());
}

#[test]
fn numbers_that_are_none_are_refused() {
    let world = World::new();
    for (option, value, wanted) in [
        ("--thread-percentage", "nan", "not a number from 0 to 100"),
        ("--thread-percentage", "inf", "not a number from 0 to 100"),
        ("--ignore-process", "uid:ada", "`ada` is not the number of a user"),
        ("--ignore-process", "uid:", "not the number of a user"),
        ("--ignore-process", "pid:x", "`x` is not the number of a process"),
        ("--ignore-process", "99999999999", "not the number of a process"),
        ("--ignore-process", "", "it names nobody"),
    ] {
        let done = world.packhorse(["run", "--gpus", "0", "--mps", option, value, "--", "true"]);
        assert_eq!(done.code, 2, "{option} {value}: {done:?}");
        assert!(done.stderr.contains(wanted), "{option} {value}: {done:?}");
    }
    // Beyond its bounds it is taken for these, and a program may be called anything.
    for (option, value) in [
        ("--thread-percentage", "-3"),
        ("--thread-percentage", "50%"),
        ("--ignore-process", "uid:0"),
        ("--ignore-process", "pid:1"),
        ("--ignore-process", "1"),
        ("--ignore-process", "a:b"),
    ] {
        let done = world.packhorse(["run", "--gpus", "0", "--mps", option, value, "--", "true"]);
        assert_eq!(done.code, 0, "{option} {value}: {done:?}");
    }
}

#[test]
fn help_says_what_a_subcommand_does() {
    let world = World::new();
    for (verb, does) in [
        ("run", "Run commands, as many at a time as fit on the GPUs\n"),
        ("sweep", "Make a command for each combination of parameters\n"),
    ] {
        for words in [["help", verb], [verb, "--help"], [verb, "-h"]] {
            let help = world.packhorse(words).stdout;
            assert!(help.starts_with(does), "{help}");
        }
        assert_eq!(world.packhorse(["man", "pages"]).code, 0);
        let page = world.read(&format!("pages/packhorse-{verb}.1"));
        assert!(page.contains(&format!(" \\- {does}")), "{page}");
    }
    let sweep = world.packhorse(["sweep", "--help"]).stdout;
    assert!(sweep.contains("--order"), "{sweep}");
    // In this order it works; `-p` would take a template behind it for a value.
    let usage = "Usage: packhorse sweep TEMPLATE -p <NAME> <VALUE>... [OPTIONS]\n";
    assert!(sweep.contains(usage), "{sweep}");
    let made = world.packhorse(["sweep", "x {a}", "-p", "a", "1", "2", "--order", "grid"]);
    assert_eq!(made.stdout, "x 1\nx 2\n");
    for (verb, says) in [
        ("retry", "tasks that were skipped because of them"),
        ("resume", "those that ended, whether they succeeded or failed, do\nnot"),
        ("probe", "to its end, on a GPU to itself"),
    ] {
        let help = world.packhorse([verb, "--help"]).stdout;
        assert!(help.contains(says), "{help}");
    }
}

#[test]
fn what_was_probably_meant_is_said() {
    let world = World::new();
    world.write("train.sh", "true\n");
    world.write("tasks", "# packhorse gpus=0.5\ntouch ran\n");
    let cases: [(&[&str], &str); 5] = [
        (&["run", "--slots", "1", "sh", "train.sh"], "`packhorse run -- sh …`"),
        (&["run", "--gpus", "tasks.txt"], "`tasks.txt` is not a GPU id"),
        (&["run", "--gpus", "3-1", "train.sh"], "`3-1` is not a GPU id"),
        (&["run", "--gpus", "0", "tasks"], "a directive starts with `#packhorse`"),
        (&["peaks", "--forget"], "`packhorse peaks --forget --all` everything"),
    ];
    for (words, said) in cases {
        let done = world.packhorse(words);
        assert_eq!(done.code, 2, "{words:?} {done:?}");
        assert!(done.stderr.contains(said), "{words:?} {done:?}");
    }
    assert!(!world.work().join("ran").exists());
}

#[test]
fn who_types_a_negative_number_is_told_what_is_wrong_with_it() {
    let world = World::new();
    let counted = "tip: runs and tasks are counted from 1\n";
    for (words, tip) in [
        ("logs -1", counted),
        ("why -1", counted),
        ("show -1.5", counted),
        ("resume -1", counted),
        ("run --slots -1 -- true", "tip: no value of '--slots' begins with '-'\n"),
        ("run -g -1 -- true", "tip: no value of '-g' begins with '-'\n"),
        ("run --gpus -1 -- true", "tip: no value of '--gpus' begins with '-'\n"),
        ("run --jsn -- true", "tip: a similar argument exists: '--json'\n"),
    ] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(tip), "{done:?}");
    }
    // Neither of these is meant as a value.
    for words in ["run --json -1", "run --frobnicate 1", "logs -x"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{done:?}");
        assert!(!done.stderr.contains("tip:"), "{done:?}");
    }
}

#[test]
fn a_range_of_gpus_is_all_of_them() {
    let world = World::new();
    let done = world.packhorse(["run", "--gpus", "0-2,5", "--", "true"]);
    assert!(done.stdout.contains("on GPUs 0, 1, 2, 5"), "{done:?}");
}

#[test]
fn a_command_with_options_that_should_stand_after_two_dashes_is_recognised() {
    let world = World::new();
    let done = world.packhorse(["run", "sh", "train.sh", "--lr", "0.1"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("packhorse run -- sh …"), "{done:?}");
}

#[test]
fn a_file_is_no_gpu_even_if_its_name_has_no_dot() {
    let world = World::new();
    world.write("cmds", "true\n");
    let done = world.packhorse(["run", "--gpus", "cmds"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("`cmds` is a file, not a GPU"), "{done:?}");
}

#[test]
fn what_is_wrong_with_a_number_is_said_in_plain_words() {
    let world = World::new();
    for (option, number, wrong) in [
        ("--retries", "many", "it is not a whole number"),
        ("--retries", "1.5", "it is not a whole number"),
        ("--retries", "5000000000", "it is too large"),
        ("--slots", "0", "it must be at least 1"),
        ("--jobs", "0", "it must be at least 1"),
    ] {
        let done = world.packhorse(["run", option, number, "--", "true"]);
        assert_eq!(done.code, 2, "{done:?}");
        let wanted = format!("error: invalid value '{number}' for '{option} <N>': {wrong}\n");
        assert!(done.stderr.starts_with(&wanted), "{done:?}");
    }
}

#[test]
fn an_empty_name_forgets_nothing() {
    let world = World::new();
    let done = world.packhorse(["peaks", "--forget", ""]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("nothing is forgotten"), "{done:?}");
}
