//! Short tasks on a Slurm cluster: Packhorse, an array with an element for each, HyperQueue.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use packhorse_slurm_lab::{LabSettings, SlurmLab};
use packhorse_test_parts::Part;

use super::environment::BenchEnvironment;
use super::figures::Figures;
use super::interleave::{Contestant, interleave};
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ratio};
use crate::folders::workspace;
use crate::python::pythons;
use crate::setup::Venv;

const ROUNDS: usize = 3;
const TASKS: usize = 10_000;
/// As many as take some minutes in all rounds together.
const ELEMENTS: usize = 2_000;
/// So many tasks at a time: nodes, and CPUs of each.
const NODES: usize = 2;
const CPUS: usize = 4;
const HYPERQUEUE: [&str; 1] = ["hyperqueue==0.27.0"];

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let settings = LabSettings {
        nodes: NODES,
        cpus: CPUS,
        gpus_per_node: 0,
        // What it writes for tests would be counted against it.
        slurm_conf: vec![
            "SlurmctldDebug=error".to_owned(),
            // By default Slurm allows arrays of up to 1,000.
            format!("MaxArraySize={}", ELEMENTS + 1),
        ],
        ..LabSettings::default()
    };
    if let Some(missing) = Part::Slurm.missing() {
        bail!("cannot start a Slurm: {missing}");
    }
    let lab = SlurmLab::start(settings);
    let pythons = pythons();
    let (_, newest) = pythons.last().context("there is no Python 3.10 or newer")?;
    let hyperqueue = Venv::named("hyperqueue-venv", &HYPERQUEUE)?.ready(|| Some(newest))?;

    let rounds = bench.rounds(ROUNDS);
    let contestants = [
        Contestant::new("packhorse run --slurm", rounds, || ours(bench, &lab)),
        Contestant::new("an element for each", rounds, || array(&lab)),
        Contestant::new("HyperQueue, without Slurm", rounds, || queued(bench, &hyperqueue)),
    ];
    let times = interleave(&contestants)?;

    let mut section = Section::new("slurm: short tasks on a cluster");
    let at_a_time = NODES * CPUS;
    section.part(
        format!(
            "`/bin/true`, {at_a_time} at a time, on a cluster of {NODES} nodes that are all \
             this machine. {TASKS} tasks for Packhorse, from its start to its end, and for \
             HyperQueue from the submission to the end, with its server and {NODES} workers \
             running before; {ELEMENTS} elements of one array, from `sbatch` to the end of the \
             last, with a Slurm that looks for jobs to start every second."
        ),
        ["program", "time per task", "times ours"],
    );
    for (contestant, own) in contestants.iter().zip(&times) {
        let each = Measured(median(own.iter().copied()) * 1e3, 2, " ms");
        let of_ours = Measured(median_ratio(own, &times[0]), 1, "");
        section.row([&contestant.name, &each, &of_ours]);
    }
    let against = |theirs: &[f64]| ratio(median_ratio(theirs, &times[0]));
    section.at_least("at least 20 times as fast as an element for each", against(&times[1]), 20.0);
    section.at_least("ahead of HyperQueue", against(&times[2]), 1.0);
    Ok(section)
}

/// Seconds per task through Packhorse.
fn ours(bench: &BenchEnvironment, lab: &SlurmLab) -> Result<f64> {
    let folder = bench.folder()?;
    let tasks = folder.path().join("tasks.txt");
    fs_err::write(&tasks, "/bin/true\n".repeat(TASKS))?;
    let mut command = lab.command(bench.binary());
    bench.silence(&mut command)?;
    command.env("PACKHORSE_HOME", folder.path().join("home"));
    command.env("PACKHORSE_LEASES", folder.path().join("leases"));
    command.current_dir(folder.path());
    command.args(["run", "--slurm", "--wait", "--task-time", "10ms"]);
    command.args(["--cpus-per-task", &CPUS.to_string()]);
    command.args(["--jobs", &NODES.to_string()]).arg(tasks);
    let run = bench.run(&mut command)?;
    Ok(per_task(run.wall, TASKS))
}

/// Seconds per element of an array.
fn array(lab: &SlurmLab) -> Result<f64> {
    // Slurm adds a line to this file for every element that has ended.
    let ended = || {
        let text = fs_err::read_to_string(lab.folder().join("log/jobcomp.txt"));
        text.unwrap_or_default().lines().count()
    };
    let before = ended();
    let start = Instant::now();
    let indices = format!("--array=1-{ELEMENTS}");
    lab.sbatch([&indices, "--output=/dev/null", "--wrap=/bin/true"]);
    let over = || (ended() >= before + ELEMENTS).then(|| start.elapsed());
    let patience = Duration::from_mins(10);
    let took = lab.wait_at_most(patience, |_| over());
    let took = took.with_context(|| format!("{ELEMENTS} elements took more than 10 minutes"))?;
    Ok(per_task(took, ELEMENTS))
}

/// Seconds per task through HyperQueue.
fn queued(bench: &BenchEnvironment, venv: &Venv) -> Result<f64> {
    let folder = bench.folder()?;
    let mut command: Command = bench.command(venv.python())?;
    command.arg(workspace().join("python/bench/hyperqueue_tasks.py"));
    command.args([TASKS, NODES, CPUS].map(|number| number.to_string()));
    command.current_dir(folder.path()).env_remove("PYTHONPATH");
    // It draws a progress bar.
    command.env("TQDM_DISABLE", "1");
    let seconds = Figures::printed_by(&mut command)?.get("seconds")?;
    ensure!(seconds > 0.0, "it took {seconds} s");
    Ok(per_task(Duration::from_secs_f64(seconds), TASKS))
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand tasks")]
fn per_task(time: Duration, tasks: usize) -> f64 {
    time.as_secs_f64() / tasks as f64
}
