//! What happened, in few words.

use packhorse_engine::StartAttempt;
use packhorse_model::{Bytes, EventKind, TaskId};

pub(crate) fn gib(amount: u64) -> Bytes {
    Bytes(amount << 30)
}

pub(crate) fn in_gib(bytes: Bytes) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only compared with small amounts")]
    let mebibytes = (bytes.0 >> 20) as f64;
    mebibytes / 1024.0
}

/// A task by what people type: `1.2`.
pub(crate) fn id(task: &str) -> TaskId {
    task.parse().unwrap()
}

fn devices(start: &StartAttempt) -> String {
    let devices = start.placement.devices.iter();
    let devices: Vec<String> = devices.map(|it| it.device.0.to_string()).collect();
    devices.join(",")
}

/// A task and its GPUs.
pub(super) fn place(start: &StartAttempt) -> String {
    format!("{}@{}", start.task, devices(start))
}

/// An attempt and its GPUs.
pub(super) fn start(start: &StartAttempt) -> String {
    format!("{}#{}@{}", start.task, start.attempt, devices(start))
}

pub(super) fn event(event: &EventKind) -> String {
    match event {
        EventKind::RunStarted { run, .. } => format!("run {run} started"),
        EventKind::Known { run, tasks, complete } => {
            let more = if *complete { "" } else { " so far" };
            format!("run {run} has {tasks}{more}")
        }
        EventKind::Started { task, attempt, .. } => format!("started {task}#{attempt}"),
        EventKind::Output { task, line, .. } => format!("output {task}: {line}"),
        EventKind::Metrics { task, values, .. } => format!("metrics of {task}: {values:?}"),
        EventKind::Retrying { task, attempt, note, left, .. } => {
            let note = note.as_deref().unwrap_or_default();
            format!("retrying {task}#{attempt}, {left} left: {note}")
        }
        EventKind::Measured(measured) => {
            format!("measured {} at {}", measured.task, measured.peak)
        }
        EventKind::Finished(result) => {
            let message = result.message.as_deref().unwrap_or_default();
            format!("finished {}: {} {message}", result.task, result.outcome)
        }
        EventKind::Warning { task, message } => match task {
            Some(task) => format!("warning of {task}: {message}"),
            None => format!("warning: {message}"),
        },
        EventKind::Stopping { run, phase, running } => {
            format!("run {run} {phase:?} with {running}")
        }
        EventKind::RunEnded(summary) => {
            format!("run {} ended with {}", summary.run, summary.exit.code())
        }
    }
}
