//! A grid file, and every test in it by its place.

use packhorse_model::{Command, GridLanguage, TaskSpec};

use super::command::{CommandProblem, CommandTemplate, TemplateNames};
use super::config::{Block, GridSetting, SchedulerConfig, Sections, TooManyTests, read_sections};
use super::literal::{read_json, read_python};
use super::names::{FolderNames, Places};
use super::only::{Condition, OnlyError};
use super::problem::{GridError, GridProblem};
use super::same_names::NameReport;
use super::source_text::SourceText;
use super::toml_file::read_toml;
use super::value::GridValue;
use super::yaml::read_yaml;
use crate::sweep::pieces::Placeholders;

/// Why there is no such grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridFileError {
    /// Something in the file.
    #[error(transparent)]
    File(#[from] GridError),
    /// The command that was given beside it.
    #[error(transparent)]
    Command(#[from] CommandProblem),
    /// More tests than can be counted.
    #[error(transparent)]
    TooMany(#[from] TooManyTests),
}

/// The tests of a grid file.
///
/// Nothing is expanded: a test is computed from its place. So a million tests take no more
/// memory than ten.
pub struct Grid {
    scheduler: SchedulerConfig,
    global: Vec<GridSetting>,
    shape: GridShape,
    names: FolderNames,
    report: NameReport,
    command: Option<CommandTemplate>,
    task: TaskSpec,
}

/// The dictionaries of `test_config`, and where the tests of each begin.
struct GridShape {
    blocks: Vec<Block>,
    /// The place of the first test of each block, and at the end how many there are.
    starts: Vec<u32>,
}

impl Grid {
    /// Reads a grid file and checks all of it. `command` takes the place of the file's own.
    pub fn read(
        text: &str,
        language: GridLanguage,
        command: Option<&Command>,
    ) -> Result<Self, GridFileError> {
        let file = match language {
            GridLanguage::Yaml => read_yaml(text),
            GridLanguage::Toml => read_toml(text),
            GridLanguage::Json => read_json(text),
            GridLanguage::Python => read_python(text),
        }?;
        let sections = read_sections(text, &file)?;
        let own = sections.command.as_ref();
        let names = TemplateNames {
            blocks: &names_of(&sections),
            placeholders: Placeholders::Named,
            common: "global_config",
            each: "test",
        };
        let template = match (command, own) {
            (Some(command), _) => Some(CommandTemplate::new(command, &names)?),
            (None, Some((command, span))) => {
                let template = CommandTemplate::new(command, &names);
                Some(template.map_err(|CommandProblem { problem, hint }| {
                    let problem = GridProblem::Command(problem, hint);
                    SourceText(text).error(span.clone(), problem)
                })?)
            }
            (None, None) => None,
        };
        let shape = GridShape::new(sections.blocks)?;
        let mut names = FolderNames::new(&sections.scheduler, &shape.blocks);
        let report = names.compare(&shape);
        Ok(Self {
            scheduler: sections.scheduler,
            global: sections.global,
            shape,
            names,
            report,
            command: template,
            task: sections.task,
        })
    }

    /// How many tests there are, those that are there twice included.
    pub fn len(&self) -> u32 {
        self.shape.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What `scheduler_config` says.
    pub fn scheduler(&self) -> &SchedulerConfig {
        &self.scheduler
    }

    /// What all tasks have in common: environment, request, priority.
    pub fn task(&self) -> &TaskSpec {
        &self.task
    }

    /// Whether there is something to run.
    pub fn has_command(&self) -> bool {
        self.command.is_some()
    }

    /// What was found out about the names of the folders.
    pub fn report(&self) -> &NameReport {
        &self.report
    }

    /// The name of a test's folder.
    pub fn folder_name(&self, place: u32) -> String {
        self.names.name(&self.shape, place)
    }

    /// The path of a test's folder.
    pub fn folder(&self, place: u32) -> String {
        let (root, name) = (&self.scheduler.result_root_folder, self.folder_name(place));
        let slash = if root.ends_with('/') || name.is_empty() { "" } else { "/" };
        format!("{root}{slash}{name}")
    }

    /// Whether the same test stands at an earlier place.
    pub fn is_repeated(&self, place: u32) -> bool {
        self.names.is_repeated(&self.shape, place)
    }

    /// The parameters of a test: the global ones, with its own laid over them.
    fn params(&self, place: u32) -> Vec<(&str, &GridValue)> {
        let mut digits = Vec::new();
        let block = &self.shape.blocks[self.shape.digits(place, &mut digits)];
        let global = self.global.iter();
        let mut params: Vec<(&str, &GridValue)> =
            global.map(|(key, value)| (key.as_str(), value)).collect();
        for ((key, values), digit) in block.iter().zip(digits) {
            let value = &values[digit];
            match params.iter_mut().find(|(known, _)| known == key) {
                Some(known) => known.1 = value,
                None => params.push((key, value)),
            }
        }
        params
    }

    pub fn test(&self, place: u32) -> TaskSpec {
        let params = self.params(place);
        let folder = self.folder(place);
        let log = match &self.scheduler.log_file {
            None => "/dev/null".to_owned(),
            Some(log) => format!("{}/{log}", folder.trim_end_matches('/')),
        };
        let command = self.command.as_ref();
        TaskSpec {
            command: command
                .map_or_else(Command::default, |command| command.fill(&params, &params)),
            params: params
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_json()))
                .collect(),
            results: Some(folder.into()),
            log: Some(log.into()),
            ..TaskSpec::default()
        }
    }

    /// Which tests satisfy these conditions. Conditions on one key are alternatives.
    pub fn select(&self, conditions: &[Condition]) -> Result<GridSelection, OnlyError> {
        let tested = self.shape.blocks.iter().flatten();
        let tested = tested.flat_map(|(key, values)| {
            let values = values.iter();
            values.map(move |value| (key.as_str(), value))
        });
        let global = self.global.iter().map(|(key, value)| (key.as_str(), value));
        for condition in conditions {
            condition.check(global.clone().chain(tested.clone()))?;
        }
        let allow = |key: &str, value: &GridValue| {
            let about = || conditions.iter().filter(|condition| condition.key == key);
            about().next().is_none() || about().any(|condition| condition.holds(value))
        };
        let blocks = self.shape.blocks.iter().map(|block| {
            let own = |key: &str| block.iter().any(|(own, _)| own == key);
            let global = |key: &str| self.global.iter().find(|(global, _)| global == key);
            let fits = conditions.iter().all(|condition| {
                let key = condition.key.as_str();
                own(key) || global(key).is_some_and(|(_, value)| allow(key, value))
            });
            let axes = block.iter().map(|(key, values)| {
                let values = values.iter().map(|value| allow(key, value));
                values.collect()
            });
            fits.then(|| axes.collect())
        });
        Ok(GridSelection { blocks: blocks.collect(), everything: conditions.is_empty() })
    }

    /// Whether a test is among those selected, and not there before.
    pub fn is_selected(&self, selection: &GridSelection, place: u32) -> bool {
        if !selection.everything {
            let mut digits = Vec::new();
            let block = self.shape.digits(place, &mut digits);
            let Some(axes) = &selection.blocks[block] else {
                return false;
            };
            if !axes.iter().zip(digits).all(|(axis, digit)| axis[digit]) {
                return false;
            }
        }
        !self.is_repeated(place)
    }
}

/// Some of a grid's tests.
pub struct GridSelection {
    /// For each block: whether each value of each parameter is allowed; none if no test of
    /// it is.
    blocks: Vec<Option<Vec<Vec<bool>>>>,
    everything: bool,
}

/// The names of the parameters of each block's tests.
fn names_of(sections: &Sections) -> Vec<Vec<&str>> {
    let blocks = sections.blocks.iter().map(|block| {
        let own = block.iter().map(|(key, _)| key.as_str());
        let global = sections.global.iter().map(|(key, _)| key.as_str());
        own.chain(global).collect()
    });
    blocks.collect()
}

impl GridShape {
    fn new(blocks: Vec<Block>) -> Result<Self, TooManyTests> {
        let mut starts = vec![0_u32];
        for block in &blocks {
            let mut count = 1_u32;
            for (_, values) in block {
                let values = u32::try_from(values.len())?;
                count = count.checked_mul(values).ok_or(TooManyTests)?;
            }
            let start = starts.last().copied().unwrap_or(0);
            starts.push(start.checked_add(count).ok_or(TooManyTests)?);
        }
        Ok(Self { blocks, starts })
    }
}

impl Places for GridShape {
    fn len(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The last parameter changes fastest.
    fn digits(&self, place: u32, digits: &mut Vec<usize>) -> usize {
        let block = self.starts.partition_point(|start| *start <= place) - 1;
        let mut rest = (place - self.starts[block]) as usize;
        let axes = &self.blocks[block];
        digits.clear();
        digits.resize(axes.len(), 0);
        for (digit, (_, values)) in digits.iter_mut().zip(axes).rev() {
            *digit = rest % values.len();
            rest /= values.len();
        }
        block
    }

    /// Every key with its value, whatever is in the name of the folder.
    fn identity(&self, place: u32) -> String {
        let mut digits = Vec::new();
        let block = &self.blocks[self.digits(place, &mut digits)];
        let mut pairs: Vec<(&str, String)> = block
            .iter()
            .zip(digits)
            .map(|((key, values), digit)| (key.as_str(), values[digit].identity()))
            .collect();
        pairs.sort();
        let mut identity = String::new();
        for (key, value) in pairs {
            identity.push_str(key);
            identity.push('\0');
            identity.push_str(&value);
            identity.push('\0');
        }
        identity
    }
}
