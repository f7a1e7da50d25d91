//! Ten thousand tasks with random peaks on 8 GPUs: the real binary and NVML calls, a fake
//! driver and fake CUDA programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE};
use packhorse_model::Bytes;
use serde_json::Value;

use super::lines;
use super::load::SyntheticLoad;
use crate::bench::environment::BenchEnvironment;
use crate::bench::figures::Figures;
use crate::bench::process;
use crate::bench::report::{MarkdownTable, Target};
use crate::folders::{cargo, target};
use crate::setup::show;

/// How many thousand tasks.
const THOUSANDS: usize = 10;
const KINDS: u32 = 20;
const GPUS: u32 = 8;
const CAPACITY: Bytes = Bytes(24 << 30);
const MEAN: Duration = Duration::from_secs(1);
const SEED: u64 = 1;

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

pub fn measure(bench: &BenchEnvironment) -> Result<(MarkdownTable, Vec<Target>)> {
    let tasks = bench.rounds(THOUSANDS) * 1000;
    let load = SyntheticLoad::new((GPUS, CAPACITY), (tasks, KINDS), MEAN, SEED);
    let simulated = simulate(bench, tasks)?;
    let (wall, ends) = run(bench, &load)?;

    let bound = simulated.get("bound_s")?;
    let ours = wall.as_secs_f64();
    let mut table = MarkdownTable::new(["program", "time", "of the bound"]);
    let mut row = |program: &str, seconds: f64| {
        table.row([
            program.into(),
            format!("{seconds:.0} s"),
            format!("{:.3}", seconds / bound),
        ]);
    };
    row("lower bound: memory × time", bound);
    row("packhorse run --vram auto", ours);
    row(
        "its scheduler, had it known each peak (simulated)",
        simulated.get("known_s")?,
    );
    row(
        "the original, one on each GPU (simulated)",
        simulated.get("original_each_s")?,
    );
    row(
        "the original, which uses one GPU (simulated)",
        simulated.get("original_one_s")?,
    );
    let targets = vec![
        Target::new(
            format!("{tasks} tasks within {MOST} of the lower bound"),
            format!("{:.3}", ours / bound),
            ours / bound <= MOST,
        ),
        Target::new(
            "all succeed",
            format!("{} of {tasks}", ends.succeeded),
            usize::try_from(ends.succeeded) == Ok(tasks) && ends.failed == 0,
        ),
        Target::new(
            format!("none runs out of memory once {KNOWN} of its kind have succeeded"),
            format!(
                "{} (before that {}; victims of a neighbour: {})",
                ends.though_known,
                ends.out_of_memory - ends.though_known,
                ends.collateral
            ),
            ends.though_known == 0,
        ),
    ];
    Ok((table, targets))
}

fn simulate(bench: &BenchEnvironment, tasks: usize) -> Result<Figures> {
    let (tasks, kinds) = (tasks.to_string(), KINDS.to_string());
    let (mean, seed) = (MEAN.as_millis().to_string(), SEED.to_string());
    bench.simulate(["load", &tasks, &kinds, &mean, &seed])
}

/// The fake driver and program, freshly built.
struct FakePrograms {
    library: PathBuf,
    program: PathBuf,
}

impl FakePrograms {
    fn build() -> Result<Self> {
        let mut command = cargo();
        command.args(["build", "--release", "--quiet"]);
        command.args(["--package", "packhorse-fake-nvml"]);
        let name = show(&command);
        let status = command.status().with_context(|| name.clone())?;
        if !status.success() {
            bail!("{name}: {status}");
        }
        let release = target()?.join("release");
        Ok(Self {
            library: release.join("libpackhorse_fake_nvml.so"),
            program: release.join("fake-cuda"),
        })
    }
}

/// Runs one task of each kind, from which too small a peak is learned, then the load.
fn run(bench: &BenchEnvironment, load: &SyntheticLoad) -> Result<(Duration, EndCounts)> {
    let fake = FakePrograms::build()?;
    let folder = bench.folder()?;
    let driver = FakeState::new(folder.path().join("driver"));
    for index in 0..load.gpus {
        let mut device = FakeDevice::new(index);
        device.memory_total = load.capacity.0;
        device.memory_reserved = 0;
        driver.device(&device);
    }
    let home = folder.path().join("home");
    let packhorse = |input: &str| -> Result<Command> {
        let path = folder.path().join("commands");
        fs_err::write(&path, input)?;
        let mut command = bench.packhorse(&home)?;
        command
            .env("PACKHORSE_NVML_LIBRARY", &fake.library)
            .env("PACKHORSE_SYSFS", folder.path().join("sys"))
            .env(STATE_VARIABLE, driver.path())
            .args(["run", "--vram", "auto", "--json"])
            .stdin(Stdio::from(fs_err::File::open(&path)?.into_file()));
        Ok(command)
    };
    let guesses = lines::wrong_guesses(load, &fake.program);
    bench.run(&mut packhorse(&guesses)?)?;

    let events = folder.path().join("events");
    let mut command = packhorse(&lines::all(load, &fake.program))?;
    command.stdout(fs_err::File::create(&events)?.into_file());
    let run = process::run(&mut command)?;
    let ends = read(&events, load)?;
    if !run.status.success() && ends.failed == 0 {
        bail!(
            "{}: {}{}",
            show(&command),
            run.status,
            bench.last_stderr_lines()
        );
    }
    Ok((run.wall, ends))
}

fn read(events: &Path, load: &SyntheticLoad) -> Result<EndCounts> {
    let text = fs_err::read_to_string(events)?;
    let events = text.lines().map(serde_json::from_str::<Value>);
    count(events.collect::<Result<Vec<_>, _>>()?.iter(), load)
}

fn count<'a>(events: impl Iterator<Item = &'a Value>, load: &SyntheticLoad) -> Result<EndCounts> {
    let mut ends = EndCounts::default();
    let mut known = vec![0_u32; KINDS as usize];
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
    let task = task.with_context(|| format!("no such task: {event}"))?;
    Ok(task.kind as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let load = SyntheticLoad::new((GPUS, CAPACITY), (100, 1), MEAN, SEED);
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
        assert_eq!(count(events.iter(), &load).unwrap(), wanted);
        let stranger = json!({"event": "finished", "task": "1.101", "outcome": "succeeded"});
        assert!(count([&stranger].into_iter(), &load).is_err());
    }
}
