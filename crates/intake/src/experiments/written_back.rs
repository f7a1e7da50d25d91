//! Experiments as they are written back: a document for each repetition, with everything
//! in it and paths that start from where the file is.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::experiment::Experiment;
use super::experiments::Experiments;
use super::merge::{Members, set, text};
use super::repetition::Repetition;
use super::yaml_writer::write_document;

impl Experiments {
    /// Writes the SLURM document, and then the repetitions of all experiments, or of these.
    pub fn write_back(&self, only: Option<&[usize]>, out: &mut dyn Write) -> io::Result<()> {
        if let Some(slurm) = self.slurm() {
            let mut members = slurm.members.clone();
            // It is the one for this machine, wherever the file is read again.
            if slurm.name.contains('_') {
                set(&mut members, "name", text("slurm"));
            }
            write_document(&members, out)?;
        }
        let all: Vec<usize> = (0..self.all.len()).collect();
        let of = only.unwrap_or(&all).iter();
        for place in of.flat_map(|experiment| self.places_of(*experiment)) {
            write_document(&self.at(place).relative_members(), out)?;
        }
        Ok(())
    }

    /// The names of the experiments, each with those that have it.
    pub fn by_name(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for ((name, _), experiment) in self.limits().zip(0..) {
            names.entry(name).or_default().push(experiment);
        }
        names
    }
}

impl Repetition<'_> {
    fn relative_members(&self) -> Members {
        let experiment = self.experiment;
        let mut members = self.members();
        let path = experiment.run_folder(self.run());
        let folder = self.folder();
        for (key, path) in [
            ("path", path.as_str()),
            ("log_path", &format!("{path}/log")),
            ("_rep_log_path", &folder),
        ] {
            let relative = format!("./{}", below(experiment, path));
            set(&mut members, key, text(&relative));
        }
        set(&mut members, "_basic_path", text("./."));
        members
    }
}

/// A path without the folder that the experiment's `path` says.
fn below<'p>(experiment: &Experiment, path: &'p str) -> &'p str {
    let rest = path.strip_prefix(experiment.basic_path()).unwrap_or(path);
    let rest = rest.trim_start_matches('/');
    rest.strip_prefix("./").unwrap_or(rest)
}
