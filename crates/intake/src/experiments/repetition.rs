//! One repetition: its names, its folder, its task.

use std::num::NonZeroU32;

use packhorse_model::{ByteString, TaskSpec};

use super::experiment::Experiment;
use super::experiments::Experiments;
use super::merge::Members;
use super::paths::join;
use crate::grid::json_text::json_text;

/// The kernel takes no variable of 128 KiB or more. A configuration that comes near it is in
/// a file only.
pub const LONGEST_CONFIG: usize = 100 << 10;

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

    /// Whether it is only tried (`--debug`).
    pub fn is_debug(&self) -> bool {
        self.experiment.is_debug()
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

    pub fn folder(&self) -> String {
        self.experiment.rep_folder(&self.run_name, self.at.rep)
    }

    pub fn task(&self) -> TaskSpec {
        let (experiment, at) = (self.experiment, self.at);
        let folder = self.folder();
        let params = experiment.params(at.run);
        let members = experiment.rep_members(&self.run_name, at.rep);
        let config = self.config();
        let mut needs_file = config.len() > LONGEST_CONFIG;
        let mut task = TaskSpec {
            params: experiment.params_json(at.run).into_iter().collect(),
            group: Some(experiment.name.clone()),
            group_limit: experiment.reps_in_parallel,
            ..TaskSpec::default()
        };
        task.env.insert("PACKHORSE_EXPERIMENT".to_owned(), ByteString::from(config.as_str()));
        let file = join(&folder, "config.json");
        if let Some(command) = self.all.command(at.experiment) {
            task.command = command.fill(&params, &members, self.number(), (&folder, &file));
            needs_file |= command.needs_config();
        }
        if needs_file {
            let file = ByteString::from(file.as_str());
            task.env.insert("PACKHORSE_CONFIG".to_owned(), file);
        }
        task.log = self.all.keeps_log().then(|| join(&folder, "out.log").into());
        task.results = Some(folder.into());
        task
    }

    /// Its whole configuration, as JSON in which nothing is lost.
    pub fn config(&self) -> String {
        json_text(&self.members())
    }

    /// Its whole configuration.
    pub(super) fn members(&self) -> Members {
        let members = self.experiment.rep_members(&self.run_name, self.at.rep);
        self.experiment.with_params(members, self.at.run)
    }
}
