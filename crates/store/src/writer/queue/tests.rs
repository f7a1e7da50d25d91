use std::sync::Arc;

use packhorse_model::{Outcome, RunSpec, TaskId, Timestamp};
use rustix::event::{EventfdFlags, eventfd};

use super::super::crash_journal;
use super::*;
use crate::{NewRun, new_run_uuid};

fn skipped(run: RunId, number: u32) -> Record {
    Record::TaskFinished {
        task: TaskId::new(run, number),
        outcome: Outcome::Skipped,
    }
}

#[test]
fn a_crash_journal_has_what_was_sent_before_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path().join("home")).unwrap();
    let queue = Arc::new(Queue::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
    let writer = Writer {
        queue: Arc::clone(&queue),
        thread: None,
    };
    let (run, other) = (RunId(3), RunId(4));
    let facts = Box::new(NewRun {
        uuid: new_run_uuid(Timestamp(0)),
        started: Timestamp(0),
        cwd: "/".into(),
        argv: Vec::new(),
        host: String::new(),
        pid: 1,
        spec: RunSpec::default(),
    });
    writer.send(skipped(run, 1));
    writer.send(Record::NewRun { run, facts });
    writer.send(skipped(run, 2));
    writer.send(skipped(other, 3));
    let mut batch = Batch::default();
    queue.gather(&mut batch, Instant::now());
    writer.send(skipped(run, 4));
    queue.begin_journals(&home, &batch);
    writer.send(skipped(run, 5));

    let file = fs_err::read_dir(home.crash_journals_dir()).unwrap().next();
    let bytes = fs_err::read(file.unwrap().unwrap().path()).unwrap();
    let contents = crash_journal::read(run, &bytes).unwrap().unwrap();
    let found: Vec<String> = contents.records.iter().map(|r| format!("{r:?}")).collect();
    let wanted = [1, 2, 4, 5].map(|number| format!("{:?}", skipped(run, number)));
    assert_eq!(found, wanted);

    queue.set_committed(&mut batch);
    assert_eq!(writer.committed(), 4);
    let file = fs_err::read_dir(home.crash_journals_dir()).unwrap().next();
    let bytes = fs_err::read(file.unwrap().unwrap().path()).unwrap();
    let left = crash_journal::read(run, &bytes).unwrap().unwrap();
    assert_eq!(left.records.len(), 2, "those after the batch");
}
