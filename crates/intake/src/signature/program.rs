//! What stands before the program that does the work.

use super::text::is_number;

/// Words of the shell after which a command begins.
const KEYWORDS: &[&str] = &[
    "!", "do", "elif", "else", "exec", "if", "then", "until", "while", "{",
];

/// Programs that only start another. Their options are numbers and single
/// words.
const OPENERS: &[&str] = &[
    "caffeinate",
    "command",
    "env",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "time",
    "timeout",
];

/// Programs whose `run` only starts another.
const RUNNERS: &[&str] = &["hatch", "pdm", "pipenv", "pixi", "poetry", "rye", "uv"];

/// How many words come before the program: variables, keywords, and programs
/// that start it.
pub(super) fn skip_openers(words: &[String]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let name = base_name(word);
        if variable(word).is_some() || KEYWORDS.binary_search(&name).is_ok() {
            at += 1;
        } else if OPENERS.binary_search(&name).is_ok() {
            let options = words[at + 1..].iter();
            at += 1 + options
                .take_while(|word| word.starts_with('-') || is_number(word))
                .count();
        } else if RUNNERS.binary_search(&name).is_ok()
            && words.get(at + 1).is_some_and(|word| word == "run")
            && words.get(at + 2).is_some_and(|word| !word.starts_with('-'))
        {
            at += 2;
        } else {
            break;
        }
    }
    at
}

/// Name and value of `NAME=VALUE`, as a shell understands it.
pub(super) fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !name.is_empty()).then_some((name, value))
}

pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_tables_is_found_in_them() {
        for table in [KEYWORDS, OPENERS, RUNNERS] {
            assert!(table.is_sorted(), "{table:?}");
        }
    }
}
