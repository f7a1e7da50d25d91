//! The experiments of a file, and every repetition of them by its place.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;

use packhorse_model::{Command, ExperimentDebug};

use super::command::ExperimentCommand;
use super::documents::{ConfigFile, FileError, ReadFile};
use super::errors::ExperimentsError;
use super::experiment::{Experiment, NoExperiment};
use super::import::Importer;
use super::jobs::{JobStart, cut_into_jobs};
use super::key_places::KeyPlaces;
use super::merge::{Members, get, set, text};
use super::paths::join;
use super::problem::ExperimentProblem;
use super::repetition::{Located, Repetition};
use super::run_names::RunNames;
use super::slurm_document::SlurmDocument;
use crate::grid::NameReport;
use crate::grid::json_text::json_text;
use crate::grid::value::GridValue;
use crate::nearest::{did_you_mean, nearest};

/// What is to be read of a file.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The names of the experiments that are wanted; all if there are none.
    pub selected: Vec<String>,
    /// What stands before the name of each experiment, with a `_` in between.
    pub prefix: Option<String>,
    /// How much of each experiment is wanted.
    pub debug: ExperimentDebug,
    /// The name of this machine, which may have a SLURM document of its own.
    pub host: String,
    /// Where a relative `path` starts from, if not from the folder that repetitions run in.
    pub base: Option<String>,
    /// What each repetition runs, instead of what the file says.
    pub command: Option<Command>,
    /// Whether nothing is put into the command.
    pub plain_command: bool,
    /// Whether the output of a repetition goes to its folder.
    pub log: bool,
}

/// The experiments of a file.
///
/// Nothing is expanded: a repetition is computed from its place. So a million of them take
/// no more memory than ten.
pub struct Experiments {
    /// In the order of the original: those with fewer expansions first.
    pub(super) all: Vec<Experiment>,
    /// The place of the first repetition of each, and at the end how many there are.
    starts: Vec<u32>,
    /// The first run of each, and at the end how many there are.
    run_starts: Vec<u32>,
    /// For each experiment, where its jobs begin.
    jobs: Vec<JobStart>,
    job_count: u32,
    pub(super) names: RunNames,
    warnings: Vec<FileError>,
    /// What each experiment runs.
    commands: Vec<Option<ExperimentCommand>>,
    slurm: Option<SlurmDocument>,
    log: bool,
}

impl Experiments {
    /// Reads a file and those it imports, and checks all of what is used of them. `path`
    /// is where it is, `shown` what people call it.
    pub fn read(
        path: &Path,
        shown: &Path,
        options: &ReadOptions,
        read: &mut ReadFile<'_>,
    ) -> Result<Self, ExperimentsError> {
        let content = read(path)?;
        let file = ConfigFile::read(path.to_owned(), shown.to_owned(), content)
            .map_err(ExperimentsError::File)?;
        check_selection(&file, &options.selected)?;
        let mut warnings = Vec::new();
        let slurm = SlurmDocument::read(&file, &options.host, &mut warnings)
            .map_err(ExperimentsError::File)?;
        let mut slips = Vec::new();
        let mut experiments = Vec::new();
        for document in file.experiments() {
            let is_selected = |name: &String| *name == document.name;
            if !options.selected.is_empty() && !options.selected.iter().any(is_selected) {
                continue;
            }
            let at_name = |problem| {
                let error = file.source().error(document.name_span.clone(), problem);
                file.wrong(error)
            };
            if document.name.to_lowercase().contains("slurm") {
                let problem = ExperimentProblem::SlurmName(document.name.clone());
                warnings.push(at_name(problem));
            }
            let mut importer =
                Importer { read: &mut *read, warnings: &mut slips, places: KeyPlaces::default() };
            let mut members = importer.resolve(&file, document).map_err(ExperimentsError::File)?;
            let places = importer.places;
            let name = match &options.prefix {
                Some(prefix) => format!("{prefix}_{}", document.name),
                None => document.name.clone(),
            };
            set(&mut members, "name", text(&name));
            let uneven = |key: &str, count: u32| {
                let problem = ExperimentProblem::UnevenLists {
                    experiment: document.name.clone(),
                    key: key.to_owned(),
                    count,
                };
                warnings.push(places.at_key(key, problem));
            };
            if let Some(base) = &options.base {
                start_from(base, &mut members);
            }
            let experiment = Experiment::new(name.clone(), members, options.debug, uneven);
            let experiment = experiment.map_err(|why| match why {
                NoExperiment::NoPath => {
                    let problem = ExperimentProblem::NoPath(document.name.clone());
                    ExperimentsError::File(at_name(problem))
                }
                NoExperiment::Nothing(key) => {
                    let problem = ExperimentProblem::EmptyExpansion {
                        experiment: document.name.clone(),
                        key: key.clone(),
                    };
                    ExperimentsError::File(places.at_key(&key, problem))
                }
                NoExperiment::TooMany => ExperimentsError::TooMany,
            })?;
            let command = command_of(&experiment, &document.name, &places, options)?;
            experiments.push((experiment, command));
        }
        warnings.splice(0..0, slips);
        Self::new(experiments, slurm, warnings, options.log)
    }

    fn new(
        mut experiments: Vec<(Experiment, Option<ExperimentCommand>)>,
        slurm: Option<SlurmDocument>,
        warnings: Vec<FileError>,
        log: bool,
    ) -> Result<Self, ExperimentsError> {
        // The original expands breadth-first.
        experiments.sort_by_key(|(experiment, _)| experiment.expansions.len());
        let (experiments, commands): (Vec<_>, Vec<_>) = experiments.into_iter().unzip();
        let (mut starts, mut run_starts) = (vec![0_u32], vec![0_u32]);
        let more = |starts: &mut Vec<u32>, count: Option<u32>| {
            let last = starts.last().copied().unwrap_or(0);
            let next = count.and_then(|count| last.checked_add(count));
            starts.push(next.ok_or(ExperimentsError::TooMany)?);
            Ok::<(), ExperimentsError>(())
        };
        for experiment in &experiments {
            let reps = experiment.runs.checked_mul(experiment.repetitions);
            more(&mut starts, reps)?;
            more(&mut run_starts, Some(experiment.runs))?;
        }
        let (jobs, job_count) = cut_into_jobs(&experiments, &starts);
        let mut read = Self {
            commands,
            slurm,
            log,
            all: experiments,
            starts,
            run_starts,
            jobs,
            job_count,
            names: RunNames::default(),
            warnings,
        };
        read.compare_names();
        Ok(read)
    }

    /// How many repetitions there are, those that are there twice included.
    pub fn len(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many runs there are: experiments with all their parameters.
    pub fn runs(&self) -> u32 {
        self.run_starts.last().copied().unwrap_or(0)
    }

    /// How many jobs the repetitions are cut into.
    pub fn jobs(&self) -> u32 {
        self.job_count
    }

    /// The SLURM document for this machine, if there is one.
    pub fn slurm(&self) -> Option<&SlurmDocument> {
        self.slurm.as_ref()
    }

    /// Each experiment's name, and how many of its repetitions run at a time, if it says
    /// so.
    pub fn limits(&self) -> impl Iterator<Item = (&str, Option<NonZeroU32>)> {
        let experiments = self.all.iter();
        experiments.map(|it| (it.name.as_str(), it.reps_in_parallel))
    }

    /// Each experiment's name, and how many of its repetitions make a job, of how many.
    pub fn job_sizes(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        let experiments = self.all.iter();
        experiments.map(|it| {
            let repetitions = it.runs.saturating_mul(it.repetitions);
            (it.name.as_str(), it.reps_per_job, repetitions)
        })
    }

    /// The folder that the first experiment's `path` says: what is written back goes there.
    pub fn basic_path(&self) -> &str {
        self.all.first().map_or("", Experiment::basic_path)
    }

    /// What an experiment runs.
    pub(super) fn command(&self, experiment: usize) -> Option<&ExperimentCommand> {
        self.commands.get(experiment)?.as_ref()
    }

    /// Whether the output of a repetition goes to its folder.
    pub(super) fn keeps_log(&self) -> bool {
        self.log
    }

    /// The job of the repetition of an experiment at a place.
    pub(super) fn job_of(&self, experiment: usize, place: u32) -> u32 {
        self.jobs[experiment].job(place - self.starts[experiment])
    }

    /// The first experiment that has nothing to run.
    pub fn without_command(&self) -> Option<&str> {
        let mut all = self.all.iter().zip(&self.commands);
        let (experiment, _) = all.find(|(_, command)| command.is_none())?;
        Some(&experiment.name)
    }

    /// What is probably not what was meant.
    pub fn warnings(&self) -> &[FileError] {
        &self.warnings
    }

    /// What was found out about the names of the folders of runs.
    pub fn report(&self) -> &NameReport {
        &self.names.report
    }

    /// The places of the repetitions of an experiment.
    pub(super) fn places_of(&self, experiment: usize) -> Range<u32> {
        self.starts[experiment]..self.starts[experiment + 1]
    }

    fn locate(&self, place: u32) -> Located {
        let experiment = self.starts.partition_point(|start| *start <= place) - 1;
        let within = place - self.starts[experiment];
        let repetitions = self.all[experiment].repetitions;
        Located { experiment, run: within / repetitions, rep: within % repetitions }
    }

    pub(super) fn locate_run(&self, run: u32) -> Located {
        let experiment = self.run_starts.partition_point(|start| *start <= run) - 1;
        Located { experiment, run: run - self.run_starts[experiment], rep: 0 }
    }

    pub fn at(&self, place: u32) -> Repetition<'_> {
        let at = self.locate(place);
        Repetition {
            all: self,
            experiment: &self.all[at.experiment],
            run_name: self.run_name_at(at),
            place,
            at,
        }
    }

    /// Whether the same repetition stands at an earlier place.
    pub fn is_repeated(&self, place: u32) -> bool {
        let at = self.locate(place);
        let run = self.run_starts[at.experiment] + at.run;
        self.names.same.is_repeated(self, run)
    }

    /// The configuration of a run, as the original expands it: JSON in which nothing is lost.
    pub fn expanded(&self, run: u32) -> String {
        let at = self.locate_run(run);
        let experiment = &self.all[at.experiment];
        let members = experiment.run_members(&self.run_name_at(at));
        json_text(&experiment.with_params(members, at.run))
    }
}

/// What an experiment of this name runs.
fn command_of(
    experiment: &Experiment,
    name: &str,
    places: &KeyPlaces,
    options: &ReadOptions,
) -> Result<Option<ExperimentCommand>, ExperimentsError> {
    let given = options.command.as_ref();
    let command = ExperimentCommand::new(given, options.plain_command, experiment);
    command.map_err(|(part, problem)| {
        let experiment = name.to_owned();
        if given.is_some() {
            return ExperimentsError::Command { experiment, problem };
        }
        let problem = ExperimentProblem::Command { experiment, problem };
        ExperimentsError::File(places.at_value("command", part, problem))
    })
}

/// Lets a relative `path` start from a folder.
fn start_from(base: &str, members: &mut Members) {
    for key in ["path", "_basic_path"] {
        if let Some(path) = get(members, key).and_then(GridValue::name) {
            set(members, key, text(&join(base, &path)));
        }
    }
}

fn check_selection(file: &ConfigFile, selected: &[String]) -> Result<(), ExperimentsError> {
    let known: Vec<&str> = file.experiments().map(|it| it.name.as_str()).collect();
    if known.is_empty() {
        return Err(ExperimentsError::Nothing);
    }
    let mut selected = selected.iter();
    match selected.find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(ExperimentsError::NotThere {
            hint: match nearest(name, known.iter().copied()) {
                Some(nearest) => did_you_mean(nearest),
                None => format!("there are {}", known.join(", ")),
            },
            name: name.clone(),
        }),
    }
}
