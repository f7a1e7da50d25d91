//! The keys of an experiment, and what their values must be.

use std::ops::Range;

use super::documents::Document;
use super::merge::get;
use super::problem::{ExperimentError, ExperimentProblem};
use super::slurm_document::ExperimentScheduler;
use crate::excerpt::quoted;
use crate::grid::colons::key_without_blank;
use crate::grid::source_text::SourceText;
use crate::grid::value::{GridValue, ValueKind};
use crate::nearest::nearest;

/// Keys of an experiment that mean something.
const KNOWN: &[&str] = &[
    "name",
    "path",
    "repetitions",
    "iterations",
    "reps_per_job",
    "reps_in_parallel",
    "params",
    "grid",
    "list",
    "ablative",
    "import_path",
    "import_exp",
    "command",
    "log_path",
];

/// Keys of the SLURM document that nobody means for a program.
const OF_SLURM: &[&str] = &[
    "partition",
    "num_parallel_jobs",
    "ntasks",
    "cpus-per-task",
    "mem-per-cpu",
    "sh_lines",
    "sbatch_args",
    "path_to_template",
    "experiment_copy_src",
    "experiment_copy_dst",
    "experiment_copy_auto_dst",
    "gpus_per_rep",
    "cpus_per_rep",
];

/// Keys of experiments that mean nothing to Slurm.
const OF_EXPERIMENTS: &[&str] =
    &["path", "repetitions", "iterations", "reps_per_job", "reps_in_parallel", "params", "command"];

/// Whether a key stands at the top of documents.
pub(super) fn is_of_documents(key: &str) -> bool {
    KNOWN.contains(&key)
}

/// How the key of an expansion begins.
const EXPANSIONS: [&str; 3] = ["grid", "list", "ablative"];

/// Whether a key is that of an expansion: `grid`, `list1`, `ablative--2`.
pub(super) fn is_expansion(key: &str) -> bool {
    EXPANSIONS.iter().any(|word| key.starts_with(word))
}

/// Checks the values of a document, and notes what is probably a slip.
pub(super) fn check_experiment(
    text: SourceText<'_>,
    document: &Document,
    warnings: &mut Vec<ExperimentError>,
) -> Result<(), ExperimentError> {
    // A file that was written back has a document for each repetition, with every key of
    // the one that it was made of.
    let is_written_back = get(&document.members, "_rep_idx").is_some();
    for (key, value) in &document.members {
        let ValueKind::Text(name) = &key.kind else {
            continue;
        };
        let name: &str = name;
        match name {
            "path" | "import_path" | "import_exp" => {
                if value.name().is_none() {
                    return Err(kind(text, name, value, "text"));
                }
            }
            "repetitions" | "reps_per_job" | "reps_in_parallel" => {
                if count(value).is_none() {
                    return Err(no_count(text, name, value));
                }
            }
            "params" => {
                if !matches!(value.kind, ValueKind::Dict(_) | ValueKind::None) {
                    return Err(kind(text, name, value, "a dictionary"));
                }
            }
            _ if is_expansion(name) => check_expansion(text, key, value, warnings)?,
            _ if KNOWN.contains(&name) || name.starts_with('_') => {}
            _ if is_written_back => {}
            _ if is_of_slurm(name, value) => {
                let belongs = "the SLURM document";
                warnings.push(wrong_document(text, key, &document.name, belongs));
            }
            _ => warnings.extend(slip(text, key, &document.name, KNOWN)),
        }
    }
    Ok(())
}

fn is_of_slurm(name: &str, value: &GridValue) -> bool {
    // A program may have schedulers of its own.
    let is_scheduler = || ExperimentScheduler::of(&value.as_written()).is_some();
    OF_SLURM.contains(&name) || (name == "scheduler" && is_scheduler())
}

/// Whether a key of the SLURM document is one of experiments.
pub(super) fn is_of_experiments(name: &str) -> bool {
    OF_EXPERIMENTS.contains(&name) || EXPANSIONS.contains(&name)
}

/// A warning about a key that belongs in another document.
pub(super) fn wrong_document(
    text: SourceText<'_>,
    key: &GridValue,
    document: &str,
    belongs: &'static str,
) -> ExperimentError {
    let problem = ExperimentProblem::WrongDocument {
        key: quoted(key.as_written().as_bytes()),
        place: quoted(document.as_bytes()),
        belongs,
    };
    text.error(key.span.clone(), problem)
}

/// A warning about a key that is close to a known one.
pub(super) fn slip(
    text: SourceText<'_>,
    key: &GridValue,
    document: &str,
    known: &[&'static str],
) -> Option<ExperimentError> {
    let name = key.name()?;
    let nearest = nearest(&name, known.iter().copied())?;
    let problem = ExperimentProblem::ProbableSlip {
        key: quoted(name.as_bytes()),
        place: quoted(document.as_bytes()),
        nearest: nearest.to_owned(),
    };
    Some(text.error(key.span.clone(), problem))
}

/// Checks that there are lists of values at the ends of all paths.
fn check_expansion(
    text: SourceText<'_>,
    key: &GridValue,
    value: &GridValue,
    warnings: &mut Vec<ExperimentError>,
) -> Result<(), ExperimentError> {
    let name = &key.as_written();
    let mut words = EXPANSIONS.into_iter();
    let word = words.find(|word| name.starts_with(word) && name != word);
    match &value.kind {
        // Turns off what DEFAULT says.
        ValueKind::None => Ok(()),
        ValueKind::Dict(members) => check_values(text, name, members, warnings),
        _ if let Some(word) = word => {
            let problem = ExperimentProblem::NoExpansion {
                key: quoted(name.as_bytes()),
                word,
                found: value.what(),
            };
            Err(text.error(key.span.clone(), problem))
        }
        _ => Err(kind(text, name, value, "a dictionary of parameters with lists of values")),
    }
}

fn check_values(
    text: SourceText<'_>,
    path: &str,
    members: &[(GridValue, GridValue)],
    warnings: &mut Vec<ExperimentError>,
) -> Result<(), ExperimentError> {
    for (key, value) in members {
        let path = format!("{path}.{}", key.as_written());
        match &value.kind {
            ValueKind::Dict(members) => check_values(text, &path, members, warnings)?,
            ValueKind::List(values) if values.is_empty() => {
                let problem = ExperimentProblem::NoValues(path);
                return Err(text.error(key.span.clone(), problem));
            }
            ValueKind::List(_) => {}
            _ => {
                let problem = ExperimentProblem::NoList(path);
                warnings.push(text.error(value.span.clone(), problem));
            }
        }
    }
    Ok(())
}

pub(super) fn kind(
    text: SourceText<'_>,
    key: &str,
    value: &GridValue,
    expected: &'static str,
) -> ExperimentError {
    if expected.starts_with("a dictionary")
        && let ValueKind::Text(_) = value.kind
        // Behind another key on the same line, a blank would lead to the next mistake.
        && begins_line(text.0, value.span.start)
        && let Some((place, problem)) = key_without_blank(text.0, value.span.start)
    {
        return text.error(place, ExperimentProblem::Yaml(problem));
    }
    at_value(text, value.span.clone(), key, expected, value.what())
}

/// Whether nothing but blanks and the dashes of lists are before this place on its line.
fn begins_line(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.split([' ', '\t']).all(|word| word.is_empty() || word == "-")
}

fn at_value(
    text: SourceText<'_>,
    span: Range<usize>,
    key: &str,
    expected: &'static str,
    found: &'static str,
) -> ExperimentError {
    let problem = ExperimentProblem::Kind { key: key.to_owned(), expected, found };
    text.error(span, problem)
}

/// What is wrong with a value that is no [`count`].
pub(super) fn no_count(text: SourceText<'_>, key: &str, value: &GridValue) -> ExperimentError {
    let found = match &value.kind {
        ValueKind::Int(digits) if **digits == *"0" || digits.starts_with('-') => "less",
        ValueKind::Int(_) => "more than there can be",
        _ => value.what(),
    };
    let expected = "a whole number, at least 1";
    at_value(text, value.span.clone(), key, expected, found)
}

/// A number of repetitions, if it is one.
pub(super) fn count(value: &GridValue) -> Option<u32> {
    match &value.kind {
        ValueKind::Int(digits) => digits.parse().ok().filter(|count| *count > 0),
        _ => None,
    }
}
