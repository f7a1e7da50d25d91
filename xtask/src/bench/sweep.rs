//! A grid of a million commands, and a handful out of a million million.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contest::{Contestant, interleave};
use super::figures::{median, megabytes, ms};
use super::process::Run;
use super::report::{Section, Table, Target};
use super::stage::Stage;

const ROUNDS: usize = 7;
const ROUNDS_OF_THE_ORIGINAL: usize = 3;
const MOST_SECONDS: f64 = 0.3;
const MOST_BYTES: u64 = 8_000_000;
/// No one notices a command that is over this soon.
const AT_ONCE_MS: f64 = 20.0;

pub fn measure(stage: &Stage) -> Result<Section> {
    let folder = stage.folder()?;
    let home = folder.path().join("home");
    let (our_grid, their_grid) = (folder.path().join("ours"), folder.path().join("theirs"));

    let ours = || {
        let mut command = stage.packhorse(&home)?;
        grid(command.arg("sweep"), &["a", "b", "c"], 100);
        command.args(["--sampling-mode", "grid"]);
        stage.run(command.stdout(create(&our_grid)?))
    };
    let sample = || {
        let mut command = stage.packhorse(&home)?;
        grid(command.arg("sweep"), &["a", "b", "c", "d"], 1000);
        stage.run(command.args(["--n-samples", "10"]))
    };
    let mut contestants = vec![
        Contestant::new("packhorse sweep, 10^6 grid", stage.rounds(ROUNDS), ours),
        Contestant::new("packhorse sweep, 10 of 10^12", stage.rounds(ROUNDS), sample),
    ];
    let original = stage.peer("simple_hypersearch");
    let compared = original.is_some();
    if let Some(program) = original {
        let name = "simple_hypersearch, 10^6 grid";
        let their_grid = &their_grid;
        let run = move || {
            let mut command = stage.command(&program)?;
            grid(&mut command, &["a", "b", "c"], 100);
            command.args(["--sampling-mode", "grid"]);
            stage.run(command.stdout(create(their_grid)?))
        };
        let rounds = stage.rounds(ROUNDS_OF_THE_ORIGINAL);
        contestants.push(Contestant::new(name, rounds, run));
    }
    let runs = interleave(&contestants)?;
    if compared {
        ensure!(
            same(&our_grid, &their_grid)?,
            "our grid is not that of simple_hypersearch"
        );
    }

    let mut table = Table::new(["program", "time", "peak memory"]);
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
                grid_seconds < MOST_SECONDS,
            ),
            Target::new(
                "10^6 grid: less than 8 MB",
                megabytes(peak(&runs[0])),
                peak(&runs[0]) < MOST_BYTES,
            ),
            Target::new(
                "10 of 10^12: at once (less than 20 ms)",
                format!("{:.1} ms", wall(&runs[1])),
                wall(&runs[1]) < AT_ONCE_MS,
            ),
        ],
    })
}

/// A template over these parameters, and so many values for each.
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

fn create(path: &Path) -> Result<File> {
    Ok(fs_err::File::create(path)?.into_file())
}

/// By another process: what we read ourselves would be counted as memory of
/// the programs that we start afterwards.
fn same(ours: &Path, theirs: &Path) -> Result<bool> {
    let mut cmp = Command::new("cmp");
    let status = cmp.arg("-s").arg(ours).arg(theirs).status();
    Ok(status.context("cmp")?.success())
}

fn wall(runs: &[Run]) -> f64 {
    median(runs.iter().map(|run| ms(run.wall)))
}

fn peak(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.peak).max().unwrap_or(0)
}
