//! The first run of tasks of different kinds that nobody has measured.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::environment::BenchEnvironment;
use super::fake_machine::FakeMachine;
use super::process::FinishedProcess;
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ratio};

const ROUNDS: usize = 3;
const KINDS: usize = 6;
const MEMORY: u64 = 24 << 30;
const EPOCHS: u32 = 12;
/// What an epoch takes.
const EPOCH: Duration = Duration::from_millis(400);
/// How long memory has to rest in the second part.
const REST: Duration = Duration::from_millis(500);
/// How much longer than by hand, or than it has to, it may take.
const MOST: f64 = 1.15;

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let machine = FakeMachine::new(bench, 1, MEMORY)?;
    write_tasks(&machine)?;
    let (mut ours, mut known, mut by_hand, mut plain) = (vec![], vec![], vec![], vec![]);
    for round in 0..bench.rounds(ROUNDS) {
        let home = |name: &str| machine.folder().join(format!("{name}{round}"));
        let (first, second) = (home("first"), home("second"));
        ours.push(seconds(&csv(bench, &machine, &first)?));
        known.push(seconds(&csv(bench, &machine, &first)?));
        let mut hand = 0.0;
        for kind in 0..KINDS {
            let mut command = machine.packhorse(bench, &second)?;
            command.args(["probe", "--", "sh", &script(kind), "--epochs=2", "--id=1"]);
            hand += seconds(&bench.run(&mut command)?);
        }
        by_hand.push(hand + seconds(&csv(bench, &machine, &second)?));
        let mut command = machine.packhorse(bench, &home("third"))?;
        let rest = format!("{}ms", REST.as_millis());
        command.args(["run", "--vram", "auto", "--rest", &rest, "lines"]);
        plain.push(seconds(&bench.run(&mut command)?));
        for home in [&first, &second, &home("third")] {
            none_ran_out(bench, &machine, home)?;
        }
    }

    let mut section = Section::new("unknown: the first run of different kinds");
    section.part(
        format!(
            "{KINDS} kinds of tasks that take 3 GiB, on one simulated GPU of 24 GiB: the real \
             binary, NVML calls and processes. {EPOCHS} epochs of {EPOCH:?} each; a probe takes 2. \
             *By hand*: `packhorse probe` for one kind after the other, then `packhorse csv`."
        ),
        ["program", "time"],
    );
    let rests = EPOCH * EPOCHS + REST * u32::try_from(KINDS)?;
    let shown = |seconds: f64| Measured(seconds, 2, " s");
    section.row([&"packhorse csv, nothing known", &shown(median(ours.clone()))]);
    section.row([&"by hand", &shown(median(by_hand.clone()))]);
    section.row([&"packhorse csv, all known", &shown(median(known))]);
    section.row([&"run --vram auto, no probes", &shown(median(plain.clone()))]);
    section.row([&"its length and a rest for each", &shown(rests.as_secs_f64())]);
    let name = format!("`packhorse csv` within {MOST} of the time by hand");
    section.at_most(name, ratio(median_ratio(&ours, &by_hand)), MOST);
    let name = format!("without probes within {MOST} of one task and {KINDS} rests of {REST:?}");
    let most = median(plain) / rests.as_secs_f64();
    section.at_most(name, ratio(most), MOST);
    Ok(section)
}

fn seconds(run: &FinishedProcess) -> f64 {
    run.wall.as_secs_f64()
}

fn script(kind: usize) -> String {
    format!("train_{}.sh", char::from(b"abcdefgh"[kind % 8]))
}

/// A script for each kind, a table of them, and the same as command lines.
fn write_tasks(machine: &FakeMachine) -> Result<()> {
    let mut table = "Directory,Executable,Filename,Epochs,Priority\n".to_owned();
    let mut lines = String::new();
    for kind in 0..KINDS {
        let name = script(kind);
        let text = format!(
            "epochs=${{1#--epochs=}}\nexec {} --peak 3G --hold $((epochs * {}))ms\n",
            machine.cuda_program().display(),
            EPOCH.as_millis()
        );
        fs_err::write(machine.folder().join(&name), text)?;
        table += &format!(".,sh,{name},{EPOCHS},1\n");
        lines += &format!("sh {name} --epochs={EPOCHS} --id=1\n");
    }
    fs_err::write(machine.folder().join("tasks.csv"), table)?;
    fs_err::write(machine.folder().join("lines"), lines)?;
    Ok(())
}

fn csv(bench: &BenchEnvironment, machine: &FakeMachine, home: &Path) -> Result<FinishedProcess> {
    let mut command = machine.packhorse(bench, home)?;
    bench.run(command.args(["csv", "tasks.csv", "--mps", "false"]))
}

/// Fails if an attempt ran out of memory: there is enough for all.
fn none_ran_out(bench: &BenchEnvironment, machine: &FakeMachine, home: &Path) -> Result<()> {
    let text = machine.show(bench, home)?;
    ensure!(!text.contains("out of GPU memory"), "a task ran out: {text}");
    Ok(())
}
