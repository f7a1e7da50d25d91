//! What is written is what is read.

mod support;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use packhorse_model::{Bytes, Command, GpuRequest, Milli, Outcome, Priority, RunId, TaskId};
use packhorse_store::{
    Counts, End, NewRun, NewTask, Overrides, Reader, Record, RunState, Select, Start, TimeLimit,
    UnixMicros, Verdict, Vram, Writer,
};
use support::*;

#[test]
fn without_a_database_there_is_nothing() {
    let stable = stable();
    let reader = Reader::open(&stable.home).unwrap();
    assert_eq!(reader.runs(10).unwrap(), []);
    assert_eq!(reader.latest_run().unwrap(), None);
    assert_eq!(reader.run(first_run()).unwrap(), None);
    assert_eq!(reader.task(TaskId::new(first_run(), 1)).unwrap(), None);
    assert_eq!(reader.unfinished(first_run(), 0, 10).unwrap(), []);
    assert_eq!(reader.counts(first_run()).unwrap(), Counts::default());
    assert!(!stable.home.db().exists(), "asking must not create one");
}

#[test]
fn a_run_reads_back_as_it_was_begun_even_if_its_bytes_are_no_text() {
    let stable = stable();
    let wild = || OsString::from_vec(b"/d\xff\xfe r".to_vec());
    let begun = NewRun {
        cwd: wild().into(),
        argv: vec!["packhorse".into(), OsString::new(), wild()],
        settings: r#"{"gpus":[0]}"#.to_owned(),
        ..new_run()
    };
    let (run, lock) = stable.home.new_run().unwrap();
    let writer = Writer::start(&stable.home, run).unwrap();
    writer.send(Record::NewRun(Box::new(begun.clone())));
    writer.send(Record::InputComplete);
    writer.send(Record::RunEnded {
        at: UnixMicros(7),
        exit: 130,
    });
    writer.finish().unwrap();
    drop(lock);
    let read = Reader::open(&stable.home)
        .unwrap()
        .run(run)
        .unwrap()
        .unwrap();
    assert_eq!((read.uuid, read.started), (begun.uuid, begun.started));
    assert_eq!((read.cwd, read.argv), (begun.cwd, begun.argv));
    assert_eq!((read.host, read.pid), (begun.host, begun.pid));
    assert_eq!(read.settings, begun.settings);
    assert_eq!((read.ended, read.exit), (Some(UnixMicros(7)), Some(130)));
    assert!(read.input_complete);
}

#[test]
fn a_task_reads_back_with_every_option_and_every_byte() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let odd = NewTask {
        number: 2,
        command: Command::Words(vec![b"a b".to_vec(), vec![], vec![0xff, b'\n']]),
        name: Some("näme".into()),
        overrides: Some(Box::new(Overrides {
            gpus: Some(GpuRequest::Share(Milli(333))),
            cores: Some(4),
            priority: Some(Priority(-5)),
            retries: Some(2),
            time_limit: Some(TimeLimit::After(Duration::from_millis(1500))),
            vram: Some(Vram::Bytes(Bytes(9 << 30))),
            cpu: Some(Milli(1500)),
            ram: Some(Bytes(1 << 40)),
            model: Some("A100,H100".into()),
            signature: Some("käse".into()),
            folder: Some(OsString::from_vec(b"/f\xff".to_vec()).into()),
        })),
        after: Box::new([1, u32::MAX]),
    };
    let plain = NewTask::plain(1, Command::Line(b"echo \xff\0 | cat".to_vec()));
    writer.send(Record::Tasks(vec![plain.clone(), odd.clone()]));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let read = reader.unfinished(lock.run(), 0, 10).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].command, plain.command);
    assert_eq!(read[0].overrides, Overrides::default());
    assert_eq!((&read[0].name, read[0].after.len()), (&None, 0));
    assert_eq!(read[1].id, TaskId::new(lock.run(), 2));
    assert_eq!(read[1].command, odd.command);
    assert_eq!(Some(&read[1].overrides), odd.overrides.as_deref());
    assert_eq!(read[1].name.as_deref(), odd.name.as_deref());
    assert_eq!(read[1].after, odd.after.to_vec());
    assert_eq!((read[1].outcome, read[1].attempts), (None, 0));
}

#[test]
fn attempts_read_back_whether_or_not_start_and_end_came_together() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let start = Start {
        task: 1,
        attempt: 1,
        at: UnixMicros(10),
        device: Some("gpu 0+1".into()),
    };
    let end = End {
        task: 1,
        attempt: 1,
        at: UnixMicros(20),
        outcome: Outcome::Killed { signal: 9 },
        message: Some("out of memory".into()),
        peak: Some(Bytes(9 << 30)),
        note: Some("again with 12.0 GiB".into()),
        verdict: Verdict::Again,
    };
    writer.send(lines([1, 2]));
    let place = writer.send(Record::Started(start.clone()));
    until_committed(&writer, place);
    writer.send(Record::AttemptEnded(end.clone()));
    writer.send(Record::Started(Start {
        attempt: 2,
        ..start
    }));
    writer.send(Record::AttemptEnded(End {
        attempt: 2,
        outcome: Outcome::Failed { code: 3 },
        verdict: Verdict::Final,
        ..end
    }));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let id = TaskId::new(lock.run(), 1);
    let (task, attempts) = reader.task(id).unwrap().unwrap();
    assert_eq!(task.outcome, Some(Outcome::Failed { code: 3 }));
    assert_eq!(task.attempts, 2);
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].outcome, Some(Outcome::Killed { signal: 9 }));
    for attempt in &attempts {
        assert_eq!(attempt.started, Some(UnixMicros(10)));
        assert_eq!(attempt.ended, Some(UnixMicros(20)));
        assert_eq!(attempt.device.as_deref(), Some("gpu 0+1"));
        assert_eq!(attempt.message.as_deref(), Some("out of memory"));
        assert_eq!(attempt.peak, Some(Bytes(9 << 30)));
        assert_eq!(attempt.note.as_deref(), Some("again with 12.0 GiB"));
    }
    let listed = reader.tasks(lock.run(), Select::All, 0, 10).unwrap();
    assert_eq!(listed[0].last.as_ref(), attempts.last());
    assert_eq!(listed[1].last, None);
}

#[test]
fn a_task_that_asks_for_one_thing_only_is_not_a_plain_one() {
    let wishes = [
        Overrides {
            gpus: Some(GpuRequest::Share(Milli(0))),
            ..Overrides::default()
        },
        Overrides {
            vram: Some(Vram::Auto),
            ..Overrides::default()
        },
        Overrides {
            cpu: Some(Milli(0)),
            ..Overrides::default()
        },
        Overrides {
            ram: Some(Bytes(0)),
            ..Overrides::default()
        },
        Overrides {
            model: Some("A100".into()),
            ..Overrides::default()
        },
        Overrides {
            signature: Some("".into()),
            ..Overrides::default()
        },
        Overrides {
            folder: Some("/f".into()),
            ..Overrides::default()
        },
    ];
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let wishful = |(number, wish): (u32, &Overrides)| NewTask {
        overrides: Some(Box::new(wish.clone())),
        ..line(number)
    };
    writer.send(Record::Tasks((1..).zip(&wishes).map(wishful).collect()));
    writer.send(lines([100]));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let read = reader.unfinished(lock.run(), 0, 99).unwrap();
    let read: Vec<_> = read.into_iter().map(|task| task.overrides).collect();
    assert_eq!(read[..wishes.len()], wishes);
    let plain = reader.plain_unfinished(lock.run(), 0, 99).unwrap();
    let plain: Vec<_> = plain.iter().map(|task| task.id.number).collect();
    assert_eq!(plain, [100]);
}

#[test]
fn a_probe_is_attempt_0_and_does_not_use_up_a_number() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    writer.send(lines([1]));
    until_committed(&writer, writer.send(started(1, 0)));
    let reader = Reader::open(&stable.home).unwrap();
    assert_eq!(reader.counts(lock.run()).unwrap().running, 1);
    writer.send(ended(1, 0, Outcome::Failed { code: 1 }, Verdict::Again));
    writer.finish().unwrap();
    let (task, attempts) = reader.task(TaskId::new(lock.run(), 1)).unwrap().unwrap();
    assert_eq!((task.outcome, task.attempts), (None, 0));
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].attempt, 0);
    assert_eq!(attempts[0].outcome, Some(Outcome::Failed { code: 1 }));
}

#[test]
fn unfinished_is_what_has_no_final_outcome_page_by_page() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    writer.send(lines(1..=10));
    for task in [1, 2, 4, 5, 6, 9] {
        writer.send(started(task, 1));
        writer.send(succeeded(task));
    }
    writer.send(started(7, 1));
    writer.send(Record::TaskFinished {
        task: 8,
        outcome: Outcome::Interrupted,
    });
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let page = |after, limit| -> Vec<u32> {
        let tasks = reader.unfinished(lock.run(), after, limit).unwrap();
        tasks.iter().map(|task| task.id.number).collect()
    };
    assert_eq!(page(0, 2), [3, 7]);
    assert_eq!(page(7, 2), [8, 10]);
    assert_eq!(page(10, 2), Vec::<u32>::new());
    let seven = &reader.unfinished(lock.run(), 6, 1).unwrap()[0];
    assert_eq!(seven.attempts, 1, "the next attempt is the second");
}

#[test]
fn tasks_of_another_run_are_not_mixed_in() {
    let stable = stable();
    let runs = [(); 2].map(|()| {
        let (writer, lock) = begin(&stable.home);
        writer.send(lines([1, u32::MAX]));
        writer.finish().unwrap();
        lock.run()
    });
    let reader = Reader::open(&stable.home).unwrap();
    for run in runs {
        let tasks = reader.tasks(run, Select::All, 0, 10).unwrap();
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
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let run = lock.run();
    writer.send(lines(1..=5));
    writer.send(succeeded(1));
    writer.send(ended(2, 1, Outcome::Failed { code: 1 }, Verdict::Final));
    writer.send(ended(3, 1, Outcome::TimedOut, Verdict::Final));
    for (task, outcome) in [(4, Outcome::Skipped), (5, Outcome::Interrupted)] {
        writer.send(Record::TaskFinished { task, outcome });
    }
    writer.send(Record::InputComplete);
    writer.send(run_ended(1));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let failed: Vec<u32> = reader
        .failed(run, 0, 10)
        .unwrap()
        .iter()
        .map(|t| t.id.number)
        .collect();
    assert_eq!(failed, [2, 3, 4]);
    let before = reader.counts(run).unwrap();
    let expected = Counts {
        succeeded: 1,
        failed: 1,
        timed_out: 1,
        skipped: 1,
        interrupted: 1,
        ..Counts::default()
    };
    assert_eq!(before, expected);

    let writer = Writer::start(&stable.home, run).unwrap();
    let place = writer.send(Record::Reopened {
        tasks: failed.into(),
    });
    until_committed(&writer, place);
    let open = Counts {
        waiting: 3,
        succeeded: 1,
        interrupted: 1,
        ..Counts::default()
    };
    assert_eq!(reader.counts(run).unwrap(), open);
    writer.send(Record::RunResumed {
        pid: 7,
        host: "mule".into(),
    });
    for task in 2..=5 {
        writer.send(started(task, 2));
        writer.send(ended(task, 2, Outcome::Succeeded, Verdict::Final));
    }
    writer.send(run_ended(0));
    writer.finish().unwrap();
    drop(lock);
    let read = reader.run(run).unwrap().unwrap();
    assert_eq!((read.counts.succeeded, read.counts.total()), (5, 5));
    assert_eq!((read.state, read.exit), (RunState::Finished, Some(0)));
    assert_eq!((read.pid, read.host.as_str()), (7, "mule"));
}

#[test]
fn a_resumed_run_does_not_count_the_dead_processs_attempts_as_running() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    writer.send(lines([1, 2]));
    let place = writer.send(started(1, 1));
    until_committed(&writer, place);
    let reader = Reader::open(&stable.home).unwrap();
    let counts = reader.counts(lock.run()).unwrap();
    assert_eq!((counts.running, counts.waiting), (1, 1));
    let place = writer.send(Record::RunResumed {
        pid: 7,
        host: "mule".into(),
    });
    until_committed(&writer, place);
    let counts = reader.counts(lock.run()).unwrap();
    assert_eq!((counts.running, counts.waiting), (0, 2));
}

#[test]
fn a_run_is_running_while_its_lock_is_held_and_died_if_it_never_said_its_end() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let run = lock.run();
    writer.send(lines([1]));
    writer.finish().unwrap();
    let reader = Reader::open(&stable.home).unwrap();
    let state = || reader.run(run).unwrap().unwrap().state;
    assert_eq!(state(), RunState::Running);
    drop(lock);
    assert_eq!(state(), RunState::Died);
    let lock = stable.home.lock_run(run).unwrap();
    let writer = Writer::start(&stable.home, run).unwrap();
    writer.send(run_ended(130));
    writer.finish().unwrap();
    drop(lock);
    assert_eq!(state(), RunState::Interrupted);
}

#[test]
fn writing_a_record_twice_changes_nothing() {
    let stable = stable();
    let (writer, lock) = begin(&stable.home);
    let records = [lines([1]), started(1, 1), succeeded(1), run_ended(0)];
    for record in records.iter().chain(&records) {
        until_committed(&writer, writer.send(record.clone()));
    }
    let reader = Reader::open(&stable.home).unwrap();
    let (_, attempts) = reader.task(TaskId::new(lock.run(), 1)).unwrap().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(reader.counts(lock.run()).unwrap().succeeded, 1);
}
