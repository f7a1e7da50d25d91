//! The experiments of a file, and every repetition of them by its place.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::Path;

use packhorse_model::{ByteString, Command, ExperimentDebug, TaskSpec};
use serde_json::{Map, Value};

use super::command::ExperimentCommand;
use super::documents::{ConfigFile, FileError, ReadFile};
use super::experiment::{Experiment, NoExperiment};
use super::import::Importer;
use super::merge::{set, text};
use super::paths::join;
use super::problem::ExperimentProblem;
use super::slurm_document::SlurmDocument;
use crate::excerpt::Colour;
use crate::grid::names::{LONGEST_NAME, with_hash};
use crate::grid::same_names::{NamedPlaces, SameNames};
use crate::grid::{CommandProblem, NameReport};
use crate::nearest::{did_you_mean, nearest};

/// Why there are no such experiments.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentsError {
    /// Something in a file.
    #[error("{}", .0.error)]
    File(FileError),
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// None of the experiments is selected, or one that is not there.
    #[error("there is no experiment `{name}` in the file\nhint: {hint}")]
    NotThere {
        /// What was asked for.
        name: String,
        /// What there is.
        hint: String,
    },
    /// A file without experiments.
    #[error(
        "there is no experiment in the file\nhint: every document whose name is not DEFAULT or SLURM is one"
    )]
    Nothing,
    /// An expansion that leaves nothing of an experiment.
    #[error(
        "the experiment `{experiment}` would not run: `{key}` has no parameters with lists of values\n\
         hint: write some, or leave `{key}` out"
    )]
    EmptyExpansion {
        /// The experiment.
        experiment: String,
        /// The key of the expansion.
        key: String,
    },
    /// What an experiment is to run.
    #[error("in the command for the experiment `{experiment}`, {}\nhint: {}", problem.problem, problem.hint)]
    Command {
        /// The experiment.
        experiment: String,
        /// What is wrong.
        problem: CommandProblem,
    },
    /// More repetitions than a run can have tasks.
    #[error(
        "there are more than 4 billion repetitions, and a run cannot have so many\nhint: test fewer values"
    )]
    TooMany,
}

impl ExperimentsError {
    /// The whole message, with the line that it is about.
    pub fn render(&self, colour: Colour) -> String {
        match self {
            Self::File(FileError { shown, error }) => {
                error.render(&shown.display().to_string(), colour)
            }
            other => other.to_string(),
        }
    }
}

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
    experiments: Vec<Experiment>,
    /// The place of the first repetition of each, and at the end how many there are.
    starts: Vec<u32>,
    /// The first run of each, and at the end how many there are.
    run_starts: Vec<u32>,
    /// For each experiment: its first job, and how many repetitions of the same name are
    /// before its own.
    jobs: Vec<JobStart>,
    job_count: u32,
    same: SameNames,
    report: NameReport,
    warnings: Vec<ExperimentWarning>,
    /// What each experiment runs.
    commands: Vec<Option<ExperimentCommand>>,
    slurm: Option<SlurmDocument>,
    log: bool,
}

struct JobStart {
    first_job: u32,
    before: u32,
    reps_per_job: u32,
}

/// Something that is probably not what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentWarning {
    /// At a place of a file.
    Place(FileError),
    /// In words.
    Text(String),
}

impl ExperimentWarning {
    /// The whole message.
    pub fn render(&self, colour: Colour) -> String {
        match self {
            Self::Place(FileError { shown, error }) => {
                error.render(&shown.display().to_string(), colour)
            }
            Self::Text(text) => format!("warning: {text}"),
        }
    }
}

/// Where a repetition stands.
#[derive(Clone, Copy)]
struct Located {
    experiment: usize,
    /// The run among those of the experiment.
    run: u32,
    /// The repetition among those of the run.
    rep: u32,
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
        let mut slips = Vec::new();
        let slurm = SlurmDocument::read(&file, &options.host, &mut slips)
            .map_err(ExperimentsError::File)?;
        let mut placed = Vec::new();
        let mut warnings: Vec<_> = slips.into_iter().map(ExperimentWarning::Place).collect();
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
                warnings.push(ExperimentWarning::Place(at_name(problem)));
            }
            let mut importer = Importer {
                read: &mut *read,
                warnings: &mut placed,
            };
            let mut members = importer
                .resolve(&file, document)
                .map_err(ExperimentsError::File)?;
            let name = match &options.prefix {
                Some(prefix) => format!("{prefix}_{}", document.name),
                None => document.name.clone(),
            };
            set(&mut members, "name", text(&name));
            let uneven = |key: &str, count: u32| {
                warnings.push(ExperimentWarning::Text(format!(
                    "in the experiment `{name}`, the lists of `{key}` are of different lengths: \
                     the first {count} values of each are used"
                )));
            };
            let experiment = Experiment::new(name.clone(), members, options.debug, uneven);
            experiments.push(experiment.map_err(|why| match why {
                NoExperiment::NoPath => {
                    let problem = ExperimentProblem::NoPath(document.name.clone());
                    ExperimentsError::File(at_name(problem))
                }
                NoExperiment::Nothing(key) => ExperimentsError::EmptyExpansion {
                    experiment: document.name.clone(),
                    key,
                },
                NoExperiment::TooMany => ExperimentsError::TooMany,
            })?);
        }
        let placed = placed.into_iter();
        let placed =
            placed.map(|(shown, error)| ExperimentWarning::Place(FileError { shown, error }));
        warnings.splice(0..0, placed);
        Self::new(experiments, slurm, warnings, options)
    }

    fn new(
        mut experiments: Vec<Experiment>,
        slurm: Option<SlurmDocument>,
        warnings: Vec<ExperimentWarning>,
        options: &ReadOptions,
    ) -> Result<Self, ExperimentsError> {
        // The original expands breadth-first.
        experiments.sort_by_key(|experiment| experiment.expansions.len());
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
        let commands = experiments.iter().map(|experiment| {
            let given = options.command.as_ref();
            let command = ExperimentCommand::new(given, options.plain_command, experiment);
            command.map_err(|problem| ExperimentsError::Command {
                experiment: experiment.name.clone(),
                problem,
            })
        });
        let commands = commands.collect::<Result<_, _>>()?;
        let mut all = Self {
            commands,
            slurm,
            log: options.log,
            experiments,
            starts,
            run_starts,
            jobs,
            job_count,
            same: SameNames::default(),
            report: NameReport::default(),
            warnings,
        };
        (all.same, all.report) = SameNames::compare(&all);
        Ok(all)
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
        let experiments = self.experiments.iter();
        experiments.map(|it| (it.name.as_str(), it.reps_in_parallel))
    }

    /// The folder that the first experiment's `path` says: what is written back goes there.
    pub fn basic_path(&self) -> &str {
        self.experiments.first().map_or("", Experiment::basic_path)
    }

    /// The first experiment that has nothing to run.
    pub fn without_command(&self) -> Option<&str> {
        let mut all = self.experiments.iter().zip(&self.commands);
        let (experiment, _) = all.find(|(_, command)| command.is_none())?;
        Some(&experiment.name)
    }

    /// What is probably not what was meant.
    pub fn warnings(&self) -> &[ExperimentWarning] {
        &self.warnings
    }

    /// What was found out about the names of the folders of runs.
    pub fn report(&self) -> &NameReport {
        &self.report
    }

    fn locate(&self, place: u32) -> Located {
        let experiment = self.starts.partition_point(|start| *start <= place) - 1;
        let within = place - self.starts[experiment];
        let repetitions = self.experiments[experiment].repetitions;
        Located {
            experiment,
            run: within / repetitions,
            rep: within % repetitions,
        }
    }

    fn locate_run(&self, run: u32) -> Located {
        let experiment = self.run_starts.partition_point(|start| *start <= run) - 1;
        Located {
            experiment,
            run: run - self.run_starts[experiment],
            rep: 0,
        }
    }

    fn run_name_at(&self, at: Located) -> String {
        let experiment = &self.experiments[at.experiment];
        let mut name = String::new();
        experiment.write_run_name(at.run, &mut name);
        let folder = self.name_to_compare(at, experiment.run_folder(&name));
        if self.same.is_shared(&folder) || is_unusable(&folder) {
            let name = name.replace(['/', '\0'], "_");
            return with_hash(name, &self.identity_of(at));
        }
        name
    }

    /// What the folder of a run is called, for those that share it.
    fn name_to_compare(&self, at: Located, mut folder: String) -> String {
        let experiment = &self.experiments[at.experiment];
        if experiment.is_written_back() {
            folder.push_str("/rep ");
            folder.push_str(&experiment.rep_index(0).to_string());
        }
        folder
    }

    fn identity_of(&self, at: Located) -> String {
        let experiment = &self.experiments[at.experiment];
        let mut config = experiment.bare_config("");
        config.insert("params".to_owned(), experiment.params_json(at.run).into());
        let rep = experiment
            .is_written_back()
            .then(|| experiment.rep_index(0));
        config.insert("_rep_idx".to_owned(), rep.into());
        Value::Object(config).to_string()
    }

    /// The repetition at a place.
    pub fn at(&self, place: u32) -> Repetition<'_> {
        let at = self.locate(place);
        Repetition {
            all: self,
            experiment: &self.experiments[at.experiment],
            run_name: self.run_name_at(at),
            place,
            at,
        }
    }

    /// Whether the same repetition stands at an earlier place.
    pub fn is_repeated(&self, place: u32) -> bool {
        let at = self.locate(place);
        let run = self.run_starts[at.experiment] + at.run;
        self.same.is_repeated(self, run)
    }

    /// The configuration of a run, as the original expands it.
    pub fn expanded(&self, run: u32) -> Map<String, Value> {
        let at = self.locate_run(run);
        let experiment = &self.experiments[at.experiment];
        let mut config = experiment.bare_config(&self.run_name_at(at));
        if experiment.has_params() {
            config.insert("params".to_owned(), experiment.params_json(at.run).into());
        }
        config
    }
}

/// One repetition of a run of an experiment.
pub struct Repetition<'a> {
    all: &'a Experiments,
    experiment: &'a Experiment,
    place: u32,
    at: Located,
    run_name: String,
}

impl Repetition<'_> {
    pub(super) fn definition(&self) -> &Experiment {
        self.experiment
    }

    /// Its run among those of its experiment.
    pub(super) fn run_index(&self) -> u32 {
        self.at.run
    }

    /// Its place among the repetitions of its run.
    pub(super) fn rep(&self) -> u32 {
        self.at.rep
    }

    /// The name of its experiment.
    pub fn experiment(&self) -> &str {
        &self.experiment.name
    }

    /// The name of its run.
    pub fn run(&self) -> &str {
        &self.run_name
    }

    /// Its number among those of its run, counted from 0.
    pub fn number(&self) -> u32 {
        self.experiment.rep_index(self.at.rep)
    }

    /// Whether it stands for itself, in a file that was written back.
    pub fn is_written_back(&self) -> bool {
        self.experiment.is_written_back()
    }

    /// The job that it belongs to, counted from 0.
    pub fn job(&self) -> u32 {
        let job = &self.all.jobs[self.at.experiment];
        let within = job.before + (self.place - self.all.starts[self.at.experiment]);
        job.first_job + within / job.reps_per_job
    }

    /// The folder that the folder of its run is in.
    pub fn parent(&self) -> String {
        self.experiment.parent()
    }

    /// Its folder.
    pub fn folder(&self) -> String {
        self.experiment.rep_folder(&self.run_name, self.at.rep)
    }

    /// Its task.
    pub fn task(&self) -> TaskSpec {
        let (experiment, at) = (self.experiment, self.at);
        let folder = self.folder();
        let config = experiment.rep_config(&self.run_name, at.rep);
        let experiment_json = Value::Object(config).to_string();
        let mut task = TaskSpec {
            params: experiment.params_json(at.run).into_iter().collect(),
            group: Some(experiment.name.clone()),
            group_limit: experiment.reps_in_parallel,
            ..TaskSpec::default()
        };
        task.env.insert(
            "PACKHORSE_EXPERIMENT".to_owned(),
            ByteString::from(experiment_json.as_str()),
        );
        if let Some(command) = &self.all.commands[at.experiment] {
            let file = join(&folder, "config.json");
            let params = experiment.params(at.run);
            let members = experiment.rep_members(&self.run_name, at.rep);
            task.command = command.fill(&params, &members, self.number(), &file);
            if command.needs_config() {
                let file = ByteString::from(file.as_str());
                task.env.insert("PACKHORSE_CONFIG".to_owned(), file);
            }
        }
        task.log = self.all.log.then(|| join(&folder, "out.log").into());
        task.results = Some(folder.into());
        task
    }

    /// Its whole configuration.
    pub fn config(&self) -> Map<String, Value> {
        let mut config = self.experiment.rep_config(&self.run_name, self.at.rep);
        if self.experiment.has_params() {
            let params = self.experiment.params_json(self.at.run);
            config.insert("params".to_owned(), params.into());
        }
        config
    }
}

impl NamedPlaces for Experiments {
    fn count(&self) -> u32 {
        self.runs()
    }

    fn write_name(&self, place: u32, _: &mut Vec<usize>, name: &mut String) {
        let at = self.locate_run(place);
        let experiment = &self.experiments[at.experiment];
        experiment.write_run_name(at.run, name);
        *name = self.name_to_compare(at, experiment.run_folder(name));
    }

    fn identity(&self, place: u32) -> String {
        self.identity_of(self.locate_run(place))
    }

    fn is_unusable(&self, name: &str) -> bool {
        is_unusable(name)
    }
}

/// Whether no folder can be called so.
fn is_unusable(folder: &str) -> bool {
    folder.contains('\0') || folder.split('/').any(|part| part.len() > LONGEST_NAME)
}

/// Repetitions of one name, over all its runs, are cut into jobs.
fn cut_into_jobs(experiments: &[Experiment], starts: &[u32]) -> (Vec<JobStart>, u32) {
    struct Group {
        reps_per_job: u32,
        repetitions: u32,
        first_job: u32,
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut places = Vec::with_capacity(experiments.len());
    for (experiment, bounds) in experiments.iter().zip(starts.windows(2)) {
        let group = *by_name.entry(&experiment.name).or_insert_with(|| {
            groups.push(Group {
                reps_per_job: experiment.reps_per_job,
                repetitions: 0,
                first_job: 0,
            });
            groups.len() - 1
        });
        places.push((group, groups[group].repetitions));
        groups[group].repetitions += bounds[1] - bounds[0];
    }
    let mut jobs = 0;
    for group in &mut groups {
        group.first_job = jobs;
        jobs += group.repetitions.div_ceil(group.reps_per_job);
    }
    let starts = places.into_iter().map(|(group, before)| JobStart {
        first_job: groups[group].first_job,
        before,
        reps_per_job: groups[group].reps_per_job,
    });
    (starts.collect(), jobs)
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
