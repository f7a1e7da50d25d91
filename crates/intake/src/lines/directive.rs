//! `#packhorse KEY=VALUE …`: what the next command needs.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use packhorse_model::{Priority, TaskSpec};

use super::error::{LineError, LineProblem};
use super::reader::is_blank;
use crate::SpecProblem;
use crate::excerpt::quoted;
use crate::names::Names;
use crate::nearest::nearest;
use crate::spec_problem::{
    check_gpu_model, check_module, check_path, check_signature, check_variable,
};

/// Every option there is, as a hint lists them.
pub(super) const KEYS: &str = "gpus, vram, model, cores, cpu, ram, priority, retries, timeout, \
    group, group_limit, grace, folder, env, results, log, preload, signature, name, after";

/// The whole numbers that options take.
const COUNT: RangeInclusive<i64> = 0..=u32::MAX as i64;
const POSITIVE: RangeInclusive<i64> = 1..=u32::MAX as i64;
const RANK: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

/// More than this many mistakes in one line are the same mistake again.
const MOST_PROBLEMS: usize = 8;

/// The directives since the last command.
#[derive(Debug)]
pub(super) struct Directives {
    /// A task without a command.
    spec: TaskSpec,
    /// What to say if no command follows.
    unused: LineError,
    is_broken: bool,
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
        let comment = comment.strip_prefix(b"#").unwrap_or(comment);
        let blanks = comment.iter().take_while(|&&b| is_blank(b)).count();
        let text = &comment[blanks..];
        let end = text.iter().position(|&b| is_blank(b));
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        let bare = word.strip_suffix(b":").unwrap_or(word);
        let is_meant = || match blanks {
            0 => rest.contains(&b'='),
            // Behind a blank people also write of packhorse.
            _ => sets_something(rest),
        };
        if word == WORD && blanks == 0 {
            Self::Directive
        } else if bare.eq_ignore_ascii_case(WORD) && is_meant() {
            Self::Misspelt
        } else {
            Self::Remark
        }
    }
}

/// Whether a text begins with an option and its value.
fn sets_something(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let key = text.split(|&byte| byte == b'=').next().unwrap_or_default();
    key.len() < text.len() && KEYS.split(", ").any(|known| known.as_bytes() == key)
}

impl Directives {
    /// None yet, but one begins at `start` of `line`.
    pub fn new(number: u64, line: &[u8], start: usize) -> Self {
        let problem = LineProblem::NoCommand;
        Self {
            spec: TaskSpec::default(),
            unused: LineError::new(number, line, start..line.len(), problem),
            is_broken: false,
        }
    }

    /// The task that they describe, without its command; none if something about
    /// them was wrong, which has been said.
    pub fn into_spec(self) -> Option<TaskSpec> {
        let mut spec = self.spec;
        spec.after.sort_unstable();
        spec.after.dedup();
        (!self.is_broken).then_some(spec)
    }

    /// The input has ended without a command for them.
    pub fn into_unused(self) -> Option<LineError> {
        (!self.is_broken).then_some(self.unused)
    }

    /// Notes the directive in `line` at `start`. Everything that is wrong with it
    /// goes to `errors`.
    pub fn read(
        &mut self,
        number: u64,
        line: &[u8],
        start: usize,
        names: &Names,
        errors: &mut impl Extend<LineError>,
    ) {
        let problems = self.read_words(line, start + "#packhorse".len(), names);
        self.is_broken |= !problems.is_empty();
        errors.extend(
            problems
                .into_iter()
                .map(|(place, problem)| LineError::new(number, line, place, problem)),
        );
    }

    /// Notes that one was there which could not even be recognised.
    pub fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    fn read_words(
        &mut self,
        line: &[u8],
        start: usize,
        names: &Names,
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
                let problem = LineProblem::NoValue(quoted(word.as_bytes()));
                problems.push((place, problem));
                continue;
            };
            let value_start = place.start + key.len() + 1;
            if let Some(known) = KEYS.split(", ").find(|known| *known == key) {
                if let Err(problem) = set(&mut self.spec, known, value, names) {
                    let place = match problem {
                        LineProblem::Twice(_) | LineProblem::VariableTwice(_) => place,
                        _ => value_start..place.end,
                    };
                    problems.push((place, problem));
                }
            } else {
                let nearest = nearest(key, KEYS.split(", "));
                let problem = LineProblem::UnknownKey(quoted(key.as_bytes()), nearest);
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

fn set(
    spec: &mut TaskSpec,
    key: &'static str,
    value: &str,
    names: &Names,
) -> Result<(), LineProblem> {
    let quantity = |reason| LineProblem::Quantity(key, reason);
    match key {
        "gpus" => once(&mut spec.gpus, key, value.parse().map_err(quantity)),
        "vram" => once(&mut spec.vram, key, value.parse().map_err(quantity)),
        "ram" => once(&mut spec.ram, key, value.parse().map_err(quantity)),
        "timeout" => once(&mut spec.timeout, key, value.parse().map_err(quantity)),
        "grace" => once(&mut spec.grace, key, value.parse().map_err(quantity)),
        "cpu" => once(&mut spec.cpu, key, value.parse().map_err(quantity)),
        "cores" => once(&mut spec.cores, key, number(key, value, COUNT)),
        "group" => once(&mut spec.group, key, Ok(value.to_owned())),
        "group_limit" => once(&mut spec.group_limit, key, number(key, value, POSITIVE)),
        "retries" => once(&mut spec.retries, key, number(key, value, COUNT)),
        "priority" => {
            let rank = number(key, value, RANK).map(Priority);
            once(&mut spec.priority, key, rank)
        }
        "folder" => once(&mut spec.folder, key, path(key, value)),
        "results" => once(&mut spec.results, key, path(key, value)),
        "log" => once(&mut spec.log, key, path(key, value)),
        "model" => once(&mut spec.gpu_model, key, text(value, check_gpu_model)),
        "signature" => once(&mut spec.signature, key, text(value, check_signature)),
        "name" => {
            let name = text(value, |name| names.check_new(name));
            once(&mut spec.name, key, name)
        }
        "env" => set_variable(spec, value),
        "preload" => {
            for module in value.split(',') {
                check_module(module)?;
                spec.preload.push(module.to_owned());
            }
            Ok(())
        }
        _ => {
            for earlier in value.split(',') {
                names.check_known(earlier)?;
                spec.after.push(earlier.to_owned());
            }
            Ok(())
        }
    }
}

fn once<T>(
    place: &mut Option<T>,
    key: &'static str,
    value: Result<T, LineProblem>,
) -> Result<(), LineProblem> {
    if place.is_some() {
        return Err(LineProblem::Twice(key));
    }
    *place = Some(value?);
    Ok(())
}

/// `env=NAME=VALUE`
fn set_variable(spec: &mut TaskSpec, value: &str) -> Result<(), LineProblem> {
    let Some((name, value)) = value.split_once('=') else {
        return Err(LineProblem::NoVariable(quoted(value.as_bytes())));
    };
    check_variable(name, value.as_bytes())?;
    if spec.env.insert(name.to_owned(), value.into()).is_some() {
        return Err(LineProblem::VariableTwice(quoted(name.as_bytes())));
    }
    Ok(())
}

fn number<T: FromStr>(
    key: &'static str,
    value: &str,
    range: RangeInclusive<i64>,
) -> Result<T, LineProblem> {
    let wrong = |_| LineProblem::Number(key, quoted(value.as_bytes()), range);
    value.parse().map_err(wrong)
}

fn path(key: &'static str, value: &str) -> Result<PathBuf, LineProblem> {
    let path = PathBuf::from(value);
    check_path(key, &path)?;
    Ok(path)
}

fn text(
    value: &str,
    check: impl FnOnce(&str) -> Result<(), SpecProblem>,
) -> Result<String, LineProblem> {
    check(value)?;
    Ok(value.to_owned())
}
