use packhorse_model::Bytes;

use super::*;

fn end(message: &str) -> Record {
    Record::AttemptEnded(End {
        task: 7,
        attempt: 2,
        at: UnixMicros(-5),
        outcome: Outcome::Killed { signal: 9 },
        message: Some(message.into()),
        peak: Some(Bytes(1 << 40)),
        note: None,
        verdict: Verdict::Again,
    })
}

fn start(task: u32) -> Record {
    Record::Started(Start {
        task,
        attempt: 0,
        at: UnixMicros(1),
        device: None,
    })
}

fn skipped(task: u32) -> Record {
    Record::TaskFinished {
        task,
        outcome: Outcome::Skipped,
    }
}

/// A slate, and what whoever takes it in finds on it.
fn noted(act: impl FnOnce(&mut Slate)) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path()).unwrap();
    let mut slate = Slate::new(&home, RunId(1)).unwrap().unwrap();
    act(&mut slate);
    let said = read(&fs_err::read(&slate.path).unwrap()).unwrap().unwrap();
    let found = said.records;
    found.iter().map(|record| format!("{record:?}")).collect()
}

fn as_text(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| format!("{record:?}")).collect()
}

#[test]
fn all_kinds_read_back_as_they_were_noted() {
    let records = [
        start(1),
        Record::Started(Start {
            task: u32::MAX,
            attempt: 3,
            at: UnixMicros(i64::MAX),
            device: Some("GPU-01234567-89ab-cdef-0123-456789abcdef".into()),
        }),
        end("no such file"),
        skipped(4),
    ];
    let found = noted(|slate| {
        slate.note(1, &Record::InputComplete);
        for (place, record) in (2..).zip(&records) {
            slate.note(place, record);
        }
    });
    assert_eq!(found, as_text(&records));
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let found = noted(|slate| slate.note(1, &end(&"€".repeat(100))));
    assert_eq!(found, as_text(&[end(&"€".repeat(29))]));
}

#[test]
fn what_is_committed_is_not_found_and_its_room_is_used_again() {
    let found = noted(|slate| {
        for place in 1..=5 {
            slate.note(place, &skipped(1));
        }
        slate.set_committed(4, false);
        slate.note(6, &skipped(2));
        slate.set_committed(6, true);
        slate.note(7, &skipped(3));
    });
    assert_eq!(found, as_text(&[skipped(3)]));
}

#[test]
fn the_newest_are_kept_in_their_order_when_there_are_too_many() {
    let most = u32::try_from(ENTRIES).unwrap();
    let found = noted(|slate| {
        for task in 1..=most + 3 {
            slate.note(task.into(), &skipped(task));
        }
    });
    let kept: Vec<Record> = (4..=most + 3).map(skipped).collect();
    assert_eq!(found, as_text(&kept));
}

#[test]
fn a_start_is_noted_with_the_next_end() {
    let found = noted(|slate| {
        slate.note(1, &start(1));
        slate.note(2, &start(2));
        slate.set_committed(2, true);
        slate.note(3, &start(3));
        slate.note(4, &skipped(1));
        slate.note(5, &start(4));
    });
    assert_eq!(found, as_text(&[start(3), skipped(1)]));
}
