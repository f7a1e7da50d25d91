//! 50 ms jobs on 4 slots: how long a slot stands empty between two of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::contest::{Contestant, interleave};
use super::figures::{median, median_ratio, ms};
use super::report::{Section, Table, Target};
use super::stage::Stage;

const JOBS: usize = 200;
const SLOTS: usize = 4;
const MILLISECONDS: &str = "50";
const ROUNDS: usize = 7;

pub fn measure(stage: &Stage) -> Result<Section> {
    let rounds = stage.rounds(ROUNDS);
    let limit = Contestant::new("limit", rounds, || {
        let folder = stage.folder()?;
        let stamps = folder.path().join("stamps");
        let mut command = stage.limit(SLOTS, JOBS)?;
        command.arg(&stage.job).arg(&stamps).arg(MILLISECONDS);
        stage.run(&mut command)?;
        gaps_in(&stamps)
    });
    let ours = Contestant::new("packhorse --slots", rounds, || {
        let folder = stage.folder()?;
        let stamps = folder.path().join("stamps");
        let commands = folder.path().join("commands");
        let (job, stamps) = (stage.job.display(), &stamps);
        let line = format!("{job} {} {MILLISECONDS}\n", stamps.display());
        fs_err::write(&commands, line.repeat(JOBS))?;
        let mut command = stage.packhorse(&folder.path().join("home"))?;
        command.args(["run", "--slots", &SLOTS.to_string()]);
        stage.run(command.arg(&commands))?;
        gaps_in(stamps)
    });
    let contestants = [limit, ours];
    let found = interleave(&contestants)?;

    let mut table = Table::new(["program", "median gap", "longest gap", "of the limit"]);
    let medians: Vec<Vec<f64>> = found
        .iter()
        .map(|rounds| {
            let gaps = rounds.iter().map(|gaps| gaps.iter().copied().map(ms));
            gaps.map(median).collect()
        })
        .collect();
    let longest = |index: usize| {
        ms(found[index]
            .iter()
            .flatten()
            .copied()
            .max()
            .unwrap_or_default())
    };
    for (index, contestant) in contestants.iter().enumerate() {
        table.row([
            contestant.name.clone(),
            format!("{:.3} ms", median(medians[index].iter().copied())),
            format!("{:.2} ms", longest(index)),
            format!("{:.3}", median_ratio(&medians[index], &medians[0])),
        ]);
    }
    let ratio = median_ratio(&medians[1], &medians[0]);
    Ok(Section {
        title: "gap: from one job to the next",
        what: format!(
            "{JOBS} jobs of {MILLISECONDS} ms on {SLOTS} slots, {rounds} times. A gap is the time \
             from a job's last act to the first act of the one that takes its slot."
        ),
        table,
        targets: vec![
            Target::new(
                "dispatch gap within 1.15 of the limit's",
                format!("{ratio:.3}"),
                ratio <= 1.15,
            ),
            Target::new(
                "no gap beyond 5 ms",
                format!("{:.2} ms", longest(1)),
                longest(1) < 5.0,
            ),
        ],
    })
}

/// Reads what the jobs wrote.
fn gaps_in(stamps: &Path) -> Result<Vec<Duration>> {
    let stamps = stamps_in(stamps)?;
    ensure!(stamps.len() == JOBS, "{} of {JOBS} jobs ran", stamps.len());
    Ok(gaps(&stamps, SLOTS))
}

/// The start and end of every job in the file, in nanoseconds.
pub fn stamps_in(path: &Path) -> Result<Vec<(u64, u64)>> {
    let text = fs_err::read_to_string(path)?;
    text.lines()
        .map(|line| {
            let (start, end) = line.split_once(' ').context("half a line of stamps")?;
            Ok((start.parse()?, end.parse()?))
        })
        .collect()
}

/// Which slot a job was on is not known, nor does it matter: the first end
/// makes room for the first start after the slots were full, and so on.
fn gaps(stamps: &[(u64, u64)], slots: usize) -> Vec<Duration> {
    let (mut starts, mut ends): (Vec<u64>, Vec<u64>) = stamps.iter().copied().unzip();
    starts.sort_unstable();
    ends.sort_unstable();
    let pairs = ends.iter().zip(starts.iter().skip(slots));
    pairs
        .map(|(end, start)| Duration::from_nanos(start.saturating_sub(*end)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_matched_with_the_start_that_took_its_room() {
        // Two slots; written in the order in which the jobs ended.
        let stamps = [(0, 100), (10, 150), (103, 200), (155, 260)];
        let gaps = gaps(&stamps, 2);
        assert_eq!(gaps, [3, 5].map(Duration::from_nanos));
    }
}
