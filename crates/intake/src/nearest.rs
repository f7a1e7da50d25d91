//! "Did you mean …": the known word that is closest to a mistyped one.

/// Nobody mistypes a word longer than this one so that it can be guessed, and
/// the comparison is quadratic in the length.
const LONGEST: usize = 64;

/// The candidate that takes the fewest edits to reach, if it takes few enough
/// that it was probably meant. Of two as close, the first.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = letters(word)?;
    let allowed = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let known = letters(candidate)?;
            let edits = edits(&word, &known);
            // Something of it must be left: `y` is no slip for `x`.
            let alike = edits < word.len().max(known.len());
            (alike && edits <= allowed).then_some((edits, candidate))
        })
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// The word as it is compared: `Learning-Rate ` is `learning_rate`.
fn letters(word: &str) -> Option<Vec<char>> {
    let word = word.trim();
    (!word.is_empty() && word.len() <= LONGEST).then(|| {
        word.chars()
            .map(|c| match c {
                '-' => '_',
                c => c.to_ascii_lowercase(),
            })
            .collect()
    })
}

/// How many letters to add, drop, replace or swap with their neighbour.
fn edits(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["gpus", "cores", "priority", "retries", "learning_rate", "y"];
        for (typed, wanted) in [
            ("gpu", Some("gpus")),
            ("GPUS", Some("gpus")),
            ("gpsu", Some("gpus")),
            ("retrys", Some("retries")),
            (" learning-rate ", Some("learning_rate")),
            ("banana", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), wanted, "{typed}");
        }
    }
}
