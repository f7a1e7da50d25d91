//! A home of an earlier version opens, and keeps what is in it.

mod support;

use packhorse_model::{Bytes, Command, Outcome, RunId, TaskId};
use packhorse_store::{End, Forget, Home, Overrides, Reader, Record, UnixMicros, Verdict, Writer};
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
fn of_the_first_version() -> Stable {
    let stable = stable();
    let db = rusqlite::Connection::open(stable.home.db()).unwrap();
    db.execute_batch(include_str!("../src/schema/1.sql"))
        .unwrap();
    db.execute_batch(FIRST).unwrap();
    stable
}

#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn check(home: &Home) {
    let reader = Reader::open(home).unwrap();
    let run = reader.run(RunId(1)).unwrap().unwrap();
    assert_eq!((run.host.as_str(), run.started), ("ox", UnixMicros(5)));
    let (failed, attempts) = reader.task(TaskId::new(RunId(1), 1)).unwrap().unwrap();
    assert_eq!(failed.outcome, Some(Outcome::Failed { code: 1 }));
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].message.as_deref(), Some("said"));
    assert_eq!((attempts[0].peak, &attempts[0].note), (None, &None));
    let waiting = reader.unfinished(RunId(1), 0, 10).unwrap();
    assert_eq!(waiting.len(), 2);
    assert_eq!(waiting[0].command, Command::Line(b"true".to_vec()));
    assert_eq!(waiting[0].overrides, Overrides::default());
    let plain = reader.plain_unfinished(RunId(1), 0, 10).unwrap();
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
    let stable = of_the_first_version();
    assert_eq!(stable.home.forget(Forget::All).unwrap(), 0);
    assert!(!stable.home.restore("GPU-1").unwrap());
    assert_eq!(stable.home.next_ids("csv", 2).unwrap(), 1);
    check(&stable.home);
}

#[test]
fn a_run_of_an_old_home_goes_on() {
    let stable = of_the_first_version();
    let writer = Writer::start(&stable.home, RunId(1)).unwrap();
    writer.send(started(2, 1));
    writer.send(Record::AttemptEnded(End {
        task: 2,
        attempt: 1,
        at: UnixMicros(30),
        outcome: Outcome::Succeeded,
        message: None,
        peak: Some(Bytes(1)),
        note: Some("fine".into()),
        verdict: Verdict::Final,
    }));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let (task, attempts) = reader.task(TaskId::new(RunId(1), 2)).unwrap().unwrap();
    assert_eq!(task.outcome, Some(Outcome::Succeeded));
    assert_eq!(attempts[0].peak, Some(Bytes(1)));
    assert_eq!(reader.counts(RunId(1)).unwrap().total(), 3);
}
