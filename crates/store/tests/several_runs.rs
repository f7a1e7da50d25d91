//! One writer serves several runs, and keeps them apart.

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use packhorse_model::{Outcome, RunId, TaskId};
use packhorse_store::{Home, Reader, Record, RunLock, RunState, StoreError, Writer};
use support::*;

/// A writer with two runs of three tasks each, which are committed.
#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn two_runs(home: &Home) -> (Writer, [RunLock; 2]) {
    let writer = Writer::start(home).unwrap();
    let locks = [(); 2].map(|()| {
        let (run, lock) = home.new_run().unwrap();
        writer.send(begins(run));
        until_committed(&writer, writer.send(lines_of(run, 1..=3)));
        lock
    });
    (writer, locks)
}

#[test]
fn records_go_to_their_own_run() {
    let test = test_home();
    let (mut writer, locks) = two_runs(&test.home);
    let [a, b] = [0, 1].map(|place: usize| locks[place].run());
    // The same numbers in both, in one batch.
    for number in 1..=3 {
        writer.send(started(TaskId::new(a, number), 1));
        writer.send(started(TaskId::new(b, number), 1));
    }
    writer.send(succeeded(TaskId::new(a, 1)));
    writer.send(ended(TaskId::new(b, 1), 1, Outcome::TimedOut));
    writer.send(Record::InputComplete { run: a });
    for number in 2..=3 {
        writer.send(succeeded(TaskId::new(a, number)));
    }
    writer.send(run_ended(a, 0));
    writer.send(Record::Reopened { run: b, tasks: Box::new([1]) });
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let counts = |run| reader.counts(run).unwrap();
    assert_eq!((counts(a).succeeded, counts(a).total()), (3, 3));
    assert_eq!(counts(b).running, 2);
    drop(locks);
    let state = |run| reader.run(run).unwrap().unwrap().state;
    assert_eq!((state(a), state(b)), (RunState::Finished, RunState::Died));
}

#[test]
fn a_run_has_a_crash_journal_from_its_begin_to_its_end() {
    let test = test_home();
    let (mut writer, locks) = two_runs(&test.home);
    let [a, b] = [0, 1].map(|place: usize| locks[place].run());
    let journals = || -> Vec<RunId> {
        let files = crash_journals(&test.home).into_iter();
        let run = |file: std::path::PathBuf| file.file_stem()?.to_str()?.parse().ok();
        let mut runs: Vec<RunId> = files.filter_map(run).collect();
        runs.sort_unstable();
        runs
    };
    assert_eq!(journals(), [a, b]);
    until_committed(&writer, writer.send(run_ended(a, 0)));
    assert_eq!(journals(), [b]);
    let resumed = |run| Record::RunResumed { run, pid: 1, host: "ox".into() };
    until_committed(&writer, writer.send(resumed(a)));
    assert_eq!(journals(), [a, b]);
    // It ends and goes on within one batch, while the writer lets records gather.
    writer.send(run_ended(a, 0));
    until_committed(&writer, writer.send(resumed(a)));
    assert_eq!(journals(), [a, b]);
    writer.finish().unwrap();
    assert_eq!(journals(), []);
}

/// Ends tasks of two runs by turns and tells so, until it is killed.
#[test]
#[ignore = "a program for other tests"]
fn end_tasks_of_two_runs_and_tell() {
    let Some(home) = given_home() else { return };
    let writer = Writer::start(&home).unwrap();
    let locks = [(); 2].map(|()| home.new_run().unwrap().1);
    for lock in &locks {
        writer.send(begins(lock.run()));
        until_committed(&writer, writer.send(lines_of(lock.run(), 1..=400)));
    }
    for number in 1..=400 {
        for lock in &locks {
            let task = TaskId::new(lock.run(), number);
            writer.send(started(task, 1));
            writer.send(succeeded(task));
            println!("ended {task}");
        }
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn sigkill_loses_no_end_of_either_run() {
    for lines in [2, 15, 500] {
        let test = test_home();
        let mut child = child("end_tasks_of_two_runs_and_tell", &test.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told: Vec<TaskId> = Vec::new();
        let output = BufReader::new(child.stdout.take().unwrap());
        for line in output.lines().map(Result::unwrap) {
            let Some(task) = line.strip_prefix("ended ") else {
                continue;
            };
            told.push(task.parse().unwrap());
            if told.len() == lines {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        // One of them is resumed before anybody asks for the other.
        drop(test.home.lock_run(RunId(2)).unwrap());
        assert!(crash_journals(&test.home).len() <= 1);
        let reader = Reader::open(&test.home).unwrap();
        for task in &told {
            let outcome = reader.outcome(*task).unwrap();
            assert_eq!(outcome, Some(Outcome::Succeeded), "{task} of {told:?}");
        }
        assert!(crash_journals(&test.home).is_empty());
    }
}

#[test]
fn an_error_names_the_runs_it_is_about() {
    let test = test_home();
    let (mut writer, locks) = two_runs(&test.home);
    let taken = locks[0].run();
    writer.send(begins(taken));
    writer.send(succeeded(TaskId::new(locks[1].run(), 1)));
    let error = writer.finish().unwrap_err();
    let message = error.to_string();
    assert!(message.contains("records of runs 1, 2 could not"), "{message}");
    assert!(message.contains("run 1 is already in the database"), "{message}");
    let StoreError::RecordsLost { runs, records, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((runs.len(), records), (2, 2));
}
