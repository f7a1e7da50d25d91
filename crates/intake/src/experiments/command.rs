//! The command of a repetition.

use std::ops::Range;

use packhorse_model::Command;

use super::experiment::Experiment;
use super::merge::{Members, get, text};
use crate::grid::CommandProblem;
use crate::grid::command::{CommandTemplate, TemplateNames};
use crate::grid::value::{GridValue, ValueKind};
use crate::sweep::pieces::Placeholders;

/// The place for the path of a file with the whole configuration.
const CONFIG: &str = "config";

/// A word of a plain command that stands for the folder of the repetition: people, to whom
/// commands are shown, tell repetitions apart by it.
const FOLDER: &[u8] = b"{folder}";

/// The place for the number of the repetition.
const REP: &str = "rep";

/// The place for all parameters together.
const PARAMS: &str = "params";

/// What an experiment runs.
pub(super) enum ExperimentCommand {
    /// Exactly this, but for the folder.
    Plain(Command),
    /// This with parameters put into it, or appended.
    Template(CommandTemplate),
}

impl ExperimentCommand {
    /// The command for an experiment: one that was given, or its own. What is wrong with it,
    /// and with which part of its own, if not with all of it.
    pub fn new(
        given: Option<&Command>,
        is_plain: bool,
        experiment: &Experiment,
    ) -> Result<Option<Self>, (Option<Range<usize>>, CommandProblem)> {
        let own;
        let command = match given {
            Some(command) => command,
            None => match get(&experiment.members, "command") {
                Some(value) => {
                    own = own_command(value)?;
                    &own
                }
                None => return Ok(None),
            },
        };
        if is_plain {
            return Ok(Some(Self::Plain(command.clone())));
        }
        let (of_every_run, of_some) = names(experiment);
        let of_every_run: Vec<&str> = of_every_run.iter().map(String::as_str).collect();
        let of_some = of_some.iter().map(String::as_str);
        let of_some = of_every_run.iter().copied().chain(of_some).collect();
        let names = TemplateNames {
            blocks: &[of_every_run, of_some],
            placeholders: Placeholders::Dotted,
            common: "params",
            each: "run",
        };
        let template = CommandTemplate::new(command, &names);
        let template = template.map_err(|problem| (None, problem))?;
        Ok(Some(Self::Template(template)))
    }

    /// Whether it needs a file with the whole configuration.
    pub fn needs_config(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Template(template) => template.has_place(CONFIG),
        }
    }

    /// The command of a repetition with these parameters.
    pub fn fill(
        &self,
        params: &Members,
        config: &Members,
        rep: u32,
        (folder, file): (&str, &str),
    ) -> Command {
        let template = match self {
            Self::Plain(command) => return with_folder(command, folder),
            Self::Template(template) => template,
        };
        let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
        collect("", params, &mut nodes, &mut leaves);
        let rep = GridValue::new(ValueKind::Int(rep.to_string().into()), 0..0);
        let file = text(file);
        let keys: Vec<String> = config.iter().map(|(key, _)| key.json_key()).collect();
        let mut values: Vec<(&str, &GridValue)> =
            nodes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        values.extend([(REP, &rep), (CONFIG, &file)]);
        let rest = keys.iter().zip(config);
        values.extend(rest.map(|(key, (_, value))| (key.as_str(), value)));
        let all = template.has_place(PARAMS).then(|| params.clone());
        let all = all.map(|params| GridValue::new(ValueKind::Dict(params), 0..0));
        values.extend(all.as_ref().map(|params| (PARAMS, params)));
        let leaves: Vec<(&str, &GridValue)> =
            leaves.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        template.fill(&values, &leaves)
    }
}

fn with_folder(command: &Command, folder: &str) -> Command {
    let Command::Words(words) = command else {
        return command.clone();
    };
    let words = words.iter().map(|word| match word.as_slice() {
        FOLDER => folder.as_bytes().to_vec(),
        word => word.to_vec(),
    });
    Command::Words(words.collect())
}

/// What stands in the file as a command.
fn own_command(value: &GridValue) -> Result<Command, (Option<Range<usize>>, CommandProblem)> {
    let wrong = |part: Option<&GridValue>| {
        let hint = match part {
            Some(word) if word.is_scalar() => {
                format!("put it in quotes, if it is meant as text: '{}'", word.as_written())
            }
            _ => "write `command: python train.py`, or give a command after --".to_owned(),
        };
        let problem = match part {
            Some(word) => {
                format!("every word must be text or a number, and this is {}", word.what())
            }
            None => "`command` must be text, or a list of words".to_owned(),
        };
        let part = part.map(|word| word.span.clone());
        (part, CommandProblem { problem, hint })
    };
    let has_nul = |text: &str| text.contains('\0');
    let command = match &value.kind {
        ValueKind::Text(line) if !has_nul(line) => Command::Line(line.trim().as_bytes().to_vec()),
        ValueKind::List(words) => {
            let words = words.iter().map(|word| {
                let text = word.name().filter(|word| !has_nul(word));
                text.map(String::into_bytes).ok_or_else(|| wrong(Some(word)))
            });
            Command::Words(words.collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong(None)),
    };
    if command.is_empty() {
        return Err(wrong(None));
    }
    Ok(command)
}

/// The names that every run of an experiment has a value for, and those that only some have.
fn names(experiment: &Experiment) -> (Vec<String>, Vec<String>) {
    let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
    let nothing = Members::new();
    let params = experiment.params.as_ref().unwrap_or(&nothing);
    collect("", params, &mut nodes, &mut leaves);
    let mut names: Vec<String> = nodes.into_iter().map(|(name, _)| name).collect();
    let mut of_some = Vec::new();
    for expansion in &experiment.expansions {
        for axis in &expansion.axes {
            let mut path = String::new();
            let names = if expansion.sets_all() { &mut names } else { &mut of_some };
            for part in &axis.path {
                path = dotted(&path, &part.json_key());
                names.push(path.clone());
            }
            // What its values have inside.
            let inside = |value: &GridValue| {
                let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
                if let ValueKind::Dict(members) = &value.kind {
                    collect(&path, members, &mut nodes, &mut leaves);
                }
                let nodes = nodes.into_iter().map(|(name, _)| name);
                nodes.collect::<Vec<String>>()
            };
            let inside: Vec<Vec<String>> = axis.values.iter().map(inside).collect();
            let first = inside.first().cloned().unwrap_or_default().into_iter();
            let is_everywhere = |name: &String| inside.iter().all(|other| other.contains(name));
            names.extend(first.filter(is_everywhere));
            of_some.extend(inside.into_iter().flatten());
        }
    }
    names.extend([REP, CONFIG].map(str::to_owned));
    if experiment.has_params() {
        names.push(PARAMS.to_owned());
    }
    let config = experiment.rep_members("", 0);
    names.extend(config.iter().map(|(key, _)| key.json_key()));
    (names, of_some)
}

fn dotted(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Every value of a dictionary with its path, and by themselves those that are no
/// dictionaries.
fn collect<'m>(
    path: &str,
    members: &'m Members,
    nodes: &mut Vec<(String, &'m GridValue)>,
    leaves: &mut Vec<(String, &'m GridValue)>,
) {
    for (key, value) in members {
        let path = dotted(path, &key.json_key());
        nodes.push((path.clone(), value));
        match &value.kind {
            ValueKind::Dict(members) => collect(&path, members, nodes, leaves),
            _ => leaves.push((path, value)),
        }
    }
}
