//! `#packhorse KEY=VALUE …`: what the next command needs.

use std::collections::BTreeSet;
use std::ops::Range;

use packhorse_model::{Milli, Priority, parse_duration};

use super::error::{LineError, LineProblem};
use super::options::{Options, is_name};
use super::reader::is_blank;
use crate::excerpt::quoted;
use crate::nearest::nearest;

/// Every option there is.
pub(super) const KEYS: [&str; 12] = [
    "gpus",
    "vram",
    "signature",
    "model",
    "cores",
    "cpu",
    "ram",
    "priority",
    "retries",
    "timeout",
    "name",
    "after",
];

/// A signature is a key in the store and a column on the screen.
const LONGEST_SIGNATURE: usize = 200;

/// More than this many mistakes in one line are the same mistake again.
const MOST_PROBLEMS: usize = 8;

/// Among more names than this, a guess takes longer than it is worth.
const MOST_GUESSES: usize = 10_000;

/// The directives since the last command.
#[derive(Debug, Default)]
pub(super) struct Directives {
    options: Options,
    /// What to say if no command follows.
    unused: Option<LineError>,
    broken: bool,
}

/// What the directives came to when their command was there.
pub(super) enum Verdict {
    Run(Options),
    /// Something about them was wrong, and has been said.
    Drop,
}

/// A comment, from its `#` on.
pub(super) enum Comment {
    Remark,
    Directive,
    /// It was meant to be a directive.
    Misspelt,
}

impl Comment {
    pub fn of(comment: &[u8]) -> Self {
        const WORD: &[u8] = b"packhorse";
        let text = comment.strip_prefix(b"#").unwrap_or(comment);
        let end = text.iter().position(|&b| is_blank(b));
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        let bare = word.strip_suffix(b":").unwrap_or(word);
        if word == WORD {
            Self::Directive
        } else if bare.eq_ignore_ascii_case(WORD) && rest.contains(&b'=') {
            Self::Misspelt
        } else {
            Self::Remark
        }
    }
}

impl Directives {
    /// What the command that has just come gets.
    pub fn take(&mut self) -> Verdict {
        // Most commands have none: nothing to move.
        if self.unused.is_none() {
            return Verdict::Run(Options::default());
        }
        let Self {
            mut options,
            broken,
            ..
        } = std::mem::take(self);
        options.after.sort_unstable();
        options.after.dedup();
        if broken {
            Verdict::Drop
        } else {
            Verdict::Run(options)
        }
    }

    /// The input has ended.
    pub fn end(&mut self) -> Option<LineError> {
        let Self { unused, broken, .. } = std::mem::take(self);
        unused.filter(|_| !broken)
    }

    /// Notes the directive in `line` at `comment`. Everything that is wrong
    /// with it goes to `report`.
    pub fn read(
        &mut self,
        number: u64,
        line: &[u8],
        comment: Range<usize>,
        names: &BTreeSet<String>,
        report: &mut impl Extend<LineError>,
    ) {
        let problems = self.read_words(line, comment.start + "#packhorse".len(), names);
        self.note(number, line, comment.start);
        self.broken |= !problems.is_empty();
        report.extend(
            problems
                .into_iter()
                .map(|(place, problem)| LineError::new(number, line, place, problem)),
        );
    }

    /// Notes that a directive was there which could not even be recognised.
    pub fn note_broken(&mut self, number: u64, line: &[u8], start: usize) {
        self.note(number, line, start);
        self.broken = true;
    }

    fn note(&mut self, number: u64, line: &[u8], start: usize) {
        if self.unused.is_none() {
            let problem = LineProblem::NoCommand;
            self.unused = Some(LineError::new(number, line, start..line.len(), problem));
        }
    }

    fn read_words(
        &mut self,
        line: &[u8],
        start: usize,
        names: &BTreeSet<String>,
    ) -> Vec<(Range<usize>, LineProblem)> {
        let mut problems = Vec::new();
        let mut at = start;
        for word in line[start..].split(|&b| is_blank(b)) {
            let place = at..at + word.len();
            at = place.end + 1;
            if word.is_empty() {
                continue;
            }
            if problems.len() == MOST_PROBLEMS {
                break;
            }
            let Ok(word) = str::from_utf8(word) else {
                problems.push((place, LineProblem::NotUtf8));
                continue;
            };
            let Some((key, value)) = word.split_once('=') else {
                let word = quoted(word.as_bytes());
                problems.push((place, LineProblem::NoValue { word }));
                continue;
            };
            let value_start = place.start + key.len() + 1;
            if let Some(&known) = KEYS.iter().find(|&&known| known == key) {
                if let Err(problem) = self.options.set(known, value, names) {
                    let place = match problem {
                        LineProblem::Twice { .. } => place,
                        _ => value_start..place.end,
                    };
                    problems.push((place, problem));
                }
            } else {
                let problem = LineProblem::UnknownKey {
                    key: quoted(key.as_bytes()),
                    nearest: nearest(key, KEYS),
                };
                problems.push((place.start..value_start - 1, problem));
            }
        }
        if line[start..].iter().all(|&b| is_blank(b)) {
            let place = start - "#packhorse".len()..start;
            problems.push((place, LineProblem::EmptyDirective));
        }
        problems
    }
}

impl Options {
    fn set(
        &mut self,
        key: &'static str,
        value: &str,
        names: &BTreeSet<String>,
    ) -> Result<(), LineProblem> {
        let quantity = |reason| LineProblem::Quantity { key, reason };
        match key {
            "gpus" => once(&mut self.gpus, key, || value.parse().map_err(quantity)),
            "vram" => once(&mut self.vram, key, || value.parse().map_err(quantity)),
            "ram" => once(&mut self.ram, key, || value.parse().map_err(quantity)),
            "cpu" => once(&mut self.cpu, key, || cpu(value)),
            "signature" => once(&mut self.signature, key, || signature(value)),
            "model" if !self.models.is_empty() => Err(LineProblem::Twice { key }),
            "model" => models(value).map(|models| self.models = models),
            "cores" => once(&mut self.cores, key, || number(key, value)),
            "retries" => once(&mut self.retries, key, || number(key, value)),
            "priority" => once(&mut self.priority, key, || number(key, value).map(Priority)),
            "timeout" => once(&mut self.time_limit, key, || {
                parse_duration(value).map_err(quantity)
            }),
            "name" => once(&mut self.name, key, || {
                let name = name(value)?;
                if names.contains(&name) {
                    return Err(LineProblem::NameTaken { name });
                }
                Ok(name)
            }),
            _ => {
                for earlier in value.split(',') {
                    let earlier = name(earlier)?;
                    if !names.contains(&earlier) {
                        let known = names.iter().map(String::as_str);
                        let known = known.take_while(|_| names.len() <= MOST_GUESSES);
                        return Err(LineProblem::UnknownName {
                            nearest: nearest(&earlier, known).map(str::to_owned),
                            name: earlier,
                        });
                    }
                    self.after.push(earlier);
                }
                Ok(())
            }
        }
    }
}

fn once<T>(
    place: &mut Option<T>,
    key: &'static str,
    value: impl FnOnce() -> Result<T, LineProblem>,
) -> Result<(), LineProblem> {
    if place.is_some() {
        return Err(LineProblem::Twice { key });
    }
    *place = Some(value()?);
    Ok(())
}

/// The whole numbers that options take.
trait Whole: std::str::FromStr {
    const MIN: i64;
    const MAX: i64;
}

impl Whole for u32 {
    const MIN: i64 = 0;
    const MAX: i64 = u32::MAX as i64;
}

impl Whole for i32 {
    const MIN: i64 = i32::MIN as i64;
    const MAX: i64 = i32::MAX as i64;
}

fn number<T: Whole>(key: &'static str, value: &str) -> Result<T, LineProblem> {
    value.parse().map_err(|_| LineProblem::Number {
        key,
        value: quoted(value.as_bytes()),
        min: T::MIN,
        max: T::MAX,
    })
}

/// A share of the cores reads like a share of a GPU.
fn cpu(value: &str) -> Result<Milli, LineProblem> {
    value.parse().map_err(|_| LineProblem::Cpu {
        value: quoted(value.as_bytes()),
    })
}

fn signature(value: &str) -> Result<String, LineProblem> {
    let printable = !value.chars().any(char::is_control);
    if value.is_empty() || value.len() > LONGEST_SIGNATURE || !printable {
        return Err(LineProblem::Signature);
    }
    Ok(value.to_owned())
}

fn models(value: &str) -> Result<Vec<String>, LineProblem> {
    let models: Vec<String> = value.split(',').map(str::to_owned).collect();
    if models.iter().any(String::is_empty) {
        return Err(LineProblem::NoModel);
    }
    Ok(models)
}

fn name(value: &str) -> Result<String, LineProblem> {
    if !is_name(value) {
        let name = quoted(value.as_bytes());
        return Err(LineProblem::Name { name });
    }
    Ok(value.to_owned())
}
