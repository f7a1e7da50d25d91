//! A state folder that a group had access to, with a member who is not its owner.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use packhorse_test_parts::needs;

use super::{A, B, GROUP, SharedMachine, files_below, set_mode};
use crate::support::{Done, finish};

/// The command that each user runs.
const TASK: [&str; 5] = ["run", "--slots", "1", "--", "true"];

struct OpenedHome {
    machine: SharedMachine,
    home: PathBuf,
}

impl OpenedHome {
    /// A's state folder, with a run in it.
    fn new() -> Self {
        let machine = SharedMachine::new();
        let home = machine.folder("state", A, GROUP, 0o700);
        let opened = Self { machine, home };
        assert_eq!(opened.packhorse(&TASK).code, 0);
        opened
    }

    /// Gives everything in it to the group.
    fn open(&self) {
        for path in files_below(&self.home).iter().chain([&self.home]) {
            chown(path, None, Some(GROUP)).unwrap();
            set_mode(path, if path.is_dir() { 0o2770 } else { 0o660 });
        }
    }

    fn packhorse(&self, words: &[&str]) -> Done {
        let mut command = self.machine.command("home", words);
        command.env("PACKHORSE_HOME", &self.home);
        finish(command)
    }

    /// Carries out a script in the state folder as B, who is in the group.
    fn as_b(&self, script: &str) -> bool {
        let mut command = Command::new("/bin/sh");
        let script = format!("cd {}; {script}", self.home.display());
        command.args(["-ec", &script]).uid(B).gid(GROUP);
        command.status().unwrap().success()
    }

    /// B's own state folder, after runs of these scripts.
    fn of_b(&self, scripts: &[&str]) -> PathBuf {
        let home = self.machine.folder("state-of-b", B, GROUP, 0o700);
        for script in scripts {
            let mut command = Command::new(self.machine.path("packhorse"));
            command.args(["run", "--slots", "1", "--", "sh", "-c", script]).uid(B).gid(GROUP);
            finish({
                command.env("PACKHORSE_HOME", &home).env("PACKHORSE_USE_LEASES", "0");
                command
            });
        }
        home
    }

    fn refused(&self, words: &[&str], planted: &Path) {
        let done = self.packhorse(words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        let told = format!("`{}` in it belongs to user {B}\nhint: ", planted.display());
        assert!(done.stderr.contains(&told), "{done:?}");
    }
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn what_another_user_put_there_is_refused_until_it_is_removed() {
    needs!(TwoUsers);
    let opened = OpenedHome::new();
    let of_b = opened.of_b(&[": evil"]);
    opened.open();
    assert!(opened.as_b(&format!(
        "rm packhorse.db*; cp {}/packhorse.db* .; chmod 666 packhorse.db*",
        of_b.display()
    )));
    let database = opened.home.join("packhorse.db");
    for words in [&["ls"][..], &["ls"], &["show"], &TASK] {
        let done = opened.packhorse(words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{words:?}: {done:?}");
        let told = format!("in it belongs to user {B}\nhint: ");
        assert!(done.stderr.contains(&told), "{words:?}: {done:?}");
        assert!(!opened.as_b("touch more"), "it is private already");
    }
    // A person may make it private without a look at what is in it.
    set_mode(&opened.home, 0o700);
    for words in [&["ls"][..], &TASK] {
        opened.refused(words, &database);
    }
    for entry in fs_err::read_dir(&opened.home).unwrap() {
        let path = entry.unwrap().path();
        if fs_err::metadata(&path).unwrap().uid() == B {
            fs_err::remove_file(path).unwrap();
        }
    }
    assert_eq!(opened.packhorse(&["ls"]).code, 0);
}

#[test]
fn a_state_folder_is_usable_once_what_was_planted_is_gone() {
    needs!(TwoUsers);
    let opened = OpenedHome::new();
    opened.open();
    assert!(opened.as_b("mkdir runs/2"));
    for _ in 0..2 {
        opened.refused(&["ls"], &opened.home.join("runs/2"));
        assert_eq!(mode(&opened.home), 0o1700);
    }
    fs_err::remove_dir(opened.home.join("runs/2")).unwrap();
    let done = opened.packhorse(&["ls"]);
    assert!(done.code == 0 && done.stdout.contains("true"), "{done:?}");
    let told = "was open to other users: it and its contents are private again\n";
    assert!(done.stderr.contains(told), "{done:?}");
    for path in files_below(&opened.home).iter().chain([&opened.home]) {
        assert_eq!(mode(path) & 0o7077, 0, "{}", path.display());
    }
    assert_eq!(opened.packhorse(&["ls"]).stderr, "", "it is told once");
}

#[test]
fn a_crash_journal_of_another_user_is_not_committed() {
    needs!(TwoUsers);
    let opened = OpenedHome::new();
    // The second leaves the journal of a run whose number is free in A's.
    let of_b = opened.of_b(&["true", ": evil; kill -KILL $PPID"]);
    opened.open();
    let script = format!(
        "cp {}/crash_journals/2.* crash_journals; chmod 666 crash_journals/2.*",
        of_b.display()
    );
    assert!(opened.as_b(&script));
    set_mode(&opened.home, 0o700);
    let done = opened.packhorse(&["ls"]);
    assert!(done.code == 0 && done.stdout.contains("true"), "{done:?}");
    assert!(!done.stdout.contains("evil"), "{done:?}");
}

#[test]
fn a_file_that_is_linked_from_elsewhere_keeps_its_rights() {
    needs!(TwoUsers);
    let opened = OpenedHome::new();
    let elsewhere = opened.machine.file("elsewhere", A, A, 0o666, "for all\n");
    opened.open();
    assert!(opened.as_b("ln ../elsewhere runs/last2"));
    for _ in 0..2 {
        let done = opened.packhorse(&["ls"]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("runs/last2` in it has a second name"), "{done:?}");
        assert_eq!(mode(&elsewhere), 0o666);
    }
    fs_err::remove_file(opened.home.join("runs/last2")).unwrap();
    assert_eq!(opened.packhorse(&["ls"]).code, 0);
}
