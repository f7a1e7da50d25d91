//! `cargo xtask test`, with a stand-in for cargo and a PATH with nothing on it
//! but what a test puts there.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stub/cargo");

/// A machine on which all is there, until a test takes something away.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn complete() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let machine = Self { folder };
        // A link, not a copy: a file just written may not be executable yet
        // while another test's thread is about to start a process.
        let xtask = machine.path("target/debug/xtask");
        fs_err::hard_link(env!("CARGO_BIN_EXE_xtask"), xtask).unwrap();
        machine.write("path/tmux", "");
        machine.write("target/test-venv/bin/python", "");
        let requirements = "simple-gpu-scheduler==0.1.4\nnvidia-ml-py\nPyYAML\ncw2==2.5.1";
        let stamp = "target/test-venv/packhorse-requirements.txt";
        machine.write(stamp, requirements);
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

    fn xtask(&self) -> Command {
        let mut command = Command::new(self.path("target/debug/xtask"));
        command.arg("test").env_clear().env("CARGO", STUB);
        command.env("STUB_LOG", self.path("log"));
        command.env("PATH", self.folder.path().join("path"));
        command
    }

    /// What cargo was asked for, apart from the search for its parts.
    fn steps(&self) -> Vec<String> {
        let log = fs_err::read_to_string(self.path("log")).unwrap();
        let steps = log.lines().filter(|line| !line.contains(" --version "));
        let steps = steps.map(|line| line.split(" python=").next().unwrap());
        steps.map(String::from).collect()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_check_runs_in_order_with_the_arguments_for_the_tests() {
    let machine = Machine::complete();
    let output = machine.xtask().args(["--", "-p", "x"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(
        machine.steps(),
        [
            "fmt --all --check",
            "clippy --workspace --all-targets -- -D warnings",
            "build --workspace --lib --bins --examples",
            "nextest run --workspace -p x",
            "test --workspace --doc --quiet",
        ]
    );
    assert!(!text(&output).contains("missing"), "{}", text(&output));
}

#[test]
fn cargo_deny_checks_too_where_it_is_installed() {
    let machine = Machine::complete();
    machine.write("path/cargo-deny", "");
    machine.xtask().output().unwrap();
    let last = machine.steps().pop();
    assert_eq!(last.as_deref(), Some("deny check licenses bans sources"));
}

#[test]
fn tests_learn_where_python_and_the_original_are() {
    let machine = Machine::complete();
    machine.xtask().output().unwrap();
    let log = fs_err::read_to_string(machine.path("log")).unwrap();
    let bin = machine.path("target/test-venv/bin/python");
    let bin = bin.parent().map(Path::display).unwrap();
    let told = format!("nextest run --workspace python={bin}/python original={bin}\n");
    assert!(log.contains(&told), "{log}");
}

#[test]
fn first_failure_ends_it_with_its_exit_code() {
    let machine = Machine::complete();
    let mut xtask = machine.xtask();
    let output = xtask.env("STUB_FAILS", "clippy").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(machine.steps().len(), 2);
    let text = text(&output);
    assert!(text.contains("failed (exit status: 7): cargo clippy"), "{text}");
    assert!(text.contains(" s  cargo fmt --all --check"), "{text}");
}

#[test]
fn missing_part_is_named_with_what_brings_it_and_the_checks_go_on() {
    let machine = Machine::complete();
    fs_err::remove_file(machine.path("path/tmux")).unwrap();
    let output = machine.xtask().output().unwrap();
    assert!(output.status.success());
    assert_eq!(machine.steps().len(), 5);
    let text = text(&output);
    let hint = "missing: tmux\n  hint: no apt-get here: install what Debian calls tmux\n";
    assert!(text.contains(hint), "{text}");
    assert!(text.contains("missing: a Python for the tests of the package\n  hint: install"));
}

#[test]
fn missing_part_is_a_failure_in_ci() {
    let machine = Machine::complete();
    fs_err::remove_file(machine.path("path/tmux")).unwrap();
    let output = machine.xtask().env("CI", "true").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(machine.steps(), [""; 0]);
    assert!(text(&output).contains("missing: tmux"));
}

#[test]
fn without_nextest_the_tests_run_by_cargo_itself() {
    let machine = Machine::complete();
    let mut xtask = machine.xtask();
    let output = xtask.env("STUB_FAILS", "nextest").output().unwrap();
    assert!(output.status.success());
    let steps = machine.steps();
    assert_eq!(steps[3], "test --workspace --lib --bins --tests");
    let hint = "hint: cargo install cargo-nextest --locked";
    assert!(text(&output).contains(hint));
}
