//! Which commit the code is at, asked for once per run.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use packhorse_gpu::mps::SERVICE_VARIABLE;
use packhorse_gpu::short_command;
use packhorse_model::GitState;

/// How long git may take: in a large repository on a slow disk, seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the end of a run waits for git's answer, if it is not there by then.
const WAIT: Duration = Duration::from_secs(2);

/// What git says of the current folder, as soon as it is known.
pub(crate) enum GitLookup {
    /// Nobody has asked.
    Unasked,
    /// A thread asks.
    Asked(Receiver<Option<GitState>>),
    /// It has answered, or takes too long.
    Known(Option<GitState>),
}

impl GitLookup {
    /// Begins to ask, if nobody has.
    pub(crate) fn ask(&mut self) {
        if !matches!(self, Self::Unasked) {
            return;
        }
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("git".to_owned());
        let asked = thread.spawn(move || {
            // Nobody may want to know any more.
            let _ = sender.send(look());
        });
        *self = match asked {
            Ok(_) => Self::Asked(receiver),
            Err(_) => Self::Known(None),
        };
    }

    /// What git says, if it has answered by now.
    pub(crate) fn answer(&mut self) -> Option<&Option<GitState>> {
        if let Self::Asked(receiver) = self
            && let Ok(answer) = receiver.try_recv()
        {
            *self = Self::Known(answer);
        }
        match self {
            Self::Known(answer) => Some(answer),
            _ => None,
        }
    }

    /// The same, after a last wait.
    pub(crate) fn last_answer(&mut self) -> Option<GitState> {
        if let Self::Asked(receiver) = self {
            *self = Self::Known(receiver.recv_timeout(WAIT).unwrap_or_default());
        }
        self.answer().cloned().flatten()
    }
}

/// Asks git. Nothing if this is no repository, or has no commit yet.
fn look() -> Option<GitState> {
    let arguments = [
        "status",
        "--porcelain=v2",
        "--branch",
        // Results are often written into the repository: they make no other code.
        "--untracked-files=no",
    ];
    // It may be run beside somebody who is at work there.
    // Nor is it, or what it starts, one of a task's processes.
    let variables = [("GIT_OPTIONAL_LOCKS", "0"), (SERVICE_VARIABLE, "git")];
    let variables = variables.map(|(name, value)| (name, OsStr::new(value)));
    let output = short_command::run(Path::new("git"), &arguments, &variables, "", PATIENCE);
    parse(&output.ok()?.output)
}

fn parse(output: &str) -> Option<GitState> {
    let mut lines = output.lines();
    let commit = lines.find_map(|line| line.strip_prefix("# branch.oid "))?;
    let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let dirty = output.lines().any(|line| !line.starts_with('#'));
    is_commit.then(|| GitState { commit: commit.to_owned(), dirty })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_is_understood() {
        let commit = "05c98607c6e2b71b2a4e9eaf42b1cf2ff9a13b01";
        let clean = format!("# branch.oid {commit}\n# branch.head main\n");
        let state = parse(&clean).unwrap();
        assert_eq!((state.commit.as_str(), state.dirty), (commit, false));
        let dirty = format!("{clean}1 .M N... 100644 100644 100644 a b file\n");
        assert!(parse(&dirty).unwrap().dirty);
        assert_eq!(parse("# branch.oid (initial)\n"), None);
        assert_eq!(parse("fatal: not a git repository\n"), None);
    }
}
