//! What is wrong with a line that is no task, and where.
//!
//! Reading a task tells only the first thing that is wrong, and not well where.
//! So a line that failed is read once more, a member at a time.

use std::fmt;
use std::ops::Range;

use packhorse_model::TaskSpec;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::error::TaskLineProblem;
use super::members::Member;
use crate::excerpt::quoted;
use crate::nearest::nearest;

/// More than this many mistakes in one line are the same mistake again.
const MOST_PROBLEMS: usize = 8;

type PlacedProblem = (Range<usize>, TaskLineProblem);

/// Reads a task, or says everything that is wrong with the line.
pub(super) fn read_task(line: &[u8]) -> Result<TaskSpec, Vec<PlacedProblem>> {
    let start = line.len() - line.trim_ascii_start().len();
    let problem = match line.get(start) {
        // Serde would take a list for the values of all members in their order.
        Some(b'{') => {
            return serde_json::from_slice(line).map_err(|error| diagnose(line, &error));
        }
        Some(b'#') => TaskLineProblem::Comment,
        _ => TaskLineProblem::NotObject,
    };
    Err(vec![(start..line.trim_ascii_end().len(), problem)])
}

/// Why the line could not be read, of which serde_json said `error`.
fn diagnose(line: &[u8], error: &serde_json::Error) -> Vec<PlacedProblem> {
    let text = match str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return vec![(at..at + 1, TaskLineProblem::NotUtf8)];
        }
    };
    let members = match members(text) {
        Ok(members) => members,
        Err(error) => return vec![syntax(text, &error)],
    };
    let mut problems = Vec::new();
    let mut given = Vec::new();
    for (key, value) in members {
        if problems.len() == MOST_PROBLEMS {
            break;
        }
        let name = name(key);
        let place = place(text, key);
        let Some(member) = Member::named(&name) else {
            let nearest = nearest(&name, Member::keys());
            let problem = TaskLineProblem::UnknownKey(quoted(name.as_bytes()), nearest);
            problems.push((place, problem));
            continue;
        };
        if given.contains(&member.key) {
            problems.push((place, TaskLineProblem::Twice(member.key)));
        } else if let Err(error) = alone(key, value) {
            let place = self::place(text, value);
            problems.push((place, wrong_value(member, &error)));
        }
        given.push(member.key);
    }
    if problems.is_empty() {
        problems.push(syntax(text, error));
    }
    problems
}

/// Where the value of a key stands; all of the line if it is not there.
pub(super) fn value_place(line: &[u8], key: &str) -> Range<usize> {
    let found = || {
        let text = str::from_utf8(line).ok()?;
        let mut members = members(text).ok()?.into_iter();
        let is_it = |raw| Member::named(&name(raw)).is_some_and(|member| member.key == key);
        let (_, value) = members.find(|(raw, _)| is_it(raw))?;
        Some(place(text, value))
    };
    found().unwrap_or(0..line.trim_ascii_end().len())
}

/// The members of an object as they were written: key and value.
fn members(text: &str) -> serde_json::Result<Vec<(&RawValue, &RawValue)>> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(&'de RawValue, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(Members)?;
    json.end()?;
    Ok(members)
}

/// A key without its quotes.
fn name(key: &RawValue) -> String {
    serde_json::from_str(key.get()).unwrap_or_else(|_| key.get().to_owned())
}

/// Where in `text` a value that was read from it stands.
fn place(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + raw.get().len()
}

/// Reads a task that has only this member.
fn alone(key: &RawValue, value: &RawValue) -> serde_json::Result<TaskSpec> {
    serde_json::from_str(&format!("{{{}:{}}}", key.get(), value.get()))
}

fn wrong_value(member: &Member, error: &serde_json::Error) -> TaskLineProblem {
    let reason = reason(error);
    if error.classify() != Category::Data {
        return not_json(reason, "");
    }
    // Amounts say what they should have been; their text is quoted in front.
    if reason.starts_with('`') {
        return TaskLineProblem::Quantity(member.key, reason);
    }
    TaskLineProblem::Kind(member.key, member.expected)
}

/// What serde_json says, without where.
fn reason(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(" at line ") {
        text.truncate(end);
    }
    text
}

/// That the line is not JSON, at the place that serde_json names.
fn syntax(text: &str, error: &serde_json::Error) -> PlacedProblem {
    let at = error.column().saturating_sub(1).min(text.len());
    let rest = text.get(at..).unwrap_or_default();
    (at..at + 1, not_json(reason(error), rest))
}

/// `rest` is what stands from the place on.
fn not_json(reason: String, rest: &str) -> TaskLineProblem {
    let is_word = |word: &&str| rest.starts_with(*word);
    if let Some(within) = reason.strip_prefix("EOF while parsing ") {
        return TaskLineProblem::Syntax {
            reason: format!("the line ends within {within}"),
            hint: "a task is one line: write the whole object on it",
        };
    }
    let hint = match reason.as_str() {
        _ if ["NaN", "Infinity", "-Infinity", "I"].iter().any(is_word) => {
            "JSON has neither NaN nor infinity: leave it out, or write it as text"
        }
        "number out of range" => "write a smaller number",
        "trailing characters" => "write one object per line, and nothing else",
        "trailing comma" => "remove the comma",
        "key must be a string" => "write keys and texts in double quotes",
        _ if rest.starts_with('\'') => "write keys and texts in double quotes",
        _ => "write it like this: `{\"command\": \"python train.py\", \"gpus\": 0.5}`",
    };
    TaskLineProblem::Syntax { reason, hint }
}
