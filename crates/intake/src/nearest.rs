//! "Did you mean …": the known word that is closest to a mistyped one.

/// Nobody mistypes a word longer than this one so that it can be guessed, and
/// the comparison is quadratic in the length.
const LONGEST: usize = 64;

/// The candidate that takes the fewest edits to reach (letters added, dropped,
/// replaced or swapped with their neighbour), if it takes few enough that it was
/// probably meant. Of two as close, the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normalized(word)?;
    let length = word.chars().count();
    let allowed = (length / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let known = normalized(candidate)?;
            let edits = strsim::osa_distance(&word, &known);
            // Something of it must be left: `y` is no slip for `x`.
            let alike = edits < length.max(known.chars().count());
            (alike && edits <= allowed).then_some((edits, candidate))
        })
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// The hint.
pub fn did_you_mean(nearest: &str) -> String {
    format!("did you mean `{nearest}`?")
}

/// The word as it is compared: `Learning-Rate ` is `learning_rate`.
fn normalized(word: &str) -> Option<String> {
    let word = word.trim();
    (!word.is_empty() && word.len() <= LONGEST).then(|| word.replace('-', "_").to_ascii_lowercase())
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
