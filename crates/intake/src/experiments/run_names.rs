//! What runs are called, and their folders: those that would share one have a hash in their
//! names.

use serde_json::Value;

use super::experiments::Experiments;
use super::repetition::Located;
use crate::grid::NameReport;
use crate::grid::json_text::json_text;
use crate::grid::names::{LONGEST_NAME, with_hash};
use crate::grid::same_names::{NamedPlaces, SameNames};

/// Which runs would share a folder.
#[derive(Default)]
pub(super) struct RunNames {
    pub same: SameNames,
    /// Which names are still the same with a hash of the first [`HASHED`], of the second, …
    same_hashed: Vec<SameNames>,
    pub report: NameReport,
}

/// What of a run the hash in its name is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashedPart {
    /// What it is called, and its parameters.
    Params,
    /// All that its program may take for something else.
    Members,
    Everything,
}

/// The less is in a hash, the more can be changed in a file without a new name for a run that
/// is done. More than the first is there for runs alone that are the same otherwise.
const HASHED: [HashedPart; 3] = [HashedPart::Params, HashedPart::Members, HashedPart::Everything];

/// What says where and how often a run is to run, and how far, and not what it is.
const CHANGING: [&str; 12] = [
    "path",
    "log_path",
    "repetitions",
    "iterations",
    "reps_per_job",
    "reps_in_parallel",
    "import_path",
    "import_exp",
    "command",
    "_basic_path",
    "_rep_log_path",
    "_debug",
];

impl Experiments {
    /// Finds out which runs would share a folder.
    pub(super) fn compare_names(&mut self) {
        (self.names.same, self.names.report) = SameNames::compare(self);
        let mut shared = self.names.report.shared;
        while shared > 0 && self.names.same_hashed.len() + 1 < HASHED.len() {
            let (same, report) = SameNames::compare(&HashedNames(self));
            self.names.same_hashed.push(same);
            shared = report.shared;
        }
    }

    pub(super) fn run_name_at(&self, at: Located) -> String {
        let experiment = &self.all[at.experiment];
        let mut name = String::new();
        experiment.write_run_name(at.run, &mut name);
        let folder = self.name_to_compare(at, experiment.run_folder(&name));
        if !self.names.same.is_shared(&folder) && !is_unusable(&folder) {
            return name;
        }
        let plain = name.replace(['/', '\0'], "_");
        for (of, place) in HASHED.iter().zip(0..) {
            name = with_hash(plain.clone(), &self.identity_of(at, *of));
            let folder = self.name_to_compare(at, experiment.run_folder(&name));
            let same = self.names.same_hashed.get(place);
            if same.is_none_or(|same| !same.is_shared(&folder)) {
                break;
            }
        }
        name
    }

    /// What the folder of a run is called, for those that share it.
    fn name_to_compare(&self, at: Located, mut folder: String) -> String {
        let experiment = &self.all[at.experiment];
        if experiment.is_written_back() {
            folder.push_str("/rep ");
            folder.push_str(&experiment.rep_index(0).to_string());
        }
        folder
    }

    fn identity_of(&self, at: Located, of: HashedPart) -> String {
        let experiment = &self.all[at.experiment];
        // Two runs may have the same parameters: one expansion may undo what another did.
        let mut name = String::new();
        experiment.write_run_name(at.run, &mut name);
        let mut config = experiment.bare_config(&name);
        config.retain(|key, _| match of {
            HashedPart::Params => ["name", "_experiment_name"].contains(&key.as_str()),
            HashedPart::Members => !CHANGING.contains(&key.as_str()),
            HashedPart::Everything => true,
        });
        config.insert("params".to_owned(), experiment.params_json(at.run).into());
        let rep = experiment.is_written_back().then(|| experiment.rep_index(0));
        config.insert("_rep_idx".to_owned(), rep.into());
        let mut config = Value::Object(config);
        config.sort_all_objects();
        let mut identity = config.to_string();
        if of == HashedPart::Everything {
            // JSON alone does not tell a list from a tuple, or `.inf` from the text.
            let params = json_text(&experiment.params(at.run));
            let params = serde_json::from_str(&params).map(|mut params: Value| {
                params.sort_all_objects();
                params.to_string()
            });
            identity += &params.unwrap_or_default();
        }
        identity
    }
}

impl NamedPlaces for Experiments {
    fn count(&self) -> u32 {
        self.runs()
    }

    fn write_name(&self, place: u32, _: &mut Vec<usize>, name: &mut String) {
        let at = self.locate_run(place);
        let experiment = &self.all[at.experiment];
        experiment.write_run_name(at.run, name);
        *name = self.name_to_compare(at, experiment.run_folder(name));
    }

    fn identity(&self, place: u32) -> String {
        self.identity_of(self.locate_run(place), HashedPart::Everything)
    }

    fn is_unusable(&self, name: &str) -> bool {
        is_unusable(name)
    }
}

/// The same runs with the names that they really have, as far as that is known.
struct HashedNames<'e>(&'e Experiments);

impl NamedPlaces for HashedNames<'_> {
    fn count(&self) -> u32 {
        self.0.runs()
    }

    fn write_name(&self, place: u32, _: &mut Vec<usize>, name: &mut String) {
        let at = self.0.locate_run(place);
        let run = self.0.run_name_at(at);
        let folder = self.0.all[at.experiment].run_folder(&run);
        *name = self.0.name_to_compare(at, folder);
    }

    fn identity(&self, place: u32) -> String {
        self.0.identity(place)
    }

    fn is_unusable(&self, name: &str) -> bool {
        is_unusable(name)
    }
}

/// Whether no folder can be called so.
fn is_unusable(folder: &str) -> bool {
    folder.contains('\0') || folder.split('/').any(|part| part.len() > LONGEST_NAME)
}
