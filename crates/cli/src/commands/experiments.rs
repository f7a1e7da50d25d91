use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use packhorse_intake::experiments::Experiments;
use packhorse_model::{Exit, ExperimentDebug, ExperimentsSpec};
use packhorse_session::{read_experiments, repetition_states, time_stamp};
use serde_json::json;

use super::run::give_back_files;
use crate::args::ExperimentArgs;
use crate::{complain, terminal, wording};

/// An experiment file that was read.
struct OpenExperiments {
    experiments: Experiments,
}

/// `packhorse exp`
pub fn experiments(mut args: ExperimentArgs) -> anyhow::Result<Exit> {
    let open = read(&mut args)?;
    if args.expand {
        return expand(&open.experiments);
    }
    if args.list {
        return list(&open, &args);
    }
    bail!("only --list and --expand work so far");
}

/// Reads the file and those it imports, and checks all of what is used of them.
fn read(args: &mut ExperimentArgs) -> anyhow::Result<OpenExperiments> {
    let path = path_of(args)?;
    let mut spec = ExperimentsSpec {
        shown: path.clone(),
        selected: args.experiments.clone(),
        prefix: args.prefix_with_timestamp.then(time_stamp),
        debug: match (args.debug, args.debugall) {
            (_, true) => ExperimentDebug::All,
            (true, false) => ExperimentDebug::First,
            (false, false) => ExperimentDebug::Off,
        },
        ..ExperimentsSpec::default()
    };
    let mut text = None;
    if path == Path::new("-") {
        let mut read = String::new();
        let mut input = std::io::stdin().lock();
        input
            .read_to_string(&mut read)
            .context("standard input cannot be read")?;
        text = Some(read);
        spec.shown = "standard input".into();
    }
    let experiments = read_experiments(&path, text, &mut spec, terminal::colour())?;
    for warning in experiments.warnings() {
        complain(&warning.render(terminal::colour()));
    }
    if let Some(job) = args.job.filter(|job| *job >= experiments.jobs()) {
        bail!(
            "there is no job {job}\nhint: {} counted from 0",
            match experiments.jobs() {
                1 => "there is one job,".to_owned(),
                jobs => format!("there are {jobs} jobs,"),
            }
        );
    }
    Ok(OpenExperiments { experiments })
}

/// The file that is meant.
fn path_of(args: &mut ExperimentArgs) -> anyhow::Result<PathBuf> {
    let mut files: Vec<PathBuf> = args.file.take().into_iter().collect();
    give_back_files(&mut args.launch.pool.gpus, &mut files)?;
    // `-e NAME FILE`: what follows the names and is a file is meant as one.
    if files.is_empty()
        && let Some(file) = args
            .experiments
            .pop_if(|name| name == "-" || Path::new(name).is_file())
    {
        if args.experiments.is_empty() {
            bail!(
                "`{file}` is a file and no experiment\nhint: name the experiments after -e, and the file before it"
            );
        }
        files.push(file.into());
    }
    match files.as_slice() {
        [] => bail!(
            "no file was given\nhint: `packhorse exp config.yml -- python train.py`, with the file before --gpus"
        ),
        [path] => Ok(path.clone()),
        [_, other, ..] => bail!(
            "`{}` is one file too many\nhint: a command stands after --, as in `packhorse exp config.yml -- python train.py`",
            other.display()
        ),
    }
}

/// `--expand`: a line for each run.
fn expand(experiments: &Experiments) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for run in 0..experiments.runs() {
        serde_json::to_writer(&mut out, &experiments.expanded(run))?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(Exit::Success)
}

/// `--list`: a line for each repetition.
fn list(open: &OpenExperiments, args: &ExperimentArgs) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for repetition in repetition_states(&open.experiments, args.job) {
        let (_, rep, state) = repetition?;
        let folder = rep.folder();
        if args.launch.output.json {
            let rep = json!({
                "experiment": rep.experiment(),
                "run": rep.run(),
                "repetition": rep.number(),
                "job": rep.job(),
                "folder": folder,
                "state": state.word(),
                "config": rep.config(),
            });
            writeln!(out, "{rep}")?;
        } else {
            writeln!(out, "{:<12} {}", state.word(), wording::name(folder))?;
        }
    }
    out.flush()?;
    Ok(Exit::Success)
}
