//! What the tests of the store share: a home, a run in it, and waiting for a
//! commit by its event.

#![expect(dead_code, reason = "each test file uses its own part of this")]
#![expect(clippy::unwrap_used, reason = "this is part of tests")]

use std::path::{Path, PathBuf};

use packhorse_model::{Command, Outcome, RunId};
use packhorse_store::{
    End, Home, NewRun, NewTask, Reader, Record, RunLock, RunUuid, Start, UnixMicros, Verdict,
    Writer,
};
use rustix::event::{PollFd, PollFlags, poll};

/// A home in a folder of its own, which goes when this is dropped.
pub struct Stable {
    pub home: Home,
    _dir: tempfile::TempDir,
}

pub fn stable() -> Stable {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path().join("home")).unwrap();
    Stable { home, _dir: dir }
}

/// A new run with its writer; its row is sent.
pub fn begin(home: &Home) -> (Writer, RunLock) {
    let (run, lock) = home.new_run().unwrap();
    let writer = Writer::start(home, run).unwrap();
    writer.send(Record::NewRun(Box::new(new_run())));
    (writer, lock)
}

pub fn new_run() -> NewRun {
    let started = UnixMicros::now();
    NewRun {
        uuid: RunUuid::new(started),
        started,
        cwd: "/here".into(),
        argv: vec!["packhorse".into(), "run".into()],
        host: "ox".to_owned(),
        pid: std::process::id(),
        settings: "{}".to_owned(),
    }
}

pub fn line(number: u32) -> NewTask {
    NewTask::plain(number, Command::Line(format!("echo {number}").into()))
}

pub fn lines(numbers: impl IntoIterator<Item = u32>) -> Record {
    Record::Tasks(numbers.into_iter().map(line).collect())
}

pub fn started(task: u32, attempt: u32) -> Record {
    Record::Started(Start {
        task,
        attempt,
        at: UnixMicros(1_000_000 + i64::from(attempt)),
        device: Some("gpu 0".into()),
    })
}

pub fn ended(task: u32, attempt: u32, outcome: Outcome, verdict: Verdict) -> Record {
    Record::AttemptEnded(End {
        task,
        attempt,
        at: UnixMicros(2_000_000 + i64::from(attempt)),
        outcome,
        message: None,
        peak: None,
        note: None,
        verdict,
    })
}

pub fn succeeded(task: u32) -> Record {
    ended(task, 1, Outcome::Succeeded, Verdict::Final)
}

pub fn run_ended(exit: u8) -> Record {
    Record::RunEnded {
        at: UnixMicros::now(),
        exit,
    }
}

/// Waits for the writer's bell.
pub fn hear(writer: &Writer) {
    poll(&mut [PollFd::new(writer, PollFlags::IN)], None).unwrap();
    rustix::io::read(writer, &mut [0_u8; 8]).unwrap();
}

/// Waits until the record at this place is safe.
pub fn until_committed(writer: &Writer, place: u64) {
    while writer.committed() < place {
        hear(writer);
    }
}

/// A command that runs one ignored test of this file as a program of its own.
pub fn child(test: &str, home: &Home) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--quiet"]);
    command.env("STORE_TEST_HOME", home.path());
    command
}

/// The home that the parent of such a program has given; none when somebody
/// runs ignored tests.
pub fn given_home() -> Option<Home> {
    let path = std::env::var_os("STORE_TEST_HOME")?;
    Some(Home::open(path).unwrap())
}

pub fn first_run() -> RunId {
    RunId(1)
}

/// A slate on which tasks 1 and 2 have failed, in a home where task 1 waits and
/// nobody has heard of task 2.
pub fn slate_of_a_dead_process() -> (Stable, PathBuf, Vec<u8>) {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    writer.send(lines([1]));
    let failed = |task| ended(task, 1, Outcome::Failed { code: 3 }, Verdict::Final);
    writer.send(failed(2));
    until_committed(&writer, writer.send(failed(1)));
    let folder = stable.home.path().join("slates");
    let file = fs_err::read_dir(folder).unwrap().next().unwrap().unwrap();
    let mut bytes = fs_err::read(file.path()).unwrap();
    bytes[8..16].fill(0);
    let tasks = Box::new([1]);
    writer.send(Record::Reopened { tasks });
    writer.finish().unwrap();
    assert!(!file.path().exists());
    drop(lock);
    (stable, file.path(), bytes)
}

/// How many tasks wait and have failed once the slate with these bytes is taken in.
pub fn after_taking_in(stable: &Stable, path: &Path, bytes: &[u8]) -> (u64, u64) {
    fs_err::write(path, bytes).unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let counts = reader.counts(first_run()).unwrap();
    (counts.waiting, counts.failed)
}
