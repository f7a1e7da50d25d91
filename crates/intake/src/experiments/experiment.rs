//! One experiment: its runs, and the configuration of each repetition.

use std::num::NonZeroU32;

use packhorse_model::ExperimentDebug;
use serde_json::{Map, Value};

use super::expansion::{Axis, Expansion};
use super::keys::{count, is_expansion};
use super::merge::{Members, get, set, take, text};
use super::paths::join;
use crate::grid::print::python_str;
use crate::grid::value::{GridValue, ValueKind};

/// An experiment, merged with all that it builds on.
pub(super) struct Experiment {
    pub name: String,
    /// Everything in it but its expansions and parameters.
    pub members: Members,
    /// The same as JSON.
    json: Map<String, Value>,
    /// Its parameters before it is expanded, if it says any.
    pub params: Option<Members>,
    params_json: Map<String, Value>,
    pub expansions: Vec<Expansion>,
    /// How many runs it is expanded to.
    pub runs: u32,
    pub repetitions: u32,
    pub reps_per_job: u32,
    pub reps_in_parallel: Option<NonZeroU32>,
    /// The name of a run before anything is added to it.
    base_name: String,
    basic_path: String,
    nested_dir: String,
    /// If it is a single repetition of a file that was written back: which one, and its
    /// folder.
    written_back: Option<(u32, Option<String>)>,
    debug: bool,
}

/// What keeps a document from being an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoExperiment {
    NoPath,
    /// This expansion makes nothing of it.
    Nothing(String),
    TooMany,
}

impl Experiment {
    /// What merged members say. They were checked before.
    pub fn new(
        name: String,
        mut members: Members,
        debug: ExperimentDebug,
        mut uneven: impl FnMut(&str, u32),
    ) -> Result<Self, NoExperiment> {
        let word = |members: &Members, key: &str| get(members, key).map(python_str);
        let number = |members: &Members, key: &str| get(members, key).and_then(count);
        let (is_debug, only_first) =
            (debug != ExperimentDebug::Off, debug == ExperimentDebug::First);
        if is_debug {
            for key in ["repetitions", "iterations", "reps_in_parallel", "reps_per_job"] {
                let one = GridValue::new(ValueKind::Int("1".into()), 0..0);
                set(&mut members, key, one);
            }
        }
        let basic_path = word(&members, "_basic_path").or_else(|| word(&members, "path"));
        let basic_path = basic_path.ok_or(NoExperiment::NoPath)?;
        let mut expansions = Vec::new();
        let mut rest = Members::new();
        let mut runs = 1_u32;
        for (key, value) in std::mem::take(&mut members) {
            let ValueKind::Text(word) = &key.kind else {
                rest.push((key, value));
                continue;
            };
            if !is_expansion(word) {
                rest.push((key, value));
                continue;
            }
            let ValueKind::Dict(of) = &value.kind else {
                continue;
            };
            let mut expansion = Expansion::new(word, of).ok_or(NoExperiment::TooMany)?;
            if expansion.count == 0 {
                return Err(NoExperiment::Nothing(word.to_string()));
            }
            if expansion.is_uneven() {
                uneven(word, expansion.count);
            }
            if only_first {
                expansion.reduce_to_first();
            }
            runs = runs.checked_mul(expansion.runs).ok_or(NoExperiment::TooMany)?;
            expansions.push(expansion);
        }
        let mut members = rest;
        let params = take(&mut members, "params").map(|params| match params.kind {
            ValueKind::Dict(members) => members,
            _ => Members::new(),
        });
        let rep = get(&members, "_rep_idx").and_then(|value| python_str(value).parse().ok());
        let written_back = rep.map(|rep| (rep, word(&members, "_rep_log_path")));
        let repetitions = match written_back {
            Some(_) => 1,
            None => number(&members, "repetitions").unwrap_or(1),
        };
        Ok(Self {
            base_name: word(&members, "_experiment_name").unwrap_or_else(|| name.clone()),
            nested_dir: word(&members, "_nested_dir").unwrap_or_default(),
            reps_per_job: number(&members, "reps_per_job").unwrap_or(1),
            reps_in_parallel: number(&members, "reps_in_parallel").and_then(NonZeroU32::new),
            json: to_map(&members),
            params_json: params.as_ref().map(to_map).unwrap_or_default(),
            name,
            members,
            params,
            expansions,
            runs,
            repetitions,
            basic_path,
            written_back,
            debug: is_debug,
        })
    }

    /// Which values the parameters of a run have.
    pub fn choices(&self, run: u32, mut choose: impl FnMut(&Axis, usize)) {
        let (mut below, mut rest) = (self.runs, run);
        for expansion in &self.expansions {
            below /= expansion.runs.max(1);
            expansion.choices(rest / below.max(1), &mut choose);
            rest %= below.max(1);
        }
    }

    /// Replaces `name` by the name of a run.
    pub fn write_run_name(&self, run: u32, name: &mut String) {
        name.clear();
        name.push_str(&self.base_name);
        let (mut below, mut rest) = (self.runs, run);
        for expansion in &self.expansions {
            name.push_str(if name.contains("__") { "_" } else { "__" });
            below /= expansion.runs.max(1);
            let mut is_first = true;
            expansion.choices(rest / below.max(1), |axis, value| {
                if !std::mem::take(&mut is_first) {
                    name.push('_');
                }
                name.push_str(&axis.pieces[value]);
            });
            rest %= below.max(1);
        }
    }

    /// The folder that the folders of its runs are in.
    pub fn parent(&self) -> String {
        join(&self.basic_path, self.nested_dir())
    }

    /// The folder that `path` says.
    pub fn basic_path(&self) -> &str {
        &self.basic_path
    }

    fn nested_dir(&self) -> &str {
        if self.expansions.is_empty() { &self.nested_dir } else { &self.name }
    }

    /// The folder of a run of this name.
    pub fn run_folder(&self, run_name: &str) -> String {
        join(&self.parent(), run_name)
    }

    /// Its number, for a repetition of this place among those of its run.
    pub fn rep_index(&self, rep: u32) -> u32 {
        self.written_back.as_ref().map_or(rep, |(rep, _)| *rep)
    }

    /// Whether it is a single repetition of a file that was written back.
    pub fn is_written_back(&self) -> bool {
        self.written_back.is_some()
    }

    /// Whether its repetitions are only tried.
    pub fn is_debug(&self) -> bool {
        self.debug
    }

    /// The folder of a repetition.
    pub fn rep_folder(&self, run_name: &str, rep: u32) -> String {
        if let Some((_, Some(folder))) = &self.written_back {
            return folder.clone();
        }
        let log = join(&self.run_folder(run_name), "log");
        join(&log, &format!("rep_{:02}", self.rep_index(rep)))
    }

    /// The parameters of a run as JSON.
    pub fn params_json(&self, run: u32) -> Map<String, Value> {
        let mut params = self.params_json.clone();
        self.choices(run, |axis, value| {
            insert(&mut params, &axis.path, axis.json[value].clone());
        });
        params
    }

    /// The parameters of a run as they were written.
    pub fn params(&self, run: u32) -> Members {
        let mut params = self.params.clone().unwrap_or_default();
        self.choices(run, |axis, value| {
            insert_value(&mut params, &axis.path, &axis.values[value]);
        });
        params
    }

    /// Whether a run has parameters at all.
    pub fn has_params(&self) -> bool {
        self.params.is_some() || !self.expansions.is_empty()
    }

    /// What the original adds to the configuration of a run.
    fn additions(&self, run_name: &str) -> [(&'static str, GridValue); 7] {
        let path = self.run_folder(run_name);
        let debug = GridValue::new(ValueKind::Bool(self.debug), 0..0);
        [
            ("name", text(&self.name)),
            ("_basic_path", text(&self.basic_path)),
            ("_experiment_name", text(run_name)),
            ("_nested_dir", text(self.nested_dir())),
            ("_debug", debug),
            ("log_path", text(&join(&path, "log"))),
            ("path", text(&path)),
        ]
    }

    /// What it adds to that for a repetition.
    fn rep_additions(&self, run_name: &str, rep: u32) -> [(&'static str, GridValue); 2] {
        let index = self.rep_index(rep).to_string();
        let index = GridValue::new(ValueKind::Int(index.into()), 0..0);
        let folder = text(&self.rep_folder(run_name, rep));
        [("_rep_idx", index), ("_rep_log_path", folder)]
    }

    /// The configuration of a run without its parameters.
    pub fn bare_config(&self, run_name: &str) -> Map<String, Value> {
        let mut config = self.json.clone();
        for (key, value) in self.additions(run_name) {
            config.insert(key.to_owned(), value.to_json());
        }
        config
    }

    /// The same as it was written.
    pub fn run_members(&self, run_name: &str) -> Members {
        let mut members = self.members.clone();
        for (key, value) in self.additions(run_name) {
            set(&mut members, key, value);
        }
        members
    }

    /// The same of a repetition.
    pub fn rep_members(&self, run_name: &str, rep: u32) -> Members {
        let mut members = self.run_members(run_name);
        for (key, value) in self.rep_additions(run_name, rep) {
            set(&mut members, key, value);
        }
        members
    }

    /// The configuration of a run with its parameters, if it has any.
    pub fn with_params(&self, mut members: Members, run: u32) -> Members {
        if self.has_params() {
            let params = ValueKind::Dict(self.params(run));
            set(&mut members, "params", GridValue::new(params, 0..0));
        }
        members
    }
}

/// Members of a dictionary as JSON.
pub(super) fn to_map(members: &Members) -> Map<String, Value> {
    let members = members.iter();
    members.map(|(key, value)| (key.json_key(), value.to_json())).collect()
}

/// Puts a value at a path, and dictionaries where there are none on the way.
fn insert(into: &mut Map<String, Value>, path: &[GridValue], value: Value) {
    match path {
        [] => {}
        [leaf] => {
            into.insert(leaf.json_key(), value);
        }
        [first, rest @ ..] => {
            let inner = into.entry(first.json_key()).or_insert(Value::Null);
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

fn insert_value(into: &mut Members, path: &[GridValue], value: &GridValue) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let place = into.iter().position(|(key, _)| key == first);
    let place = place.unwrap_or_else(|| {
        let nothing = GridValue::new(ValueKind::None, 0..0);
        into.push((first.clone(), nothing));
        into.len() - 1
    });
    let known = &mut into[place].1;
    if rest.is_empty() {
        *known = value.clone();
        return;
    }
    if !matches!(known.kind, ValueKind::Dict(_)) {
        *known = GridValue::new(ValueKind::Dict(Members::new()), 0..0);
    }
    if let ValueKind::Dict(inner) = &mut known.kind {
        insert_value(inner, rest, value);
    }
}
