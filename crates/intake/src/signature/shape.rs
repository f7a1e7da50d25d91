use std::path::Path;

use packhorse_model::Command;

use super::command::ParsedLine;
use super::name::Meaning;
use super::program::{base_name, skip_openers, variable};
use super::text::{is_number, is_whole, masked};
use crate::excerpt::printable;

/// No signature is longer, in bytes.
const LONGEST: usize = 200;

/// How much of a longer one is kept: its hash and an ellipsis come behind it.
const KEPT: usize = LONGEST - 16 - '…'.len_utf8();

/// The shape of a command that runs in `folder`: see the [module](super).
///
/// It is readable, at most 200 bytes long, and the same for ever: peaks are
/// remembered by it.
pub fn signature(command: &Command, folder: &Path) -> String {
    let work = ParsedLine::of(command, folder);
    let shapes: Vec<String> = work.commands.iter().map(|words| shape(words)).collect();
    let mut full = shapes.join("; ");
    if let Some(name) = work.folder.file_name() {
        full = format!("{}: {full}", masked(&name.to_string_lossy()));
    }
    cut(&printable(&full))
}

fn cut(full: &str) -> String {
    if full.len() <= LONGEST {
        return full.to_owned();
    }
    let end = (0..=KEPT).rev().find(|&at| full.is_char_boundary(at));
    format!("{}…{:016x}", &full[..end.unwrap_or(0)], hash(full))
}

/// FNV-1a: unlike the hashes of libraries it will never change.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The shape of one simple command.
fn shape(words: &[String]) -> String {
    let start = skip_openers(words);
    let (before, rest) = words.split_at(start);
    let mut shape = CommandShape::default();
    for (name, value) in before.iter().filter_map(|word| variable(word)) {
        if let Some(value) = kept(Meaning::of(name), value) {
            shape.words.push(format!("{name}={}", shown(&value)));
        }
    }
    // Nothing but words that start something: then they are the command.
    let rest = if rest.is_empty() { words } else { rest };
    if let Some((program, arguments)) = rest.split_first() {
        shape.words.push(program_name(program));
        for word in arguments {
            shape.argument(word);
        }
    }
    shape.words.join(" ")
}

fn program_name(program: &str) -> String {
    let name = base_name(program);
    if name.starts_with("python") {
        let version = |c: char| c.is_ascii_digit() || c == '.';
        return name.trim_end_matches(version).to_owned();
    }
    if program.starts_with('/') {
        return masked(name);
    }
    masked(program.strip_prefix("./").unwrap_or(program))
}

#[derive(Default)]
struct CommandShape {
    words: Vec<String>,
    /// The flag whose values may come now.
    flag: Option<Meaning>,
}

impl CommandShape {
    fn argument(&mut self, word: &str) {
        if word.starts_with('-') && !is_number(word) && word.len() > 1 {
            self.flag(word);
        } else if let Some((key, value)) = pair(word) {
            let value = kept(Meaning::of(key), value);
            self.words
                .push(format!("{key}={}", shown(&value.unwrap_or_default())));
            self.flag = None;
        } else {
            self.value(word);
        }
    }

    fn flag(&mut self, word: &str) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => attached(word),
        };
        let meaning = Meaning::of(name);
        self.words.push(shown(name));
        self.flag = value.is_none().then_some(meaning);
        if let Some(value) = value.and_then(|value| kept(meaning, value)) {
            self.words.push(shown(&value));
        }
    }

    fn value(&mut self, word: &str) {
        match self.flag {
            // One word; what follows may be an argument of its own.
            Some(Meaning::Label) => self.flag = None,
            Some(meaning) if is_number(word) => self.words.extend(kept(meaning, word)),
            None if is_number(word) => {
                if self.words.last().is_none_or(|last| last != "#") {
                    self.words.push("#".to_owned());
                }
            }
            _ => {
                self.words.push(shown(&plain(word)));
                self.flag = None;
            }
        }
    }
}

/// What is left of the value of something that means `meaning`.
fn kept(meaning: Meaning, value: &str) -> Option<String> {
    match meaning {
        Meaning::Label => None,
        Meaning::Size if is_whole(value) => Some(value.to_owned()),
        _ if is_number(value) || value.is_empty() => None,
        _ => Some(plain(value)),
    }
}

/// A text without what differs between machines and between runs.
fn plain(text: &str) -> String {
    let is_absolute = text.starts_with('/') || text.starts_with("~/");
    let start = text.rmatch_indices('/').nth(1).map(|(at, _)| at + 1);
    match start.filter(|_| is_absolute) {
        Some(start) => masked(&text[start..]),
        None => masked(text.strip_prefix("./").unwrap_or(text)),
    }
}

/// Key and value of an argument `KEY=VALUE`, as Hydra has them.
fn pair(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    let fits =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@' | '+' | '~' | '/');
    let is_key = key.chars().all(fits) && key.chars().any(char::is_alphabetic);
    (is_key && !value.contains('/')).then_some((key, value))
}

/// A number that a short flag has without a blank between: `-j8`.
fn attached(word: &str) -> (&str, Option<&str>) {
    let mut letters = word.char_indices().skip(1);
    if let (Some((_, letter)), Some((at, _))) = (letters.next(), letters.next())
        && letter.is_alphabetic()
        && is_number(&word[at..])
    {
        return (&word[..at], Some(&word[at..]));
    }
    (word, None)
}

/// One word that stays one word on the screen.
fn shown(text: &str) -> String {
    if !text.contains(char::is_whitespace) {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("'{}'", words.join(" "))
}
