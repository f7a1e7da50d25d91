use super::SelectError;

/// What somebody wrote after `--gpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `all`: every GPU that we may use, each a unit of its own.
    All,
    /// `none`: no GPU.
    None,
    /// These, each a group of one or more ids.
    Groups(Vec<Vec<String>>),
}

impl Selection {
    /// Parses the values of `--gpus`. Commas, spaces and separate values separate
    /// units; `+` joins the ids of a group; `0-3` is all from 0 to 3.
    pub fn parse<S: AsRef<str>>(values: &[S]) -> Result<Self, SelectError> {
        let mut groups = Vec::new();
        for value in values {
            let value = value.as_ref();
            let empty = || SelectError::EmptyId { text: value.to_owned() };
            let mut words = value.split_whitespace().peekable();
            words.peek().ok_or_else(empty)?;
            for unit in words.flat_map(|word| word.split(',')) {
                if let Some((first, last)) = range(unit) {
                    if first > last || last - first >= MOST_IN_RANGE {
                        return Err(SelectError::NotAnId { id: unit.into() });
                    }
                    groups.extend((first..=last).map(|index| vec![index.to_string()]));
                    continue;
                }
                let group: Vec<String> = unit.split('+').map(str::to_owned).collect();
                if group.iter().any(String::is_empty) {
                    return Err(empty());
                }
                if let Some(id) = group.iter().find(|id| range(id).is_some()) {
                    return Err(SelectError::NotAnId { id: id.clone() });
                }
                groups.push(group);
            }
        }
        // CUDA stops reading its list at a negative number, and a file of commands has
        // strayed in here.
        let is_uuid = |id: &str| id.starts_with("GPU-") || id.starts_with("MIG-");
        let is_no_id =
            |id: &&String| id.starts_with('-') || (id.contains(['.', '/']) && !is_uuid(id));
        if let Some(id) = groups.iter().flatten().find(is_no_id) {
            return Err(SelectError::NotAnId { id: id.clone() });
        }
        for (word, selection) in [("all", Self::All), ("none", Self::None)] {
            if groups.iter().flatten().any(|id| id == word) {
                let alone = groups.len() == 1 && groups[0].len() == 1;
                return alone.then_some(selection).ok_or(SelectError::NotAlone { word });
            }
        }
        if groups.is_empty() {
            return Err(SelectError::EmptyId { text: String::new() });
        }
        Ok(Self::Groups(groups))
    }
}

/// No machine has more GPUs than this.
const MOST_IN_RANGE: u32 = 1024;

/// The ends of `0-3`.
fn range(unit: &str) -> Option<(u32, u32)> {
    let (first, last) = unit.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(first) && digits(last)).then_some(())?;
    let number = |text: &str| text.parse().unwrap_or(u32::MAX);
    Some((number(first), number(last)))
}

/// Whether a word on the command line can only be a list of GPUs, so that the word
/// after `--gpus 0,1` may be a file. Never true for a word with a `.` or `/`.
pub fn looks_like_gpu_list(word: &str) -> bool {
    matches!(word, "all" | "none") || word.split([',', '+']).all(is_plain_id)
}

/// An index, or a UUID with only the characters that UUIDs have.
fn is_plain_id(id: &str) -> bool {
    let uuid = id.strip_prefix("GPU-").or_else(|| id.strip_prefix("MIG-"));
    match uuid {
        Some(rest) => {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        }
        None => range(id).is_some() || (!id.is_empty() && id.bytes().all(|b| b.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(values: &[&str]) -> Vec<String> {
        match Selection::parse(values) {
            Ok(Selection::Groups(groups)) => groups.iter().map(|ids| ids.join("&")).collect(),
            other => panic!("{values:?} is {other:?}"),
        }
    }

    #[test]
    fn commas_spaces_and_values_separate_units_and_plus_joins_them() {
        assert_eq!(groups(&["0,1,2"]), ["0", "1", "2"]);
        assert_eq!(groups(&["0", "1", "2"]), ["0", "1", "2"]);
        assert_eq!(groups(&["0 1"]), ["0", "1"]);
        assert_eq!(groups(&["0+1", "2+3"]), ["0&1", "2&3"]);
        assert_eq!(groups(&["0,1+2"]), ["0", "1&2"]);
        assert_eq!(groups(&["0-2,5"]), ["0", "1", "2", "5"]);
        assert_eq!(groups(&["GPU-1-2"]), ["GPU-1-2"]);
        assert_eq!(groups(&["GPU-5c2", "MIG-7,x:y"]), ["GPU-5c2", "MIG-7", "x:y"]);
    }

    #[test]
    fn all_and_none_stand_alone() {
        assert_eq!(Selection::parse(&["all"]), Ok(Selection::All));
        assert_eq!(Selection::parse(&["none"]), Ok(Selection::None));
        for values in [["all,0"], ["0+all"], ["none,all"], ["all,all"]] {
            let error = Selection::parse(&values);
            assert!(matches!(error, Err(SelectError::NotAlone { .. })), "{values:?} is {error:?}");
        }
    }

    #[test]
    fn nothing_is_no_id() {
        for value in ["", " ", ",", "0,", "0,,1", "+", "0+", "+1", "0 ,1"] {
            let error = Selection::parse(&[value]);
            assert!(matches!(error, Err(SelectError::EmptyId { .. })), "{value:?} is {error:?}");
        }
        assert!(Selection::parse::<&str>(&[]).is_err());
        assert_eq!(groups(&["MIG-GPU-5c2/1/0"]), ["MIG-GPU-5c2/1/0"]);
        for value in ["-1", "3-0", "0-9999", "0-99999999999", "0-1+2", "commands.txt", "dir/jobs"] {
            let error = Selection::parse(&[value]);
            assert!(matches!(error, Err(SelectError::NotAnId { .. })), "{value:?} is {error:?}");
        }
    }

    #[test]
    fn a_file_is_never_taken_for_gpus() {
        for word in ["all", "none", "0", "0,1,2", "0+1,2+3", "GPU-5c2a-1", "MIG-1,7"] {
            assert!(looks_like_gpu_list(word), "{word}");
        }
        for word in [
            "",
            "commands.txt",
            "0.txt",
            "./0",
            "0/1",
            "jobs",
            "-",
            "-1",
            "0,",
            "+",
            "GPU-",
            "GPU-1.txt",
            "GPU-a/b",
            "0,jobs",
            "all,0",
            "１",
        ] {
            assert!(!looks_like_gpu_list(word), "{word}");
        }
    }
}
