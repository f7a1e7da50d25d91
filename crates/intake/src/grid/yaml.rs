//! YAML, with the place and the spelling of every value.
//!
//! In grid files a value without quotes is what Python would take it for: a number if
//! Python writes numbers so, otherwise text. So `1e-3` is a number, and `010` and `yes` are
//! text, though some versions of YAML say that they are 8 and true. In experiment files it
//! is what PyYAML takes it for, since programs are written for that.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::brackets::unclosed_bracket;
use super::colons::{is_colon_in_text, missing_blank};
use super::duplicates::first_duplicate;
use super::literal::DEEPEST;
use super::number::python_number;
use super::problem::{GridError, GridProblem};
use super::pyyaml::pyyaml_plain;
use super::quotes::unclosed_quote;
use super::source_text::SourceText;
use super::value::{GridValue, ValueKind};

/// So many values may come from aliases.
const MOST_ALIASED: usize = 100_000;

/// Who says what text without quotes is, and which of merged keys come first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum YamlDialect {
    /// Python's source, and the keys of a mapping before those that are merged into it.
    Python,
    Pyyaml,
}

/// The value of a YAML file with one document.
pub(super) fn read_yaml(text: &str) -> Result<GridValue, GridError> {
    let mut reader = YamlReader::new(text, YamlDialect::Python);
    let document = reader.document()?;
    let nothing = || GridValue::new(ValueKind::None, text.len()..text.len());
    match reader.next_start()? {
        Some(at) => Err(SourceText(text).error(at, GridProblem::SecondDocument)),
        None => Ok(document.unwrap_or_else(nothing)),
    }
}

/// The values of all documents of a YAML file. Empty ones are left out.
pub(crate) fn read_documents(
    text: &str,
    dialect: YamlDialect,
) -> Result<Vec<GridValue>, GridError> {
    let mut reader = YamlReader::new(text, dialect);
    let mut documents = Vec::new();
    while let Some(document) = reader.document()? {
        if document.kind != ValueKind::None {
            documents.push(document);
        }
    }
    Ok(documents)
}

type Member = (GridValue, GridValue);

struct YamlReader<'a> {
    text: &'a str,
    dialect: YamlDialect,
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: HashMap<usize, GridValue>,
    /// How many values have come from aliases.
    aliased: usize,
}

impl<'a> YamlReader<'a> {
    fn new(text: &'a str, dialect: YamlDialect) -> Self {
        Self {
            text,
            dialect,
            parser: Parser::new_from_str(text),
            anchors: HashMap::new(),
            aliased: 0,
        }
    }

    /// Where the next document begins, if there is one.
    fn next_start(&mut self) -> Result<Option<Range<usize>>, GridError> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(None),
                (Event::StreamStart | Event::DocumentEnd, _) => {}
                (_, at) => return Ok(Some(at)),
            }
        }
    }

    /// The value of the next document, if there is one.
    fn document(&mut self) -> Result<Option<GridValue>, GridError> {
        if self.next_start()?.is_none() {
            return Ok(None);
        }
        let (event, at) = self.next()?;
        self.value(event, at, 0).map(Some)
    }

    fn error(&self, at: Range<usize>, problem: GridProblem) -> GridError {
        SourceText(self.text).error(at, problem)
    }

    fn next(&mut self) -> Result<(Event<'a>, Range<usize>), GridError> {
        match self.parser.next() {
            Some(Ok((event, span))) => Ok((event, place(&span))),
            Some(Err(error)) => {
                let at = error.marker().byte_offset().unwrap_or(0);
                if let Some(open) = unclosed_quote(self.text, at) {
                    let quote = self.text[open..].chars().next().unwrap_or('"');
                    let problem = GridProblem::UnclosedQuote(quote);
                    return Err(self.error(open..self.text.len(), problem));
                }
                if let Some(open) = unclosed_bracket(self.text, at) {
                    let bracket = self.text[open..].chars().next().unwrap_or('[');
                    let problem = GridProblem::UnclosedBracket(bracket);
                    return Err(self.error(open..self.text.len(), problem));
                }
                let message = error.kind().to_string();
                let is_about_keys = ["simple key expected", "mapping values are not allowed"];
                if is_about_keys.iter().any(|it| message.contains(it))
                    && let Some((place, problem)) = missing_blank(self.text, at)
                {
                    return Err(self.error(place, problem));
                }
                if is_colon_in_text(self.text, at) {
                    return Err(self.error(at..at + 1, GridProblem::ColonInText));
                }
                let language = "YAML";
                let problem = GridProblem::Syntax { language, message };
                Err(self.error(at..at + 1, problem))
            }
            None => Ok((Event::StreamEnd, self.text.len()..self.text.len())),
        }
    }

    fn value(
        &mut self,
        event: Event<'a>,
        at: Range<usize>,
        depth: usize,
    ) -> Result<GridValue, GridError> {
        if depth > DEEPEST {
            return Err(self.error(at, GridProblem::TooDeep));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let kind = self.scalar(&text, style, tag.as_deref(), &at)?;
                let value = GridValue::new(kind, at);
                let value = match &value.kind {
                    ValueKind::Text(_) => value,
                    _ => value.written_as(&text),
                };
                (value, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let kind = match tag.as_deref().map(name).as_deref() {
                    None | Some("!!seq" | "!") => ValueKind::List as fn(_) -> _,
                    Some("!!python/tuple") => ValueKind::Tuple as fn(_) -> _,
                    Some(tag) => return Err(self.error(at, GridProblem::Tag(tag.to_owned()))),
                };
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, end) => {
                            let value = GridValue::new(kind(items), at.start..end.end);
                            break (value, anchor);
                        }
                        (event, at) => items.push(self.value(event, at, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(_, anchor, tag) => {
                match tag.as_deref().map(name).as_deref() {
                    None | Some("!!map" | "!") => {}
                    Some(tag) => return Err(self.error(at, GridProblem::Tag(tag.to_owned()))),
                }
                (self.mapping(at, depth)?, anchor)
            }
            Event::Alias(anchor) => {
                // What is not finished yet is not known yet.
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err(self.error(at, GridProblem::EndlessAlias));
                };
                self.aliased += size(value);
                if self.aliased > MOST_ALIASED {
                    return Err(self.error(at, GridProblem::TooManyAliases));
                }
                return Ok(GridValue { span: at, ..value.clone() });
            }
            _ => (GridValue::new(ValueKind::None, at).written_as(""), 0),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn mapping(&mut self, at: Range<usize>, depth: usize) -> Result<GridValue, GridError> {
        let mut members: Vec<Member> = Vec::new();
        let mut merged: Vec<Vec<Member>> = Vec::new();
        let end = loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                break at.end;
            }
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.value(event, at, depth + 1)?;
            if let ValueKind::List(_) | ValueKind::Dict(_) = key.kind {
                let problem = GridProblem::KeyKind(key.what());
                return Err(self.error(key.span, problem));
            }
            let (event, at) = self.next()?;
            let value = self.value(event, at, depth + 1)?;
            if is_merge {
                self.merge(value, &mut merged)?;
            } else {
                members.push((key, value));
            }
        };
        if let Some(key) = first_duplicate(&members) {
            let problem = GridProblem::Duplicate(key.as_written());
            return Err(self.error(key.span.clone(), problem));
        }
        if self.dialect == YamlDialect::Pyyaml && !merged.is_empty() {
            let value = ValueKind::Dict(merged_first(merged, members));
            return Ok(GridValue::new(value, at.start..end));
        }
        // What is written wins over what is merged, and what is merged first over the rest.
        let mut known = HashSet::new();
        if !merged.is_empty() {
            known.extend(members.iter().map(|(key, _)| key.identity()));
        }
        for (key, value) in merged.into_iter().flatten() {
            if known.insert(key.identity()) {
                members.push((key, value));
            }
        }
        Ok(GridValue::new(ValueKind::Dict(members), at.start..end))
    }

    fn merge(&self, value: GridValue, merged: &mut Vec<Vec<Member>>) -> Result<(), GridError> {
        match value.kind {
            ValueKind::Dict(members) => merged.push(members),
            ValueKind::List(items)
                if items.iter().all(|item| matches!(item.kind, ValueKind::Dict(_))) =>
            {
                for item in items {
                    self.merge(item, merged)?;
                }
            }
            _ => return Err(self.error(value.span, GridProblem::Merge)),
        }
        Ok(())
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        at: &Range<usize>,
    ) -> Result<ValueKind, GridError> {
        let wanted = |kind: ValueKind, fits: bool, key: &str, expected| {
            let found = GridValue::new(kind.clone(), 0..0).what();
            let key = key.to_owned();
            let problem = GridProblem::Kind { key, expected, found };
            if fits { Ok(kind) } else { Err(self.error(at.clone(), problem)) }
        };
        let kind = match self.dialect {
            YamlDialect::Python => plain(text),
            YamlDialect::Pyyaml => pyyaml_plain(text),
        };
        match tag.map(name).as_deref() {
            None if style == ScalarStyle::Plain => Ok(kind),
            None | Some("!!str" | "!") => Ok(ValueKind::Text(text.into())),
            Some(tag @ "!!int") => {
                let fits = matches!(kind, ValueKind::Int(_));
                wanted(kind, fits, tag, "a whole number")
            }
            Some(tag @ "!!float") => {
                let kind = match kind {
                    ValueKind::Int(digits) => ValueKind::Float(digits.parse().unwrap_or(f64::NAN)),
                    other => other,
                };
                let fits = matches!(kind, ValueKind::Float(_));
                wanted(kind, fits, tag, "a number")
            }
            Some(tag @ "!!bool") => {
                let fits = matches!(kind, ValueKind::Bool(_));
                wanted(kind, fits, tag, "true or false")
            }
            Some("!!null") => Ok(ValueKind::None),
            Some(tag) => Err(self.error(at.clone(), GridProblem::Tag(tag.to_owned()))),
        }
    }
}

/// Where PyYAML has merged keys: before the others, and those of the last dictionary first.
/// A key keeps its first place and its last value.
fn merged_first(merged: Vec<Vec<Member>>, own: Vec<Member>) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (key, value) in merged.into_iter().rev().flatten().chain(own) {
        match places.entry(key.identity()) {
            Entry::Occupied(place) => members[*place.get()].1 = value,
            Entry::Vacant(place) => {
                place.insert(members.len());
                members.push((key, value));
            }
        }
    }
    members
}

fn place(span: &Span) -> Range<usize> {
    span.byte_range().unwrap_or(0..0)
}

/// A tag as people write it: `!!int`.
fn name(tag: &Tag) -> String {
    let tag = tag.to_string();
    match tag.strip_prefix("tag:yaml.org,2002:") {
        Some(short) => format!("!!{short}"),
        None => tag,
    }
}

/// How many values it is made of.
fn size(value: &GridValue) -> usize {
    1 + match &value.kind {
        ValueKind::List(items) | ValueKind::Tuple(items) => items.iter().map(size).sum(),
        ValueKind::Dict(members) => {
            let sizes = members.iter().map(|(key, value)| size(key) + size(value));
            sizes.sum()
        }
        _ => 0,
    }
}

/// What text without quotes is.
fn plain(text: &str) -> ValueKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" | "None" => ValueKind::None,
        "true" | "True" | "TRUE" => ValueKind::Bool(true),
        "false" | "False" | "FALSE" => ValueKind::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => ValueKind::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => ValueKind::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => ValueKind::Float(f64::NAN),
        _ => python_number(text).unwrap_or_else(|| ValueKind::Text(text.into())),
    }
}
