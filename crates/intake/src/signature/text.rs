//! One word: is it a number, and what is left of a text without its counters.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Words that a counter, or a value of a sweep, follows.
static COUNTED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    words(
        "alpha attempt beta checkpoint ckpt dropout epoch exp experiment fold gamma id idx index \
         iter job lambda lr part rank run seed shard split step task trial try version wd",
    )
});

/// What may follow a number and leave it one. Neither B nor M nor G: `7B` and
/// `350M` are sizes of models.
const UNITS: &[&str] = &["s", "ms", "m", "min", "h", "d", "k", "K"];

/// A digit run of this length is a time stamp or an id of something.
const LONG: usize = 6;

/// This many hexadecimal digits are an id; this few only next to another id.
const ID: usize = 8;
const ID_GOES_ON: usize = 4;

pub(super) fn words(list: &'static str) -> HashSet<&'static str> {
    list.split_whitespace().collect()
}

/// Whether the word is a number, or several with punctuation between them:
/// `5`, `-1e-3`, `0.9,0.999`, `256x256`, `2h30m`, `2024-05-01`.
pub(super) fn is_number(word: &str) -> bool {
    let texts = atoms(word).filter_map(|atom| match atom {
        Atom::Text(text) => Some(text),
        Atom::Mark(_) => None,
    });
    let mut texts = texts.peekable();
    texts.peek().is_some() && texts.all(is_numeric)
}

/// Whether the word is a whole number or several: `32`, `64,128`, `224x224`.
pub(super) fn is_whole(word: &str) -> bool {
    is_number(word) && !word.contains(['.', 'e', 'E', '-', '/'])
}

/// The text with `#` for every counter, date, id and number in it.
pub(super) fn masked(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut mark = None;
    for atom in atoms(text) {
        match atom {
            Atom::Mark(c) => {
                found.push(c);
                mark = Some(c);
            }
            Atom::Text(text) if is_numeric(text) => found.push('#'),
            Atom::Text(text) => mask_counters(text, mark == Some('='), &mut found),
        }
    }
    found
}

/// A text falls apart at punctuation that is not usual within a name.
enum Atom<'a> {
    Text(&'a str),
    Mark(char),
}

fn atoms(text: &str) -> impl Iterator<Item = Atom<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(is_mark).unwrap_or(rest.len());
        let atom = if end == 0 {
            rest = &rest[first.len_utf8()..];
            Atom::Mark(first)
        } else {
            let (text, after) = rest.split_at(end);
            rest = after;
            Atom::Text(text)
        };
        Some(atom)
    })
}

fn is_mark(c: char) -> bool {
    !c.is_alphanumeric() && !is_separator(c)
}

const fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.' | '/' | '+')
}

/// Whether digits are all that matters in it.
fn is_numeric(atom: &str) -> bool {
    let bare = atom.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if matches!(bare.as_str(), "inf" | "nan") {
        return true;
    }
    let mut runs = runs(atom).peekable();
    let mut before = None;
    let mut digits = false;
    while let Some(run) = runs.next() {
        let after = runs.peek().copied();
        let is_digits = |run: Option<&str>| run.is_some_and(|run| run.starts_with(digit));
        let fits = if run.starts_with(digit) {
            digits = true;
            true
        } else if run.starts_with(char::is_alphabetic) {
            is_digits(before)
                && match run {
                    "e" | "E" => is_digits(after) || matches!(after, Some("-" | "+")),
                    "x" | "X" | "T" => is_digits(after),
                    "Z" => after.is_none(),
                    _ => UNITS.contains(&run) && (after.is_none() || is_digits(after)),
                }
        } else {
            true
        };
        if !fits {
            return false;
        }
        before = Some(run);
    }
    digits
}

fn digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Longest pieces of digits, of letters, and of neither.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let kind = |c: char| (digit(c), c.is_alphanumeric());
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = kind(rest.chars().next()?);
        let end = rest.find(|c| kind(c) != first).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some(run)
    })
}

/// Appends a text in which some numbers count something. Whether a number in it
/// does is told by what stands before it; `counted` is for its beginning.
fn mask_counters(text: &str, counted: bool, found: &mut String) {
    let mut counts = counted;
    let mut segments = text.split_inclusive(is_separator).peekable();
    while let Some(piece) = segments.next() {
        let segment = piece.trim_end_matches(is_separator);
        let separator = &piece[segment.len()..];
        let name = segment.trim_end_matches(digit);
        if segment.is_empty() {
            // Two separators in a row: what stands before them still counts.
        } else if name.len() < segment.len() && is_counted(name) {
            found.push_str(name);
            found.push('#');
            counts = true;
        } else if is_id(segment, counts)
            || (is_plain_number(segment)
                && (counts || segment.len() >= LONG || is_year(segment, segments.peek())))
        {
            found.push('#');
            counts = true;
        } else {
            found.push_str(segment);
            counts = is_counted(segment);
        }
        found.push_str(separator);
    }
}

fn is_counted(word: &str) -> bool {
    COUNTED.contains(word.to_ascii_lowercase().as_str())
}

/// Digits, perhaps with the beginning of an exponent: the `1e` of `1e-4`.
fn is_plain_number(segment: &str) -> bool {
    let digits = segment.trim_end_matches(['e', 'E']);
    !digits.is_empty() && segment.len() - digits.len() <= 1 && digits.chars().all(digit)
}

/// The 2024 of `2024-05`.
fn is_year(segment: &str, next: Option<&&str>) -> bool {
    let is_next = next.is_some_and(|next| {
        let next = next.trim_end_matches(is_separator);
        next.len() == 2 && next.chars().all(digit)
    });
    segment.len() == 4 && (segment.starts_with("19") || segment.starts_with("20")) && is_next
}

fn is_id(segment: &str, goes_on: bool) -> bool {
    let hexadecimal = segment.chars().all(|c| c.is_ascii_hexdigit());
    let digits = segment.chars().any(digit) && !segment.chars().all(digit);
    hexadecimal && digits && segment.len() >= if goes_on { ID_GOES_ON } else { ID }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_recognised_in_every_form() {
        for word in [
            "5",
            "-1",
            "+3",
            "0.1",
            ".5",
            "1.",
            "1e-3",
            "-1E+5",
            "1_000_000",
            "0,1,2",
            "[0.9, 0.999]",
            "0.9:0.999",
            "256x256",
            "1/3",
            "50%",
            "10k",
            "300s",
            "2h30m",
            "500ms",
            "2024-05-01",
            "2024-05-01T12:30:00Z",
            "12:30",
            "inf",
            "-nan",
        ] {
            assert!(is_number(word), "{word}");
        }
        for word in [
            "", "-", ".", ",", "x", "e5", "7b", "350M", "5e", "x2", "true", "fp16", "1st", "v2",
            "0x1f", "a,5", "#", "½",
        ] {
            assert!(!is_number(word), "{word}");
        }
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        for word in ["32", "64,128", "224x224", "[8]"] {
            assert!(is_whole(word), "{word}");
        }
        for word in ["0.5", "1e-3", "-1", "small"] {
            assert!(!is_whole(word), "{word}");
        }
    }

    #[test]
    fn counters_go_and_numbers_within_names_stay() {
        for (text, wanted) in [
            ("out/run_17", "out/run_#"),
            ("out/run17/ckpt-1000.pt", "out/run#/ckpt-#.pt"),
            ("Run--3", "Run--#"),
            ("seed3_fold_2.yaml", "seed#_fold_#.yaml"),
            ("lr0.1_wd_1e-4", "lr#.#_wd_#-#"),
            ("logs/version_3", "logs/version_#"),
            ("out/2024-05-01_12-30-05/x", "out/#-#-#_#-#-#/x"),
            ("20240501_123000", "#"),
            ("run-20240501", "run-#"),
            ("x-1714567890.log", "x-#.log"),
            ("job_3f9a1c2b", "job_#"),
            ("123e4567-e89b-12d3-a456-426614174000", "#-#-#-#-#"),
            ("cuda:1", "cuda:#"),
            ("out/lr=0.1/x", "out/lr=#.#/x"),
            ("{\"lr\": 0.1, \"n\": [1, 2]}", "{\"lr\": #, \"n\": [#, #]}"),
            ("resnet50", "resnet50"),
            ("vit_b_16", "vit_b_16"),
            ("llama-3-8b", "llama-3-8b"),
            ("Qwen2.5-0.5B", "Qwen2.5-0.5B"),
            ("stable-diffusion-1.5", "stable-diffusion-1.5"),
            ("config_2.yaml", "config_2.yaml"),
            ("cifar-10", "cifar-10"),
            ("facade", "facade"),
            ("trunk2", "trunk2"),
            ("", ""),
            ("--", "--"),
            ("é2/日本3", "é2/日本3"),
        ] {
            assert_eq!(masked(text), wanted, "{text}");
        }
    }
}
