//! What is written is what is read.

mod support;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use packhorse_model::{Bytes, Command, Outcome, PoolSpec, RunId, RunSpec, TaskId, TaskSpec};
use packhorse_model::{SourceSpec, Timestamp};
use packhorse_store::{
    EndedAttempt, NewRun, NewTask, Reader, Record, RunState, StartedAttempt, TaskCounts,
    TaskFilter, Writer,
};
use support::*;

#[test]
fn without_a_database_there_is_nothing() {
    let test = test_home();
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(reader.runs(10).unwrap(), []);
    assert_eq!(reader.latest_run().unwrap(), None);
    assert_eq!(reader.run(first_run()).unwrap(), None);
    assert_eq!(reader.task(TaskId::new(first_run(), 1)).unwrap(), None);
    assert_eq!(reader.outcome(id(1)).unwrap(), None);
    assert_eq!(reader.run_spec(first_run()).unwrap(), None);
    assert_eq!(reader.stored(first_run(), TaskFilter::Unfinished, 0, 10).unwrap(), []);
    assert_eq!(reader.counts(first_run()).unwrap(), TaskCounts::default());
    assert!(!test.home.db().exists(), "asking must not create one");
}

#[test]
fn what_was_sent_before_the_database_was_opened_is_written() {
    for waits in [true, false] {
        let test = test_home();
        let (run, lock) = test.home.new_run().unwrap();
        let writer = Writer::start(&test.home).unwrap();
        let facts = Box::new(new_run());
        let uuid = facts.uuid;
        assert_eq!(writer.send(Record::NewRun { run, facts }), 1);
        // Whatever becomes of this process, the run is known.
        assert!(writer.has_crash_journal(run));
        if waits {
            writer.ready().unwrap();
        }
        drop(writer);
        let journals = test.home.path().join("crash_journals");
        assert_eq!(fs_err::read_dir(journals).unwrap().count(), 0, "all is written");
        drop(lock);
        let reader = Reader::open(&test.home).unwrap();
        assert_eq!(reader.run(run).unwrap().unwrap().uuid, uuid);
    }
}

#[test]
fn a_run_reads_back_as_it_was_begun_even_if_its_bytes_are_no_text() {
    let test = test_home();
    let wild = || OsString::from_vec(b"/d\xff\xfe r".to_vec());
    let begun = NewRun {
        cwd: wild().into(),
        argv: vec!["packhorse".into(), OsString::new(), wild()],
        spec: RunSpec {
            pool: PoolSpec { gpus: vec!["0".to_owned()], ..PoolSpec::default() },
            source: SourceSpec::Lines { files: Vec::new(), null: true },
            ..RunSpec::default()
        },
        ..new_run()
    };
    let (run, lock) = test.home.new_run().unwrap();
    let mut writer = Writer::start(&test.home).unwrap();
    let facts = Box::new(begun.clone());
    writer.send(Record::NewRun { run, facts });
    writer.send(Record::InputComplete { run });
    writer.send(Record::RunEnded { run, at: Timestamp(7), exit: 130 });
    writer.finish().unwrap();
    drop(lock);
    let reader = Reader::open(&test.home).unwrap();
    let read = reader.run(run).unwrap().unwrap();
    assert_eq!((read.uuid, read.started), (begun.uuid, begun.started));
    assert_eq!((read.cwd, read.argv), (begun.cwd, begun.argv));
    assert_eq!((read.host, read.pid), (begun.host, begun.pid));
    assert_eq!(reader.run_spec(run).unwrap(), Some(begun.spec));
    assert_eq!((read.ended, read.exit), (Some(Timestamp(7)), Some(130)));
    assert!(read.input_complete);
}

/// What a task line may say, all at once.
const FULL: &str = r#"{
    "command": ["a b", "", {"bytes": "\\xff\\n"}], "name": "näme", "after": ["a", "b"],
    "env": {"A": "1", "B": {"bytes": "\\xff"}}, "folder": {"bytes": "/f\\xff"},
    "params": {"lr": 0.1, "layers": [1, 2]}, "results": "out", "log": "b.log",
    "gpus": "1/3", "vram": "9G", "gpu_model": "A100,H100", "signature": "käse",
    "probe": "{} --epochs 1", "cores": 2, "cpu": 1.5, "ram": "16G",
    "priority": -5, "retries": 2, "timeout": "1500ms", "grace": 3
}"#;

#[test]
fn a_task_reads_back_with_every_option_and_every_byte() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let full: TaskSpec = serde_json::from_str(FULL).unwrap();
    let plain = TaskSpec::new(Command::Line(b"echo \xff\0 | cat".to_vec()));
    let after = [1, u32::MAX];
    writer.send(Record::Tasks(vec![
        NewTask::new(id(1), plain.clone(), Box::default()),
        NewTask::new(id(2), full.clone(), after.into()),
    ]));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let read = reader.stored(lock.run(), TaskFilter::Unfinished, 0, 10).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!((&read[0].spec, read[0].after.len()), (&plain, 0));
    assert_eq!((read[1].id, &read[1].spec), (id(2), &full));
    assert_eq!(read[1].after, after);
    assert_eq!((read[1].outcome, read[1].attempts), (None, 0));
}

#[test]
fn a_task_of_a_newer_program_is_named_in_the_error() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(lines([1, 2]));
    writer.finish().unwrap();
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    let sql = r#"UPDATE task SET spec = '{"colour": "red"}' WHERE id & 3 = 2;
                 UPDATE run SET settings = 'words'"#;
    db.execute_batch(sql).unwrap();
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(reader.stored(lock.run(), TaskFilter::Unfinished, 0, 1).unwrap().len(), 1);
    let error = reader.stored(lock.run(), TaskFilter::Unfinished, 0, 2).unwrap_err();
    assert!(error.to_string().starts_with("the options of task 1.2 cannot"), "{error}");
    let error = reader.run_spec(lock.run()).unwrap_err();
    assert!(error.to_string().starts_with("the settings of run 1 cannot"), "{error}");
}

#[test]
fn attempts_read_back_whether_or_not_start_and_end_came_together() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let start = StartedAttempt {
        task: id(1),
        attempt: 1,
        at: Timestamp(10),
        device: Some("gpu 0+1".into()),
    };
    let end = EndedAttempt {
        task: id(1),
        attempt: 1,
        at: Timestamp(20),
        outcome: Outcome::Killed { signal: 9 },
        message: Some("out of memory".into()),
        peak: Some(Bytes(9 << 30)),
        note: Some("again with 12.0 GiB".into()),
        is_final: false,
    };
    writer.send(lines([1, 2]));
    let place = writer.send(Record::Started(start.clone()));
    until_committed(&writer, place);
    writer.send(Record::AttemptEnded(end.clone()));
    writer.send(Record::Started(StartedAttempt { attempt: 2, ..start }));
    writer.send(Record::AttemptEnded(EndedAttempt {
        attempt: 2,
        outcome: Outcome::Failed { code: 3 },
        is_final: true,
        ..end
    }));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let (task, attempts) = reader.task(id(1)).unwrap().unwrap();
    assert_eq!(task.outcome, Some(Outcome::Failed { code: 3 }));
    assert_eq!(reader.outcome(id(1)).unwrap(), task.outcome);
    assert_eq!(reader.outcome(id(2)).unwrap(), None);
    assert_eq!(task.attempts, 2);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].outcome, Some(Outcome::Killed { signal: 9 }));
    for attempt in &attempts {
        assert_eq!(attempt.started, Some(Timestamp(10)));
        assert_eq!(attempt.ended, Some(Timestamp(20)));
        assert_eq!(attempt.device.as_deref(), Some("gpu 0+1"));
        assert_eq!(attempt.message.as_deref(), Some("out of memory"));
        assert_eq!(attempt.peak, Some(Bytes(9 << 30)));
        assert_eq!(attempt.note.as_deref(), Some("again with 12.0 GiB"));
    }
    let listed = reader.tasks(lock.run(), TaskFilter::All, 0, 10).unwrap();
    assert_eq!(listed[0].last.as_ref(), attempts.last());
    assert_eq!(listed[1].last, None);
}

#[test]
fn a_task_with_anything_but_a_command_is_not_a_plain_one() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let named = TaskSpec { name: Some(String::new()), ..TaskSpec::default() };
    writer.send(Record::Tasks(vec![
        NewTask::new(id(1), named, Box::default()),
        NewTask::new(id(2), TaskSpec::default(), Box::new([1])),
        line_of(id(3)),
    ]));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let plain = reader.stored(lock.run(), TaskFilter::PlainUnfinished, 0, 99).unwrap();
    let plain: Vec<_> = plain.iter().map(|task| task.id.number).collect();
    assert_eq!(plain, [3]);
}

#[test]
fn tasks_are_listed_with_their_last_attempt_and_whether_it_has_ended() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(lines(1..=5));
    for number in 1..=4 {
        writer.send(started(id(number), 1));
    }
    writer.send(succeeded(id(2)));
    writer.send(ended_for_now(id(3), 1, Outcome::TimedOut));
    writer.send(started(id(3), 2));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let found = |after, limit| -> Vec<(u32, Option<(u32, bool)>)> {
        let tasks = reader.tasks(lock.run(), TaskFilter::All, after, limit).unwrap();
        let last = |last: packhorse_store::StoredAttempt| (last.attempt, last.outcome.is_some());
        let found = tasks.into_iter().map(|listed| (listed.task.id.number, listed.last.map(last)));
        found.collect()
    };
    let ended_and_not = [
        (1, Some((1, false))),
        (2, Some((1, true))),
        (3, Some((2, false))),
        (4, Some((1, false))),
        (5, None),
    ];
    assert_eq!(found(0, 9), ended_and_not);
    assert_eq!(found(2, 1), ended_and_not[2..3]);
}

#[test]
fn a_probe_is_attempt_0_and_does_not_use_up_a_number() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(lines([1]));
    until_committed(&writer, writer.send(started(id(1), 0)));
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(reader.counts(lock.run()).unwrap().running, 1);
    writer.send(ended_for_now(id(1), 0, Outcome::Failed { code: 1 }));
    writer.finish().unwrap();
    let (task, attempts) = reader.task(id(1)).unwrap().unwrap();
    assert_eq!((task.outcome, task.attempts), (None, 0));
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].attempt, 0);
    assert_eq!(attempts[0].outcome, Some(Outcome::Failed { code: 1 }));
}

#[test]
fn unfinished_is_what_has_no_final_outcome_page_by_page() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(lines(1..=10));
    for task in [1, 2, 4, 5, 6, 9] {
        writer.send(started(id(task), 1));
        writer.send(succeeded(id(task)));
    }
    writer.send(started(id(7), 1));
    writer.send(Record::TaskFinished { task: id(8), outcome: Outcome::Interrupted });
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let page = |after, limit| -> Vec<u32> {
        let tasks = reader.stored(lock.run(), TaskFilter::Unfinished, after, limit).unwrap();
        tasks.iter().map(|task| task.id.number).collect()
    };
    assert_eq!(page(0, 2), [3, 7]);
    assert_eq!(page(7, 2), [8, 10]);
    assert_eq!(page(10, 2), Vec::<u32>::new());
    let seven = &reader.stored(lock.run(), TaskFilter::Unfinished, 6, 1).unwrap()[0];
    assert_eq!(seven.attempts, 1, "the next attempt is the second");
}

#[test]
fn tasks_of_another_run_are_not_mixed_in() {
    let test = test_home();
    let runs = [(); 2].map(|()| {
        let (mut writer, lock) = begin(&test.home);
        writer.send(lines_of(lock.run(), [1, u32::MAX]));
        writer.finish().unwrap();
        lock.run()
    });
    let reader = Reader::open(&test.home).unwrap();
    for run in runs {
        let tasks = reader.tasks(run, TaskFilter::All, 0, 10).unwrap();
        assert!(tasks.iter().all(|listed| listed.task.id.run == run));
        assert_eq!(tasks.len(), 2);
        assert_eq!(reader.counts(run).unwrap().total(), 2);
    }
    assert_eq!(reader.latest_run().unwrap(), Some(runs[1]));
    let newest: Vec<RunId> = reader.runs(1).unwrap().iter().map(|run| run.id).collect();
    assert_eq!(newest, [runs[1]]);
}

#[test]
fn retried_tasks_wait_again_and_the_count_follows() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let run = lock.run();
    writer.send(lines(1..=5));
    writer.send(succeeded(id(1)));
    writer.send(ended(id(2), 1, Outcome::Failed { code: 1 }));
    writer.send(ended(id(3), 1, Outcome::TimedOut));
    for (task, outcome) in [(id(4), Outcome::Skipped), (id(5), Outcome::Interrupted)] {
        writer.send(Record::TaskFinished { task, outcome });
    }
    writer.send(Record::InputComplete { run });
    writer.send(run_ended(run, 1));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let failed: Vec<u32> = reader
        .stored(run, TaskFilter::Failed, 0, 10)
        .unwrap()
        .iter()
        .map(|t| t.id.number)
        .collect();
    assert_eq!(failed, [2, 3, 4]);
    let before = reader.counts(run).unwrap();
    let expected = TaskCounts { succeeded: 1, failed: 3, interrupted: 1, ..TaskCounts::default() };
    assert_eq!(before, expected);

    let mut writer = Writer::start(&test.home).unwrap();
    let place = writer.send(Record::Reopened { run, tasks: failed.into() });
    until_committed(&writer, place);
    let open = TaskCounts { waiting: 3, succeeded: 1, interrupted: 1, ..TaskCounts::default() };
    assert_eq!(reader.counts(run).unwrap(), open);
    writer.send(Record::RunResumed { run, pid: 7, host: "mule".into() });
    for task in 2..=5 {
        writer.send(started(id(task), 2));
        writer.send(ended(id(task), 2, Outcome::Succeeded));
    }
    writer.send(run_ended(run, 0));
    writer.finish().unwrap();
    drop(lock);
    let read = reader.run(run).unwrap().unwrap();
    assert_eq!((read.counts.succeeded, read.counts.total()), (5, 5));
    assert_eq!((read.state, read.exit), (RunState::Finished, Some(0)));
    assert_eq!((read.pid, read.host.as_str()), (7, "mule"));
}

#[test]
fn a_resumed_run_does_not_count_the_dead_processs_attempts_as_running() {
    let test = test_home();
    let (writer, lock) = begin(&test.home);
    writer.send(lines([1, 2]));
    let place = writer.send(started(id(1), 1));
    until_committed(&writer, place);
    let reader = Reader::open(&test.home).unwrap();
    let counts = reader.counts(lock.run()).unwrap();
    assert_eq!((counts.running, counts.waiting), (1, 1));
    let place = writer.send(Record::RunResumed { run: lock.run(), pid: 7, host: "mule".into() });
    until_committed(&writer, place);
    let counts = reader.counts(lock.run()).unwrap();
    assert_eq!((counts.running, counts.waiting), (0, 2));
}

#[test]
fn a_run_is_running_while_its_lock_is_held_and_died_if_it_never_said_its_end() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    let run = lock.run();
    writer.send(lines([1]));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let state = || reader.run(run).unwrap().unwrap().state;
    assert_eq!(state(), RunState::Running);
    drop(lock);
    assert_eq!(state(), RunState::Died);
    let lock = test.home.lock_run(run).unwrap();
    let mut writer = Writer::start(&test.home).unwrap();
    writer.send(run_ended(run, 130));
    writer.finish().unwrap();
    drop(lock);
    assert_eq!(state(), RunState::Interrupted);
}

#[test]
fn writing_a_record_twice_changes_nothing() {
    let test = test_home();
    let (writer, lock) = begin(&test.home);
    let records = [lines([1]), started(id(1), 1), succeeded(id(1)), run_ended(lock.run(), 0)];
    for record in records.iter().chain(&records) {
        until_committed(&writer, writer.send(record.clone()));
    }
    let reader = Reader::open(&test.home).unwrap();
    let (_, attempts) = reader.task(id(1)).unwrap().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(reader.counts(lock.run()).unwrap().succeeded, 1);
}
