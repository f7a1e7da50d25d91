//! What the tests of leases share: a folder, and other processes that do as
//! they are told.

#![expect(clippy::print_stdout, reason = "how processes answer here")]
#![expect(clippy::unwrap_used, reason = "this is part of tests")]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use packhorse_leases::{Lease, LeaseContent, LeaseOwner, LeasedDevice, Leases, LeasesGuard};
use packhorse_model::{Bytes, Milli, RunId};
use packhorse_proc::ProcessKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A folder for leases, which goes when this is dropped.
pub struct TestFolder {
    pub path: PathBuf,
    dir: tempfile::TempDir,
}

pub fn test_folder() -> TestFolder {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("leases");
    TestFolder { path, dir }
}

impl TestFolder {
    /// Ours, listening.
    pub fn open(&self) -> Leases {
        let mut leases = self.open_deaf();
        leases.listen().unwrap();
        leases
    }

    /// Ours, which learns of others only when it asks.
    pub fn open_deaf(&self) -> Leases {
        Leases::open(&self.path, owner()).unwrap()
    }

    /// The paths of all leases there, as seen from the folder.
    pub fn files(&self) -> Vec<String> {
        let list = |path: &Path| -> Vec<PathBuf> {
            let entries = fs_err::read_dir(path).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let folders = list(&self.path);
        let files = folders.iter().flat_map(|folder| list(folder));
        let name = |file: PathBuf| file.strip_prefix(&self.path).unwrap().to_owned();
        let names = files.map(|file| name(file).into_os_string().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The folder of a user, which is made if there is none.
    pub fn user(&self, uid: u64) -> PathBuf {
        let entries = fs_err::read_dir(&self.path).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let is_theirs = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&format!("{uid}-"))
        };
        paths.find(is_theirs).unwrap_or_else(|| {
            let path = self.path.join(format!("{uid}-0123456789abcdef"));
            fs_err::create_dir(&path).unwrap();
            path
        })
    }

    /// The one file there.
    pub fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        self.path.join(&files[0])
    }

    /// Another process.
    pub fn peer(&self) -> Peer {
        Peer::start(Command::new(std::env::current_exe().unwrap()), &self.path)
    }

    /// Another process, whose files are for its user alone by default.
    pub fn secretive_peer(&self) -> Peer {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"umask 077; exec "$0" "$@""#]);
        shell.arg(std::env::current_exe().unwrap());
        Peer::start(shell, &self.path)
    }

    /// A process of another user, who can see the folder and the program.
    pub fn peer_of(&self, uid: u32) -> Peer {
        let program = self.dir.path().join("program");
        // In a process of its own: a file that another test's child has open to
        // write, if only for a moment, cannot be executed.
        let copied = Command::new("install")
            .args(["-m", "755"])
            .args([&std::env::current_exe().unwrap(), &program])
            .status();
        assert!(copied.unwrap().success());
        fs_err::set_permissions(self.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.uid(uid).gid(uid).current_dir("/");
        Peer::start(command, &self.path)
    }
}

pub fn owner() -> LeaseOwner {
    LeaseOwner {
        user: "ann".to_owned(),
        run: Some(RunId(12)),
        command: "packhorse run".to_owned(),
        home: std::process::id().to_string(),
    }
}

pub fn held(device: &str, memory: u64) -> LeasedDevice {
    LeasedDevice {
        device: device.into(),
        memory: Bytes(memory),
        share: Milli(250),
        attempts: 1,
        whole: false,
    }
}

/// What is told of what is held.
pub fn holding(held: &[LeasedDevice]) -> LeaseContent {
    LeaseContent { held: held.to_vec(), claim: None }
}

/// Publishes under the lock, as everybody does.
pub fn publish(leases: &mut Leases, held: &[LeasedDevice]) {
    let mut guard = leases.lock().unwrap();
    guard.publish(&holding(held)).unwrap();
}

/// What others hold, under the lock.
pub fn others(leases: &mut Leases) -> Vec<Lease> {
    await_last_look(leases);
    leases.lock().unwrap().others().cloned().collect()
}

/// Waits until it is known of every dead process whether it left anything running.
fn await_last_look(leases: &mut Leases) {
    let is_open = |lease: &Lease| lease.left.as_ref().is_some_and(Vec::is_empty);
    while leases.lock().unwrap().others().any(is_open) {
        wait_for_change(leases);
    }
}

/// How much others hold of a device.
pub fn memory(leases: &mut Leases, device: &str) -> u64 {
    await_last_look(leases);
    memory_of(&leases.lock().unwrap(), device)
}

fn memory_of(guard: &LeasesGuard, device: &str) -> u64 {
    let held = guard.others().flat_map(|lease| &lease.held);
    let on_it = held.filter(|held| *held.device == *device);
    on_it.map(|held| held.memory.0).sum()
}

/// Waits until something has changed.
pub fn wait_for_change(leases: &Leases) {
    poll(&mut [PollFd::new(leases, PollFlags::IN)], None).unwrap();
}

/// Whether something has changed.
pub fn has_changes(leases: &Leases) -> bool {
    let mut fds = [PollFd::new(leases, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

/// Another process: the ignored test `peer`.
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(mut command: Command, folder: &Path) -> Self {
        command.args(["--exact", "peer", "--ignored", "--nocapture", "--quiet"]);
        command.env("LEASES_TEST_FOLDER", folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut peer = Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(peer.answer(), "ready");
        peer
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something, and waits for its answer.
    pub fn tell(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Has it do something.
    pub fn order(&mut self, order: &str) {
        writeln!(self.input.as_ref().unwrap(), "{order}").unwrap();
    }

    /// Its next answer, among what a test says by itself.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it has died");
            if let Some((_, answer)) = line.split_once("> ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself.
    pub fn end(&mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a peer does.
#[expect(clippy::zombie_processes, reason = "what it starts is to outlive it")]
pub fn carry_out_requests() {
    let Some(folder) = std::env::var_os("LEASES_TEST_FOLDER") else {
        return; // somebody runs ignored tests
    };
    let mut leases = Leases::open(Path::new(&folder), owner()).unwrap();
    leases.listen().unwrap();
    let mut seen = 0;
    has_news(&mut leases, &mut seen);
    println!("> ready");
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hold", device, amount] => {
                publish(&mut leases, &[held(device, amount.parse().unwrap())]);
                println!("> held");
            }
            ["lead"] => {
                // Without anything else that it could be known by.
                let child = Command::new("sleep")
                    .arg("1000")
                    .env_clear()
                    .process_group(0)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                let leader = ProcessKey::of(child.id()).unwrap();
                leases.guard(vec![leader]).unwrap();
                println!("> {}", child.id());
            }
            ["memory", device] => {
                // Looked at before the answer: what comes after it is news.
                let memory = memory(&mut leases, device);
                has_news(&mut leases, &mut seen);
                println!("> {memory}");
            }
            ["exhaust"] => {
                // The lowest number that is free is the first that it may not have.
                let free = rustix::io::dup(std::io::stdin()).unwrap();
                let free = free.as_raw_fd().unsigned_abs();
                limit_descriptors(Some(free.into()));
                println!("> exhausted");
            }
            ["recover"] => {
                limit_descriptors(getrlimit(Resource::Nofile).maximum);
                println!("> recovered");
            }
            ["look"] => match leases.lock() {
                Ok(guard) => println!("> {}", guard.others().count()),
                Err(error) => println!("> {}", error.to_string().lines().next().unwrap()),
            },
            ["others"] => println!("> {}", others(&mut leases).len()),
            ["lock"] => {
                let guard = leases.lock().unwrap();
                println!("> locked");
                assert_eq!(lines.next().as_deref(), Some("unlock"));
                drop(guard);
                println!("> unlocked");
            }
            ["hear"] => {
                wait_for_change(&leases);
                println!("> {}", has_news(&mut leases, &mut seen));
            }
            ["compete", rounds, most] => {
                compete(&mut leases, rounds.parse().unwrap(), most.parse().unwrap());
                println!("> done");
            }
            _ => panic!("what is `{line}`"),
        }
    }
}

fn limit_descriptors(current: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Whether what others hold has changed since it was seen last.
pub fn has_news(leases: &mut Leases, seen: &mut u64) -> bool {
    let revision = leases.lock().unwrap().revision();
    std::mem::replace(seen, revision) != revision
}

/// Takes one more of a device while there is one left, and gives all back when
/// there is none: whoever looks must never see more than there is.
pub fn compete(leases: &mut Leases, rounds: u32, most: u64) {
    let mut mine = 0;
    for _ in 0..rounds {
        let mut guard = leases.lock().unwrap();
        if guard.warning().is_some() {
            // Somebody kept it for a second, on a machine that is very busy.
            continue;
        }
        let theirs = memory_of(&guard, "GPU-1");
        assert!(theirs + mine <= most, "{theirs} + {mine} of {most} are held");
        mine = if theirs + mine < most { mine + 1 } else { 0 };
        match mine {
            0 => guard.publish(&holding(&[])).unwrap(),
            mine => guard.publish(&holding(&[held("GPU-1", mine)])).unwrap(),
        }
    }
    publish(leases, &[]);
}
