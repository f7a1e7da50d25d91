//! Grid files of millions of tests: expanded, named, compared and listed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::{FinishedProcess, count_lines, peak};
use super::report::Section;
use super::statistics::{Measured, median, megabytes, ms};

const ROUNDS: usize = 5;

/// How much more memory four times as many tests may take.
const NOISE: f64 = 1.0;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let home = folder.path().join("home");
    let grids = [
        ("10^6 tests", "million", 100, 30),
        ("4 · 10^6 tests", "four", 400, 30),
        // The two values of a parameter are alike up to their third character.
        ("10^6 tests, names shared by two", "shared", 100, 2),
    ];
    for (_, name, first, longest) in grids {
        fs_err::write(folder.path().join(name).with_extension("yaml"), file(first, longest)?)?;
    }
    let list = |name: &'static str| {
        let (home, folder) = (home.clone(), folder.path().to_owned());
        move || {
            let mut command = bench.packhorse(&home)?;
            bench.run(listed(&mut command, &folder, name)?)
        }
    };
    let contestants: Vec<Contestant<'_, FinishedProcess>> = grids
        .map(|(title, name, ..)| Contestant::new(title, bench.rounds(ROUNDS), list(name)))
        .into();
    let runs = interleave(&contestants)?;
    let lines = count_lines(&folder.path().join("million.txt"))?;
    ensure!(lines == 1_000_000, "{lines} tests were listed");

    let mut section = Section::new("grid: tests out of a grid file");
    section.part(
        "`packhorse grid FILE --list`: every test is made, its folder is named, all names are \
         compared, the folder of results is looked at, and a line is written to a file.",
        ["grid", "time", "peak memory"],
    );
    for (contestant, runs) in contestants.iter().zip(&runs) {
        section.row([&contestant.name, &wall(runs), &megabytes(peak(runs))]);
    }
    section.less_than("10^6 tests: less than 3 s", wall(&runs[0]), 3.0);
    let more = megabytes(peak(&runs[1])).0 - megabytes(peak(&runs[0])).0;
    let name = "constant memory: 4 · 10^6 tests take less than 1 MB more than 10^6";
    section.less_than(name, Measured(more, 1, " MB"), NOISE);
    Ok(section)
}

/// A grid of `first` · 10^4 tests.
fn file(first: usize, longest: usize) -> Result<String> {
    let mut text = format!(
        "scheduler_config: {{gpu: ['0'], config_string_value_maxlen: {longest}}}\n\
         command: python train.py\n\
         test_config:\n  -\n"
    );
    for (key, count) in [("layer", first), ("seed", 100), ("warmup", 50)] {
        let values: Vec<String> = (10..10 + count).map(|value| value.to_string()).collect();
        writeln!(text, "    {key}: [{}]", values.join(", "))?;
    }
    writeln!(text, "    method: [GAN, GAN-CR]")?;
    Ok(text)
}

fn listed<'c>(command: &'c mut Command, folder: &Path, name: &str) -> Result<&'c mut Command> {
    let list = fs_err::File::create(folder.join(name).with_extension("txt"))?;
    let file = folder.join(name).with_extension("yaml");
    // Where there are results, their folder is looked at for every test.
    fs_err::create_dir_all(folder.join("results"))?;
    command.current_dir(folder).arg("grid").arg(file).arg("--list");
    Ok(command.stdout(list.into_file()))
}

fn wall(runs: &[FinishedProcess]) -> Measured {
    Measured(median(runs.iter().map(|run| ms(run.wall))) / 1e3, 2, " s")
}
