//! Thousands of `/bin/true`: Packhorse, the limit and similar programs.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::{FinishedProcess, peak};
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, megabytes, ratio};

/// GNU parallel and the original take seconds per run instead of tenths of a second.
const ROUNDS_OF_THE_SLOW: usize = 3;

/// A number of tasks on a number of slots.
struct SpawnLoad {
    tasks: usize,
    slots: usize,
    rounds: usize,
    least_ratio: f64,
}

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut section = Section::new("spawn: tasks per second");
    section.part(
        "`/bin/true`, thousands of times, with our store on disk.",
        ["tasks", "slots", "program", "tasks/s", "of the limit", "peak memory"],
    );
    for (tasks, rounds) in [(2_000, 21), (10_000, 7)] {
        for (slots, least_ratio) in [(2, 0.95), (8, 0.90)] {
            let load = SpawnLoad { tasks, slots, rounds: bench.rounds(rounds), least_ratio };
            measure_load(bench, &load, &mut section)?;
        }
    }
    Ok(section)
}

fn measure_load(bench: &BenchEnvironment, load: &SpawnLoad, section: &mut Section) -> Result<()> {
    let input = SpawnInput::write(bench, load.tasks)?;
    let (contestants, ours) = contestants(bench, load, &input);
    let runs = interleave(&contestants)?;

    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let rate = |run: &FinishedProcess| load.tasks as f64 / run.wall.as_secs_f64();
    let rates = runs.iter().map(|runs| runs.iter().map(rate).collect());
    let rates: Vec<Vec<f64>> = rates.collect();
    let ratios = rates.iter().map(|rate| median_ratio(rate, &rates[0]));
    let ratios: Vec<f64> = ratios.collect();
    for (index, contestant) in contestants.iter().enumerate() {
        section.row([
            &load.tasks,
            &load.slots,
            &contestant.name,
            &Measured(median(rates[index].iter().copied()), 0, ""),
            &ratio(ratios[index]),
            &megabytes(peak(&runs[index])),
        ]);
    }

    let peers = ours.end..contestants.len();
    let best_peer = peers.max_by(|&a, &b| ratios[a].total_cmp(&ratios[b]));
    for index in ours {
        let (name, ours) = (&contestants[index].name, ratio(ratios[index]));
        let on = format!("{name}, {} tasks on {} slots", load.tasks, load.slots);
        let least = load.least_ratio;
        section.at_least(format!("{on}: at least {least:.2} of the limit"), ours, least);
        if let Some(peer) = best_peer {
            let (name, theirs) = (&contestants[peer].name, ratio(ratios[peer]));
            let both = format!("{ours}, {name} {theirs}");
            section.target(format!("{on}: ahead of every peer"), both, ours.0 > theirs.0);
        }
    }
    Ok(())
}

/// The limit first, then Packhorse, then the similar programs that are installed; and
/// which of them are Packhorse.
fn contestants<'a>(
    bench: &'a BenchEnvironment,
    load: &'a SpawnLoad,
    input: &'a SpawnInput,
) -> (Vec<Contestant<'a, FinishedProcess>>, Range<usize>) {
    let slots = load.slots.to_string();
    let limit = Contestant::new("limit", load.rounds, || {
        let mut command = bench.limit(load.slots, load.tasks)?;
        bench.run(command.arg("/bin/true"))
    });
    let mut all = vec![limit];

    let mut options = vec![["--slots", &slots]];
    if load.slots == 2 {
        options.push(["--gpus", "0,1"]);
    }
    for option in options {
        let option = option.map(str::to_owned);
        let name = format!("packhorse {}", option[0]);
        let run = move || {
            let home = bench.folder()?;
            let mut command = bench.packhorse(&home.path().join("home"))?;
            command.arg("run").args(&option).arg(&input.commands);
            bench.run(&mut command)
        };
        all.push(Contestant::new(name, load.rounds, run));
    }
    let ours = 1..all.len();

    let mut peer = |name, rounds, arguments: String, stdin: Option<&'a Path>| {
        let Some(program) = bench.peer(name).filter(|_| rounds > 0) else {
            return;
        };
        let run = move || {
            let mut command = bench.command(&program)?;
            command.args(arguments.split(' '));
            command.current_dir(&input.folder);
            if let Some(path) = stdin {
                command.stdin(fs_err::File::open(path)?.into_file());
            }
            bench.run(&mut command)
        };
        all.push(Contestant::new(name, rounds, run));
    };
    let few = match load.tasks {
        ..=2_000 => load.rounds.min(ROUNDS_OF_THE_SLOW),
        _ => 0,
    };
    let gpus = (0..load.slots).map(|gpu| format!(" {gpu}"));
    let gpus = format!("--gpus{}", gpus.collect::<String>());
    let (commands, numbers) = (Some(&*input.commands), Some(&*input.numbers));
    // It finds the Makefile in its folder.
    peer("make", load.rounds, format!("-s -j {slots}"), None);
    let each = format!("-P {slots} -n 1 /bin/true");
    peer("xargs", load.rounds, each, numbers);
    peer("parallel", few, format!("--will-cite -j {slots}"), commands);
    peer("simple_gpu_scheduler", few, gpus, commands);
    (all, ours)
}

/// The same tasks in the form that suits each contestant.
struct SpawnInput {
    folder: TempDir,
    commands: PathBuf,
    numbers: PathBuf,
}

impl SpawnInput {
    fn write(bench: &BenchEnvironment, tasks: usize) -> Result<Self> {
        let folder = bench.folder()?;
        let input = Self {
            commands: folder.path().join("commands"),
            numbers: folder.path().join("numbers"),
            folder,
        };
        let mut numbers = String::new();
        let mut goals = String::new();
        for number in 0..tasks {
            writeln!(numbers, "{number}")?;
            write!(goals, " t{number}")?;
        }
        fs_err::write(&input.commands, "/bin/true\n".repeat(tasks))?;
        fs_err::write(&input.numbers, numbers)?;
        fs_err::write(
            input.folder.path().join("Makefile"),
            format!("T :={goals}\n.PHONY: all $(T)\nall: $(T)\n$(T): ; @/bin/true\n"),
        )?;
        Ok(input)
    }
}
