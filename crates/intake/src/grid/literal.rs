//! Python literals, and JSON, which is nearly one.
//!
//! A `.py` file is not run: what it assigns to `config` must be written out. JSON files
//! have been checked by a JSON parser before; here they are read once more, with the
//! place of every value.

use std::ops::Range;

use super::duplicates::first_duplicate;
use super::number::python_number;
use super::problem::{GridError, GridProblem};
use super::source_text::SourceText;
use super::text_literal::{StringForm, push_unescaped, string_form};
use super::value::{GridValue, ValueKind};

/// Deeper than any configuration, and shallow enough for the stack.
pub(super) const DEEPEST: usize = 64;

/// Which language the literal is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Python,
    Json,
}

/// The value of `config` in a Python file.
pub(super) fn read_python(text: &str) -> Result<GridValue, GridError> {
    let mut reader = LiteralReader::new(text, Dialect::Python);
    let mut config = None;
    loop {
        reader.skip_lines();
        if reader.rest().is_empty() {
            let end = text.len();
            return config.ok_or_else(|| reader.error(end..end, GridProblem::NoConfig));
        }
        // A description of the file, as Python has them.
        if string_form(reader.rest()).is_some() {
            reader.value(0)?;
            reader.end_of_statement()?;
            continue;
        }
        let start = reader.at;
        let name = reader.name();
        reader.skip_blanks();
        let is_assigned = reader.rest().starts_with('=') && !reader.rest().starts_with("==");
        if name != "config" || !is_assigned {
            let line = reader.line_from(start);
            let what = format!(
                "`{}` is not `config = {{…}}`",
                packhorse_model::printable(&text[line.clone()])
            );
            return Err(reader.error(line, GridProblem::NotLiteral { what }));
        }
        if config.is_some() {
            let problem = GridProblem::Duplicate("config".to_owned());
            return Err(reader.error(start..start + name.len(), problem));
        }
        reader.at += 1;
        reader.skip_blanks();
        config = Some(reader.value(0)?);
        reader.end_of_statement()?;
    }
}

/// The value of a JSON file.
pub(super) fn read_json(text: &str) -> Result<GridValue, GridError> {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let mut lines = text.split_inclusive('\n');
        let before: usize = lines.by_ref().take(error.line() - 1).map(str::len).sum();
        let line = lines.next().unwrap_or_default();
        let column = line.floor_char_boundary(error.column().saturating_sub(1));
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        let problem = GridProblem::Syntax { language: "JSON", message: message.to_owned() };
        let at = before + column;
        return Err(SourceText(text).error(at..at + 1, problem));
    }
    let mut reader = LiteralReader::new(text, Dialect::Json);
    reader.skip_space();
    reader.value(0)
}

struct LiteralReader<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
    /// How many brackets are open: within them, lines mean nothing.
    open: usize,
}

impl<'a> LiteralReader<'a> {
    fn new(text: &'a str, dialect: Dialect) -> Self {
        Self { text, at: 0, dialect, open: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, span: Range<usize>, problem: GridProblem) -> GridError {
        SourceText(self.text).error(span, problem)
    }

    /// What stands here is no literal.
    fn not_literal(&self, span: Range<usize>, what: impl Into<String>) -> GridError {
        let problem = match self.dialect {
            Dialect::Python => GridProblem::NotLiteral { what: what.into() },
            Dialect::Json => GridProblem::Syntax { language: "JSON", message: what.into() },
        };
        self.error(span, problem)
    }

    fn syntax(&self, span: Range<usize>, message: impl Into<String>) -> GridError {
        let language = match self.dialect {
            Dialect::Python => "Python",
            Dialect::Json => "JSON",
        };
        let message = message.into();
        self.error(span, GridProblem::Syntax { language, message })
    }

    /// Blanks, and lines that go on after a backslash.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\x0c']).len();
            self.at += blanks;
            let rest = self.rest();
            if rest.starts_with("\\\n") {
                self.at += 2;
            } else if rest.starts_with("\\\r\n") {
                self.at += 3;
            } else if blanks == 0 {
                return;
            }
        }
    }

    /// Blanks, line ends and comments.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            let rest = self.rest();
            if rest.starts_with(['\n', '\r', '\u{feff}']) {
                self.at += rest.chars().next().map_or(0, char::len_utf8);
            } else if rest.starts_with('#') && self.dialect == Dialect::Python {
                self.at = self.line_from(self.at).end;
            } else {
                return;
            }
        }
    }

    /// Whatever may stand between two words here.
    fn skip_space(&mut self) {
        if self.open > 0 || self.dialect == Dialect::Json {
            self.skip_lines();
        } else {
            self.skip_blanks();
        }
    }

    /// From a place to the end of its line.
    fn line_from(&self, start: usize) -> Range<usize> {
        let end = self.text[start..].find(['\n', '\r']);
        start..end.map_or(self.text.len(), |end| start + end)
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let name = &rest[..end.unwrap_or(rest.len())];
        self.at += name.len();
        name
    }

    fn end_of_statement(&mut self) -> Result<(), GridError> {
        self.skip_blanks();
        let rest = self.rest();
        if rest.is_empty() || rest.starts_with(['\n', '\r', '#']) {
            return Ok(());
        }
        Err(self.not_literal(self.line_from(self.at), "this does something with the value"))
    }

    fn value(&mut self, depth: usize) -> Result<GridValue, GridError> {
        let start = self.at;
        if depth > DEEPEST {
            return Err(self.error(start..start + 1, GridProblem::TooDeep));
        }
        let rest = self.rest();
        if string_form(rest).is_some() {
            return self.strings();
        }
        match rest.chars().next() {
            Some('{') => self.dictionary(depth),
            Some('[') => {
                let items = self.items(']', depth)?.0;
                Ok(GridValue::new(ValueKind::List(items), start..self.at))
            }
            Some('(') => {
                let (mut items, commas) = self.items(')', depth)?;
                if let ([_], false) = (items.as_slice(), commas)
                    && let Some(only) = items.pop()
                {
                    return Ok(only);
                }
                Ok(GridValue::new(ValueKind::Tuple(items), start..self.at))
            }
            Some('-' | '+' | '.' | '0'..='9') => self.number(),
            Some(c) if c.is_alphanumeric() || c == '_' => self.word(),
            Some(_) => Err(self.syntax(start..start + 1, "a value should stand here")),
            None => Err(self.syntax(start..start, "the file ends where a value should stand")),
        }
    }

    fn word(&mut self) -> Result<GridValue, GridError> {
        let start = self.at;
        let word = self.name();
        let span = start..self.at;
        let kind = match (word, self.dialect) {
            ("None", Dialect::Python) | ("null", Dialect::Json) => ValueKind::None,
            ("True", Dialect::Python) | ("true", Dialect::Json) => ValueKind::Bool(true),
            ("False", Dialect::Python) | ("false", Dialect::Json) => ValueKind::Bool(false),
            ("true" | "false" | "null", _) => {
                return Err(self.syntax(
                    span,
                    format!("`{word}` is written with a capital letter, and nothing is `None`"),
                ));
            }
            _ => {
                let what =
                    format!("`{}` is a name or a call", crate::excerpt::quoted(word.as_bytes()));
                return Err(self.not_literal(span, what));
            }
        };
        self.no_operator()?;
        Ok(GridValue::new(kind, span).written_as(word))
    }

    fn number(&mut self) -> Result<GridValue, GridError> {
        let start = self.at;
        let mut signs = 0;
        while self.rest().starts_with(['-', '+']) {
            signs += 1;
            self.at += 1;
            self.skip_space();
        }
        let digits = self.at;
        let bytes = self.text.as_bytes();
        let is_hex = self.rest().get(..2).is_some_and(|two| two.eq_ignore_ascii_case("0x"));
        while let Some(&byte) = bytes.get(self.at) {
            let signed = matches!(byte, b'-' | b'+')
                && !is_hex
                && self.at > digits
                && matches!(bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') || signed) {
                break;
            }
            self.at += 1;
        }
        let span = start..self.at;
        let negative = self.text[start..digits].matches('-').count() % 2 == 1;
        let text = format!("{}{}", if negative { "-" } else { "" }, &self.text[digits..self.at]);
        let Some(kind) = python_number(&text) else {
            if text.ends_with(['j', 'J']) {
                return Err(self.not_literal(span, "a complex number cannot be a parameter"));
            }
            return Err(match text.as_str() {
                "" | "-" => self.not_literal(span, "this is an expression"),
                _ => self.syntax(
                    span,
                    format!("`{}` is no number", crate::excerpt::quoted(text.as_bytes())),
                ),
            });
        };
        self.no_operator()?;
        let written = if signs > 1 { &text } else { &self.text[span.clone()] };
        Ok(GridValue::new(kind, span).written_as(&written.replace([' ', '\t'], "")))
    }

    /// Refuses what would make an expression of a value.
    fn no_operator(&mut self) -> Result<(), GridError> {
        let at = self.at;
        self.skip_space();
        let rest = self.rest();
        let is_operator = rest.starts_with([
            '+', '-', '*', '/', '%', '|', '&', '^', '<', '>', '(', '[', '.', '@', '~',
        ]) || ["if ", "for ", "or ", "and ", "in ", "is ", "not "]
            .iter()
            .any(|word| rest.starts_with(word));
        if is_operator {
            let span = self.at..self.at + 1;
            return Err(self.not_literal(span, "this is an expression"));
        }
        self.at = at;
        Ok(())
    }

    /// One string, or several that Python puts together.
    fn strings(&mut self) -> Result<GridValue, GridError> {
        let start = self.at;
        let mut text = String::new();
        let mut end = start;
        while let Some(form) = string_form(self.rest()) {
            self.string(&form, &mut text)?;
            end = self.at;
            if self.dialect == Dialect::Json {
                break;
            }
            self.skip_space();
        }
        self.at = end;
        self.no_operator()?;
        Ok(GridValue::new(ValueKind::Text(text.into()), start..end))
    }

    fn string(&mut self, form: &StringForm, text: &mut String) -> Result<(), GridError> {
        let start = self.at;
        let opened = start..start + form.opening;
        if let Some(what) = form.refused {
            return Err(self.not_literal(opened, what));
        }
        let inside = start + form.opening;
        let Some(length) = form.length(&self.text[inside..]) else {
            return Err(self.syntax(opened, "this string is never closed"));
        };
        let body = &self.text[inside..inside + length];
        if form.raw {
            text.push_str(&body.replace("\r\n", "\n"));
        } else if let Err((at, message)) = push_unescaped(body, self.dialect, text) {
            let at = inside + at;
            return Err(self.not_literal(at..at + 2, message));
        }
        self.at = inside + length + form.closing.len();
        Ok(())
    }

    /// What stands between brackets, and whether there was a comma.
    fn items(&mut self, close: char, depth: usize) -> Result<(Vec<GridValue>, bool), GridError> {
        let opened = self.at;
        let (mut items, mut commas) = (Vec::new(), false);
        self.enter();
        while !self.leaves(close, opened)? {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.comma(close)? {
                commas = true;
            }
        }
        Ok((items, commas))
    }

    fn dictionary(&mut self, depth: usize) -> Result<GridValue, GridError> {
        let opened = self.at;
        let mut members: Vec<(GridValue, GridValue)> = Vec::new();
        self.enter();
        while !self.leaves('}', opened)? {
            let at = self.at;
            if self.rest().starts_with('*') {
                return Err(self.not_literal(at..at + 1, "`**` takes in another dictionary"));
            }
            let key = self.value(depth + 1)?;
            self.skip_space();
            if !self.rest().starts_with(':') {
                let what = "this is a set, or a key without its value";
                return Err(self.not_literal(key.span, what));
            }
            if matches!(key.kind, ValueKind::List(_) | ValueKind::Dict(_)) {
                return Err(self.syntax(key.span, "a list or a dictionary cannot be a key"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.skip_space();
            self.comma('}')?;
        }
        if let Some(key) = first_duplicate(&members) {
            let problem = GridProblem::Duplicate(key.as_written());
            return Err(self.error(key.span.clone(), problem));
        }
        Ok(GridValue::new(ValueKind::Dict(members), opened..self.at))
    }

    fn enter(&mut self) {
        self.at += 1;
        self.open += 1;
        self.skip_space();
    }

    /// Whether the bracket is closed here.
    fn leaves(&mut self, close: char, opened: usize) -> Result<bool, GridError> {
        if self.rest().is_empty() {
            return Err(self.syntax(opened..opened + 1, "this bracket is never closed"));
        }
        let leaves = self.rest().starts_with(close);
        if leaves {
            self.at += 1;
            self.open -= 1;
            self.no_operator()?;
        }
        Ok(leaves)
    }

    /// A comma between two values; none may be missing.
    fn comma(&mut self, close: char) -> Result<bool, GridError> {
        let rest = self.rest();
        if rest.starts_with(',') {
            self.at += 1;
            self.skip_space();
            return Ok(true);
        }
        if rest.is_empty() || rest.starts_with(close) {
            return Ok(false);
        }
        if rest.starts_with("for ") || rest.starts_with("if ") || rest.starts_with(':') {
            return Err(self.not_literal(self.at..self.at + 1, "this is an expression"));
        }
        Err(self.syntax(self.at..self.at + 1, "a comma is missing here"))
    }
}
