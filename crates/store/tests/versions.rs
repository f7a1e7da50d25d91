//! A home of an earlier version opens, and keeps what is in it.

mod support;

use std::collections::BTreeMap;

use packhorse_model::{
    Bytes, Command, GpuRequest, MetricSummary, Milli, Outcome, RunId, TaskSpec, Timestamp,
};
use packhorse_store::{EndedAttempt, Forget, Home, Reader, Record, TaskFilter, Writer};
use support::*;

/// What the first version wrote: a run that was killed, with a task that
/// failed once, one that waits, and one that asks for half a GPU.
const FIRST: &str = "
    PRAGMA journal_mode = WAL;
    INSERT INTO run (id, uuid, started, pid, host, cwd, argv, settings)
        VALUES (1, x'0123456789abcdef0123456789abcdef', 5, 7, 'ox', x'2f', x'7000', '{}');
    INSERT INTO task (id, outcome, words, command) VALUES
        (1 << 32 | 1, 5, 0, x'66616c7365'), (1 << 32 | 2, 2, 0, x'74727565');
    INSERT INTO task (id, outcome, words, gpus, command) VALUES (1 << 32 | 3, 2, 0, 500, x'6c73');
    UPDATE task SET detail = 1 WHERE id = 1 << 32 | 1;
    INSERT INTO attempt (task, attempt, started, ended, outcome, detail, device, message)
        VALUES (1 << 32 | 1, 1, 10, 20, 5, 1, 'gpu 0', 'said');
    PRAGMA user_version = 1;
";

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn of_the_first_version() -> TestHome {
    let test = test_home();
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    db.execute_batch(include_str!("../src/schema/1.sql")).unwrap();
    db.execute_batch(FIRST).unwrap();
    test
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn check(home: &Home) {
    let reader = Reader::open(home).unwrap();
    let run = reader.run(RunId(1)).unwrap().unwrap();
    assert_eq!((run.host.as_str(), run.started), ("ox", Timestamp(5)));
    let (failed, attempts) = reader.task(id(1)).unwrap().unwrap();
    assert_eq!(failed.outcome, Some(Outcome::Failed { code: 1 }));
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].message.as_deref(), Some("said"));
    assert_eq!((attempts[0].peak, &attempts[0].note), (None, &None));
    let waiting = reader.stored(RunId(1), TaskFilter::Unfinished, 0, 10).unwrap();
    assert_eq!(waiting.len(), 2);
    let line = TaskSpec::new(Command::Line(b"true".to_vec()));
    assert_eq!(waiting[0].spec, line);
    let half = GpuRequest::Share(Milli(500));
    assert_eq!(waiting[1].spec.gpus, Some(half));
    assert!(reader.run_spec(RunId(1)).unwrap().is_some());
    let plain = reader.stored(RunId(1), TaskFilter::PlainUnfinished, 0, 10).unwrap();
    assert_eq!(plain, waiting[..1]);
    assert_eq!(reader.signatures().unwrap(), []);
    assert_eq!(reader.drained().unwrap(), []);
}

#[test]
fn whoever_reads_an_old_home_finds_all_of_it() {
    check(&of_the_first_version().home);
}

#[test]
fn a_small_change_brings_an_old_home_up_to_date_as_well() {
    let test = of_the_first_version();
    assert_eq!(test.home.forget(Forget::All).unwrap(), 0);
    assert!(!test.home.restore("GPU-1").unwrap());
    assert_eq!(test.home.next_ids("csv", 2).unwrap(), 1);
    check(&test.home);
}

#[test]
fn a_home_of_version_3_takes_metrics() {
    let test = of_the_first_version();
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    for sql in [
        include_str!("../src/schema/2.sql"),
        include_str!("../src/schema/3.sql"),
        "UPDATE task SET spec = '{\"gpus\":0.5}' WHERE gpus IS NOT NULL",
    ] {
        db.execute_batch(sql).unwrap();
    }
    db.pragma_update(None, "user_version", 3).unwrap();
    drop(db);
    check(&test.home);
    let none = BTreeMap::new();
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(reader.metrics(id(1), 1).unwrap(), none);
    let mut writer = Writer::start(&test.home).unwrap();
    writer.send(metrics(id(1), 2, &[0.5]));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let loss = &reader.metrics(id(1), 2).unwrap()["loss"];
    assert_eq!(*loss, MetricSummary::of(0.5));
    check(&test.home);
}

#[test]
fn a_run_of_an_old_home_goes_on() {
    let test = of_the_first_version();
    let mut writer = Writer::start(&test.home).unwrap();
    writer.send(started(id(2), 1));
    writer.send(Record::AttemptEnded(EndedAttempt {
        peak: Some(Bytes(1)),
        note: Some("fine".into()),
        ..end(id(2), 1, Outcome::Succeeded)
    }));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let (task, attempts) = reader.task(id(2)).unwrap().unwrap();
    assert_eq!(task.outcome, Some(Outcome::Succeeded));
    assert_eq!(attempts[0].peak, Some(Bytes(1)));
    assert_eq!(reader.counts(RunId(1)).unwrap().total(), 3);
}
