//! 50 ms jobs on 4 slots: how long a slot is empty between two of them.
//!
//! On a virtual machine the longest gap of a round is usually a moment in which the host ran
//! something else on our cores. The kernel counts that time as stolen, so the longest gap is
//! shown for all rounds, and for those in which nothing was stolen. Rounds are short, so that
//! there are such rounds.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ms, ratio};

const JOBS: usize = 40;
const SLOTS: usize = 4;
const MILLISECONDS: &str = "50";
const ROUNDS: usize = 75;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let rounds = bench.rounds(ROUNDS);
    let limit = Contestant::new("limit", rounds, || {
        let folder = bench.folder()?;
        let stamps = folder.path().join("stamps");
        let mut command = bench.limit(SLOTS, JOBS)?;
        command.arg(&bench.job).arg(&stamps).arg(MILLISECONDS);
        GapRound::measure(&stamps, || bench.run(&mut command))
    });
    let ours = Contestant::new("packhorse --slots", rounds, || {
        let folder = bench.folder()?;
        let stamps = folder.path().join("stamps");
        let commands = folder.path().join("commands");
        let job = bench.job.display();
        let line = format!("{job} {} {MILLISECONDS}\n", stamps.display());
        fs_err::write(&commands, line.repeat(JOBS))?;
        let mut command = bench.packhorse(&folder.path().join("home"))?;
        command.args(["run", "--slots", &SLOTS.to_string()]);
        command.arg(&commands);
        GapRound::measure(&stamps, || bench.run(&mut command))
    });
    let contestants = [limit, ours];
    let found = interleave(&contestants)?;

    let mut section = Section::new("gap: from one job to the next");
    section.part(
        format!(
            "{JOBS} jobs of {MILLISECONDS} ms on {SLOTS} slots, {rounds} times. A gap is the time \
             from the end of a job to the start of the one that takes its slot."
        ),
        ["program", "median gap", "longest gap", "longest, nothing stolen", "of the limit"],
    );
    let medians: Vec<Vec<f64>> =
        found.iter().map(|rounds| rounds.iter().map(GapRound::median).collect()).collect();
    let quiet: Vec<Measured> =
        found.iter().map(|rounds| longest(rounds.iter().filter(|round| !round.stolen))).collect();
    for (index, contestant) in contestants.iter().enumerate() {
        let rounds = &found[index];
        let undisturbed = rounds.iter().filter(|round| !round.stolen).count();
        section.row([
            &contestant.name,
            &Measured(median(medians[index].iter().copied()), 3, " ms"),
            &longest(rounds),
            &format!("{} in {undisturbed} rounds", quiet[index]),
            &ratio(median_ratio(&medians[index], &medians[0])),
        ]);
    }
    let gap = ratio(median_ratio(&medians[1], &medians[0]));
    section.at_most("dispatch gap within 1.15 of the limit's", gap, 1.15);
    section.target(
        "no gap beyond 5 ms while nothing is stolen",
        format!("{}, limit {}", quiet[1], quiet[0]),
        quiet[1].0 > 0.0 && quiet[1].0 < 5.0,
    );
    Ok(section)
}

/// One run of all jobs.
struct GapRound {
    gaps: Vec<Duration>,
    /// Whether the host took a core away during it.
    stolen: bool,
}

impl GapRound {
    fn measure<T>(stamps: &Path, run: impl FnOnce() -> Result<T>) -> Result<Self> {
        let before = stolen_ticks()?;
        run()?;
        let stolen = stolen_ticks()? > before;
        let stamps = stamps_in(stamps)?;
        ensure!(stamps.len() == JOBS, "{} of {JOBS} jobs ran", stamps.len());
        Ok(Self { gaps: gaps(&stamps, SLOTS), stolen })
    }

    fn median(&self) -> f64 {
        median(self.gaps.iter().copied().map(ms))
    }
}

fn longest<'r>(rounds: impl IntoIterator<Item = &'r GapRound>) -> Measured {
    let gaps = rounds.into_iter().flat_map(|round| &round.gaps);
    Measured(ms(gaps.copied().max().unwrap_or_default()), 2, " ms")
}

/// How much time the host has stolen since boot, in ticks of 10 ms.
fn stolen_ticks() -> Result<u64> {
    let stat = fs_err::read_to_string("/proc/stat")?;
    let stolen = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(8));
    Ok(stolen.context("/proc/stat has no time stolen")?.parse()?)
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

/// Which slot a job ran on is not known and does not matter: the first end makes room for
/// the first start after the slots were full, and so on.
fn gaps(stamps: &[(u64, u64)], slots: usize) -> Vec<Duration> {
    let (mut starts, mut ends): (Vec<u64>, Vec<u64>) = stamps.iter().copied().unzip();
    starts.sort_unstable();
    ends.sort_unstable();
    let pairs = ends.iter().zip(starts.iter().skip(slots));
    pairs.map(|(end, start)| Duration::from_nanos(start.saturating_sub(*end))).collect()
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
