//! The command of a test: a template, or a command to which parameters are appended.

use packhorse_model::Command;

use super::value::{GridValue, ValueKind};
use crate::excerpt::quoted;
use crate::input_error::InputProblem as _;
use crate::nearest::nearest;
use crate::sweep::TemplateProblem;
use crate::sweep::pieces::{Placeholders, TemplatePiece, pieces};

/// What is wrong with a command: what, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\nhint: {hint}")]
pub struct CommandProblem {
    pub(crate) problem: String,
    pub(crate) hint: String,
}

/// The parameters that a command may have places for.
pub(crate) struct TemplateNames<'a> {
    /// The names of the parameters of some tests each.
    pub blocks: &'a [Vec<&'a str>],
    /// Whether `{outer.inner}` is one.
    pub placeholders: Placeholders,
    /// Where a parameter gets a value for all tests.
    pub common: &'static str,
    /// What has the parameters: `test`.
    pub each: &'static str,
}

/// A command with places for parameters, or without.
pub(crate) struct CommandTemplate {
    form: CommandForm,
    /// Whether it has places. If not, parameters are appended.
    has_places: bool,
}

enum CommandForm {
    Line(Vec<Part>),
    Words(Vec<Vec<Part>>),
}

enum Part {
    Literal(Vec<u8>),
    /// A place for a parameter, and what quotes it stands in.
    Place(String, Quotes),
}

/// What quotes of a shell a place stands in.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    None,
    Single,
    Double,
}

impl CommandTemplate {
    /// Takes a command apart.
    pub fn new(command: &Command, names: &TemplateNames<'_>) -> Result<Self, CommandProblem> {
        let form = match command {
            Command::Line(line) => CommandForm::Line(parts(line, names, true)?),
            Command::Words(words) => {
                let words = words.iter().map(|word| parts(word, names, false));
                CommandForm::Words(words.collect::<Result<_, _>>()?)
            }
        };
        let is_place = |part: &Part| matches!(part, Part::Place(..));
        let has_places = match &form {
            CommandForm::Line(parts) => parts.iter().any(is_place),
            CommandForm::Words(words) => words.iter().flatten().any(is_place),
        };
        Ok(Self { form, has_places })
    }

    /// Whether it has a place for this parameter.
    pub fn has_place(&self, name: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Place(place, _) if place == name);
        match &self.form {
            CommandForm::Line(parts) => parts.iter().any(is_it),
            CommandForm::Words(words) => words.iter().flatten().any(is_it),
        }
    }

    /// The command of a test with these parameters. If it has no places, `appended` are
    /// appended to it.
    pub fn fill(&self, params: &[(&str, &GridValue)], appended: &[(&str, &GridValue)]) -> Command {
        match &self.form {
            CommandForm::Line(parts) => {
                let mut line = Vec::new();
                for part in parts {
                    push_to_line(part, params, &mut line);
                }
                for word in self.appended(appended) {
                    line.push(b' ');
                    line.extend_from_slice(in_quotes(&word, Quotes::None).as_bytes());
                }
                Command::Line(line)
            }
            CommandForm::Words(words) => {
                let mut filled = Vec::new();
                for parts in words {
                    push_word(parts, params, &mut filled);
                }
                let appended = self.appended(appended).into_iter();
                filled.extend(appended.map(String::into_bytes));
                Command::Words(filled)
            }
        }
    }

    /// `--key value` for each parameter that has a value.
    fn appended(&self, params: &[(&str, &GridValue)]) -> Vec<String> {
        let mut words = Vec::new();
        if self.has_places {
            return words;
        }
        for (key, value) in params {
            if value.kind != ValueKind::None {
                words.push(format!("--{key}"));
                words.extend(value.words());
            }
        }
        words
    }
}

/// The parts of a line, or of a word.
fn parts(
    source: &[u8],
    names: &TemplateNames<'_>,
    is_line: bool,
) -> Result<Vec<Part>, CommandProblem> {
    let Ok(text) = std::str::from_utf8(source) else {
        return Ok(vec![Part::Literal(source.to_vec())]);
    };
    let taken = pieces(text, names.placeholders).map_err(|(place, problem)| CommandProblem {
        problem: format!("`{}`: {problem}", quoted(&source[place])),
        hint: match problem {
            TemplateProblem::Positional => {
                "write {NAME} for a parameter, or {{ and }} for literal braces".to_owned()
            }
            other => other.hint(),
        },
    })?;
    let mut shell = ShellPlace::default();
    let mut parts = Vec::with_capacity(taken.len());
    for piece in taken {
        match piece {
            TemplatePiece::Literal(text) => {
                if is_line {
                    shell.read(&text);
                }
                parts.push(Part::Literal(text.into_bytes()));
            }
            TemplatePiece::Placeholder { name, .. } => {
                let mut blocks = names.blocks.iter();
                if let Some(block) = blocks.find(|block| !block.contains(&name.as_str())) {
                    return Err(unknown(&name, block, names));
                }
                if shell.is_substituted() {
                    return Err(CommandProblem {
                        problem: format!("{{{name}}} stands inside of $(…) or backticks"),
                        hint: "what must be quoted there cannot be told: run a script of yours, \
                               which finds the parameters in $PACKHORSE_PARAMS"
                            .to_owned(),
                    });
                }
                parts.push(Part::Place(name, shell.quotes));
            }
        }
    }
    Ok(parts)
}

fn unknown(name: &str, block: &[&str], names: &TemplateNames<'_>) -> CommandProblem {
    let name = quoted(name.as_bytes());
    if names.blocks.iter().any(|block| block.contains(&name.as_str())) {
        return CommandProblem {
            problem: format!("{{{name}}} is no parameter of every {}", names.each),
            hint: format!(
                "give `{name}` a value in {}, for the {}s without one",
                names.common, names.each
            ),
        };
    }
    let hint = match nearest(&name, block.iter().copied()) {
        Some(nearest) => format!("did you mean {{{nearest}}}?"),
        None => "write {{ and }} for literal braces".to_owned(),
    };
    CommandProblem { problem: format!("there is no parameter `{name}`"), hint }
}

/// Where in a line of a shell we are.
#[derive(Default)]
struct ShellPlace {
    quotes: Quotes,
    /// How many `$(` are open.
    open: u32,
    in_backticks: bool,
}

impl ShellPlace {
    /// Goes on by more of the line.
    fn read(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (self.quotes, c) {
                (Quotes::None | Quotes::Double, '\\') => {
                    chars.next();
                }
                (Quotes::None | Quotes::Double, '$') if chars.peek() == Some(&'(') => {
                    self.open += 1;
                }
                (Quotes::None | Quotes::Double, ')') => self.open = self.open.saturating_sub(1),
                (Quotes::None | Quotes::Double, '`') => self.in_backticks = !self.in_backticks,
                (Quotes::None, '\'') => self.quotes = Quotes::Single,
                (Quotes::None, '"') => self.quotes = Quotes::Double,
                (Quotes::Single, '\'') | (Quotes::Double, '"') => self.quotes = Quotes::None,
                _ => {}
            }
        }
    }

    /// Whether what stands here is part of a command whose output is filled in.
    const fn is_substituted(&self) -> bool {
        self.open > 0 || self.in_backticks
    }
}

fn find<'v>(params: &[(&str, &'v GridValue)], name: &str) -> Option<&'v GridValue> {
    let mut params = params.iter();
    params.find(|(key, _)| *key == name).map(|(_, value)| *value)
}

fn push_to_line(part: &Part, params: &[(&str, &GridValue)], line: &mut Vec<u8>) {
    match part {
        Part::Literal(text) => line.extend_from_slice(text),
        Part::Place(name, quotes) => {
            let words = find(params, name).map(GridValue::words).unwrap_or_default();
            let words: Vec<String> = words.iter().map(|word| in_quotes(word, *quotes)).collect();
            line.extend_from_slice(words.join(" ").as_bytes());
        }
    }
}

/// A word of a command. If it is nothing but a place for a list, it is several.
fn push_word(parts: &[Part], params: &[(&str, &GridValue)], words: &mut Vec<Vec<u8>>) {
    let value = |name: &str| find(params, name).map(GridValue::words).unwrap_or_default();
    if let [Part::Place(name, _)] = parts {
        words.extend(value(name).into_iter().map(String::into_bytes));
        return;
    }
    let mut word = Vec::new();
    for part in parts {
        match part {
            Part::Literal(text) => word.extend_from_slice(text),
            Part::Place(name, _) => word.extend_from_slice(value(name).join(" ").as_bytes()),
        }
    }
    words.push(word);
}

/// A word as it is written within these quotes of a shell, so that it stays what it is.
fn in_quotes(word: &str, quotes: Quotes) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    match quotes {
        Quotes::None if !word.is_empty() && word.chars().all(is_plain) => word.to_owned(),
        Quotes::None => format!("'{}'", word.replace('\'', r"'\''")),
        Quotes::Single => word.replace('\'', r"'\''"),
        Quotes::Double => {
            let mut escaped = String::new();
            for c in word.chars() {
                if matches!(c, '"' | '\\' | '$' | '`') {
                    escaped.push('\\');
                }
                escaped.push(c);
            }
            escaped
        }
    }
}
