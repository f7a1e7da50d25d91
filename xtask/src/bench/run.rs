//! Runs benchmarks and writes their figures.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::environment::{BenchEnvironment, Effort};
use super::report::{Section, document};
use super::{
    cold, deciding, distinct, experiments, fairness, gap, grid, idle, million, node, outgrown,
    packing, preload, python, slurm, spawn, sweep, unknown,
};
use crate::folders::workspace;

#[derive(clap::Args)]
pub struct BenchArgs {
    /// Which to run; docs/performance.md is written only if all of them were run
    names: Vec<Benchmark>,
    /// Print the figures, but do not write docs/performance.md
    #[arg(long)]
    no_write: bool,
    /// Fewer repetitions, for a first impression
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Benchmark {
    /// Thousands of /bin/true: tasks per second
    Spawn,
    /// 50 ms jobs: how long a slot is empty between two
    Gap,
    /// One job: from the start of packhorse to the job's first instruction
    Cold,
    /// A million lines piped in: memory
    Million,
    /// A million tasks waiting in the core: memory, time per event
    Waiting,
    /// Four sleeping tasks: wake-ups
    Idle,
    /// Tasks with different requests beside tasks with equal ones: CPU time
    Distinct,
    /// Tasks of one run and of two in one engine: time per decision
    Engine,
    /// A grid of a million commands: time, memory
    Sweep,
    /// A grid file of a million tests: time, memory
    Grid,
    /// An experiment file of a hundred thousand repetitions: time, memory
    Experiments,
    /// A trace and a synthetic load: how full GPUs get, time per placement
    Packing,
    /// Different kinds of tasks that nobody knows: time, beside measuring them by hand
    Unknown,
    /// Tasks that need more than was learned: time, beside known peaks
    Outgrown,
    /// Python tasks that import numpy, with and without preload: tasks per second
    Preload,
    /// A run that wants a GPU that another fills with tasks: how long it waits
    Fairness,
    /// Tests that import numpy, and functions that do nothing, in Python
    Python,
    /// Prolog and epilog of a shared Slurm node, beside scripts in Bash
    Node,
    /// Short tasks on a Slurm cluster, beside array elements and HyperQueue: time per task
    Slurm,
}

impl Benchmark {
    fn measure(self, bench: &BenchEnvironment) -> Result<Section> {
        match self {
            Self::Spawn => spawn::measure(bench),
            Self::Gap => gap::measure(bench),
            Self::Cold => cold::measure(bench),
            Self::Million => million::measure(bench),
            Self::Waiting => deciding::waiting(),
            Self::Idle => idle::measure(bench),
            Self::Distinct => distinct::measure(bench),
            Self::Engine => deciding::engine(bench),
            Self::Sweep => sweep::measure(bench),
            Self::Grid => grid::measure(bench),
            Self::Experiments => experiments::measure(bench),
            Self::Packing => packing::measure(bench),
            Self::Unknown => unknown::measure(bench),
            Self::Outgrown => outgrown::measure(bench),
            Self::Preload => preload::measure(bench),
            Self::Fairness => fairness::measure(bench),
            Self::Python => python::measure(bench),
            Self::Node => node::measure(bench),
            Self::Slurm => slurm::measure(bench),
        }
    }
}

/// Runs the benchmarks; fails if one could not run or missed a target.
pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let bench = BenchEnvironment::prepare(effort)?;
    let names = match args.names.as_slice() {
        [] => Benchmark::value_variants(),
        names => names,
    };

    let mut sections = Vec::new();
    let mut broken = Vec::new();
    for &name in names {
        let title = name.to_possible_value().map(|it| it.get_name().to_owned());
        let title = title.unwrap_or_default();
        println!("\n── {title}");
        match name.measure(&bench) {
            Ok(section) => {
                println!("{section}");
                sections.push(section);
            }
            Err(error) => {
                println!("{title} could not be measured: {error:#}");
                broken.push(title);
            }
        }
    }

    let missed: Vec<&str> = sections.iter().flat_map(Section::missed).collect();
    for target in &missed {
        println!("missed: {target}");
    }
    for title in &broken {
        println!("not measured: {title}");
    }
    if args.no_write || !args.names.is_empty() || !broken.is_empty() {
        println!("docs/performance.md is unchanged");
    } else {
        let docs = workspace().join("docs");
        write(&docs, &document(&sections, args.quick)?)?;
        println!("written: docs/performance.md");
    }
    Ok(ExitCode::from(u8::from(!missed.is_empty() || !broken.is_empty())))
}

/// Replaces the file at once, so that nobody ever reads half of it.
fn write(folder: &Path, text: &str) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    // A temporary file is readable by its owner only; this one goes into the repository.
    let readable = Permissions::from_mode(0o644);
    file.as_file().set_permissions(readable)?;
    let path = folder.join("performance.md");
    file.persist(&path).with_context(|| format!("cannot replace {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_replace_those_of_the_last_run_and_leave_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "the figures of a long run").unwrap();
        write(folder.path(), "new").unwrap();
        let files = fs_err::read_dir(folder.path()).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(files, [folder.path().join("performance.md")]);
        assert_eq!(fs_err::read_to_string(&files[0]).unwrap(), "new");
        let mode = fs_err::metadata(&files[0]).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
}
