//! What stands before the program that does the work.

/// Words of the shell after which a command begins.
const KEYWORDS: &[&str] = &["!", "do", "elif", "else", "exec", "if", "then", "until", "while", "{"];

/// Programs that only start another: their options that have a value in the next word,
/// and how many operands stand before the program.
const OPENERS: &[(&str, &str, usize)] = &[
    ("caffeinate", "-t -w", 0),
    ("chrt", "-D -P -T", 1),
    ("command", "", 0),
    ("env", "-C -u --chdir --unset", 0),
    ("ionice", "-c -n --class --classdata", 0),
    ("nice", "-n --adjustment", 0),
    ("nohup", "", 0),
    (
        "numactl",
        "-C -N -P -i -m -p --cpunodebind --interleave --membind --physcpubind --preferred",
        0,
    ),
    ("setsid", "", 0),
    ("stdbuf", "-e -i -o --error --input --output", 0),
    ("taskset", "", 1),
    ("time", "-f -o --format --output", 0),
    ("timeout", "-k -s --kill-after --signal", 1),
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
        } else if let Ok(opener) = OPENERS.binary_search_by_key(&name, |opener| opener.0) {
            let (_, with_value, mut operands) = OPENERS[opener];
            at += 1;
            while let Some(word) = words.get(at) {
                if word.starts_with('-') {
                    let has_value = with_value.split(' ').any(|option| option == word);
                    at += 1 + usize::from(has_value);
                } else if operands > 0 {
                    operands -= 1;
                    at += 1;
                } else {
                    break;
                }
            }
        } else if RUNNERS.binary_search(&name).is_ok()
            && words.get(at + 1).is_some_and(|word| word == "run")
            && words.get(at + 2).is_some_and(|word| !word.starts_with('-'))
        {
            at += 2;
        } else {
            break;
        }
    }
    at.min(words.len())
}

/// How many words stand between Python and what it runs: options that concern the
/// interpreter only.
pub(super) fn skip_python_options(arguments: &[String]) -> usize {
    let mut at = 0;
    while let Some(word) = arguments.get(at)
        && word.len() > 1
        && word.starts_with('-')
        && !matches!(word.as_str(), "-m" | "-c" | "--")
    {
        let has_value = matches!(word.as_str(), "-W" | "-X" | "--check-hash-based-pycs");
        at += 1 + usize::from(has_value);
    }
    at.min(arguments.len())
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
        for table in [KEYWORDS, RUNNERS] {
            assert!(table.is_sorted(), "{table:?}");
        }
        assert!(OPENERS.is_sorted(), "{OPENERS:?}");
    }
}
