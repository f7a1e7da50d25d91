//! Run numbers, locks, and the versions of the database.

mod support;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::process::Stdio;

use packhorse_model::RunId;
use packhorse_store::{Home, Reader, StoreError, Writer};
use rustix::fs::inotify;
use support::*;

#[test]
fn numbers_count_from_one_and_are_never_given_twice() {
    let test = test_home();
    let one = |home: &Home| home.new_run().unwrap().0.0;
    assert_eq!((one(&test.home), one(&test.home)), (1, 2));
    let found: Vec<u32> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..25).map(|_| one(&test.home)).collect::<Vec<_>>()))
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    let different: HashSet<u32> = found.iter().copied().collect();
    assert_eq!(different.len(), 200);
    assert_eq!(different.iter().max(), Some(&202));
}

#[test]
fn a_hint_that_is_lost_torn_or_old_costs_no_number() {
    let test = test_home();
    let next = || test.home.new_run().unwrap().0.0;
    let hint = test.home.runs_dir().join("last");
    for expected in 1..=12 {
        assert_eq!(next(), expected);
    }
    fs_err::write(&hint, "3").unwrap();
    assert_eq!(next(), 13);
    fs_err::write(&hint, "\0\0").unwrap();
    assert_eq!(next(), 14);
    fs_err::write(&hint, "4294967295").unwrap();
    assert_eq!(next(), 15);
    fs_err::remove_file(&hint).unwrap();
    assert_eq!(next(), 16);
}

#[test]
fn a_number_in_the_database_is_not_given_again_when_all_folders_are_gone() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.finish().unwrap();
    drop(lock);
    fs_err::remove_dir_all(test.home.runs_dir()).unwrap();
    assert_eq!(test.home.new_run().unwrap().0, RunId(2));
}

#[test]
fn a_number_that_is_taken_all_the_same_is_refused_and_the_old_run_stays() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(run_ended(lock.run(), 0));
    writer.finish().unwrap();
    let before = Reader::open(&test.home).unwrap().run(lock.run()).unwrap();
    let mut writer = Writer::start(&test.home).unwrap();
    writer.send(begins(lock.run()));
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("run 1 is already in the database"), "{error}");
    let after = Reader::open(&test.home).unwrap().run(lock.run()).unwrap();
    assert_eq!(before, after);
}

#[test]
fn a_run_can_be_taken_by_one_process_at_a_time() {
    let test = test_home();
    let (run, lock) = test.home.new_run().unwrap();
    assert!(test.home.is_running(run).unwrap());
    let error = test.home.lock_run(run).unwrap_err();
    assert!(matches!(error, StoreError::StillRunning { .. }), "{error}");
    drop(lock);
    assert!(!test.home.is_running(run).unwrap());
    let again = test.home.lock_run(run).unwrap();
    assert!(test.home.is_running(run).unwrap());
    drop(again);
    let error = test.home.lock_run(RunId(99)).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchRun { .. }), "{error}");
    assert!(!test.home.is_running(RunId(99)).unwrap());
}

#[test]
fn asking_whether_it_runs_never_keeps_anybody_from_taking_it() {
    let test = test_home();
    let (run, lock) = test.home.new_run().unwrap();
    drop(lock);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let asked = |home: &Home| {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            home.is_running(run).unwrap();
        }
    };
    let missed = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| asked(&test.home));
        }
        let missed = (0..500).filter(|_| test.home.lock_run(run).is_err()).count();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        missed
    });
    assert_eq!(missed, 0);
}

#[test]
fn children_do_not_keep_a_run_alive() {
    let test = test_home();
    let (run, lock) = test.home.new_run().unwrap();
    let mut child = std::process::Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    drop(lock);
    assert!(!test.home.is_running(run).unwrap());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn nothing_the_writer_opens_is_left_to_children() {
    let test = test_home();
    let (writer, _lock) = begin(&test.home);
    writer.ready().unwrap();
    let flags = rustix::io::fcntl_getfd(writer.as_fd()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    for entry in fs_err::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        let Ok(target) = fs_err::read_link(&path) else {
            continue; // the listing's own
        };
        if !target.starts_with(test.home.path()) {
            continue;
        }
        let number = path.file_name().unwrap().to_str().unwrap();
        let info = fs_err::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & 0o2_000_000, 0, "{} is inherited", target.display());
    }
}

#[test]
fn a_database_of_a_newer_version_is_refused_by_everybody_and_left_alone() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    writer.finish().unwrap();
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    db.execute_batch("PRAGMA user_version = 999").unwrap();
    let error = Reader::open(&test.home).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 999, .. }), "{error}");
    let mut writer = Writer::start(&test.home).unwrap();
    writer.send(lines([1]));
    let error = writer.ready().unwrap_err().to_string();
    assert!(error.contains("version 999"), "{error}");
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, StoreError::RecordsLost { records: 1, .. }), "{error}");
    let tasks: i64 = db.query_one("SELECT count(*) FROM task", [], |row| row.get(0)).unwrap();
    assert_eq!(tasks, 0);
}

#[test]
fn the_header_alone_shows_that_a_database_cannot_be_used() {
    let test = test_home();
    test.home.check_database().unwrap();
    let (mut writer, _lock) = begin(&test.home);
    writer.finish().unwrap();
    test.home.check_database().unwrap();
    let db = rusqlite::Connection::open(test.home.db()).unwrap();
    db.execute_batch("PRAGMA user_version = 999").unwrap();
    db.close().unwrap();
    let error = test.home.check_database().unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 999, .. }), "{error}");
    fs_err::write(test.home.db(), "words").unwrap();
    let error = test.home.check_database().unwrap_err();
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
}

#[test]
fn a_database_that_is_not_one_is_named_in_the_error() {
    let test = test_home();
    fs_err::write(test.home.db(), "no database at all, just words ".repeat(99)).unwrap();
    let error = Reader::open(&test.home).unwrap_err().to_string();
    assert!(error.contains("packhorse.db"), "{error}");
    let mut writer = Writer::start(&test.home).unwrap();
    assert!(writer.ready().is_err());
    writer.finish().expect("nothing was sent, so nothing is lost");
}

#[test]
fn a_child_of_a_dead_run_that_has_not_come_to_its_program_is_waited_for() {
    let test = test_home();
    let (run, lock) = test.home.new_run().unwrap();
    drop(lock);
    let path = test.home.run_dir(run).join("lock");
    // The child shares the lock of a process that is dead: the kernel gives no
    // number that high.
    let owner = fs_err::read_to_string(&path).unwrap();
    let (_, host) = owner.split_once(' ').unwrap();
    fs_err::write(&path, format!("{} {host}", i32::MAX)).unwrap();
    let child = fs_err::File::open(&path).unwrap();
    child.file().lock().unwrap();
    std::thread::scope(|scope| {
        let opened = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&opened, &path, inotify::WatchFlags::OPEN).unwrap();
        let taken = scope.spawn(|| test.home.lock_run(run));
        // It looks at the lock.
        rustix::io::read(&opened, &mut [0; 256]).unwrap();
        assert!(!taken.is_finished(), "it was given up");
        child.file().unlock().unwrap();
        assert_eq!(taken.join().unwrap().unwrap().run(), run);
    });
}
