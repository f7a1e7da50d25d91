//! A grid of a million commands, and ten samples of a grid of a million million.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::FinishedProcess;
use super::report::{MarkdownTable, Section, Target};
use super::statistics::{median, megabytes, ms};

const ROUNDS: usize = 7;
const ROUNDS_OF_THE_ORIGINAL: usize = 3;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let home = folder.path().join("home");
    let (our_grid, their_grid) = (folder.path().join("ours"), folder.path().join("theirs"));

    let ours = || {
        let mut command = bench.packhorse(&home)?;
        bench.run(million(command.arg("sweep"), &our_grid)?)
    };
    let sample = || {
        let mut command = bench.packhorse(&home)?;
        grid(command.arg("sweep"), &["a", "b", "c", "d"], 1000);
        bench.run(command.args(["--n-samples", "10"]))
    };
    let mut contestants = vec![
        Contestant::new("packhorse sweep, 10^6 grid", bench.rounds(ROUNDS), ours),
        Contestant::new("packhorse sweep, 10 of 10^12", bench.rounds(ROUNDS), sample),
    ];
    if let Some(program) = bench.peer("simple_hypersearch") {
        let name = "simple_hypersearch, 10^6 grid";
        let their_grid = &their_grid;
        let run = move || {
            let mut command = bench.command(&program)?;
            bench.run(million(&mut command, their_grid)?)
        };
        let rounds = bench.rounds(ROUNDS_OF_THE_ORIGINAL);
        contestants.push(Contestant::new(name, rounds, run));
    }
    let runs = interleave(&contestants)?;
    if their_grid.exists() {
        let is_same = same(&our_grid, &their_grid)?;
        ensure!(is_same, "our grid is not that of simple_hypersearch");
    }

    let mut table = MarkdownTable::new(["program", "time", "peak memory"]);
    for (contestant, runs) in contestants.iter().zip(&runs) {
        let time = format!("{:.1} ms", wall(runs));
        table.row([contestant.name.clone(), time, megabytes(peak(runs))]);
    }
    let grid_seconds = wall(&runs[0]) / 1e3;
    Ok(Section {
        title: "sweep: commands out of a grid",
        what: "A grid of 10^6 commands written to a file, and 10 samples of a grid of 10^12."
            .into(),
        table,
        targets: vec![
            Target::new(
                "10^6 grid: less than 0.3 s",
                format!("{grid_seconds:.3} s"),
                grid_seconds < 0.3,
            ),
            Target::new(
                "10^6 grid: less than 8 MB",
                megabytes(peak(&runs[0])),
                peak(&runs[0]) < 8_000_000,
            ),
            Target::new(
                "10 of 10^12: at once (less than 20 ms)",
                format!("{:.1} ms", wall(&runs[1])),
                // Nobody notices a command that ends this soon.
                wall(&runs[1]) < 20.0,
            ),
        ],
    })
}

/// A template of these parameters, with this many values for each.
fn grid(command: &mut Command, parameters: &[&str], values: usize) {
    let options: Vec<String> = parameters
        .iter()
        .map(|name| format!(" --{name} {{{name}}}"))
        .collect();
    command.arg(format!("python train.py{}", options.concat()));
    for name in parameters {
        command.args(["-p", name]);
        command.args((0..values).map(|value| value.to_string()));
    }
}

/// A grid of a million commands, written to a file.
fn million<'c>(command: &'c mut Command, path: &Path) -> Result<&'c mut Command> {
    grid(command, &["a", "b", "c"], 100);
    command.args(["--sampling-mode", "grid"]);
    Ok(command.stdout(fs_err::File::create(path)?.into_file()))
}

/// Compares in another process: what we read ourselves would count as memory of the
/// programs that we start afterwards.
fn same(ours: &Path, theirs: &Path) -> Result<bool> {
    let mut cmp = Command::new("cmp");
    let status = cmp.arg("-s").arg(ours).arg(theirs).status();
    Ok(status.context("cmp")?.success())
}

fn wall(runs: &[FinishedProcess]) -> f64 {
    median(runs.iter().map(|run| ms(run.wall)))
}

fn peak(runs: &[FinishedProcess]) -> u64 {
    runs.iter().map(|run| run.peak).max().unwrap_or(0)
}
