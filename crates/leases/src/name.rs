use std::fmt;

/// Whose lease it is: the name of its file. A process's number may be used
/// again; with its start time, nothing else has that name until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) uid: u32,
    pub(crate) pid: u32,
    /// In the kernel's ticks since boot.
    pub(crate) start: u64,
}

const DRAFT: &str = ".new";

impl Name {
    /// What the lease is called until it is whole.
    pub(crate) fn draft(self) -> String {
        format!("{self}{DRAFT}")
    }

    /// `None` for a file that is no lease, or not a whole one.
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let text = str::from_utf8(file).ok()?;
        let mut parts = text.splitn(3, '-');
        let name = Self {
            uid: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok().filter(|&pid| pid > 0)?,
            start: parts.next()?.parse().ok()?,
        };
        // `+7` and `007` are numbers as well: one process, one name.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.uid, self.pid, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_is_written_and_in_no_other_way() {
        let name = Name {
            uid: 1000,
            pid: 42,
            start: u64::MAX,
        };
        assert_eq!(Name::parse(name.to_string().as_bytes()), Some(name));
        assert_eq!(Name::parse(name.draft().as_bytes()), None);
        for wrong in [
            "",
            "1000",
            "1000-42",
            "1000-0-5",
            "01-2-3",
            "1-+2-3",
            "1-2-3-4",
            "1-2--3",
            "-1-2-3",
            "1-2-3 ",
            "1-2-18446744073709551616",
            "4294967296-2-3",
            "1-2-3.old",
            ".new",
        ] {
            assert_eq!(Name::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Name::parse(b"1-2-\xff"), None);
    }
}
