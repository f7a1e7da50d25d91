use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use packhorse_model::{ByteString, Command, printable};

use super::command::{ParsedLine, is_shell};
use super::name::{Meaning, is_secret};
use super::program::{base_name, skip_openers, skip_python_options, variable};
use super::text::{is_number, is_whole, masked};

/// No family's name is longer, in bytes.
const LONGEST: usize = 200;

/// How much of a longer one is kept: its hash and an ellipsis come behind it.
const KEPT: usize = LONGEST - 16 - '…'.len_utf8();

/// Details that are longer, in bytes, are replaced by their hash.
const LONGEST_DETAILS: usize = 64;

/// What a file is called that is executed, and not read for settings.
const CODE: &[&str] = &[
    "R", "bash", "ipynb", "jar", "jl", "js", "lua", "m", "pl", "py", "pyc", "r", "rb", "sh", "zsh",
];

/// What a command is remembered by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// Commands with the same name are alike. It is readable, at most 268 bytes long,
    /// and the same for ever: peaks are remembered by it.
    pub name: String,
    /// What commands have in common that differ only in details that may or may not
    /// matter; `None` if there are none. The names of its members begin with it: see
    /// [`is_member`].
    pub family: Option<String>,
}

/// A signature in the making: it may depend on what is in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureDraft {
    family: String,
    details: Vec<SignatureDetail>,
    files: Vec<PathBuf>,
}

/// What tells members of a family apart.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SignatureDetail {
    Text(String),
    /// What is in a file, by its place among the files; if there is none, this text.
    File(usize, Option<String>),
}

impl SignatureDraft {
    /// That of a command that runs in `folder` with these variables: see the
    /// [module](super).
    pub fn new(command: &Command, env: &BTreeMap<String, ByteString>, folder: &Path) -> Self {
        let env = env.iter();
        let env = env.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(&value.0)));
        let work = ParsedLine::of(command, env.collect(), folder);
        let mut shape = CommandShape::default();
        let commands = work.commands.iter();
        let commands = commands.map(|(folder, words)| shape.command(folder, words));
        let commands: Vec<String> = commands.collect();
        let mut family = commands.join("; ");
        if let Some(name) = work.folder.file_name() {
            family = format!("{}: {family}", masked(&name.to_string_lossy()));
        }
        Self { family: cut(&printable(&family)), details: shape.details, files: shape.files }
    }

    /// That of a task whose person says what it is remembered by.
    pub fn named(signature: &str) -> Self {
        Self { family: signature.to_owned(), details: Vec::new(), files: Vec::new() }
    }

    /// The files that it may depend on.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The signature, given the [hashes](content_hash) of what is in each of the files.
    /// Those that are not there, or too large, have none.
    pub fn finish(self, contents: &[Option<u64>]) -> Signature {
        let details = self.details.into_iter().filter_map(|detail| match detail {
            SignatureDetail::Text(text) => Some(text),
            SignatureDetail::File(place, text) => match contents.get(place).copied().flatten() {
                Some(hash) => Some(format!("{:08x}", hash >> 32)),
                None => text,
            },
        });
        let details: Vec<String> = details.map(|text| in_brackets(&text)).collect();
        let mut details = details.join(" ");
        if details.is_empty() {
            return Signature { name: self.family, family: None };
        }
        if details.len() > LONGEST_DETAILS {
            details = format!("{:016x}", content_hash(details.as_bytes()));
        }
        Signature { name: format!("{} [{details}]", self.family), family: Some(self.family) }
    }
}

/// Whether a signature with this name belongs to the family.
pub fn is_member(name: &str, family: &str) -> bool {
    let details = name.strip_prefix(family);
    let details = details.and_then(|rest| rest.strip_prefix(" [")?.strip_suffix(']'));
    details.is_some_and(|details| !details.contains(['[', ']']))
}

/// FNV-1a: unlike the hashes of libraries it will never change.
pub fn content_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn cut(full: &str) -> String {
    if full.len() <= LONGEST {
        return full.to_owned();
    }
    let end = (0..=KEPT).rev().find(|&at| full.is_char_boundary(at));
    let hash = content_hash(full.as_bytes());
    format!("{}…{hash:016x}", &full[..end.unwrap_or(0)])
}

/// One word that can be told from its neighbours, and from the end of all of them.
fn in_brackets(text: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '[' | ']');
    if text.chars().all(is_plain) && !text.is_empty() {
        return text.to_owned();
    }
    format!("{:08x}", content_hash(text.as_bytes()) >> 32)
}

/// The words of a family's name, and what tells its members apart.
#[derive(Default)]
struct CommandShape {
    words: Vec<String>,
    details: Vec<SignatureDetail>,
    files: Vec<PathBuf>,
    /// Where the command runs.
    folder: PathBuf,
    /// The flag whose values may come now.
    flag: Option<Meaning>,
    /// Whether what is executed has been met: the program, or its script.
    has_script: bool,
}

impl CommandShape {
    /// The words of one simple command, and takes note of its details.
    fn command(&mut self, folder: &Path, words: &[String]) -> String {
        self.words.clear();
        folder.clone_into(&mut self.folder);
        (self.flag, self.has_script) = (None, false);
        let start = skip_openers(words);
        let (before, rest) = words.split_at(start);
        let variables = before.iter().filter_map(|word| variable(word));
        for (name, value) in variables.filter(|(name, _)| !is_secret(name)) {
            if let Some(value) = self.kept(Meaning::of(name), value) {
                self.words.push(format!("{name}={}", shown(&value)));
            }
        }
        // Nothing but words that start something: then they are the command.
        let rest = if rest.is_empty() { words } else { rest };
        let Some((program, mut arguments)) = rest.split_first() else {
            return self.words.join(" ");
        };
        let name = program_name(program);
        if name == "python" {
            arguments = &arguments[skip_python_options(arguments)..];
        }
        // Its first word is the script, whatever it is called.
        let interprets = name == "python" || is_shell(&name);
        let first = usize::from(arguments.first().is_some_and(|word| word == "-m"));
        self.words.push(name);
        for (place, word) in arguments.iter().enumerate() {
            let is_script = !self.has_script
                && self.flag != Some(Meaning::Config)
                && !word.starts_with('-')
                && (is_code(word) || (interprets && place == first));
            if is_script {
                self.has_script = true;
                self.words.push(shown(&plain(word)));
                self.flag = None;
            } else {
                self.argument(word);
            }
        }
        self.words.join(" ")
    }

    fn argument(&mut self, word: &str) {
        if word.starts_with('-') && !is_number(word) && word.len() > 1 {
            self.flag(word);
        } else if let Some((key, value)) = pair(word) {
            let value = self.kept(meaning_of(key), value);
            self.words.push(format!("{key}={}", shown(&value.unwrap_or_default())));
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
        let meaning = meaning_of(name);
        self.words.push(shown(name));
        self.flag = value.is_none().then_some(meaning);
        if let Some(value) = value.and_then(|value| self.kept(meaning, value)) {
            self.words.push(shown(&value));
        }
    }

    fn value(&mut self, word: &str) {
        match self.flag {
            // One word; what follows may be an argument of its own.
            Some(Meaning::Label) => self.flag = None,
            Some(meaning) if is_number(word) => {
                let value = self.kept(meaning, word);
                self.words.extend(value);
            }
            None if is_number(word) => {
                self.details.push(SignatureDetail::Text(word.to_owned()));
                if self.words.last().is_none_or(|last| last != "#") {
                    self.words.push("#".to_owned());
                }
            }
            meaning => {
                let text = self.text(meaning.unwrap_or(Meaning::Other), word);
                self.words.push(shown(&text));
                self.flag = None;
            }
        }
    }

    /// What a family's name has of the value of something that means `meaning`.
    fn kept(&mut self, meaning: Meaning, value: &str) -> Option<String> {
        match meaning {
            Meaning::Label => None,
            Meaning::Size | Meaning::Config if is_whole(value) => Some(value.to_owned()),
            _ if is_number(value) || value.is_empty() => None,
            _ => Some(self.text(meaning, value)),
        }
    }

    /// What a family's name has of a text. If it may be a file, what is in it is a
    /// detail, and if there is no such file, the name of a configuration is one.
    fn text(&mut self, meaning: Meaning, text: &str) -> String {
        let short = plain(text);
        // What a shell would still replace, what is written out, and what is elsewhere.
        let is_name =
            !text.contains(['$', '*', '`', '{', '"', '\n', '\0']) && !text.contains("://");
        let is_config = meaning == Meaning::Config && is_name;
        let has_counter = masked(text) != text;
        let name = (is_config && has_counter).then(|| text.to_owned());
        let path = text.strip_prefix('@').unwrap_or(text);
        // Any other word stays as it is, and tells one file from another by itself.
        let looks_like_file = has_counter || text.contains(['/', '.', '@']);
        let may_be_file = is_config || (is_name && looks_like_file);
        if may_be_file {
            self.details.push(SignatureDetail::File(self.files.len(), name));
            self.files.push(self.folder.join(path));
        } else {
            self.details.extend(name.map(SignatureDetail::Text));
        }
        short
    }
}

/// What an argument `KEY=VALUE` or a flag of this name means.
fn meaning_of(name: &str) -> Meaning {
    match name.trim_start_matches(['+', '-']) {
        // These name files of settings, as with Hydra, more often than they are labels.
        "exp" | "experiment" => Meaning::Config,
        _ => Meaning::of(name),
    }
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

fn is_code(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|end| end.to_str());
    extension.is_some_and(|end| CODE.binary_search(&end).is_ok())
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
    let is_path = key.contains('/') && value.contains('/');
    (is_key && !is_path).then_some((key, value))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_is_found_in_it() {
        assert!(CODE.is_sorted(), "{CODE:?}");
    }
}
