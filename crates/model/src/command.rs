use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

use crate::ByteString;
use crate::byte_string::WrittenBytes;

/// What to execute.
///
/// In JSON a string is a line, and a list is words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "WrittenCommand")]
pub enum Command {
    /// A line as a shell would read it. Bytes, because file names need not be
    /// UTF-8.
    Line(Vec<u8>),
    /// A program and its arguments, each exactly as given.
    Words(Vec<Vec<u8>>),
}

impl Command {
    /// Whether there is nothing to execute.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Line(line) => line.is_empty(),
            Self::Words(words) => words.is_empty(),
        }
    }

    /// About how many bytes it takes.
    pub fn weight(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Words(words) => words.iter().map(|word| word.len() + 24).sum(),
        }
    }

    /// The command on one line, as a person would type it. Bytes that are not
    /// UTF-8 are replaced.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Line(line) => String::from_utf8_lossy(line),
            Self::Words(words) => words
                .iter()
                .map(|word| quoted(&String::from_utf8_lossy(word)))
                .collect::<Vec<_>>()
                .join(" ")
                .into(),
        }
    }
}

/// A word with quotes around it if a shell would need them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::Line(Vec::new())
    }
}

/// A command: a line for the shell, or a program and its arguments.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a command is a string (a line) or a list (its words)")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
enum WrittenCommand {
    /// A line for the shell.
    Line(ByteString),
    /// A program and its arguments.
    Words(Vec<ByteString>),
}

impl From<WrittenCommand> for Command {
    fn from(written: WrittenCommand) -> Self {
        match written {
            WrittenCommand::Line(line) => Self::Line(line.0),
            WrittenCommand::Words(words) => {
                Self::Words(words.into_iter().map(|word| word.0).collect())
            }
        }
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Line(line) => WrittenBytes::from(&**line).serialize(serializer),
            Self::Words(words) => {
                serializer.collect_seq(words.iter().map(|word| WrittenBytes::from(&**word)))
            }
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Command {
    fn schema_name() -> Cow<'static, str> {
        "Command".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        WrittenCommand::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_a_line_and_a_list_is_words() {
        for (json, wanted) in [
            (r#""a b""#, Command::Line(b"a b".to_vec())),
            (r#"["a","b c"]"#, Command::Words(vec![b"a".to_vec(), b"b c".to_vec()])),
            (r#"{"bytes":"\\xff"}"#, Command::Line(vec![0xff])),
            (r#"["a",{"bytes":"\\xff"}]"#, Command::Words(vec![b"a".to_vec(), vec![0xff]])),
        ] {
            let command: Command = serde_json::from_str(json).unwrap();
            assert_eq!(command, wanted);
            assert_eq!(serde_json::to_string(&command).unwrap(), json);
        }
        let error = serde_json::from_str::<Command>("7").unwrap_err();
        assert!(error.to_string().starts_with("a command is a string"));
    }

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        let words = [&b"python"[..], b"a b", b"it's", b"--lr=0.1", b""];
        let words = Command::Words(words.iter().map(|word| word.to_vec()).collect());
        assert_eq!(words.to_text(), r"python 'a b' 'it'\''s' --lr=0.1 ''");
    }
}
