//! One repetition: its names, its folder, its task.

use std::num::NonZeroU32;

use packhorse_model::{ByteString, TaskSpec};
use serde_json::{Map, Value};

use super::experiment::Experiment;
use super::experiments::Experiments;
use super::paths::join;

/// Where a repetition stands.
#[derive(Clone, Copy)]
pub(super) struct Located {
    pub experiment: usize,
    /// The run among those of the experiment.
    pub run: u32,
    /// The repetition among those of the run.
    pub rep: u32,
}

/// One repetition of a run of an experiment.
pub struct Repetition<'a> {
    pub(super) all: &'a Experiments,
    pub(super) experiment: &'a Experiment,
    pub(super) place: u32,
    pub(super) at: Located,
    pub(super) run_name: String,
}

impl Repetition<'_> {
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
        self.all.job_of(self.at.experiment, self.place)
    }

    /// How many of its experiment run at a time, if that says so.
    pub fn limit(&self) -> Option<NonZeroU32> {
        self.experiment.reps_in_parallel
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
        if let Some(command) = self.all.command(at.experiment) {
            let file = join(&folder, "config.json");
            let params = experiment.params(at.run);
            let members = experiment.rep_members(&self.run_name, at.rep);
            task.command = command.fill(&params, &members, self.number(), (&folder, &file));
            if command.needs_config() {
                let file = ByteString::from(file.as_str());
                task.env.insert("PACKHORSE_CONFIG".to_owned(), file);
            }
        }
        task.log = self
            .all
            .keeps_log()
            .then(|| join(&folder, "out.log").into());
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
