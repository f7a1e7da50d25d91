//! The Python package: tests that import numpy, and functions that do nothing.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::environment::BenchEnvironment;
use super::figures::Figures;
use super::interleave::{Contestant, interleave};
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ratio};
use crate::folders::{target, workspace};
use crate::python::{builder_ready, install, maturin, pythons};
use crate::setup::{Venv, show};

const ROUNDS: usize = 5;
/// How many tests a grid has.
const TESTS: usize = 100;
/// So many at a time.
const SLOTS: usize = 2;
/// How many calls where each takes a whole Python, and where it does not.
const COLD_CALLS: usize = 400;
const WARM_CALLS: usize = 10_000;
const REQUIREMENTS: [&str; 3] = ["numpy", "joblib", "cloudpickle"];

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut section =
        Section::new("python: tests that import numpy, and functions that do nothing");
    let bench = PythonBench::prepare(bench)?;
    bench.grid(&mut section)?;
    bench.calls(&mut section)?;
    Ok(section)
}

struct PythonBench<'a> {
    bench: &'a BenchEnvironment,
    venv: Venv,
}

impl<'a> PythonBench<'a> {
    /// A virtual environment with the wheel of a release build in it.
    fn prepare(bench: &'a BenchEnvironment) -> Result<Self> {
        let pythons = pythons();
        let (_, newest) = pythons.last().context("there is no Python 3.10 or newer")?;
        let venv = Venv::named("python/bench", &REQUIREMENTS)?.ready(|| Some(newest))?;
        let wheels = target()?.join("python/bench-wheels");
        if wheels.exists() {
            fs_err::remove_dir_all(&wheels)?;
        }
        for mut step in [maturin(&builder_ready()?, "release", &wheels), install(&venv, &wheels)] {
            if !step.status()?.success() {
                bail!("{} failed", show(&step));
            }
        }
        Ok(Self { bench, venv })
    }

    /// One of the scripts in python/bench, in an empty folder, with a state folder of its own.
    fn script(&self, name: &str, words: &[String]) -> Result<(Command, tempfile::TempDir)> {
        let folder = self.bench.folder()?;
        let mut command = self.bench.command(self.venv.python())?;
        command.arg(workspace().join("python/bench").join(name));
        command.args(words).current_dir(folder.path());
        command.env("PACKHORSE_HOME", folder.path().join("home"));
        command.env_remove("PYTHONPATH");
        Ok((command, folder))
    }

    /// Seconds for a grid of tests that import numpy.
    fn grid(&self, section: &mut Section) -> Result<()> {
        let rounds = self.bench.rounds(ROUNDS);
        let cold = vec![TESTS.to_string(), SLOTS.to_string()];
        let warm = [&cold[..], &["numpy".to_owned(), "imports_task".to_owned()]].concat();
        let bare = || {
            let mut command = self.bench.limit(SLOTS, TESTS)?;
            command.arg(self.venv.python());
            command.args(["-c", "import numpy; numpy.zeros(1)"]);
            Ok(self.bench.run(&mut command)?.wall.as_secs_f64())
        };
        let scheduler = |script: &'static str, words: &[String]| {
            let words = words.to_vec();
            move || {
                let (mut command, _folder) = self.script(script, &words)?;
                Ok(self.bench.run(&mut command)?.wall.as_secs_f64())
            }
        };
        let contestants = [
            Contestant::new("bare: python -c \"import numpy\"", rounds, bare),
            Contestant::new("GPUTaskScheduler", rounds, scheduler("grid.py", &cold)),
            Contestant::new("the original's way", rounds, scheduler("original.py", &cold)),
            Contestant::new("GPUTaskScheduler with preload", rounds, scheduler("grid.py", &warm)),
        ];
        let times = interleave(&contestants)?;
        section.part(
            format!(
                "{TESTS} tests that import numpy, {SLOTS} at a time, {rounds} times, from the \
                 start of the program to its end. *Bare* is the limit program with nothing but \
                 that Python and that import. *The original's way* is a new Python for each \
                 test that imports the scheduler's package, after 15 ms of scheduling."
            ),
            ["program", "time per test", "of bare"],
        );
        #[expect(clippy::cast_precision_loss, reason = "a hundred tests")]
        let each = |times: &[f64]| median(times.iter().copied()) / TESTS as f64 * 1e3;
        for (contestant, own) in contestants.iter().zip(&times) {
            let of_bare = ratio(median_ratio(own, &times[0]));
            let time = Measured(each(own), 1, " ms");
            section.row([&contestant.name, &time, &of_bare]);
        }
        let ours = ratio(median_ratio(&times[1], &times[0]));
        section.at_most("GPUTaskScheduler: at most 1.1 of the bare cost", ours, 1.1);
        let warm = ratio(median_ratio(&times[2], &times[3]));
        section.at_least("with preload: at least 10 times the original's throughput", warm, 10.0);
        Ok(())
    }

    /// Calls of a function that does nothing.
    fn calls(&self, section: &mut Section) -> Result<()> {
        let rounds = self.bench.rounds(ROUNDS);
        let per_second = |which: &'static str, calls: usize| {
            move || {
                let words = [which.to_owned(), calls.to_string(), SLOTS.to_string()];
                let (mut command, _folder) = self.script("calls.py", &words)?;
                command.stdout(Stdio::piped());
                let seconds = Figures::printed_by(&mut command)?.get("seconds")?;
                #[expect(clippy::cast_precision_loss, reason = "a few thousand calls")]
                Ok(calls as f64 / seconds)
            }
        };
        let contestants = [
            Contestant::new(
                "ProcessPoolExecutor(max_tasks_per_child=1)",
                rounds,
                per_second("processes", COLD_CALLS),
            ),
            Contestant::new("Executor", rounds, per_second("packhorse", COLD_CALLS)),
            Contestant::new(
                "joblib (loky), which keeps its processes",
                rounds,
                per_second("loky", WARM_CALLS),
            ),
            Contestant::new("Executor with preload", rounds, per_second("preload", WARM_CALLS)),
        ];
        let speeds = interleave(&contestants)?;
        section.part(
            format!(
                "`map` of a function that does nothing, {SLOTS} at a time: {COLD_CALLS} calls \
                 where each needs a new Python, {WARM_CALLS} where not."
            ),
            ["executor", "calls per second"],
        );
        for (contestant, own) in contestants.iter().zip(&speeds) {
            let speed = Measured(median(own.iter().copied()), 0, "");
            section.row([&contestant.name, &speed]);
        }
        let ahead = |ours: &[f64]| ratio(median_ratio(ours, &speeds[0]));
        section.at_least(
            "Executor: ahead of ProcessPoolExecutor(max_tasks_per_child=1)",
            ahead(&speeds[1]),
            1.0,
        );
        section.at_least(
            "Executor with preload: ahead of ProcessPoolExecutor(max_tasks_per_child=1)",
            ahead(&speeds[3]),
            1.0,
        );
        Ok(())
    }
}
