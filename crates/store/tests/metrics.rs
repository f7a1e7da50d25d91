//! What attempts printed as metrics is kept in summaries.

mod support;

use std::collections::BTreeMap;

use packhorse_model::{MetricSummary, Outcome};
use packhorse_store::Reader;
use support::*;

#[test]
fn each_attempt_has_its_own_and_the_latest_record_counts() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    writer.send(lines([1, 2]));
    writer.send(started(id(1), 1));
    writer.send(metrics(id(1), 1, &[9.0]));
    writer.send(ended_for_now(id(1), 1, Outcome::Failed { code: 1 }));
    writer.send(started(id(1), 2));
    writer.send(metrics(id(1), 2, &[0.5, 0.25]));
    writer.send(metrics(id(1), 2, &[0.5, 0.25, 0.375]));
    writer.send(succeeded(id(1)));
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let first = reader.metrics(id(1), 1).unwrap();
    assert_eq!(first["loss"], MetricSummary::of(9.0));
    let second = reader.metrics(id(1), 2).unwrap();
    let wanted = MetricSummary { last: 0.375, lowest: 0.25, highest: 0.5, count: 3 };
    assert_eq!(second, BTreeMap::from([("loss".to_owned(), wanted)]));
    assert_eq!(reader.metrics(id(2), 1).unwrap(), BTreeMap::new());
}

#[test]
fn a_record_that_is_written_twice_comes_out_the_same() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    for _ in 0..2 {
        writer.send(lines([1]));
        writer.send(metrics(id(1), 1, &[f64::MIN_POSITIVE, f64::MAX]));
    }
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let loss = &reader.metrics(id(1), 1).unwrap()["loss"];
    assert_eq!((loss.lowest, loss.highest), (f64::MIN_POSITIVE, f64::MAX));
    assert_eq!(loss.count, 2);
}

#[test]
fn what_is_not_finite_is_kept() {
    let test = test_home();
    let (mut writer, _lock) = begin(&test.home);
    writer.send(lines([1, 2, 3]));
    for (number, values) in [(1, &[0.5, f64::NAN][..]), (2, &[f64::INFINITY]), (3, &[f64::NAN])] {
        writer.send(metrics(id(number), 1, values));
    }
    writer.finish().unwrap();
    let reader = Reader::open(&test.home).unwrap();
    let loss = |number| {
        let summary = reader.metrics(id(number), 1).unwrap()["loss"];
        [summary.last, summary.lowest, summary.highest].map(|value| value.to_string())
    };
    assert_eq!(loss(1), ["NaN", "0.5", "0.5"]);
    assert_eq!(loss(2), ["inf", "inf", "inf"]);
    assert_eq!(loss(3), ["NaN", "NaN", "NaN"]);
}
