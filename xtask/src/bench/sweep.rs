//! A grid of a million commands, and ten samples of a grid of a million million.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::{FinishedProcess, peak};
use super::report::Section;
use super::statistics::{Measured, median, megabytes, ms};

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

    let mut section = Section::new("sweep: commands out of a grid");
    section.part(
        "A grid of 10^6 commands written to a file, and 10 samples of a grid of 10^12.",
        ["program", "time", "peak memory"],
    );
    for (contestant, runs) in contestants.iter().zip(&runs) {
        section.row([&contestant.name, &wall(runs), &megabytes(peak(runs))]);
    }
    let grid = Measured(wall(&runs[0]).0 / 1e3, 3, " s");
    section.less_than("10^6 grid: less than 0.3 s", grid, 0.3);
    let memory = megabytes(peak(&runs[0]));
    section.less_than("10^6 grid: less than 8 MB", memory, 8.0);
    // Nobody notices a command that ends this soon.
    let name = "10 of 10^12: at once (less than 20 ms)";
    section.less_than(name, wall(&runs[1]), 20.0);
    Ok(section)
}

/// A template of these parameters, with this many values for each.
fn grid(command: &mut Command, parameters: &[&str], values: usize) {
    let options: Vec<String> =
        parameters.iter().map(|name| format!(" --{name} {{{name}}}")).collect();
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

fn wall(runs: &[FinishedProcess]) -> Measured {
    Measured(median(runs.iter().map(|run| ms(run.wall))), 1, " ms")
}
