use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// What the `packhorse` process tells its caller when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u8", from = "u8")]
pub enum Exit {
    /// Everything that was asked for succeeded.
    Success,
    /// Some task failed.
    TasksFailed,
    /// Wrong usage or wrong input; nothing was started.
    Usage,
    /// A signal ended the run before its work was done.
    Signal(u8),
}

impl Exit {
    /// The number, as a shell shows it in `$?`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::TasksFailed => 1,
            Self::Usage => 2,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        exit.code()
    }
}

impl From<u8> for Exit {
    fn from(code: u8) -> Self {
        match code {
            0 => Self::Success,
            2 => Self::Usage,
            128.. => Self::Signal(code - 128),
            _ => Self::TasksFailed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
