//! Thousands of `/bin/true`: Packhorse, the limit and similar programs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::FinishedProcess;
use super::report::{MarkdownTable, Section, Target};
use super::statistics::{median, median_ratio, megabytes};

/// GNU parallel and the original take seconds per run instead of tenths of a second.
const ROUNDS_OF_THE_SLOW: usize = 3;

/// What a contestant is.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Limit,
    Ours,
    Peer,
}

/// A number of tasks on a number of slots.
struct SpawnLoad {
    tasks: usize,
    slots: usize,
    rounds: usize,
    least_ratio: f64,
}

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut table = MarkdownTable::new([
        "tasks",
        "slots",
        "program",
        "tasks/s",
        "of the limit",
        "peak memory",
    ]);
    let mut targets = Vec::new();
    for (tasks, rounds) in [(2_000, 21), (10_000, 7)] {
        for (slots, least_ratio) in [(2, 0.93), (8, 0.90)] {
            let load = SpawnLoad {
                tasks,
                slots,
                rounds: bench.rounds(rounds),
                least_ratio,
            };
            measure_load(bench, &load, &mut table, &mut targets)?;
        }
    }
    Ok(Section {
        title: "spawn: tasks per second",
        what: "`/bin/true`, thousands of times, with our store on disk.".into(),
        table,
        targets,
    })
}

fn measure_load(
    bench: &BenchEnvironment,
    load: &SpawnLoad,
    table: &mut MarkdownTable,
    targets: &mut Vec<Target>,
) -> Result<()> {
    let input = SpawnInput::write(bench, load.tasks)?;
    let (sides, contestants): (Vec<Side>, Vec<Contestant<FinishedProcess>>) =
        contestants(bench, load, &input).into_iter().unzip();
    let runs = interleave(&contestants)?;

    let rates: Vec<Vec<f64>> = runs
        .iter()
        .map(|runs| {
            let seconds = runs.iter().map(|run| run.wall.as_secs_f64());
            #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
            seconds.map(|time| load.tasks as f64 / time).collect()
        })
        .collect();
    let ratios: Vec<f64> = rates
        .iter()
        .map(|rate| median_ratio(rate, &rates[0]))
        .collect();
    for (index, contestant) in contestants.iter().enumerate() {
        let peak = runs[index].iter().map(|run| run.peak).max();
        table.row([
            load.tasks.to_string(),
            load.slots.to_string(),
            contestant.name.clone(),
            format!("{:.0}", median(rates[index].iter().copied())),
            format!("{:.3}", ratios[index]),
            megabytes(peak.unwrap_or(0)),
        ]);
    }

    let best_peer = (0..sides.len())
        .filter(|&index| sides[index] == Side::Peer)
        .max_by(|&a, &b| ratios[a].total_cmp(&ratios[b]));
    for index in (0..sides.len()).filter(|&index| sides[index] == Side::Ours) {
        let (name, ratio) = (&contestants[index].name, ratios[index]);
        let on = format!("{} tasks on {} slots", load.tasks, load.slots);
        targets.push(Target::new(
            format!(
                "{name}, {on}: at least {:.2} of the limit",
                load.least_ratio
            ),
            format!("{ratio:.3}"),
            ratio >= load.least_ratio,
        ));
        if let Some(peer) = best_peer {
            targets.push(Target::new(
                format!("{name}, {on}: ahead of every peer"),
                format!("{ratio:.3}, {} {:.3}", contestants[peer].name, ratios[peer]),
                ratio > ratios[peer],
            ));
        }
    }
    Ok(())
}

/// The limit first, then Packhorse, then the similar programs that are installed.
fn contestants<'a>(
    bench: &'a BenchEnvironment,
    load: &'a SpawnLoad,
    input: &'a SpawnInput,
) -> Vec<(Side, Contestant<'a, FinishedProcess>)> {
    let slots = load.slots.to_string();
    let limit = Contestant::new("limit", load.rounds, || {
        let mut command = bench.limit(load.slots, load.tasks)?;
        bench.run(command.arg("/bin/true"))
    });
    let mut all = vec![(Side::Limit, limit)];

    let mut ours = vec![["--slots".to_owned(), slots.clone()]];
    if load.slots == 2 {
        ours.push(["--gpus".to_owned(), "0,1".to_owned()]);
    }
    for option in ours {
        let name = format!("packhorse {}", option[0]);
        let run = move || {
            let home = bench.folder()?;
            let mut command = bench.packhorse(home.path())?;
            command.arg("run").args(&option).arg(&input.commands);
            bench.run(&mut command)
        };
        all.push((Side::Ours, Contestant::new(name, load.rounds, run)));
    }

    let mut peer = |name: &'static str, rounds: usize, prepare: Prepare<'a>| {
        if let Some(program) = bench.peer(name).filter(|_| rounds > 0) {
            let run = move || bench.run(prepare(&mut bench.command(&program)?)?);
            all.push((Side::Peer, Contestant::new(name, rounds, run)));
        }
    };
    let rounds = load.rounds;
    let few = if load.tasks > 2_000 {
        0
    } else {
        rounds.min(ROUNDS_OF_THE_SLOW)
    };
    let jobs = slots.clone();
    peer(
        "make",
        rounds,
        Box::new(move |command| {
            command.args(["-s", "-j", &jobs, "-f"]);
            Ok(command.arg(&input.makefile))
        }),
    );
    let jobs = slots.clone();
    peer(
        "xargs",
        rounds,
        Box::new(move |command| {
            command.args(["-P", &jobs, "-n", "1", "/bin/true"]);
            Ok(command.stdin(open(&input.numbers)?))
        }),
    );
    peer(
        "parallel",
        few,
        Box::new(move |command| {
            command.args(["--will-cite", "-j", &slots]);
            Ok(command.stdin(open(&input.commands)?))
        }),
    );
    peer(
        "simple_gpu_scheduler",
        few,
        Box::new(move |command| {
            command.arg("--gpus");
            command.args((0..load.slots).map(|gpu| gpu.to_string()));
            Ok(command.stdin(open(&input.commands)?))
        }),
    );
    all
}

/// Gives a similar program its arguments and its input.
type Prepare<'a> = Box<dyn for<'c> Fn(&'c mut Command) -> Result<&'c mut Command> + 'a>;

fn open(path: &Path) -> Result<std::fs::File> {
    Ok(fs_err::File::open(path)?.into_file())
}

/// The same tasks in the form that suits each contestant.
struct SpawnInput {
    _folder: tempfile::TempDir,
    commands: PathBuf,
    numbers: PathBuf,
    makefile: PathBuf,
}

impl SpawnInput {
    fn write(bench: &BenchEnvironment, tasks: usize) -> Result<Self> {
        let folder = bench.folder()?;
        let input = Self {
            commands: folder.path().join("commands"),
            numbers: folder.path().join("numbers"),
            makefile: folder.path().join("Makefile"),
            _folder: folder,
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
            &input.makefile,
            format!("T :={goals}\n.PHONY: all $(T)\nall: $(T)\n$(T): ; @/bin/true\n"),
        )?;
        Ok(input)
    }
}
