//! What tasks print as metrics.

use std::collections::BTreeMap;

use packhorse_engine::Input;
use packhorse_model::{
    AttemptMetrics, EventKind, MetricLine, MetricSummary, ProcessEvent, Record, TaskResult,
};

use crate::lab::{FAILED, Lab, OK, SECOND, id, task};

fn line(loss: f64) -> MetricLine {
    MetricLine { values: BTreeMap::from([("loss".to_owned(), loss)]), step: Some(loss * 10.0) }
}

fn prints(lab: &mut Lab, attempt: u32, lines: Vec<MetricLine>) {
    lab.feed(Input::Process(ProcessEvent::Metrics { task: id("1.1"), attempt, lines }));
}

/// A lab with one task that runs.
fn lab(retries: u32) -> Lab {
    let mut lab = Lab::with_slots(1);
    lab.run(1);
    lab.add(1, [task("a").retries(retries)]);
    lab.end_input(1);
    lab.told();
    lab
}

/// What was written down of metrics, and when an attempt ended.
fn recorded(lab: &Lab) -> Vec<String> {
    let records = lab.records.iter().filter_map(|(_, record)| match record {
        Record::Metrics(metrics) => Some(words(metrics)),
        Record::AttemptEnded(end) => Some(format!("#{} ended", end.attempt)),
        _ => None,
    });
    records.collect()
}

fn words(metrics: &AttemptMetrics) -> String {
    let summaries = metrics.metrics.iter().map(|(name, summary)| {
        let MetricSummary { last, lowest, highest, count } = summary;
        format!("{name} {last} {lowest}..{highest} of {count}")
    });
    let summaries: Vec<String> = summaries.collect();
    format!("#{}: {}", metrics.attempt, summaries.join(", "))
}

fn result(events: &[EventKind]) -> &TaskResult {
    let mut results = events.iter().filter_map(|event| match event {
        EventKind::Finished(result) => Some(result),
        _ => None,
    });
    results.next().unwrap()
}

#[test]
fn every_line_is_told_and_a_summary_is_written_down_at_the_end() {
    let mut lab = lab(0);
    prints(&mut lab, 1, vec![line(0.5), line(0.25)]);
    prints(&mut lab, 1, vec![line(0.375)]);
    lab.ends("1.1", OK);
    assert_eq!(recorded(&lab), ["#1: loss 0.375 0.25..0.5 of 3", "#1 ended"]);
    let events = lab.told_events();
    let told = events.iter().filter_map(|event| match event {
        EventKind::Metrics { attempt, values, step, .. } => Some((*attempt, values["loss"], *step)),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    let wanted = [0.5, 0.25, 0.375].map(|loss| (1, loss, Some(loss * 10.0)));
    assert_eq!(told, wanted);
    assert_eq!(result(&events).metrics["loss"].count, 3);
}

#[test]
fn while_it_runs_a_summary_is_written_down_each_second() {
    let mut lab = lab(0);
    for loss in [0.5, 0.25] {
        prints(&mut lab, 1, vec![line(loss)]);
    }
    assert_eq!(recorded(&lab), [] as [&str; 0]);
    let wake = lab.engine.wake_at().unwrap();
    assert_eq!(wake, lab.now + SECOND);
    lab.pass(SECOND);
    assert_eq!(recorded(&lab), ["#1: loss 0.25 0.25..0.5 of 2"]);
    // Nothing has changed, so nothing is written.
    assert_eq!(lab.engine.wake_at(), None);
    lab.pass(SECOND);
    lab.ends("1.1", OK);
    assert_eq!(recorded(&lab).len(), 2);
}

#[test]
fn a_million_lines_make_few_records() {
    let mut lab = lab(0);
    for _ in 0..100 {
        prints(&mut lab, 1, vec![line(0.5); 10_000]);
        lab.told();
        lab.actions.clear();
        lab.pass(SECOND / 50);
    }
    lab.ends("1.1", OK);
    let records = recorded(&lab);
    assert_eq!(records.len(), 3, "{records:?}");
    assert_eq!(records[1], "#1: loss 0.5 0.5..0.5 of 1000000");
}

#[test]
fn the_values_of_the_last_attempt_count() {
    let mut lab = lab(2);
    prints(&mut lab, 1, vec![line(0.125)]);
    lab.ends("1.1", FAILED);
    prints(&mut lab, 2, vec![line(0.5)]);
    // Nobody speaks for an attempt that is over.
    prints(&mut lab, 1, vec![line(9.0)]);
    lab.ends("1.1", FAILED);
    let records = recorded(&lab);
    assert_eq!(
        records,
        ["#1: loss 0.125 0.125..0.125 of 1", "#1 ended", "#2: loss 0.5 0.5..0.5 of 1", "#2 ended",]
    );
    lab.told_events();
    lab.ends("1.1", OK);
    let events = lab.told_events();
    let metrics = &result(&events).metrics;
    assert_eq!(*metrics, BTreeMap::new(), "the third printed none");
}

#[test]
fn a_line_that_is_not_right_is_told_once_a_task() {
    let mut lab = lab(1);
    for _ in 0..2 {
        let wrong = ProcessEvent::WrongMetrics { task: id("1.1"), message: "not right".to_owned() };
        lab.feed(Input::Process(wrong.clone()));
        lab.feed(Input::Process(wrong));
        lab.ends("1.1", FAILED);
    }
    let told = lab.told();
    let warnings = told.iter().filter(|told| told.contains("warning"));
    assert_eq!(warnings.collect::<Vec<_>>(), ["warning of 1.1: not right"], "{told:?}");
}

#[test]
fn names_without_end_are_not_kept() {
    let mut lab = lab(0);
    for number in 0..5000 {
        let values = BTreeMap::from([(format!("loss {number}"), 1.0), ("loss".to_owned(), 2.0)]);
        prints(&mut lab, 1, vec![MetricLine { values, step: None }]);
    }
    lab.ends("1.1", OK);
    let events = lab.told_events();
    let metrics = &result(&events).metrics;
    assert_eq!(metrics.len(), 1000);
    assert_eq!(metrics["loss"].count, 5000);
    let warnings = events.iter().filter(
        |event| matches!(event, EventKind::Warning { message, .. } if message.contains("names")),
    );
    assert_eq!(warnings.count(), 1);
}
