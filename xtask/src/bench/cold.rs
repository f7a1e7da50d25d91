//! One job: from just before we are started to the job's first instruction.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use super::environment::BenchEnvironment;
use super::gap::stamps_in;
use super::interleave::{Contestant, interleave};
use super::report::Section;
use super::statistics::{Measured, median};

const ROUNDS: usize = 41;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let rounds = bench.rounds(ROUNDS);
    let folder = bench.folder()?;
    let stamps = folder.path().join("stamps");
    let home = folder.path().join("home");

    let limit = || {
        let mut command = bench.limit(1, 1)?;
        command.arg(&bench.job).arg(&stamps);
        until_first_instruction(bench, &mut command, &stamps)
    };
    let ours = || {
        let mut command = bench.packhorse(&home)?;
        command.args(["run", "--gpus", "0", "--"]);
        command.arg(&bench.job).arg(&stamps);
        until_first_instruction(bench, &mut command, &stamps)
    };
    // The first run creates the database, which happens once per home.
    let first = ours()?;
    let contestants = [
        Contestant::new("limit", rounds, limit),
        Contestant::new("packhorse --gpus 0", rounds, ours),
    ];
    let times = interleave(&contestants)?;

    let mut section = Section::new("cold: one job, from start to first instruction");
    section.part(
        format!(
            "From just before the launcher is started to the job's first instruction, {rounds} \
             times, with a database that exists already."
        ),
        ["program", "to the first instruction"],
    );
    let ms = |time: f64| Measured(time, 2, " ms");
    for (contestant, times) in contestants.iter().zip(&times) {
        let time = ms(median(times.iter().copied()));
        section.row([&contestant.name, &time]);
    }
    section.row([&"packhorse --gpus 0, first run in a new home", &ms(first)]);
    let rounds = times[1].iter().zip(&times[0]);
    let more = ms(median(rounds.map(|(ours, limit)| ours - limit)));
    section.at_most("at most 2 ms more than the limit", more, 2.0);
    Ok(section)
}

/// In milliseconds.
fn until_first_instruction(
    bench: &BenchEnvironment,
    command: &mut Command,
    stamps: &Path,
) -> Result<f64> {
    if stamps.exists() {
        fs_err::remove_file(stamps)?;
    }
    let before = now();
    bench.run(command)?;
    let (start, _) = *stamps_in(stamps)?.first().context("the job did not run")?;
    #[expect(clippy::cast_precision_loss, reason = "a few milliseconds")]
    Ok(start.saturating_sub(before) as f64 / 1e6)
}

/// Nanoseconds of the clock that the job stamps with.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
