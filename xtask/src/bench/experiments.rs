//! Experiment files of a hundred thousand repetitions: resolved, named and listed.

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

/// How much more memory ten times as many repetitions may take.
const NOISE: f64 = 4.0;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let home = folder.path().join("home");
    let files = [("large", 100), ("huge", 1000)];
    for (name, first) in files {
        let path = folder.path().join(name).with_extension("yml");
        fs_err::write(path, file(first)?)?;
    }
    let list = |name: &'static str, options: &'static [&'static str]| {
        let (home, folder) = (home.clone(), folder.path().to_owned());
        move || {
            let mut command = bench.packhorse(&home)?;
            bench.run(listed(&mut command, &folder, name, options)?)
        }
    };
    let rounds = bench.rounds(ROUNDS);
    let mut contestants: Vec<Contestant<'_, FinishedProcess>> = vec![
        Contestant::new("10^5 repetitions", rounds, list("large", &[])),
        Contestant::new("10^5, as JSON", rounds, list("large", &["--json"])),
        Contestant::new("10^6 repetitions", rounds, list("huge", &[])),
    ];
    if let Some(python) = bench.python_of_originals() {
        let path = folder.path().join("large.yml");
        let program = "import sys\n\
            from cw2.cw_config import cw_config\n\
            assert len(cw_config.Config(sys.argv[1]).exp_configs) == 100_000";
        let name = "cw2 2.5.1, 10^5 repetitions";
        contestants.push(Contestant::new(name, rounds, move || {
            let mut command = bench.command(&python)?;
            bench.run(command.args(["-c", program]).arg(&path))
        }));
    }
    let runs = interleave(&contestants)?;
    let lines = count_lines(&folder.path().join("large.txt"))?;
    ensure!(lines == 100_000, "{lines} repetitions were listed");

    let mut section = Section::new("experiments: repetitions out of an experiment file");
    section.part(
        "`packhorse exp FILE --list`: the file is resolved, every repetition is made and named, \
         all names are compared, the folders of results are looked at, and a line is written to \
         a file. *cw2* reads and expands the file, and does nothing else.",
        ["file", "time", "peak memory"],
    );
    for (contestant, runs) in contestants.iter().zip(&runs) {
        section.row([&contestant.name, &wall(runs), &megabytes(peak(runs))]);
    }
    section.less_than("10^5 repetitions: less than 1 s", wall(&runs[0]), 1.0);
    section.less_than("10^5, as JSON: less than 1 s", wall(&runs[1]), 1.0);
    let more = megabytes(peak(&runs[2])).0 - megabytes(peak(&runs[0])).0;
    let name = "constant memory: 10^6 repetitions take less than 4 MB more than 10^5";
    section.less_than(name, Measured(more, 1, " MB"), NOISE);
    Ok(section)
}

/// A file of `first` · 10^3 repetitions, with parameters as people have them.
fn file(first: usize) -> Result<String> {
    let mut text = "\
        name: DEFAULT\npath: results\nrepetitions: 10\niterations: 100\nreps_per_job: 4\n\
        params: {task: {env: Reacher-v2, horizon: 200}, net: {hidden: [64, 64]}, seed: 1}\n\
        ---\nname: tuning\ngrid:\n"
        .to_owned();
    let values = |count: usize| {
        let values: Vec<String> = (10..10 + count).map(|value| value.to_string()).collect();
        values.join(", ")
    };
    writeln!(text, "  batch_size: [{}]", values(first))?;
    writeln!(text, "  optimizer: {{learning_rate: [{}]}}", rates(10))?;
    writeln!(text, "ablative:\n  warmup: [{}]", values(10))?;
    Ok(text)
}

fn rates(count: usize) -> String {
    let rates: Vec<String> = (1..=count).map(|rate| format!("{rate}e-3")).collect();
    rates.join(", ")
}

fn listed<'c>(
    command: &'c mut Command,
    folder: &Path,
    name: &str,
    options: &[&str],
) -> Result<&'c mut Command> {
    let end = if options.is_empty() { "txt" } else { "json" };
    let list = fs_err::File::create(folder.join(name).with_extension(end))?;
    let file = folder.join(name).with_extension("yml");
    // Where there are results, their folders are looked at for every repetition.
    fs_err::create_dir_all(folder.join("results/tuning"))?;
    command.current_dir(folder).arg("exp").arg(file);
    command.arg("--list").args(options);
    Ok(command.stdout(list.into_file()))
}

fn wall(runs: &[FinishedProcess]) -> Measured {
    Measured(median(runs.iter().map(|run| ms(run.wall))) / 1e3, 3, " s")
}
