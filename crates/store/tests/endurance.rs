//! Nothing that was said to be safe is lost: several writers at once, SIGKILL,
//! a full disk, a database that somebody removes.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use packhorse_model::{Outcome, RunId, TaskId};
use packhorse_store::{Home, Reader, Record, RunState, StoreError, Unwritten, Writer};
use support::*;

/// Writes one task after another and tells which are safe, until killed or
/// until it has written as many as it was told to.
#[test]
#[ignore = "a program for other tests"]
fn write_and_tell() {
    let Some(home) = given_home() else { return };
    let tasks = std::env::var("STORE_TEST_TASKS").map_or(u32::MAX, |text| text.parse().unwrap());
    let (mut writer, lock) = begin(&home);
    println!("run {}", lock.run());
    let mut place = 0;
    let mut told = 0;
    for task in 1..=tasks {
        let id = TaskId::new(lock.run(), task);
        writer.send(lines_of(lock.run(), [task]));
        writer.send(started(id, 1));
        place = writer.send(succeeded(id));
        let safe = writer.committed();
        if safe > told {
            told = safe;
            println!("safe {safe}");
        }
        if writer.unwritten().records > 5000 {
            wait_for_event(&writer);
        }
    }
    until_committed(&writer, place);
    writer.finish().unwrap();
}

/// Records of `write_and_tell` up to this place are this many tasks' ends.
fn tasks_ended(place: u64) -> u64 {
    place.saturating_sub(1) / 3
}

#[test]
fn sigkill_loses_nothing_that_was_safe() {
    let test = test_home();
    // Killed after one word, after a few, after many: before the first commit
    // of tasks, between commits, and past the first checkpoint.
    for words in [1, 2, 5, 30, 100] {
        let mut child = child("write_and_tell", &test.home).stdout(Stdio::piped()).spawn().unwrap();
        let mut run = None;
        let mut safe = 0;
        let mut heard = 0;
        let output = BufReader::new(child.stdout.take().unwrap());
        for line in output.lines().map(Result::unwrap) {
            if let Some(number) = line.strip_prefix("run ") {
                run = Some(number.parse::<RunId>().unwrap());
            } else if let Some(place) = line.strip_prefix("safe ") {
                safe = place.parse().unwrap();
            } else {
                continue;
            }
            heard += 1;
            if heard == words {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let run = run.unwrap();
        assert!(heard >= words);
        assert!(!test.home.is_running(run).unwrap());
        let counts = Reader::open(&test.home).unwrap().counts(run).unwrap();
        assert!(counts.succeeded >= tasks_ended(safe), "{safe}: {counts:?}");
        assert!(counts.waiting <= 1, "a batch is whole: {counts:?}");
    }
}

/// Has all its tasks in the database, then ends one after another and tells so,
/// until it is killed.
#[test]
#[ignore = "a program for other tests"]
fn end_tasks_and_tell() {
    let Some(home) = given_home() else { return };
    let (writer, _lock) = begin(&home);
    until_committed(&writer, writer.send(lines(1..=900)));
    for task in 1..=900 {
        writer.send(started(id(task), 1));
        if task % 7 == 0 {
            let outcome = Outcome::Failed { code: 3 };
            writer.send(ended_for_now(id(task), 1, outcome));
            println!("again {task}");
        } else {
            writer.send(succeeded(id(task)));
            println!("ended {task}");
        }
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn sigkill_loses_no_end_that_was_sent() {
    for lines in [1, 3, 20, 500] {
        let test = test_home();
        let mut child = child("end_tasks_and_tell", &test.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = Vec::new();
        let output = BufReader::new(child.stdout.take().unwrap());
        for line in output.lines().map(Result::unwrap) {
            let number = |task: &str| task.parse::<u32>().unwrap();
            if let Some(task) = line.strip_prefix("ended ") {
                told.push((number(task), Some(Outcome::Succeeded)));
            } else if let Some(task) = line.strip_prefix("again ") {
                told.push((number(task), None));
            }
            if told.len() == lines {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let reader = Reader::open(&test.home).unwrap();
        let left = crash_journals(&test.home);
        assert!(left.is_empty(), "it is recovered once");
        for (number, outcome) in &told {
            let id = TaskId::new(first_run(), *number);
            let (task, attempts) = reader.task(id).unwrap().unwrap();
            assert_eq!(task.outcome, *outcome, "{id} of {}", told.len());
            let [attempt] = attempts.as_slice() else {
                panic!("{attempts:?}");
            };
            assert_eq!(attempt.device.as_deref(), Some("gpu 0"));
            assert!(attempt.started.is_some() && attempt.ended.is_some());
            let failed = Outcome::Failed { code: 3 };
            assert_eq!(attempt.outcome, outcome.or(Some(failed)));
        }
        let run = reader.run(first_run()).unwrap().unwrap();
        assert_eq!(run.state, RunState::Died);
        // The next process goes on from there.
        test.home.lock_run(first_run()).unwrap();
    }
}

#[test]
fn what_is_recovered_is_of_known_tasks_of_this_run_and_of_this_boot() {
    let (test, path, bytes) = journal_of_a_dead_process();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= byte;
        bytes
    };
    for other in [with(16, 1), with(32, 1), bytes[..64].to_vec(), Vec::new()] {
        assert_eq!(after_recovery(&test, &path, &other), (1, 0));
        assert!(!path.exists());
    }
    // One of a newer program is not for us.
    assert_eq!(after_recovery(&test, &path, &with(7, 1)), (1, 0));
    assert!(path.exists());
    assert_eq!(after_recovery(&test, &path, &bytes), (0, 1));
    assert!(!path.exists());
}

#[test]
fn a_crash_journal_that_cannot_be_read_does_not_keep_others_from_being_recovered() {
    let (test, path, bytes) = journal_of_a_dead_process();
    let folder = path.parent().unwrap();
    for name in ["1.5", "1", "notes"] {
        fs_err::create_dir(folder.join(name)).unwrap();
    }
    assert_eq!(after_recovery(&test, &path, &bytes), (0, 1));
    test.home.lock_run(first_run()).unwrap();
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    const TASKS: u32 = 3000;
    let test = test_home();
    let mut children: Vec<_> = (0..3)
        .map(|_| {
            child("write_and_tell", &test.home)
                .env("STORE_TEST_TASKS", TASKS.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let runs = Reader::open(&test.home).unwrap().runs(10).unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run.counts.succeeded, u64::from(TASKS), "run {}", run.id);
    }
}

/// Meets a limit on the size of files, sees trouble, has the limit lifted and
/// goes on; or, told so, ends with the limit still there.
#[test]
#[ignore = "a program for other tests"]
fn write_against_a_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(home) = given_home() else { return };
    let (mut writer, lock) = begin(&home);
    let run = lock.run();
    writer.ready().unwrap();
    let place = writer.send(lines(1..=5000));
    while writer.trouble().is_none() {
        wait_for_event(&writer);
    }
    assert!(writer.committed() < place);
    assert!(writer.unwritten().bytes > 5000);
    if std::env::var_os("STORE_TEST_STAY_FULL").is_some() {
        let error = writer.finish().unwrap_err();
        assert!(matches!(error, StoreError::RecordsLost { .. }), "{error}");
        println!("lost: {error}");
        return;
    }
    assert_eq!(writer.kept(), place);
    // More ends than its crash journal can grow to have.
    for number in 1..=1000 {
        writer.send(succeeded(id(number)));
    }
    let last = writer.send(succeeded(id(5000)));
    let kept = writer.kept() - place;
    assert!((100..1000).contains(&kept), "{kept}");
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit }).unwrap();
    until_committed(&writer, last);
    assert_eq!(writer.kept(), last);
    assert_eq!(writer.trouble(), None);
    assert_eq!(writer.unwritten(), Unwritten::default());
    writer.finish().unwrap();
    let counts = Reader::open(&home).unwrap().counts(run).unwrap();
    assert_eq!((counts.waiting, counts.succeeded), (3999, 1001));
    println!("all written");
}

/// Runs `write_against_a_limit` where no file can grow past 100 kB: to SQLite
/// that is a disk without room.
fn against_a_limit(home: &Home) -> Command {
    let program = child("write_against_a_limit", home);
    let mut shell = Command::new("sh");
    // The signal that would end the process is ignored: writes fail instead.
    shell.args(["-c", r#"trap "" XFSZ; ulimit -S -f 200; exec "$@""#, "sh"]);
    shell.arg(program.get_program()).args(program.get_args());
    shell.env("STORE_TEST_HOME", home.path());
    shell
}

#[test]
fn a_full_disk_is_told_and_waited_out() {
    let test = test_home();
    let output = against_a_limit(&test.home).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("all written"), "{output:?}");
}

#[test]
fn what_a_full_disk_kept_from_being_written_is_told_at_the_end() {
    let test = test_home();
    let output = against_a_limit(&test.home).env("STORE_TEST_STAY_FULL", "yes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("records of run 1 could not be written"), "{said}");
}

#[test]
fn a_database_that_was_removed_is_put_back_with_all_that_was_in_it() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    until_committed(&writer, writer.send(lines(1..=100)));
    for name in ["packhorse.db", "packhorse.db-wal", "packhorse.db-shm"] {
        fs_err::remove_file(test.home.path().join(name)).unwrap();
    }
    writer.send(started(id(1), 1));
    writer.send(succeeded(id(1)));
    writer.finish().unwrap();
    let counts = Reader::open(&test.home).unwrap().counts(lock.run()).unwrap();
    assert_eq!((counts.succeeded, counts.waiting), (1, 99));
}

#[test]
fn a_database_in_another_ones_place_is_told_and_not_written_over() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    until_committed(&writer, writer.send(lines(1..=10)));
    let names = ["packhorse.db", "packhorse.db-wal"].map(|name| test.home.path().join(name));
    for name in &names {
        let other = test.home.path().join("other");
        fs_err::write(&other, "something of the user's").unwrap();
        fs_err::rename(&other, name).unwrap();
    }
    writer.send(succeeded(id(1)));
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("removed or replaced"), "{error}");
    for name in &names {
        let kept = fs_err::read_to_string(name).unwrap();
        assert_eq!(kept, "something of the user's");
    }
}

#[test]
fn a_home_that_vanishes_stops_nothing_and_is_told() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    until_committed(&writer, writer.send(lines(1..=10)));
    fs_err::remove_dir_all(test.home.path()).unwrap();
    writer.send(succeeded(id(1)));
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("hint:"), "{error}");
}

#[test]
fn what_a_killed_writer_left_half_done_is_undone_by_whoever_reads() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(lines(1..=10));
    writer.finish().unwrap();
    // A rollback journal, as on a network disk, in the middle of a change that
    // is in part in the database already.
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    let half = "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN; \
                UPDATE task SET outcome = 4; \
                WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) \
                INSERT INTO task (id, outcome, words, command) SELECT i, 4, 0, x'00' FROM n;";
    db.execute_batch(half).unwrap();
    let after_death = test_home();
    for name in ["packhorse.db", "packhorse.db-journal"] {
        let copy = after_death.home.path().join(name);
        fs_err::copy(test.home.path().join(name), copy).unwrap();
    }
    let reader = Reader::open(&after_death.home).unwrap();
    let counts = reader.counts(lock.run()).unwrap();
    assert_eq!((counts.waiting, counts.total()), (10, 10));
}

#[test]
fn a_writer_that_is_dropped_still_writes_what_it_was_sent() {
    let test = test_home();
    let (writer, lock) = begin(&test.home);
    writer.send(lines(1..=10));
    writer.send(Record::TaskFinished { task: id(3), outcome: Outcome::Skipped });
    drop(writer);
    let counts = Reader::open(&test.home).unwrap().counts(lock.run()).unwrap();
    assert_eq!((counts.total(), counts.failed), (10, 1));
}

#[test]
fn unwritten_is_what_is_sent_and_not_yet_safe() {
    let test = test_home();
    // No thread can write while this holds the database.
    let (writer, lock) = begin(&test.home);
    until_committed(&writer, 1);
    let other = rusqlite::Connection::open(test.home.db()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    writer.send(lines(1..=1000));
    let place = writer.send(started(id(1), 1));
    let unwritten = writer.unwritten();
    assert_eq!(unwritten.records, 2);
    assert!(unwritten.bytes > 10_000, "{unwritten:?}");
    other.execute_batch("COMMIT").unwrap();
    until_committed(&writer, place);
    assert_eq!(writer.unwritten(), Unwritten::default());
    assert!(lock.run() == first_run());
}

#[test]
fn writers_of_one_process_do_not_disturb_each_other() {
    let test = test_home();
    let runs = std::thread::scope(|scope| {
        let write = || {
            let (mut writer, lock) = begin(&test.home);
            for task in 1..=500 {
                let id = TaskId::new(lock.run(), task);
                writer.send(lines_of(lock.run(), [task]));
                writer.send(started(id, 1));
                writer.send(succeeded(id));
            }
            Writer::finish(&mut writer).unwrap();
            lock.run()
        };
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>()
    });
    let reader = Reader::open(&test.home).unwrap();
    for run in runs {
        assert_eq!(reader.counts(run).unwrap().succeeded, 500);
    }
}
