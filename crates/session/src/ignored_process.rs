//! Processes whose memory is not held against a device.

use std::str::FromStr;

use packhorse_proc::ProcEntry;

/// Processes whose memory is not held against a device, as people write them: a name,
/// `uid:1000`, or a process id, also as `pid:7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoredProcess {
    /// Every one of a program.
    Program(String),
    /// Every one of a user.
    User(u32),
    Process(u32),
}

impl FromStr for IgnoredProcess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(user) = text.strip_prefix("uid:") {
            let wrong =
                |_| format!("`{user}` is not the number of a user; `id -u {user}` may tell it");
            return user.parse().map(Self::User).map_err(wrong);
        }
        let process = text.strip_prefix("pid:");
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match process.unwrap_or(text) {
            "" => Err("it names nobody".to_owned()),
            number if process.is_some() || digits => {
                let wrong = |_| format!("`{number}` is not the number of a process");
                number.parse().map(Self::Process).map_err(wrong)
            }
            program => Ok(Self::Program(program.to_owned())),
        }
    }
}

impl IgnoredProcess {
    /// Whether a process is one of them.
    pub(crate) fn is(&self, pid: u32) -> bool {
        let process = ProcEntry::of(pid);
        match self {
            Self::Process(ignored) => *ignored == pid,
            Self::User(uid) => process.owner().is_ok_and(|owner| owner == *uid),
            Self::Program(name) => {
                let command = process.command_line().unwrap_or_default();
                let program = command.split(|&byte| byte == 0).next().unwrap_or_default();
                let base = program.rsplit(|&byte| byte == b'/').next();
                let comm = process.command_name();
                base == Some(name.as_bytes()) || comm.is_ok_and(|comm| comm == name.as_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_program_user_or_number() {
        let read = |text: &str| text.parse::<IgnoredProcess>();
        assert_eq!(read("uid:1000"), Ok(IgnoredProcess::User(1000)));
        assert_eq!(read("7"), Ok(IgnoredProcess::Process(7)));
        assert_eq!(read("pid:7"), Ok(IgnoredProcess::Process(7)));
        assert_eq!(read("Xorg"), Ok(IgnoredProcess::Program("Xorg".to_owned())));
        for wrong in ["", "uid:ann", "pid:", "pid:x", "99999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
