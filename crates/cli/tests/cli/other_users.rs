//! What other users of the machine put in our way: two real users, without privileges.

use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use packhorse_fake_nvml::{
    FakeDevice, FakeState, STATE_VARIABLE, fake_mps_control_path, library_path,
};
use packhorse_test_parts::needs;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Done, Running, finish, release};

mod state_folder;

/// The user whose work it is.
const A: u32 = 54_321;

/// Another one.
const B: u32 = 54_322;

/// The head of a group that has both as members.
const HEAD: u32 = 54_323;

const GROUP: u32 = 54_400;

/// A folder like `/tmp`, which users share.
struct SharedMachine {
    folder: TempDir,
}

impl SharedMachine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let machine = Self { folder };
        machine.folder("shared", 0, 0, 0o1777);
        machine.folder("home", A, A, 0o700);
        // Other users may not look into the folder that it was built in.
        let (built, program) = (env!("CARGO_BIN_EXE_packhorse"), machine.path("packhorse"));
        if fs_err::hard_link(built, &program).is_err() {
            fs_err::copy(built, &program).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn folder(&self, name: &str, user: u32, group: u32, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs_err::create_dir(&path).unwrap();
        chown(&path, Some(user), Some(group)).unwrap();
        set_mode(&path, mode);
        path
    }

    fn file(&self, name: &str, user: u32, group: u32, mode: u32, text: &str) -> PathBuf {
        let path = self.path(name);
        fs_err::write(&path, text).unwrap();
        chown(&path, Some(user), Some(group)).unwrap();
        set_mode(&path, mode);
        path
    }

    /// `packhorse` as A, without privileges, in a folder.
    fn command<S: AsRef<OsStr>>(
        &self,
        folder: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(self.path("packhorse"));
        command
            .args(words)
            .current_dir(self.path(folder))
            .uid(A)
            .gid(A)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("PACKHORSE_LEASES", self.path("home/leases"))
            .env("PACKHORSE_NVML_LIBRARY", "none")
            .env("PACKHORSE_SYSFS", self.path("no-sys"))
            .stdin(Stdio::null());
        command
    }

    fn packhorse<S: AsRef<OsStr>>(&self, folder: &str, words: impl IntoIterator<Item = S>) -> Done {
        finish(self.command(folder, words))
    }

    /// Runs a task as A that says which settings reached it.
    fn settings_of_a_task(&self, folder: &str, before: &[&str]) -> Done {
        let words = [
            "run",
            "--output",
            "inherit",
            "--slots",
            "1",
            "--",
            "sh",
            "-c",
            "echo settings: $EVIL$GOOD.",
        ];
        let done = self.packhorse(folder, before.iter().chain(&words));
        assert_eq!(done.code, 0, "{done:?}");
        done
    }
}

impl SharedMachine {
    /// A pretended GPU, and the programs that tasks and users need for it.
    fn gpu(&self) -> FakeState {
        let state = FakeState::new(self.path("state"));
        state.device(&FakeDevice::new(0));
        for entry in [self.path("state")].into_iter().chain(files_below(&self.path("state"))) {
            set_mode(&entry, 0o777);
        }
        for program in [library_path(), fake_mps_control_path()] {
            let copy = self.path(program.file_name().unwrap().to_str().unwrap());
            fs_err::copy(program, copy).unwrap();
        }
        state
    }

    /// Starts a daemon of MPS for a user. It ends with its folder.
    fn mps_daemon(&self, user: u32, pipes: &Path) {
        let script = "umask 0; exec \"$0\" -d";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(self.path("fake-mps-control")).uid(user).gid(user);
        command
            .env("CUDA_MPS_PIPE_DIRECTORY", pipes)
            .env(STATE_VARIABLE, self.path("state"))
            .stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    }

    /// Runs a task as A that says which daemon it was told of.
    fn daemon_of_a_task(&self, pipes: &Path) -> Done {
        let task = ["sh", "-c", "echo daemon: $CUDA_MPS_PIPE_DIRECTORY."];
        let words = ["run", "--mps", "--vram", "1G", "--output", "inherit", "--"];
        let done = finish(self.on_gpu(words.into_iter().chain(task), pipes));
        assert_eq!(done.code, 0, "{done:?}");
        done
    }

    fn on_gpu<'a>(&self, words: impl IntoIterator<Item = &'a str>, pipes: &Path) -> Command {
        let mut command = self.command("home", words);
        command
            .env(
                "PACKHORSE_NVML_LIBRARY",
                self.path(library_path().file_name().unwrap().to_str().unwrap()),
            )
            .env("PACKHORSE_MPS_CONTROL", self.path("fake-mps-control"))
            .env(STATE_VARIABLE, self.path("state"))
            .env("CUDA_MPS_PIPE_DIRECTORY", pipes);
        command
    }
}

/// All files and folders below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path));
        }
        found.push(path);
    }
    found
}

fn set_mode(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

const EVIL: &str = "[task]\nenv = { EVIL = \"evil\", LD_PRELOAD = \"/nonexistent/evil.so\" }\n";

const GOOD: &str = "[task]\nenv = { GOOD = \"good\" }\n";

#[test]
fn a_strangers_settings_in_a_shared_folder_do_not_count() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("shared/work", A, A, 0o755);
    machine.folder("shared/work/below", A, A, 0o755);
    let planted = machine.path("shared/packhorse.toml");
    for text in [EVIL, "[pool]\nleases = false\nslots = 1\n", "garbage ]]\0\u{7f}", ""] {
        machine.file("shared/packhorse.toml", B, B, 0o644, text);
        let done = machine.settings_of_a_task("shared/work/below", &[]);
        assert!(done.stdout.contains("settings: .") && !done.stderr.contains("LD_PRELOAD"));
        let warning =
            format!("warning: {} was left out: it belongs to user 54322", planted.display());
        assert_eq!(done.stderr.matches(&warning).count(), 1, "{done:?}");
        let hint = format!("name it: `--config {}`", planted.display());
        assert!(done.stderr.contains(&hint), "{done:?}");
        let listed = machine.packhorse("shared/work/below", ["config", "--json"]).json();
        let left_out = listed.as_array().unwrap().last().unwrap();
        assert_eq!(left_out["from"], planted.to_str().unwrap());
        assert!(left_out["left_out"].as_str().unwrap().starts_with("it belongs to user 54322"));
        let listed = machine.packhorse("shared/work/below", ["config"]).stdout;
        assert!(listed.contains("(left out)"), "{listed}");
    }
    // One that we may not even read, or that nobody writes to, keeps nothing from running.
    set_mode(&planted, 0);
    machine.settings_of_a_task("shared/work", &[]);
    fs_err::remove_file(&planted).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &planted, kind, rustix::fs::Mode::from(0o666), 0).unwrap();
    let done = machine.settings_of_a_task("shared/work", &[]);
    let hint = "it is not a regular file\nhint: put a regular file there, or remove it\n";
    assert!(done.stderr.contains(hint), "{done:?}");
    chown(&planted, Some(B), None).unwrap();
    let done = machine.settings_of_a_task("shared/work", &[]);
    assert!(done.stderr.contains("user 54322") && !done.stderr.contains("hint"), "{done:?}");
}

#[test]
fn a_strangers_link_to_settings_of_ours_does_not_count() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("shared/work", A, A, 0o755);
    machine.file("home/other.toml", A, A, 0o644, EVIL);
    let link = machine.path("shared/packhorse.toml");
    symlink(machine.path("home/other.toml"), &link).unwrap();
    lchown(&link, Some(B), Some(B)).unwrap();
    let done = machine.settings_of_a_task("shared/work", &[]);
    assert!(done.stdout.contains("settings: ."), "{done:?}");
    assert!(done.stderr.contains("it is a link of user 54322"), "{done:?}");
    // A link of ours is ours.
    fs_err::remove_file(&link).unwrap();
    machine.file("home/good.toml", A, A, 0o644, GOOD);
    symlink(machine.path("home/good.toml"), &link).unwrap();
    lchown(&link, Some(A), Some(A)).unwrap();
    let done = machine.settings_of_a_task("shared/work", &[]);
    assert!(done.stdout.contains("settings: good."), "{done:?}");
}

#[test]
fn in_the_folder_of_a_group_our_own_settings_count_and_those_of_others_do_not() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("lab", HEAD, GROUP, 0o2775);
    machine.folder("lab/project", A, GROUP, 0o2775);
    machine.folder("lab/project/work", A, GROUP, 0o2775);
    let own = machine.file("lab/packhorse.toml", A, GROUP, 0o644, GOOD);
    let planted = machine.file("lab/project/packhorse.toml", B, GROUP, 0o664, EVIL);
    // The stranger's is nearer, and hides nothing.
    let done = machine.settings_of_a_task("lab/project/work", &[]);
    assert!(done.stdout.contains("settings: good."), "{done:?}");
    assert!(done.stderr.contains(&format!("{} was left out", planted.display())), "{done:?}");
    fs_err::remove_file(&planted).unwrap();
    let done = machine.settings_of_a_task("lab/project/work", &[]);
    assert!(done.stdout.contains("settings: good.") && done.stderr.is_empty(), "{done:?}");
    // Nobody knows who wrote it last.
    for (mode, who, remedy) in [
        (0o664, "the group 54400 can write to it", "chmod g-w"),
        (0o646, "every user can write to it", "chmod go-w"),
    ] {
        set_mode(&own, mode);
        let done = machine.settings_of_a_task("lab/project/work", &[]);
        assert!(done.stdout.contains("settings: ."), "{done:?}");
        assert!(done.stderr.contains(who), "{done:?}");
        let hint = format!("hint: `{remedy} {}` makes it count", own.display());
        assert!(done.stderr.contains(&hint), "{done:?}");
    }
    // The group of its owner alone.
    chown(&own, None, Some(A)).unwrap();
    set_mode(&own, 0o664);
    let done = machine.settings_of_a_task("lab/project/work", &[]);
    assert!(done.stdout.contains("settings: good."), "{done:?}");
}

#[test]
fn what_the_head_of_the_group_or_root_wrote_counts_by_its_owner() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("lab", HEAD, GROUP, 0o2775);
    machine.folder("lab/work", A, GROUP, 0o755);
    let file = machine.file("lab/packhorse.toml", HEAD, GROUP, 0o644, EVIL);
    let done = machine.settings_of_a_task("lab/work", &[]);
    assert!(done.stdout.contains("settings: ."), "{done:?}");
    chown(&file, Some(0), Some(0)).unwrap();
    let done = machine.settings_of_a_task("lab/work", &[]);
    assert!(done.stdout.contains("settings: evil"), "{done:?}");
}

#[test]
fn a_file_that_is_named_is_believed_by_the_run_its_plan_and_its_resumption() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("shared/work", A, A, 0o755);
    machine.file("shared/packhorse.toml", B, B, 0o666, EVIL);
    // Only a file that is named may set this.
    let text = format!("oom_texts = \"{}\"\n{GOOD}", machine.path("texts").display());
    machine.file("named.toml", B, B, 0o666, &text);
    machine.file("texts", B, B, 0o644, "no room\n");
    let named = machine.path("named.toml");
    let named = named.to_str().unwrap();
    for before in [&["--config", named][..], &["--config", "../../named.toml"]] {
        let done = machine.settings_of_a_task("shared/work", before);
        assert!(done.stdout.contains("settings: good.") && done.stderr.is_empty(), "{done:?}");
    }
    let words =
        ["run", "--output", "inherit", "--slots", "1", "--", "sh", "-c", "echo settings: $GOOD."];
    let mut command = machine.command("shared/work", words);
    let done = finish({
        command.env("PACKHORSE_SETTINGS", named);
        command
    });
    assert!(done.stdout.contains("settings: good."), "{done:?}");
    let listed = machine.packhorse("shared/work", ["config", "--json", "--config", named]).json();
    let from = |key: &str| {
        let of_key = |entry: &&Value| entry["setting"] == key;
        listed.as_array().unwrap().iter().find(of_key).map(|entry| entry["from"].clone())
    };
    assert_eq!(from("task.env.GOOD"), Some(named.into()));
    assert_eq!(from("oom_texts"), Some(named.into()));
    machine.file("shared/work/tasks", A, A, 0o644, "true\n");
    let done = machine
        .packhorse("shared/work", ["plan", "run", "--config", named, "--slots", "1", "tasks"]);
    assert!(done.code == 0 && !done.stderr.contains("left out"), "{done:?}");
    // What failed runs again with the same file, wherever that is resumed.
    let words = ["--config", named, "run", "--slots", "1", "--", "sh", "-c", "test -e go"];
    assert_eq!(machine.packhorse("shared/work", words).code, 1);
    machine.file("shared/work/go", A, A, 0o644, "");
    fs_err::remove_file(machine.path("texts")).unwrap();
    let done = machine.packhorse("home", ["retry"]);
    assert!(done.code == 2 && done.stderr.contains("texts"), "{done:?}");
    machine.file("texts", B, B, 0o644, "no room\n");
    let done = machine.packhorse("home", ["retry"]);
    assert!(done.code == 0 && !done.stderr.contains("left out"), "{done:?}");
    // One that is not there is an error, and one without an end is, too.
    let done = machine.packhorse("shared/work", ["gpus", "--config", "no-such-file"]);
    assert!(done.code == 2 && done.stderr.contains("no-such-file"), "{done:?}");
    let done = machine.packhorse("shared/work", ["config", "--config", "/dev/zero"]);
    assert!(done.code == 2 && done.stderr.contains("is a device"), "{done:?}");
    let done = machine.settings_of_a_task("shared/work", &["--config", "/dev/null"]);
    assert!(done.stdout.contains("settings: .") && done.stderr.is_empty(), "{done:?}");
}

#[test]
fn the_users_own_files_count_only_if_they_are_the_users_own() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("home/.config", A, A, 0o755);
    machine.folder("home/.config/packhorse", A, GROUP, 0o2775);
    let config = machine.file("home/.config/packhorse/config.toml", B, GROUP, 0o644, EVIL);
    machine.file("home/.config/packhorse/oom-texts", B, GROUP, 0o644, "\0");
    let done = machine.settings_of_a_task("home", &[]);
    assert!(done.stdout.contains("settings: ."), "{done:?}");
    assert_eq!(done.stderr.matches("was left out").count(), 2, "{done:?}");
    chown(&config, Some(A), None).unwrap();
    let done = machine.settings_of_a_task("home", &[]);
    assert!(done.stdout.contains("settings: evil"), "{done:?}");
}

/// With it, the stranger chooses which of our folders is filled.
#[test]
fn a_state_folder_that_is_found_is_not_a_strangers_link() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    machine.folder("shared/.local", B, B, 0o777);
    machine.folder("shared/.local/state", B, B, 0o777);
    let keys = machine.folder("home/keys", A, A, 0o700);
    let link = machine.path("shared/.local/state/packhorse");
    symlink(&keys, &link).unwrap();
    lchown(&link, Some(B), Some(B)).unwrap();
    let words = ["run", "--slots", "1", "--", "true"];
    let mut command = machine.command("home", words);
    command.env("HOME", machine.path("shared"));
    let done = finish(command);
    assert_eq!(done.code, 2, "{done:?}");
    let trouble = format!("the state folder {} is a link of user 54322", link.display());
    assert!(done.stderr.contains(&trouble), "{done:?}");
    assert!(done.stderr.contains("hint: set PACKHORSE_HOME"), "{done:?}");
    assert_eq!(fs_err::read_dir(&keys).unwrap().count(), 0);
    // One that is named is believed.
    let mut command = machine.command("home", words);
    command.env("PACKHORSE_HOME", &link);
    assert_eq!(finish(command).code, 0);
}

#[test]
fn a_daemon_of_mps_is_used_only_if_it_is_ours_or_roots() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    let _state = machine.gpu();
    // In a folder of its own, where CUDA would find it.
    let theirs = machine.folder("shared/nvidia-mps", B, B, 0o777);
    machine.mps_daemon(B, &theirs);
    let done = machine.daemon_of_a_task(&theirs);
    let own = format!("daemon: {}/.local/state/packhorse/mps/", machine.path("home").display());
    assert!(done.stdout.contains(&own), "{done:?}");
    let told = |what: &str| {
        let pipes = theirs.display();
        format!("the MPS daemon at {pipes} is not used: {what} belongs to user 54322, not to you")
    };
    assert!(done.stdout.contains(&told("its folder")), "{done:?}");
    let status = finish(machine.on_gpu(["mps", "status"], &theirs));
    assert!(status.stderr.contains(&told("its folder")), "{status:?}");
    assert!(status.stdout.contains("no MPS daemon is running"), "{status:?}");
    // Its socket in root's folder.
    chown(&theirs, Some(0), Some(0)).unwrap();
    let done = machine.daemon_of_a_task(&theirs);
    assert!(done.stdout.contains(&told("control")) && done.stdout.contains(&own), "{done:?}");
    fs_err::remove_dir_all(&theirs).unwrap();
    // Its link to root's daemon.
    let roots = machine.folder("mps", 0, 0, 0o777);
    machine.mps_daemon(0, &roots);
    symlink(&roots, &theirs).unwrap();
    lchown(&theirs, Some(B), Some(B)).unwrap();
    let done = machine.daemon_of_a_task(&theirs);
    assert!(done.stdout.contains(&told("a link there")), "{done:?}");
    // Root's own.
    let done = machine.daemon_of_a_task(&roots);
    assert!(done.stdout.contains(&format!("daemon: {}.", roots.display())), "{done:?}");
    assert!(!done.stdout.contains("not used"), "{done:?}");
}

/// What is in a state folder after runs with everything that keeps files there: with a umask
/// that takes nothing away, and with one that takes everything.
#[test]
fn the_state_folder_is_private_whatever_the_umask() {
    needs!(TwoUsers);
    let machine = SharedMachine::new();
    let _state = machine.gpu();
    let long = format!("true {}; true", "x".repeat(200_000));
    let tasks = format!(
        "echo out; echo err >&2\n#packhorse retries=1\nfalse\n#packhorse vram=1G\ntrue\n{long}\n"
    );
    for umask in ["0", "777"] {
        let work = machine.folder(&format!("work-{umask}"), A, A, 0o700);
        let name = work.file_name().unwrap().to_str().unwrap();
        machine.file(&format!("{name}/tasks"), A, A, 0o600, &tasks);
        machine.file(&format!("{name}/rows.csv"), A, A, 0o600, "command\ntrue\n");
        let command = |words: &str| {
            let script = format!("umask {umask}; exec \"$0\" \"$@\"");
            let on_gpu = machine.on_gpu([], &machine.path("none"));
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &script]).arg(machine.path("packhorse")).args(words.split(' '));
            command.uid(A).gid(A).current_dir(&work).env_clear().stdin(Stdio::null());
            command.envs(on_gpu.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env("PACKHORSE_HOME", machine.path(&format!("home/new-{umask}/state")));
            command
        };
        let run = |words: &str| finish(command(words));
        // What MPS makes in its folder is as its own umask says, or cannot be used at all.
        let mps = umask == "0";
        let done = run(if mps { "run --mps --vram 1G tasks" } else { "run --vram 1G tasks" });
        assert!(done.code == 1 && !done.stdout.contains("warning"), "{done:?}");
        for words in [
            "retry",
            "run --slots 1 --output lines -- echo hello",
            "run --slots 1 --output file -- echo hello",
            "probe -- true",
        ] {
            let done = run(words);
            assert!(done.code < 2, "{words}: {done:?}");
        }
        for words in ["ls", "show", "logs 1.1", "results", "peaks", "export 1"] {
            let done = run(words);
            assert_eq!(done.code, 0, "{words}: {done:?}");
        }
        // And while one is at work.
        let gate = machine.path(&format!("{name}/gate"));
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &gate, kind, rustix::fs::Mode::from(0), 0).unwrap();
        set_mode(&gate, 0o666);
        let mut running = Running::start(command("run --slots 1"));
        running.send("read x < gate\n");
        running.wait_for("started: read");
        let home = machine.path(&format!("home/new-{umask}"));
        let mut kept = files_below(&home);
        kept.push(home);
        let look = |path: &PathBuf| Some((path.clone(), fs_err::symlink_metadata(path).ok()?));
        let is_of_mps = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("pipe"));
        let modes: Vec<_> = kept.iter().filter(|path| !is_of_mps(path)).filter_map(look).collect();
        release(&gate);
        assert_eq!(running.finish().code, 1, "there was nothing to read");
        assert_eq!(kept.iter().any(|path| path.ends_with("pipe")), mps);
        let named = |name: &str| kept.iter().any(|path| path.ends_with(name));
        for name in [
            "runs/1/lock",
            "runs/1/logs/1.1.log",
            "runs/1/logs/1.1.idx",
            "runs/1/logs/4.1.sh",
            "runs/last",
            "id",
        ] {
            assert!(named(name), "{name}: {kept:?}");
        }
        for (path, found) in &modes {
            let expected = if found.is_dir() { 0o700 } else { 0o600 };
            let mode = found.permissions().mode() & 0o777;
            assert_eq!(mode, expected, "umask {umask}: {} {mode:o}", path.display());
        }
    }
}
