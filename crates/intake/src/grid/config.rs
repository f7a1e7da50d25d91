//! The sections of a grid file: what each key means.

use std::num::TryFromIntError;
use std::ops::Range;

use packhorse_model::{ByteString, Command, TaskSpec};

use super::problem::{GridError, GridProblem};
use super::source_text::SourceText;
use super::value::{GridValue, ValueKind};
use crate::nearest::nearest;
use crate::spec_problem::check_values;

const SECTIONS: &[&str] = &[
    "scheduler_config",
    "global_config",
    "test_config",
    "command",
    "env",
    "request",
    "priority",
    "preload",
];

const SCHEDULER_KEYS: &[&str] = &[
    "gpu",
    "result_root_folder",
    "force_rerun",
    "test_config_string_indicator",
    "test_config_string_separator",
    "test_config_string_inst_separator",
    "temp_folder",
    "log_file",
    "scheduler_log_file_path",
    "config_string_value_maxlen",
    "ignored_keys_for_folder_name",
    "ignored_characters_for_folder_name",
];

/// Keys of `request`: those of a task line that say what a task needs.
const REQUEST_KEYS: &[&str] = &[
    "gpus",
    "vram",
    "gpu_model",
    "model",
    "signature",
    "probe",
    "cores",
    "cpu",
    "ram",
    "timeout",
    "time_limit",
    "retries",
    "grace",
];

/// `scheduler_config`: what the original knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The GPUs, each as `--gpus` takes it: `0`, or `0+1` for a group. None if the file
    /// says nothing.
    pub gpus: Vec<String>,
    /// The folder of all results.
    pub result_root_folder: String,
    /// Whether tests run though they are done.
    pub force_rerun: bool,
    /// What stands between a key and its value.
    pub indicator: String,
    /// What stands after each value.
    pub separator: String,
    /// The name of each test's log in its folder; none if output is thrown away.
    pub log_file: Option<String>,
    /// The file that says which GPU took which test, if one is wanted.
    pub scheduler_log: Option<String>,
    /// How many characters of a value are in the name; none for all.
    pub longest_value: Option<usize>,
    /// Keys that are not in the name.
    pub ignored_keys: Vec<String>,
    /// Texts that are taken out of the name.
    pub ignored_characters: Vec<String>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            gpus: Vec::new(),
            result_root_folder: "results/".to_owned(),
            force_rerun: false,
            indicator: "-".to_owned(),
            separator: ",".to_owned(),
            log_file: Some("worker.log".to_owned()),
            scheduler_log: Some("scheduler.log".to_owned()),
            longest_value: Some(30),
            ignored_keys: Vec::new(),
            ignored_characters: [" ", "[", "]"].map(str::to_owned).into(),
        }
    }
}

/// A parameter and its value.
pub(super) type GridSetting = (String, GridValue);

/// One dictionary of `test_config`: each key with its values.
pub(super) type Block = Vec<(String, Vec<GridValue>)>;

/// All that a grid file says.
pub(super) struct Sections {
    pub scheduler: SchedulerConfig,
    pub global: Vec<GridSetting>,
    pub blocks: Vec<Block>,
    /// The command and where it stands.
    pub command: Option<(Command, Range<usize>)>,
    /// What all tasks have in common: environment, request, priority.
    pub task: TaskSpec,
}

/// Reads what a file says.
pub(super) fn read_sections(text: &str, file: &GridValue) -> Result<Sections, GridError> {
    let reader = SectionReader { text: SourceText(text) };
    let mut sections = Sections {
        scheduler: SchedulerConfig::default(),
        global: Vec::new(),
        blocks: vec![Vec::new()],
        command: None,
        task: TaskSpec::default(),
    };
    for (key, value) in reader.members("the file", file)? {
        match reader.known(key, SECTIONS, "in a grid file")? {
            "scheduler_config" => sections.scheduler = reader.scheduler(value)?,
            "global_config" => sections.global = reader.settings(value)?,
            "test_config" => sections.blocks = reader.blocks(value)?,
            "command" => sections.command = Some((reader.command(value)?, value.span.clone())),
            "env" => reader.env(value, &mut sections.task)?,
            "request" => reader.request(value, &mut sections.task)?,
            key => reader.task_key(key, value, &mut sections.task)?,
        }
    }
    Ok(sections)
}

struct SectionReader<'a> {
    text: SourceText<'a>,
}

impl SectionReader<'_> {
    fn kind(&self, key: &str, value: &GridValue, expected: &'static str) -> GridError {
        let problem = GridProblem::Kind { key: key.to_owned(), expected, found: value.what() };
        self.text.error(value.span.clone(), problem)
    }

    fn wrong(&self, key: &str, value: &GridValue, message: String) -> GridError {
        let key = key.to_owned();
        let problem = GridProblem::Value { key, message };
        self.text.error(value.span.clone(), problem)
    }

    fn members<'v>(
        &self,
        key: &str,
        value: &'v GridValue,
    ) -> Result<&'v [(GridValue, GridValue)], GridError> {
        match &value.kind {
            ValueKind::Dict(members) => Ok(members),
            _ => Err(self.kind(key, value, "a dictionary")),
        }
    }

    /// The key, if it is one of these.
    fn known<'k>(
        &self,
        key: &GridValue,
        known: &'static [&'k str],
        place: &'static str,
    ) -> Result<&'k str, GridError> {
        let name = key.as_written();
        let mut all = known.iter();
        if let Some(known) = all.find(|known| **known == name) {
            return Ok(known);
        }
        let problem = GridProblem::UnknownKey {
            nearest: nearest(&name, known.iter().copied()).map(str::to_owned),
            key: crate::excerpt::quoted(name.as_bytes()),
            place,
            known,
        };
        Err(self.text.error(key.span.clone(), problem))
    }

    fn scheduler(&self, value: &GridValue) -> Result<SchedulerConfig, GridError> {
        let mut config = SchedulerConfig::default();
        for (key, value) in self.members("scheduler_config", value)? {
            let key = self.known(key, SCHEDULER_KEYS, "in scheduler_config")?;
            match key {
                "gpu" => config.gpus = self.gpus(value)?,
                "result_root_folder" => config.result_root_folder = self.path(key, value)?,
                "force_rerun" => {
                    let ValueKind::Bool(force) = value.kind else {
                        return Err(self.kind(key, value, "true or false"));
                    };
                    config.force_rerun = force;
                }
                "test_config_string_indicator" => config.indicator = self.string(key, value)?,
                "test_config_string_separator" => config.separator = self.string(key, value)?,
                "log_file" => config.log_file = self.optional_path(key, value)?,
                "scheduler_log_file_path" => {
                    config.scheduler_log = self.optional_path(key, value)?;
                }
                "config_string_value_maxlen" => config.longest_value = self.length(key, value)?,
                "ignored_keys_for_folder_name" => config.ignored_keys = self.texts(key, value)?,
                "ignored_characters_for_folder_name" => {
                    config.ignored_characters = match &value.kind {
                        // Python takes a string for the list of its characters.
                        ValueKind::Text(text) => text.chars().map(String::from).collect(),
                        _ => self.texts(key, value)?,
                    };
                }
                // Nothing here needs them: there are no temporary files, and tests are
                // listed one per line.
                _ => {
                    self.string(key, value)?;
                }
            }
        }
        Ok(config)
    }

    fn gpus(&self, value: &GridValue) -> Result<Vec<String>, GridError> {
        const EXPECTED: &str = "a list of GPU ids such as \"0\", or of lists of them";
        let (ValueKind::List(entries) | ValueKind::Tuple(entries)) = &value.kind else {
            return Err(self.kind("gpu", value, EXPECTED));
        };
        if entries.is_empty() {
            let problem = GridProblem::NoGpus;
            return Err(self.text.error(value.span.clone(), problem));
        }
        let id = |entry: &GridValue| {
            let id = match entry.kind {
                ValueKind::Text(_) | ValueKind::Int(_) => entry.as_written(),
                _ => return Err(self.kind("gpu", entry, EXPECTED)),
            };
            if id.trim().is_empty() {
                return Err(self.wrong("gpu", entry, "an id is empty".to_owned()));
            }
            // What CUDA_VISIBLE_DEVICES takes for a group.
            Ok(id.replace(',', "+"))
        };
        let entries = entries.iter().map(|entry| match &entry.kind {
            ValueKind::List(ids) | ValueKind::Tuple(ids) => {
                if ids.is_empty() {
                    let problem = GridProblem::NoGpus;
                    return Err(self.text.error(entry.span.clone(), problem));
                }
                let ids = ids.iter().map(id).collect::<Result<Vec<_>, _>>()?;
                Ok(ids.join("+"))
            }
            _ => id(entry),
        });
        entries.collect()
    }

    fn string(&self, key: &str, value: &GridValue) -> Result<String, GridError> {
        let name = value.name();
        name.ok_or_else(|| self.kind(key, value, "text"))
    }

    fn path(&self, key: &str, value: &GridValue) -> Result<String, GridError> {
        let path = self.string(key, value)?;
        if path.is_empty() || path.contains('\0') {
            let message = "this is no path".to_owned();
            return Err(self.wrong(key, value, message));
        }
        Ok(path)
    }

    fn optional_path(&self, key: &str, value: &GridValue) -> Result<Option<String>, GridError> {
        match value.kind {
            ValueKind::None => Ok(None),
            _ => self.path(key, value).map(Some),
        }
    }

    fn length(&self, key: &str, value: &GridValue) -> Result<Option<usize>, GridError> {
        match &value.kind {
            ValueKind::None => Ok(None),
            ValueKind::Int(digits) if !digits.starts_with('-') => {
                Ok(Some(digits.parse().unwrap_or(usize::MAX)))
            }
            _ => Err(self.kind(key, value, "a number of characters, or None")),
        }
    }

    fn texts(&self, key: &str, value: &GridValue) -> Result<Vec<String>, GridError> {
        const EXPECTED: &str = "a list of texts";
        let (ValueKind::List(items) | ValueKind::Tuple(items)) = &value.kind else {
            return Err(self.kind(key, value, EXPECTED));
        };
        let texts = items.iter().map(|item| {
            let text = item.name();
            text.ok_or_else(|| self.kind(key, item, EXPECTED))
        });
        texts.collect()
    }

    fn parameter(&self, key: &GridValue) -> Result<String, GridError> {
        let name = key.name().filter(|name| !name.is_empty());
        let name = name
            .ok_or_else(|| self.kind(&key.as_written(), key, "text, as the name of a parameter"))?;
        if name.contains('\0') {
            return Err(self.wrong("the name of a parameter", key, "it has a NUL byte".to_owned()));
        }
        Ok(name)
    }

    fn settings(&self, value: &GridValue) -> Result<Vec<GridSetting>, GridError> {
        let members = self.members("global_config", value)?.iter();
        let settings = members.map(|(key, value)| Ok((self.parameter(key)?, value.clone())));
        settings.collect()
    }

    fn blocks(&self, value: &GridValue) -> Result<Vec<Block>, GridError> {
        let (ValueKind::List(blocks) | ValueKind::Tuple(blocks)) = &value.kind else {
            return Err(self.kind("test_config", value, "a list of dictionaries"));
        };
        let block = |block: &GridValue| -> Result<Block, GridError> {
            let members = self.members("each entry of test_config", block)?.iter();
            let members = members.map(|(key, values)| {
                let name = self.parameter(key)?;
                let (ValueKind::List(values) | ValueKind::Tuple(values)) = &values.kind else {
                    return Err(self.kind(&name, values, "a list of the values to test"));
                };
                if values.is_empty() {
                    let problem = GridProblem::NoValues(name);
                    return Err(self.text.error(key.span.clone(), problem));
                }
                Ok((name, values.clone()))
            });
            members.collect()
        };
        blocks.iter().map(block).collect()
    }

    fn command(&self, value: &GridValue) -> Result<Command, GridError> {
        let command = match &value.kind {
            ValueKind::Text(line) => Command::Line(line.trim().as_bytes().to_vec()),
            ValueKind::List(words) | ValueKind::Tuple(words) => {
                let words = words.iter().map(|word| {
                    let word = self.string("command", word)?;
                    Ok(word.into_bytes())
                });
                Command::Words(words.collect::<Result<_, GridError>>()?)
            }
            _ => return Err(self.kind("command", value, "text, or a list of words")),
        };
        let has_nul = match &command {
            Command::Line(line) => line.contains(&0),
            Command::Words(words) => words.iter().any(|word| word.contains(&0)),
        };
        if command.is_empty() || has_nul {
            let message = "there is nothing to run, or it has a NUL byte".to_owned();
            return Err(self.wrong("command", value, message));
        }
        Ok(command)
    }

    fn env(&self, value: &GridValue, task: &mut TaskSpec) -> Result<(), GridError> {
        for (key, value) in self.members("env", value)? {
            let name = self.parameter(key)?;
            let text = match value.kind {
                ValueKind::List(_) | ValueKind::Tuple(_) | ValueKind::Dict(_) => {
                    return Err(self.kind(&name, value, "text or a number"));
                }
                _ => value.as_written(),
            };
            task.env.insert(name, ByteString::from(text.as_str()));
            if let Err((_, problem)) = check_values(task) {
                return Err(self.wrong("env", value, problem.to_string()));
            }
        }
        Ok(())
    }

    fn request(&self, value: &GridValue, task: &mut TaskSpec) -> Result<(), GridError> {
        for (key, value) in self.members("request", value)? {
            let key = match self.known(key, REQUEST_KEYS, "in request")? {
                "time_limit" => "timeout",
                other => other,
            };
            self.task_key(key, value, task)?;
        }
        Ok(())
    }

    /// A key that a task line has, too.
    fn task_key(&self, key: &str, value: &GridValue, task: &mut TaskSpec) -> Result<(), GridError> {
        let mut json = value.to_json();
        if key == "gpus" && json.is_string() {
            // What is written without quotes is text as well: 1/3.
            json = value.as_written().into();
        }
        let line = serde_json::json!({ key: json });
        let read: TaskSpec = serde_json::from_value(line)
            .map_err(|error| self.wrong(key, value, error.to_string()))?;
        if let Err((_, problem)) = check_values(&read) {
            return Err(self.wrong(key, value, problem.to_string()));
        }
        let before = std::mem::take(task);
        *task = read.over(&before);
        Ok(())
    }
}

/// More tests than a run can have tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the grid has more than 4 billion tests, and a run cannot have so many\nhint: test fewer values"
)]
pub struct TooManyTests;

impl From<TryFromIntError> for TooManyTests {
    fn from(_: TryFromIntError) -> Self {
        Self
    }
}
