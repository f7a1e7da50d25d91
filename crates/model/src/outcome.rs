use std::fmt;

use serde::{Deserialize, Serialize};

/// How an attempt, or in the end a task, came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "OutcomeParts", try_from = "OutcomeParts")]
pub enum Outcome {
    /// It ended with exit status 0.
    Succeeded,
    /// It ended with another exit status.
    Failed {
        /// The exit status, 1 to 255.
        code: i32,
    },
    /// A signal that we did not send ended it.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// It ran past its time limit and was ended.
    TimedOut,
    /// It could not be started at all: no such command, no such folder.
    NotStarted,
    /// It never ran, because a task it comes after did not succeed.
    Skipped,
    /// We ended it, or never started it, because the run was interrupted.
    Interrupted,
}

impl Outcome {
    /// Whether the task did what was wanted of it.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Succeeded)
    }

    /// Whether another attempt could come out better. A command that does not
    /// exist will not exist next time, and an interrupted run starts nothing.
    pub const fn is_worth_retrying(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Killed { .. } | Self::TimedOut)
    }

    /// Whether the task is settled: `resume` leaves it alone.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Interrupted)
    }

    /// One word for programs: the `outcome` of JSON lines and of the store.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Killed { .. } => "killed",
            Self::TimedOut => "timed-out",
            Self::NotStarted => "not-started",
            Self::Skipped => "skipped",
            Self::Interrupted => "interrupted",
        }
    }

    /// The number that belongs to the word: exit status or signal.
    pub const fn detail(self) -> Option<i32> {
        match self {
            Self::Failed { code } => Some(code),
            Self::Killed { signal } => Some(signal),
            _ => None,
        }
    }

    /// The inverse of [`Outcome::word`] and [`Outcome::detail`].
    pub(crate) fn from_parts(word: &str, detail: Option<i32>) -> Option<Self> {
        Some(match word {
            "succeeded" => Self::Succeeded,
            "failed" => Self::Failed { code: detail? },
            "killed" => Self::Killed { signal: detail? },
            "timed-out" => Self::TimedOut,
            "not-started" => Self::NotStarted,
            "skipped" => Self::Skipped,
            "interrupted" => Self::Interrupted,
            _ => return None,
        })
    }
}

/// An outcome as it is written: a word, and a number where one belongs to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct OutcomeParts {
    /// How it ended, in one word.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("enum" = [
            "succeeded", "failed", "killed", "timed-out", "not-started", "skipped", "interrupted"
        ]))
    )]
    outcome: String,
    /// The exit status if it failed, or the number of the signal if it was killed.
    #[serde(default)]
    detail: Option<i32>,
}

impl From<Outcome> for OutcomeParts {
    fn from(outcome: Outcome) -> Self {
        Self { outcome: outcome.word().to_owned(), detail: outcome.detail() }
    }
}

impl TryFrom<OutcomeParts> for Outcome {
    type Error = String;

    fn try_from(parts: OutcomeParts) -> Result<Self, Self::Error> {
        Self::from_parts(&parts.outcome, parts.detail)
            .ok_or_else(|| format!("`{}` is no outcome", parts.outcome))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Failed { code } => write!(f, "exit status {code}"),
            Self::Killed { signal } => match signal_name(*signal) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {signal}"),
            },
            Self::TimedOut => f.write_str("ran past its time limit"),
            Self::NotStarted => f.write_str("could not be started"),
            Self::Skipped => f.write_str("skipped: a task it comes after did not succeed"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Linux's names for the signals a process is likely to die of.
const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_the_store() {
        for outcome in [
            Outcome::Succeeded,
            Outcome::Failed { code: 3 },
            Outcome::Killed { signal: 9 },
            Outcome::TimedOut,
            Outcome::NotStarted,
            Outcome::Skipped,
            Outcome::Interrupted,
        ] {
            let back = Outcome::from_parts(outcome.word(), outcome.detail());
            assert_eq!(back, Some(outcome));
        }
        assert_eq!(Outcome::from_parts("failed", None), None);
        assert_eq!(Outcome::from_parts("fine", None), None);
    }
}
