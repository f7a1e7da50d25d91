use std::fmt;

/// The name of a lease's file: the process that holds it. A process id may be reused; together
/// with the start time it is unique until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseName {
    pub(crate) uid: u32,
    pub(crate) pid: u32,
    /// In the kernel's ticks since boot.
    pub(crate) start: u64,
}

const DRAFT: &str = ".new";

impl LeaseName {
    /// The name of the file until it is complete.
    pub(crate) fn draft(self) -> String {
        format!("{self}{DRAFT}")
    }

    /// `None` if the file is not a complete lease.
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let text = str::from_utf8(file).ok()?;
        let mut parts = text.splitn(3, '-');
        let name = Self {
            uid: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok().filter(|&pid| pid > 0)?,
            start: parts.next()?.parse().ok()?,
        };
        // `+7` and `007` are numbers as well, but a process has only one name.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.uid, self.pid, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_is_written_and_in_no_other_way() {
        let name = LeaseName {
            uid: 1000,
            pid: 42,
            start: u64::MAX,
        };
        assert_eq!(LeaseName::parse(name.to_string().as_bytes()), Some(name));
        assert_eq!(LeaseName::parse(name.draft().as_bytes()), None);
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
            assert_eq!(LeaseName::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(LeaseName::parse(b"1-2-\xff"), None);
    }
}
