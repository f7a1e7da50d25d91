//! Ten thousand tasks with random peaks on 8 GPUs: the real binary and NVML calls, a fake
//! driver and fake CUDA programs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::lines;
use super::load::{KINDS, SyntheticLoad};
use crate::bench::environment::BenchEnvironment;
use crate::bench::fake_machine::FakeMachine;
use crate::bench::process;
use crate::bench::report::Section;
use crate::bench::statistics::{Measured, ratio};

/// How many thousand tasks.
const THOUSANDS: usize = 10;

/// How long it may take, as a multiple of the lower bound.
const MOST: f64 = 1.15;

/// After this many successes, the peak of a kind is well known.
const KNOWN: u32 = 20;

/// How the tasks ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct EndCounts {
    succeeded: u32,
    failed: u32,
    /// Attempts that ran out of memory.
    out_of_memory: u32,
    /// Those of them whose kind was well known.
    though_known: u32,
    /// Attempts that died because a neighbour used more than it was promised.
    collateral: u32,
}

pub fn measure(bench: &BenchEnvironment, section: &mut Section) -> Result<()> {
    let tasks = bench.rounds(THOUSANDS) * 1000;
    let load = SyntheticLoad::new(tasks);
    let simulated = bench.simulate(["load", &tasks.to_string()])?;
    let (wall, ends) = run(bench, &load)?;

    let bound = simulated.get("bound_s")?;
    let ours = wall.as_secs_f64();
    section.part(
        "Tasks of 20 kinds with random peaks (1 to 12 GiB, within 4 % of their kind's) and \
         durations, growing in steps, on 8 simulated GPUs of 24 GiB: the real binary, NVML calls \
         and processes. From an earlier trial run it has learned 60 % of what each kind needs. The \
         bound is memory × time, or the longest task.",
        ["program", "time", "of the bound"],
    );
    let mut row = |program: &str, seconds: f64| {
        let time = Measured(seconds, 0, " s");
        section.row([&program, &time, &ratio(seconds / bound)]);
    };
    row("lower bound: memory × time", bound);
    row("packhorse run --vram auto", ours);
    for (program, figure) in [
        ("its scheduler, had it known each peak", "known_s"),
        ("the original, one on each GPU", "original_each_s"),
        ("the original, which uses one GPU", "original_one_s"),
    ] {
        row(&format!("{program} (simulated)"), simulated.get(figure)?);
    }
    let name = format!("{tasks} tasks within {MOST} of the lower bound");
    section.at_most(name, ratio(ours / bound), MOST);
    section.target(
        "all succeed",
        format!("{} of {tasks}", ends.succeeded),
        usize::try_from(ends.succeeded) == Ok(tasks) && ends.failed == 0,
    );
    section.target(
        format!("none runs out of memory once {KNOWN} of its kind have succeeded"),
        format!(
            "{} (before that {}; victims of a neighbour: {})",
            ends.though_known,
            ends.out_of_memory - ends.though_known,
            ends.collateral
        ),
        ends.though_known == 0,
    );
    Ok(())
}

/// Runs one task of each kind, from which too small a peak is learned, then the load.
fn run(bench: &BenchEnvironment, load: &SyntheticLoad) -> Result<(Duration, EndCounts)> {
    let machine = FakeMachine::new(bench, load.gpus, load.capacity.0)?;
    let program = machine.cuda_program();
    let home = machine.folder().join("home");
    let packhorse = |input: &str| -> Result<Command> {
        let path = machine.folder().join("commands");
        fs_err::write(&path, input)?;
        let mut command = machine.packhorse(bench, &home)?;
        command
            .args(["run", "--vram", "auto", "--json"])
            .stdin(fs_err::File::open(&path)?.into_file());
        Ok(command)
    };
    bench.run(&mut packhorse(&lines::wrong_guesses(load, &program))?)?;

    let events = machine.folder().join("events");
    let mut command = packhorse(&lines::all(load, &program))?;
    command.stdout(fs_err::File::create(&events)?.into_file());
    let run = process::run(&mut command)?;
    let ends = read(&events, load)?;
    // It fails if a task does, which is counted.
    if ends.failed == 0 {
        bench.check(&command, &run)?;
    }
    Ok((run.wall, ends))
}

fn read(events: &Path, load: &SyntheticLoad) -> Result<EndCounts> {
    let text = fs_err::read_to_string(events)?;
    let events = text.lines().map(serde_json::from_str::<Value>);
    count(&events.collect::<Result<Vec<_>, _>>()?, load)
}

fn count(events: &[Value], load: &SyntheticLoad) -> Result<EndCounts> {
    let mut ends = EndCounts::default();
    let mut known = [0_u32; KINDS as usize];
    for event in events {
        let name = event["event"].as_str().unwrap_or("");
        if name != "retrying" && name != "finished" {
            continue;
        }
        let kind = kind(event, load)?;
        let note = event["note"].as_str().or(event["message"].as_str());
        let note = note.unwrap_or("");
        if note.contains("outgrew") {
            ends.collateral += 1;
        } else if note.contains("out of GPU memory") {
            ends.out_of_memory += 1;
            ends.though_known += u32::from(known[kind] >= KNOWN);
        }
        if name == "finished" && event["outcome"] == "succeeded" {
            ends.succeeded += 1;
            known[kind] += 1;
        } else if name == "finished" {
            ends.failed += 1;
        }
    }
    Ok(ends)
}

/// The kind of an event's task.
fn kind(event: &Value, load: &SyntheticLoad) -> Result<usize> {
    let id = event["task"].as_str().unwrap_or("");
    let number = id.rsplit('.').next().and_then(|text| text.parse().ok());
    let place = number.and_then(|number: usize| number.checked_sub(1));
    let task = place.and_then(|place| load.tasks.get(place));
    Ok(task.with_context(|| format!("no such task: {event}"))?.kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let mut load = SyntheticLoad::new(100);
        for task in &mut load.tasks {
            task.kind = 0;
        }
        let retry = |note: &str| json!({"event": "retrying", "task": "1.1", "note": note});
        let done = json!({"event": "finished", "task": "1.2", "outcome": "succeeded"});
        let lost = json!({"event": "finished", "task": "1.3", "outcome": "failed"});
        let mut events = vec![
            json!({"event": "started", "task": "1.1"}),
            retry("out of GPU memory (a text), seen at 1.0 GiB of 1.0 GiB"),
            retry("out of GPU memory (a text), because 1.4 outgrew what it was promised"),
            lost,
        ];
        events.extend(vec![done; 20]);
        events.push(retry("out of GPU memory (a text)"));
        let wanted = EndCounts {
            succeeded: 20,
            failed: 1,
            out_of_memory: 2,
            though_known: 1,
            collateral: 1,
        };
        assert_eq!(count(&events, &load).unwrap(), wanted);
        let stranger = json!({"event": "finished", "task": "1.101", "outcome": "succeeded"});
        assert!(count(&[stranger], &load).is_err());
    }
}
