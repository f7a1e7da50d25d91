//! Names with `*` and `?`, as in a shell. The filters in Lua read the same.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A name, in which `*` stands for any text and `?` for any character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Whether it is the pattern of this name.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut place) = (0, 0);
        // Where to go on if the last `*` has to stand for one character more.
        let mut again: Option<(usize, usize)> = None;
        while place < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    again = Some((at + 1, place));
                    at += 1;
                }
                Some(&wanted) if wanted == b'?' || wanted == name[place] => {
                    at += 1;
                    place += 1;
                }
                _ => {
                    let Some((after, from)) = again else {
                        return false;
                    };
                    again = Some((after, from + 1));
                    (at, place) = (after, from + 1);
                }
            }
        }
        pattern[at..].iter().all(|&rest| rest == b'*')
    }

    /// Whether one of them is.
    pub fn any(patterns: &[Self], name: &str) -> bool {
        patterns.iter().any(|pattern| pattern.matches(name))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // What the small reader in the filters could read differently is not written.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.*?@+:/=".contains(c);
        if text.is_empty() || !text.chars().all(is_plain) {
            return Err(serde::de::Error::custom(format!(
                "`{text}` is no name or pattern\n\
                 hint: letters, digits and _ - . @ + : / =, with * for any text and ? for any character"
            )));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text_and_question_marks_for_one_character() {
        for (pattern, name, matches) in [
            ("alice", "alice", true),
            ("alice", "alice2", false),
            ("jupyterhub_course_*", "jupyterhub_course_ml", true),
            ("jupyterhub_course_*", "jupyterhub_course", false),
            ("*jhl_homework_gpu*", "2024_jhl_homework_gpu_b", true),
            ("*a*b", "xaxbab", true),
            ("*a*b", "xaxba", false),
            ("st?", "st1", true),
            ("st?", "st", false),
            ("*", "", true),
            ("", "", true),
            ("a", "", false),
        ] {
            let pattern = Pattern(pattern.to_owned());
            assert_eq!(pattern.matches(name), matches, "{pattern} {name}");
        }
    }
}
