//! What the tests of the store share: a home, a run in it, and waiting for a
//! commit by its event.

#![expect(dead_code, reason = "each test file uses its own part of this")]
#![expect(clippy::unwrap_used, reason = "this is part of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use packhorse_model::{
    AttemptMetrics, Command, MetricSummary, Outcome, RunId, RunSpec, TaskId, TaskSpec, Timestamp,
};
use packhorse_store::{
    EndedAttempt, Home, NewRun, NewTask, Reader, Record, RunLock, StartedAttempt, Writer,
    new_run_uuid,
};
use rustix::event::{PollFd, PollFlags, poll};

/// A home in a folder of its own, which goes when this is dropped.
pub struct TestHome {
    pub home: Home,
    _dir: tempfile::TempDir,
}

pub fn test_home() -> TestHome {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path().join("home")).unwrap();
    TestHome { home, _dir: dir }
}

/// A new run with its writer; its row is sent.
pub fn begin(home: &Home) -> (Writer, RunLock) {
    let (run, lock) = home.new_run().unwrap();
    let writer = Writer::start(home).unwrap();
    writer.send(begins(run));
    (writer, lock)
}

/// A run that began by now.
pub fn begins(run: RunId) -> Record {
    let facts = Box::new(new_run());
    Record::NewRun { run, facts }
}

pub fn new_run() -> NewRun {
    let started = Timestamp::now();
    NewRun {
        uuid: new_run_uuid(started),
        started,
        cwd: "/here".into(),
        argv: vec!["packhorse".into(), "run".into()],
        host: "ox".to_owned(),
        pid: std::process::id(),
        spec: RunSpec::default(),
    }
}

/// The task of this number in the first run.
pub fn id(number: u32) -> TaskId {
    TaskId::new(first_run(), number)
}

pub fn line_of(id: TaskId) -> NewTask {
    let command = Command::Line(format!("echo {}", id.number).into());
    NewTask::new(id, TaskSpec::new(command), Box::default())
}

/// Tasks of the first run.
pub fn lines(numbers: impl IntoIterator<Item = u32>) -> Record {
    lines_of(first_run(), numbers)
}

pub fn lines_of(run: RunId, numbers: impl IntoIterator<Item = u32>) -> Record {
    let line = |number| line_of(TaskId::new(run, number));
    Record::Tasks(numbers.into_iter().map(line).collect())
}

pub fn started(task: TaskId, attempt: u32) -> Record {
    Record::Started(StartedAttempt {
        task,
        attempt,
        at: Timestamp(1_000_000 + i64::from(attempt)),
        device: Some("gpu 0".into()),
    })
}

/// The task's last end.
pub fn ended(task: TaskId, attempt: u32, outcome: Outcome) -> Record {
    Record::AttemptEnded(end(task, attempt, outcome))
}

/// An end after which another attempt follows.
pub fn ended_for_now(task: TaskId, attempt: u32, outcome: Outcome) -> Record {
    Record::AttemptEnded(EndedAttempt { is_final: false, ..end(task, attempt, outcome) })
}

pub fn end(task: TaskId, attempt: u32, outcome: Outcome) -> EndedAttempt {
    EndedAttempt {
        task,
        attempt,
        at: Timestamp(2_000_000 + i64::from(attempt)),
        outcome,
        message: None,
        peak: None,
        note: None,
        is_final: true,
    }
}

/// What an attempt has printed as `loss`.
pub fn metrics(task: TaskId, attempt: u32, values: &[f64]) -> Record {
    let mut loss = MetricSummary::of(values[0]);
    values[1..].iter().for_each(|value| loss.add(*value));
    Record::Metrics(Box::new(AttemptMetrics {
        task,
        attempt,
        metrics: BTreeMap::from([("loss".to_owned(), loss)]),
    }))
}

pub fn succeeded(task: TaskId) -> Record {
    ended(task, 1, Outcome::Succeeded)
}

pub fn run_ended(run: RunId, exit: u8) -> Record {
    Record::RunEnded { run, at: Timestamp::now(), exit }
}

/// Waits for the writer's event.
pub fn wait_for_event(writer: &Writer) {
    poll(&mut [PollFd::new(writer, PollFlags::IN)], None).unwrap();
    rustix::io::read(writer, &mut [0_u8; 8]).unwrap();
}

/// Waits until the record at this place is safe.
pub fn until_committed(writer: &Writer, place: u64) {
    while writer.committed() < place {
        wait_for_event(writer);
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

/// The crash journals of new runs in this home.
pub fn crash_journals(home: &Home) -> Vec<PathBuf> {
    let files = fs_err::read_dir(home.path().join("crash_journals"));
    let files = files.into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

/// A crash journal in which tasks 1 and 2 have failed, in a home where task 1 waits
/// and task 2 is unknown.
pub fn journal_of_a_dead_process() -> (TestHome, PathBuf, Vec<u8>) {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let failed = |number| ended(id(number), 1, Outcome::Failed { code: 3 });
    until_committed(&writer, writer.send(lines([1])));
    writer.send(failed(2));
    until_committed(&writer, writer.send(failed(1)));
    let path = crash_journals(&test.home).pop().unwrap();
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[8..16].fill(0);
    writer.send(Record::Reopened { run: first_run(), tasks: Box::new([1]) });
    writer.finish().unwrap();
    assert!(!path.exists());
    drop(lock);
    (test, path, bytes)
}

/// How many tasks wait and have failed once the journal with these bytes is
/// recovered.
pub fn after_recovery(test: &TestHome, path: &Path, bytes: &[u8]) -> (u64, u64) {
    fs_err::write(path, bytes).unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let counts = reader.counts(first_run()).unwrap();
    (counts.waiting, counts.failed)
}
