//! What one run learns, later ones know: peaks, broken GPUs, counters.

mod support;

use std::collections::HashSet;
use std::time::Duration;

use packhorse_model::{Bytes, LearnedPeak, PeakOrigin, RunId, Timestamp};
use packhorse_store::{DrainedDevice, Forget, Home, LearnedSignature, NewPeak, Reader, Record};
use support::*;

/// The sample that is told apart by its time.
fn sample(at: i64) -> LearnedPeak {
    LearnedPeak {
        at: Timestamp(at),
        peak: Bytes(at.cast_unsigned() << 20),
        error: Bytes(7),
        duration: Some(Duration::from_micros(1_234_567)),
        origin: PeakOrigin::Run,
    }
}

fn peak(task: u32, signature: &str, model: &str, learned: LearnedPeak) -> Record {
    Record::Peak(Box::new(NewPeak {
        task: id(task),
        attempt: 1,
        signature: signature.into(),
        model: model.into(),
        learned,
    }))
}

fn drained(device: &str, reason: &str, at: i64) -> Record {
    Record::Drained {
        run: first_run(),
        device: device.into(),
        reason: reason.into(),
        at: Timestamp(at),
    }
}

/// The times of the samples of one signature and model.
#[expect(clippy::unwrap_used, reason = "this is part of tests")]
fn times(home: &Home, signature: &str, model: &str) -> Vec<i64> {
    let samples = Reader::open(home).unwrap().peaks(signature).unwrap();
    let samples = samples.get(model).map(Vec::as_slice).unwrap_or_default();
    samples.iter().map(|sample| sample.at.0).collect()
}

#[test]
fn without_a_database_nothing_is_learned_broken_or_made() {
    let test = test_home();
    let reader = Reader::open(&test.home).unwrap();
    assert!(reader.peaks("python").unwrap().is_empty());
    assert_eq!(reader.signatures().unwrap(), []);
    assert_eq!(reader.drained().unwrap(), []);
    assert_eq!(test.home.forget(Forget::All).unwrap(), 0);
    assert!(!test.home.restore("GPU-1").unwrap());
    assert!(!test.home.db().exists(), "asking must not create one");
}

#[test]
fn samples_read_back_for_each_model_newest_first() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    let probed = LearnedPeak { duration: None, origin: PeakOrigin::Probe, ..sample(20) };
    let burst =
        LearnedPeak { peak: Bytes(80 << 30), origin: PeakOrigin::OutOfMemory, ..sample(30) };
    writer.send(peak(1, "train", "A100", sample(10)));
    writer.send(peak(2, "train", "A100", burst));
    writer.send(peak(3, "train", "A100", probed));
    writer.send(peak(4, "train", "H100", sample(40)));
    writer.send(peak(5, "eval", "A100", sample(50)));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let read = reader.peaks("train").unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(read["A100"], [burst, probed, sample(10)]);
    assert_eq!(read["H100"], [sample(40)]);
    let learned = |signature: &str, model: &str, peaks, highest, newest| LearnedSignature {
        signature: signature.to_owned(),
        model: model.to_owned(),
        peaks,
        highest: Bytes(highest),
        newest: Timestamp(newest),
    };
    let expected = [
        learned("eval", "A100", 1, 50 << 20, 50),
        learned("train", "H100", 1, 40 << 20, 40),
        learned("train", "A100", 3, 80 << 30, 30),
    ];
    assert_eq!(reader.signatures().unwrap(), expected);
}

#[test]
fn what_an_attempt_took_in_the_end_replaces_what_was_seen_while_it_grew() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    let seen = |at, origin| LearnedPeak { origin, ..sample(at) };
    for at in [10, 20] {
        writer.send(peak(1, "train", "A100", seen(at, PeakOrigin::Growing)));
    }
    writer.send(peak(2, "train", "A100", seen(30, PeakOrigin::Growing)));
    writer.send(peak(1, "train", "A100", seen(40, PeakOrigin::GrewLate)));
    writer.finish().unwrap();
    let read = Reader::open(&test.home).unwrap().peaks("train").unwrap();
    let left = [seen(40, PeakOrigin::GrewLate), seen(30, PeakOrigin::Growing)];
    assert_eq!(read["A100"], left);
}

#[test]
fn the_newest_64_of_each_signature_and_model_are_kept() {
    let test = test_home();
    let (writer, _lock) = begin(&test.home);
    writer.send(peak(1, "train", "H100", sample(999)));
    writer.send(peak(1, "other", "A100", sample(999)));
    // Some in one batch, some in batches of their own, and not in order.
    for task in (1..=50).rev() {
        writer.send(peak(task, "train", "A100", sample(task.into())));
    }
    for task in 51..=100 {
        let place = writer.send(peak(task, "train", "A100", sample(task.into())));
        until_committed(&writer, place);
    }
    let newest: Vec<i64> = (37..=100).rev().collect();
    assert_eq!(times(&test.home, "train", "A100"), newest);
    until_committed(&writer, writer.send(peak(9, "train", "A100", sample(36))));
    assert_eq!(times(&test.home, "train", "A100"), newest);
    assert_eq!(times(&test.home, "train", "H100"), [999]);
    assert_eq!(times(&test.home, "other", "A100"), [999]);
}

#[test]
fn of_samples_of_one_moment_64_are_kept_as_well() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    for task in 1..=70 {
        writer.send(peak(task, "train", "A100", sample(5)));
    }
    writer.finish().unwrap();
    assert_eq!(times(&test.home, "train", "A100").len(), 64);
}

#[test]
fn a_peak_that_is_written_twice_counts_once() {
    let test = test_home();
    let (writer, _lock) = begin(&test.home);
    for _ in 0..2 {
        let place = writer.send(peak(1, "train", "A100", sample(10)));
        until_committed(&writer, place);
    }
    assert_eq!(times(&test.home, "train", "A100"), [10]);
}

#[test]
fn a_family_is_found_with_its_members_and_nobody_else() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    let names = ["a #", "a # [1]", "a # [2]", "a #5", "a # b [1]", "a # \\", "a", "b [1]"];
    for (task, signature) in (1..).zip(names) {
        writer.send(peak(task, signature, "A100", sample(task.into())));
    }
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let found = reader.family_peaks("a #").unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a #", "a # [1]", "a # [2]"]);
    assert_eq!(found["a # [1]"], reader.peaks("a # [1]").unwrap());
}

#[test]
fn one_signature_is_forgotten_or_all_of_them() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    for (task, signature) in (1..).zip(["train", "eval", "plot"]) {
        writer.send(peak(task, signature, "A100", sample(task.into())));
        writer.send(peak(task, signature, "H100", sample(task.into())));
    }
    writer.finish().unwrap();
    let home = &test.home;
    assert_eq!(home.forget(Forget::Signature("nothing")).unwrap(), 0);
    assert_eq!(home.forget(Forget::Signature("train")).unwrap(), 2);
    assert!(times(home, "train", "A100").is_empty());
    assert_eq!(times(home, "eval", "H100"), [2]);
    assert_eq!(home.forget(Forget::All).unwrap(), 4);
    assert_eq!(Reader::open(home).unwrap().signatures().unwrap(), []);
}

#[test]
fn a_broken_gpu_stays_out_with_its_first_reason_until_it_is_put_back() {
    let test = test_home();
    let (mut writer, lock) = begin(&test.home);
    writer.send(drained("GPU-1", "fell off the bus", 10));
    writer.send(drained("GPU-2", "stopped answering", 5));
    writer.send(drained("GPU-1", "still gone", 20));
    writer.finish().unwrap();
    let expected = |device: &str, reason: &str, at, run| DrainedDevice {
        device: device.to_owned(),
        reason: reason.to_owned(),
        at: Timestamp(at),
        run,
    };
    let reader = Reader::open(&test.home).unwrap();
    assert_eq!(
        reader.drained().unwrap(),
        [
            expected("GPU-2", "stopped answering", 5, lock.run()),
            expected("GPU-1", "fell off the bus", 10, lock.run()),
        ]
    );
    assert!(test.home.restore("GPU-1").unwrap());
    assert!(!test.home.restore("GPU-1").unwrap());
    assert_eq!(reader.drained().unwrap().len(), 1);
    let (mut writer, _lock) = begin(&test.home);
    writer.send(Record::Drained {
        run: RunId(7),
        device: "GPU-1".into(),
        reason: "again".into(),
        at: Timestamp(30),
    });
    writer.finish().unwrap();
    let last = reader.drained().unwrap().pop();
    assert_eq!(last, Some(expected("GPU-1", "again", 30, RunId(7))));
}

#[test]
fn what_belongs_to_no_run_can_be_changed_while_one_is_written() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    until_committed(&writer, writer.send(drained("GPU-1", "gone", 1)));
    assert!(test.home.restore("GPU-1").unwrap());
    assert_eq!(test.home.next_ids("csv", 1).unwrap(), 1);
    writer.send(peak(1, "train", "A100", sample(10)));
    writer.finish().unwrap();
    assert_eq!(times(&test.home, "train", "A100"), [10]);
}

#[test]
fn counters_count_from_one_and_apart_from_each_other() {
    let test = test_home();
    let next = |name, count| test.home.next_ids(name, count).unwrap();
    assert_eq!(next("csv", 20), 1);
    assert_eq!(next("csv", 5), 21);
    assert_eq!(next("other", 1), 1);
    assert_eq!(next("csv", 0), 26);
    assert_eq!(next("csv", 1), 26);
}

#[test]
fn a_counter_gives_no_number_twice_however_many_ask() {
    const EACH: u32 = 3;
    let test = test_home();
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let take = || {
            let ids = || test.home.next_ids("csv", EACH).unwrap();
            (0..10).map(|_| ids()).collect::<Vec<_>>()
        };
        let takers: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        let taken = takers.into_iter().flat_map(|taker| taker.join().unwrap());
        taken.collect()
    });
    let firsts: HashSet<u64> = taken.into_iter().collect();
    let expected: HashSet<u64> = (0..40).map(|place| 1 + place * u64::from(EACH)).collect();
    assert_eq!(firsts, expected);
}
