use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// The name of a user's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserFolderName {
    pub(crate) uid: u32,
    random: u64,
}

impl UserFolderName {
    pub(crate) fn random(uid: u32) -> io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        let random = u64::from_ne_bytes(bytes);
        Ok(Self { uid, random })
    }

    pub(crate) fn parse(folder: &[u8]) -> Option<Self> {
        let text = str::from_utf8(folder).ok()?;
        let (uid, random) = text.split_once('-')?;
        let name = Self { uid: uid.parse().ok()?, random: u64::from_str_radix(random, 16).ok()? };
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for UserFolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.uid, self.random)
    }
}

/// The process that holds a lease; without the user, the name of the lease's file in the
/// user's folder. A process id may be reused; together with the start time it is unique until
/// the next boot.
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
    pub(crate) fn parse(uid: u32, file: &[u8]) -> Option<Self> {
        let text = str::from_utf8(file).ok()?;
        let (pid, start) = text.split_once('-')?;
        let name =
            Self { uid, pid: pid.parse().ok().filter(|&pid| pid > 0)?, start: start.parse().ok()? };
        // `+7` and `007` are numbers as well, but a process has only one name.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_it_is_written_and_in_no_other_way() {
        let name = LeaseName { uid: 1000, pid: 42, start: u64::MAX };
        let parse = |text: &[u8]| LeaseName::parse(1000, text);
        assert_eq!(parse(name.to_string().as_bytes()), Some(name));
        assert_eq!(parse(name.draft().as_bytes()), None);
        for wrong in [
            "",
            "42",
            "0-5",
            "01-2",
            "+2-3",
            "1-2-3",
            "1--3",
            "-1-2",
            "1-2 ",
            "2-18446744073709551616",
            "4294967296-2",
            "1-2.old",
            ".new",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse(b"1-\xff"), None);
    }

    #[test]
    fn a_folders_name_reads_as_it_is_written_and_in_no_other_way() {
        let name = UserFolderName::random(1000).unwrap();
        let parse = |text: &str| UserFolderName::parse(text.as_bytes());
        assert_eq!(parse(&name.to_string()), Some(name));
        assert_ne!(UserFolderName::random(1000).unwrap(), name);
        for wrong in [
            "1000",
            "1000-",
            "1000-12",
            "1000-0123456789ABCDEF",
            "01000-0123456789abcdef",
            "1000-+123456789abcdef",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
