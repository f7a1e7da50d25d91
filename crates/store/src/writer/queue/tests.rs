use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use packhorse_model::{Outcome, RunSpec, TaskId, Timestamp};
use rustix::event::{EventfdFlags, eventfd};

use super::super::{WriterThread, crash_journal};
use super::*;
use crate::{Home, new_run_uuid};

fn skipped(run: RunId, number: u32) -> Record {
    Record::TaskFinished { task: TaskId::new(run, number), outcome: Outcome::Skipped }
}

#[test]
fn a_crash_journal_has_what_is_sent_from_the_beginning_of_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path().join("home")).unwrap();
    let queue = Arc::new(Queue::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
    let writer =
        Writer { queue: Arc::clone(&queue), home: home.clone(), thread: WriterThread::Over };
    let (run, other) = (RunId(3), RunId(4));
    let facts = Box::new(NewRun {
        uuid: new_run_uuid(Timestamp(0)),
        started: Timestamp(7),
        cwd: OsString::from_vec(vec![b'/', 0xff]).into(),
        argv: vec!["run".into()],
        host: "here".to_owned(),
        pid: 1,
        spec: RunSpec { batch: std::num::NonZeroU32::new(20), ..RunSpec::default() },
    });
    let read = || {
        let file = fs_err::read_dir(home.crash_journals_dir()).unwrap().next();
        let bytes = fs_err::read(file.unwrap().unwrap().path()).unwrap();
        crash_journal::read(run, &bytes).unwrap().unwrap()
    };
    writer.send(Record::NewRun { run, facts: facts.clone() });
    assert_eq!(read().facts, Some(facts), "before anything of it could start");
    writer.send(skipped(run, 2));
    writer.send(skipped(other, 3));
    let mut batch = Batch::default();
    queue.gather(&mut batch, Instant::now());
    writer.send(skipped(run, 4));
    writer.send(skipped(run, 5));
    let found: Vec<String> = read().records.iter().map(|r| format!("{r:?}")).collect();
    let wanted = [2, 4, 5].map(|number| format!("{:?}", skipped(run, number)));
    assert_eq!(found, wanted);

    queue.set_committed(&mut batch);
    assert_eq!(writer.committed(), 3);
    assert_eq!(read().records.len(), 2, "those after the batch");
}
