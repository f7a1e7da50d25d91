//! Tasks that all ask for something different, beside as many that ask for the same.

use anyhow::Result;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::report::{MarkdownTable, Section, Target};
use super::statistics::{median, median_ratio};

/// How many tasks, and how often that is measured.
const SIZES: [(usize, usize); 2] = [(10_000, 5), (100_000, 1)];

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut table = MarkdownTable::new(["tasks", "requests", "CPU time", "of equal ones"]);
    let mut targets = Vec::new();
    let folder = bench.folder()?;
    for (tasks, rounds) in SIZES {
        let mut contestants = Vec::new();
        for kind in ["equal", "different"] {
            let commands = folder.path().join(format!("{kind}-{tasks}"));
            let lines = (0..tasks).map(|task| {
                let more = if kind == "equal" { 0 } else { task };
                format!("#packhorse ram={}K\n/bin/true\n", (64 << 10) + more)
            });
            fs_err::write(&commands, lines.collect::<String>())?;
            contestants.push(Contestant::new(kind, bench.rounds(rounds), move || {
                let folder = bench.folder()?;
                let mut command = bench.packhorse(&folder.path().join("home"))?;
                command.args(["run", "--slots", "2", "--quiet"]);
                Ok(bench.run(command.arg(&commands))?.cpu.as_secs_f64())
            }));
        }
        let times = interleave(&contestants)?;
        let ratio = median_ratio(&times[1], &times[0]);
        for (kind, times) in ["equal", "all different"].iter().zip(&times) {
            let ratio = if *kind == "equal" { 1.0 } else { ratio };
            table.row([
                tasks.to_string(),
                (*kind).to_owned(),
                format!("{:.2} s", median(times.iter().copied())),
                format!("{ratio:.3}"),
            ]);
        }
        targets.push(Target::new(
            format!("{tasks} different requests within 1.2 of equal ones"),
            format!("{ratio:.3}"),
            ratio < 1.2,
        ));
    }
    Ok(Section {
        title: "distinct: tasks that all ask for something different",
        what: "`/bin/true` on 2 slots, each task with a `ram=` of its own, beside as many that \
               ask for the same: CPU time of packhorse and all its tasks."
            .into(),
        table,
        targets,
    })
}
