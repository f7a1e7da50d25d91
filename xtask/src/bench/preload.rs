//! Python tasks that all import the same, each by itself and forked from one that has.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::process::FinishedProcess;
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ratio};
use crate::setup::Venv;

/// How many tasks, and how often that is measured.
const TASKS: usize = 100;
const ROUNDS: usize = 7;
/// How many run at a time.
const SLOTS: usize = 2;

/// What each task does.
struct PythonWork {
    python: PathBuf,
    modules: &'static str,
    code: String,
}

impl PythonWork {
    /// What the issue is about, or the heaviest that every Python has.
    fn find() -> Self {
        let (python, modules) = match Venv::with_numpy() {
            Ok(venv) => (venv.python(), "numpy"),
            Err(missing) => {
                println!("left out: numpy\n{missing}");
                ("python3".into(), "asyncio,http.client,sqlite3,unittest.mock")
            }
        };
        let code = format!("import {modules}");
        Self { python, modules, code }
    }
}

/// A way to run all the tasks.
type ProcessContestant<'a> = Contestant<'a, FinishedProcess>;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut section = Section::new("preload: Python tasks that import the same");
    let work = PythonWork::find();
    let PythonWork { modules, code, .. } = &work;
    section.part(
        format!(
            "{TASKS} tasks `python -c '{code}'` on {SLOTS} slots. Throughput in wall time, with \
             the start of Packhorse and its one import of {modules}; CPU time for each task.",
        ),
        ["program", "tasks/s", "of plain starts", "CPU per task"],
    );
    let folder = bench.folder()?;
    let tasks = write_tasks(folder.path(), &work)?;
    let rounds = bench.rounds(ROUNDS);
    // The plain starts first: the others are compared with them.
    let ways = [
        limit(bench, &work, rounds),
        packhorse(bench, &tasks, None, rounds),
        packhorse(bench, &tasks, Some(modules), rounds),
    ];
    let runs = interleave(&ways)?;

    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let count = TASKS as f64;
    let rates = runs.iter().map(|runs| {
        let rate = |run: &FinishedProcess| count / run.wall.as_secs_f64();
        runs.iter().map(rate).collect()
    });
    let rates: Vec<Vec<f64>> = rates.collect();
    let ratios: Vec<_> = rates.iter().map(|rate| ratio(median_ratio(rate, &rates[0]))).collect();
    for (index, way) in ways.iter().enumerate() {
        let cpu = runs[index].iter().map(|run| run.cpu.as_secs_f64() * 1e3 / count);
        section.row([
            &way.name,
            &Measured(median(rates[index].iter().copied()), 0, ""),
            &ratios[index],
            &Measured(median(cpu), 1, " ms"),
        ]);
    }
    section.at_least("without preload: at least 0.9 of bare starts", ratios[1], 0.9);
    section.at_least("with preload: at least 10 times bare starts", ratios[2], 10.0);
    Ok(section)
}

/// Bare starts, without any scheduler.
fn limit<'a>(
    bench: &'a BenchEnvironment,
    work: &'a PythonWork,
    rounds: usize,
) -> ProcessContestant<'a> {
    Contestant::new("limit (bare starts)", rounds, || {
        let mut command = bench.limit(SLOTS, TASKS)?;
        command.arg(&work.python).args(["-c", &work.code]);
        bench.run(&mut command)
    })
}

/// Packhorse, with these modules preloaded.
fn packhorse<'a>(
    bench: &'a BenchEnvironment,
    tasks: &'a Path,
    modules: Option<&'a str>,
    rounds: usize,
) -> ProcessContestant<'a> {
    let name = match modules {
        Some(modules) => format!("packhorse --preload {modules}"),
        None => "packhorse".to_owned(),
    };
    Contestant::new(name, rounds, move || {
        let home: TempDir = bench.folder()?;
        let mut command = bench.packhorse(&home.path().join("home"))?;
        command.args(["run", "--quiet", "--slots", &SLOTS.to_string()]);
        if let Some(modules) = modules {
            command.args(["--preload", modules]);
        }
        bench.run(command.arg("--tasks").arg(tasks))
    })
}

fn write_tasks(folder: &Path, work: &PythonWork) -> Result<PathBuf> {
    let path = folder.join("tasks.jsonl");
    let mut lines = String::new();
    for _ in 0..TASKS {
        let (python, code) = (work.python.display().to_string(), &work.code);
        writeln!(lines, r#"{{"command": [{python:?}, "-c", {code:?}]}}"#)?;
    }
    fs_err::write(&path, lines)?;
    Ok(path)
}
