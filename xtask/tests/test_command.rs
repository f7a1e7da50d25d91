//! `cargo xtask test`, with a stand-in for cargo and a PATH with nothing on it
//! but what a test puts there.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// All but the parts that are missing on no machine of these tests.
const ALL_BUT_PYTHON: &str = "slurm,slurm-24,torch,podman,root,two-users,namespaces,cgroups-1,\
                              cgroups-2,cores,programs";

fn stub(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/stub", name].iter().collect()
}

/// A machine with two tests that pass, and with nothing that tests may need.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let machine = Self { folder };
        // A link, not a copy: a file just written may not be executable yet
        // while another test's thread is about to start a process.
        let xtask = machine.path("target/debug/xtask");
        fs_err::hard_link(env!("CARGO_BIN_EXE_xtask"), xtask).unwrap();
        machine.path("crates/some/Cargo.toml");
        machine.write("tests/first", "true");
        machine.write("tests/second", "true");
        machine
    }

    /// A path on it, in a folder that exists.
    fn path(&self, path: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    fn write(&self, path: &str, text: &str) {
        fs_err::write(self.path(path), text).unwrap();
    }

    /// `cargo xtask test` without the tests of any part.
    fn xtask(&self) -> Command {
        self.with_environment(Command::new(self.path("target/debug/xtask")))
    }

    fn with_environment(&self, mut command: Command) -> Command {
        command.arg("test").env_clear().env("CARGO", stub("cargo"));
        command.env("STUB_LOG", self.path("log"));
        command.env("STUB_TESTS", stub("tests"));
        command.env("STUB_MACHINE", self.folder.path());
        command.env("PATH", self.folder.path().join("path"));
        command.env("PACKHORSE_SKIP", "all");
        command
    }

    /// What cargo was asked for, apart from the search for its parts.
    fn steps(&self) -> Vec<String> {
        let log = fs_err::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().filter(|line| !line.contains("--version")).map(String::from).collect()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

const BUILD_TESTS: &str = "test --workspace --no-run --message-format=json-render-diagnostics";

#[test]
fn every_check_runs_in_order() {
    let machine = Machine::new();
    let output = machine.xtask().output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        machine.steps(),
        [
            "fmt --all --check",
            "clippy --workspace --all-targets -- -D warnings",
            "build --workspace --lib --bins --examples",
            BUILD_TESTS,
            "test --workspace --doc --quiet",
        ]
    );
    assert!(text.contains("Rust: 2 passed, 0 failed, 0 left out"), "{text}");
    assert!(text.contains(" s  cargo fmt --all --check"), "{text}");
    assert!(text.contains("cargo-deny is not installed: licences are not checked"), "{text}");
}

#[test]
fn cargo_deny_checks_too_where_it_is_installed() {
    let machine = Machine::new();
    machine.write("path/cargo-deny", "");
    machine.xtask().output().unwrap();
    let last = machine.steps().pop();
    assert_eq!(last.as_deref(), Some("deny check licenses bans sources"));
}

#[test]
fn only_tests_with_a_word_in_their_names_run_if_there_is_one() {
    let machine = Machine::new();
    machine.write("tests/first", "exit 1");
    let output = machine.xtask().args(["--", "econd"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("Rust: 1 passed"), "{}", text(&output));
    assert_eq!(machine.steps().pop().as_deref(), Some(BUILD_TESTS));
    let output = machine.xtask().args(["--", "third"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a word that is in no name tests nothing");
}

#[test]
fn a_step_that_fails_ends_it() {
    let machine = Machine::new();
    let mut xtask = machine.xtask();
    let output = xtask.env("STUB_FAILS", "clippy").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(machine.steps().len(), 2);
    let text = text(&output);
    assert!(text.contains("failed: cargo clippy"), "{text}");
}

#[test]
fn a_test_that_fails_is_shown_with_what_it_wrote() {
    let machine = Machine::new();
    machine.write("tests/first", "echo to out; echo to err >&2; exit 101");
    machine.write("tests/second", "echo nobody wants to know");
    let output = machine.xtask().output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(text.contains("failed: some first: exit status: 101 after"), "{text}");
    assert!(text.contains("\nto out\nto err\n"), "{text}");
    assert!(text.contains("\nRust: 1 passed, 1 failed, 0 left out\n"), "{text}");
    assert!(!text.contains("nobody"), "{text}");
    assert!(!machine.steps().concat().contains("--doc"), "the first failure ends it");
}

#[test]
fn tests_begin_with_the_signals_defaults_whatever_a_script_ignores() {
    let machine = Machine::new();
    machine.write("tests/first", "kill -INT $$; echo ignored");
    let mut shell = Command::new("/bin/sh");
    let script = "trap '' INT; exec \"$@\"";
    shell.args(["-c", script, "sh"]).arg(machine.path("target/debug/xtask"));
    let output = machine.with_environment(shell).output().unwrap();
    let text = text(&output);
    assert!(text.contains("failed: some first: signal: 2 (SIGINT)"), "{text}");
}

#[test]
fn a_signal_ends_the_tests_that_run() {
    let machine = Machine::new();
    let pipe = machine.path("pipe");
    for pipe in [&pipe, &machine.path("never")] {
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, 0o600.into()).unwrap();
    }
    // Our group is not the tests' own: what reads the pipe has to end for us to see its end.
    machine.write(
        "tests/first",
        "exec 3>\"$STUB_MACHINE/pipe\"; echo $$ >&3; : <\"$STUB_MACHINE/never\"",
    );
    let mut child = machine.xtask().stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut pipe = std::io::BufReader::new(fs_err::File::open(pipe).unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut pipe, &mut first).unwrap();
    let xtask = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(xtask, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut pipe, &mut rest).unwrap();
    assert_eq!(rest, "", "it was ended");
}

#[test]
fn what_is_left_out_is_told_to_the_tests_and_counted_at_the_end() {
    let machine = Machine::new();
    // As a test does that starts itself again.
    let leave = "echo slurm tests one >>$PACKHORSE_SKIPPED";
    machine.write("tests/first", &format!("{leave}; {leave}"));
    machine.write("tests/second", "true");
    machine.write("tests/third", "echo slurm python3.11 two >>$PACKHORSE_SKIPPED");
    let output = machine.xtask().output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("left out: tests of slurm: PACKHORSE_SKIP names it\n"), "{text}");
    let at_end = "left out: 2 tests of slurm: PACKHORSE_SKIP names it\n\
                  left out: 0 tests of slurm-24: PACKHORSE_SKIP names it\n";
    assert!(text.contains(at_end), "a test that says it twice counts once: {text}");
    assert!(text.contains("\nRust: 2 passed, 0 failed, 1 left out\n"), "{text}");
    let last = "left out: all of python/tests: PACKHORSE_SKIP names it\n";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn it_goes_on_without_the_tests_of_a_part_that_cannot_be_installed() {
    let machine = Machine::new();
    fs_err::os::unix::fs::symlink(stub("python3"), machine.path("path/python3")).unwrap();
    machine.write("tests/first", "case ,$PACKHORSE_SKIP, in *,python,*) ;; *) exit 1 ;; esac");
    let mut xtask = machine.xtask();
    let output = xtask.env("PACKHORSE_SKIP", ALL_BUT_PYTHON).output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let announced =
        text.find("to be installed in target/:\n  simple-gpu-scheduler==0.1.4").unwrap();
    let begun = text.find("installing ").unwrap();
    assert!(announced < begun, "it is said before: {text}");
    assert!(text.contains("missing: a Python virtual environment\n  hint: this failed"), "{text}");
    assert!(text.contains("no room left"), "{text}");
    assert!(text.contains("\nleft out: tests of python: no "), "{text}");
    assert!(text.contains("\nleft out: 0 tests of python: no "), "{text}");
    assert!(text.contains("\nleft out: all of python/tests: no "), "{text}");
}

#[test]
fn in_ci_nothing_may_be_left_out_or_missing() {
    let machine = Machine::new();
    fs_err::os::unix::fs::symlink(stub("python3"), machine.path("path/python3")).unwrap();
    for (skip, told) in [
        ("torch", "with CI=true no test is left out: unset PACKHORSE_SKIP"),
        ("", "with CI=true a missing part is a failure"),
    ] {
        let mut xtask = machine.xtask();
        let output = xtask.env("CI", "true").env("PACKHORSE_SKIP", skip).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(machine.steps(), [""; 0]);
        assert!(text(&output).contains(told), "{}", text(&output));
    }
}

#[test]
fn an_unknown_part_is_refused() {
    let machine = Machine::new();
    let output = machine.xtask().env("PACKHORSE_SKIP", "slurm,tourch").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("there is no part `tourch`"), "{errors}");
    assert_eq!(machine.steps(), [""; 0]);
}
