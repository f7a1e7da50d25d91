//! Tasks that all ask for something different, beside as many that ask for the same.

use std::io::{BufWriter, Write as _};

use anyhow::Result;
use fs_err::File;

use super::environment::BenchEnvironment;
use super::interleave::{Contestant, interleave};
use super::report::Section;
use super::statistics::{Measured, median, median_ratio, ratio};

/// How many tasks, and how often that is measured.
const SIZES: [(usize, usize); 2] = [(10_000, 5), (100_000, 1)];

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let mut section = Section::new("distinct: tasks that all ask for something different");
    section.part(
        "`/bin/true` on 2 slots, each task with a `ram=` of its own, beside as many that ask for \
         the same: CPU time of packhorse and all its tasks.",
        ["tasks", "requests", "CPU time", "of equal ones"],
    );
    let folder = bench.folder()?;
    for (tasks, rounds) in SIZES {
        let mut contestants = Vec::new();
        for kind in ["equal", "different"] {
            let commands = folder.path().join(format!("{kind}-{tasks}"));
            // Not laid out in memory: that would count as memory of what we start later.
            let mut file = BufWriter::new(File::create(&commands)?);
            for task in 0..tasks {
                let more = if kind == "equal" { 0 } else { task };
                write!(file, "#packhorse ram={}K\n/bin/true\n", (64 << 10) + more)?;
            }
            file.flush()?;
            contestants.push(Contestant::new(kind, bench.rounds(rounds), move || {
                let folder = bench.folder()?;
                let mut command = bench.packhorse(&folder.path().join("home"))?;
                command.args(["run", "--slots", "2", "--quiet"]);
                Ok(bench.run(command.arg(&commands))?.cpu.as_secs_f64())
            }));
        }
        let times = interleave(&contestants)?;
        let different = ratio(median_ratio(&times[1], &times[0]));
        let kinds = [("equal", ratio(1.0)), ("all different", different)];
        for ((kind, ratio), times) in kinds.iter().zip(times) {
            section.row([&tasks, kind, &Measured(median(times), 2, " s"), ratio]);
        }
        let name = format!("{tasks} different requests within 1.2 of equal ones");
        section.less_than(name, different, 1.2);
    }
    Ok(section)
}
