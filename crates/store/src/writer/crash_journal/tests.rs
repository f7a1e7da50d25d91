use packhorse_model::Bytes;

use super::*;

const RUN: RunId = RunId(1);

fn id(number: u32) -> TaskId {
    TaskId::new(RUN, number)
}

fn end(message: &str) -> Record {
    Record::AttemptEnded(EndedAttempt {
        task: id(7),
        attempt: 2,
        at: Timestamp(-5),
        outcome: Outcome::Killed { signal: 9 },
        message: Some(message.into()),
        peak: Some(Bytes(1 << 40)),
        note: None,
        is_final: false,
    })
}

fn start(task: u32) -> Record {
    Record::Started(StartedAttempt { task: id(task), attempt: 0, at: Timestamp(1), device: None })
}

fn skipped(task: u32) -> Record {
    Record::TaskFinished { task: id(task), outcome: Outcome::Skipped }
}

/// What whoever recovers a journal finds in it.
fn found_after(act: impl FnOnce(&mut CrashJournal)) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path().join("home")).unwrap();
    let facts = NewRun {
        uuid: Uuid::from_bytes([5; 16]),
        started: Timestamp(3),
        cwd: "/work".into(),
        argv: vec!["run".into()],
        host: String::new(),
        pid: 7,
        spec: RunSpec::default(),
    };
    let journal = CrashJournal::create(&home, RUN, Some(&facts));
    let mut journal = journal.unwrap().unwrap();
    act(&mut journal);
    let bytes = fs_err::read(&journal.path).unwrap();
    let contents = read(RUN, &bytes).unwrap().unwrap();
    assert_eq!(contents.uuid, Some([5; 16]));
    as_text(&contents.records)
}

fn as_text(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| format!("{record:?}")).collect()
}

#[test]
fn all_kinds_read_back_as_they_were_added() {
    let records = [
        start(1),
        Record::Started(StartedAttempt {
            task: id(u32::MAX),
            attempt: 3,
            at: Timestamp(i64::MAX),
            device: Some("GPU-01234567-89ab-cdef-0123-456789abcdef".into()),
        }),
        end("no such file"),
        skipped(4),
        Record::InputComplete { run: RUN },
        Record::RunEnded { run: RUN, at: Timestamp(9), exit: 130 },
    ];
    let found = found_after(|journal| {
        journal.add(1, &Record::Tasks(Vec::new()));
        journal.set_committed(1);
        for (place, record) in (2..).zip(&records) {
            journal.add(place, record);
        }
    });
    assert_eq!(found, as_text(&records));
}

#[test]
fn input_is_not_complete_where_tasks_are_lost() {
    let ended = Record::RunEnded { run: RUN, at: Timestamp(9), exit: 0 };
    let found = found_after(|journal| {
        journal.add(1, &Record::Tasks(Vec::new()));
        journal.add(2, &Record::InputComplete { run: RUN });
        journal.add(3, &ended);
    });
    assert_eq!(found, as_text(&[ended]));
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let found = found_after(|journal| journal.add(1, &end(&"€".repeat(100))));
    assert_eq!(found, as_text(&[end(&"€".repeat(29))]));
}

#[test]
fn what_is_committed_is_not_found_and_its_room_is_used_again() {
    let found = found_after(|journal| {
        for place in 1..=5 {
            journal.add(place, &skipped(1));
        }
        journal.set_committed(4);
        journal.add(6, &skipped(2));
        journal.set_committed(6);
        assert_eq!(journal.next, 0);
        journal.add(9, &skipped(3));
    });
    assert_eq!(found, as_text(&[skipped(3)]));
}

#[test]
fn what_is_not_committed_is_not_overwritten() {
    let found = found_after(|journal| {
        journal.add(2, &skipped(1));
        journal.set_committed(1);
        journal.add(3, &skipped(2));
    });
    assert_eq!(found, as_text(&[skipped(1), skipped(2)]));
}

#[test]
fn a_start_is_written_with_the_next_end() {
    let found = found_after(|journal| {
        journal.add(1, &start(1));
        journal.add(2, &start(2));
        journal.set_committed(2);
        journal.add(3, &start(3));
        journal.add(4, &skipped(1));
        journal.add(5, &start(4));
    });
    assert_eq!(found, as_text(&[start(3), skipped(1)]));
}

#[test]
fn starts_that_were_committed_are_not_written_with_a_later_end() {
    let found = found_after(|journal| {
        journal.add(1, &skipped(9));
        journal.add(2, &start(1));
        journal.set_committed(2);
        journal.add(3, &skipped(1));
    });
    assert_eq!(found, as_text(&[skipped(1)]));
}

#[test]
fn what_is_not_committed_for_long_is_not_overwritten() {
    let many = u32::try_from(ENTRIES).unwrap() * 3;
    let found = found_after(|journal| {
        for task in 1..=many {
            journal.add(task.into(), &skipped(task));
        }
        journal.set_committed(10);
    });
    assert_eq!(found.len(), many as usize - 10);
    let found = found_after(|journal| {
        // While commits keep up, the file stays small.
        for task in 1..=many {
            journal.add(task.into(), &skipped(task));
            journal.set_committed(u64::from(task).saturating_sub(100));
        }
        assert_eq!(journal.places.len(), ENTRIES);
    });
    assert_eq!(found.len(), 100);
}
