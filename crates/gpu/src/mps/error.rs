use std::io;
use std::path::PathBuf;
use std::time::Duration;

use packhorse_trust::user_name;

/// Why MPS did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum MpsError {
    /// The program that controls it is not installed.
    #[error(
        "cannot find `{}`, which controls MPS\n\
         hint: it comes with NVIDIA's driver; set PACKHORSE_MPS_CONTROL if it is \
         somewhere else, or run without --mps", .program.display()
    )]
    NotInstalled { program: PathBuf },
    /// The program that controls it cannot be started.
    #[error("cannot start `{}`: {source}\nhint: correct or unset PACKHORSE_MPS_CONTROL", .program.display())]
    Start {
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A command took too long.
    #[error(
        "MPS did not answer `{command}` within {} s\n\
         hint: the GPU or its MPS server may hang; look into control.log and server.log in {}",
        .after.as_secs_f32(), .logs.display()
    )]
    TimedOut {
        command: String,
        /// How long we waited.
        after: Duration,
        /// Where the daemon's logs are, or would be.
        logs: PathBuf,
    },
    /// The paths of a daemon's sockets would be too long.
    #[error(
        "the path {} is too long for MPS: those of its sockets may have at most {limit} bytes\n\
         hint: choose a state folder with a shorter path", .folder.display()
    )]
    PathTooLong {
        /// The pipe folder.
        folder: PathBuf,
        /// What the kernel allows.
        limit: usize,
    },
    /// A folder for the daemon cannot be created.
    #[error("cannot prepare a folder for MPS: {0}")]
    Folder(#[from] io::Error),
    /// No daemon answers.
    #[error("no MPS daemon is running in {}", .pipes.display())]
    NotRunning {
        /// The pipe folder.
        pipes: PathBuf,
    },
    /// It is somebody else's daemon.
    #[error(
        "the MPS daemon in {} was started by somebody else and is not ours to stop\n\
         hint: stop it with `echo quit | {}={0} nvidia-cuda-mps-control`",
        .pipes.display(), super::PIPE_VARIABLE
    )]
    NotOurs {
        /// The pipe folder.
        pipes: PathBuf,
    },
    /// What is where clients look for a daemon is another user's, who could see all they do.
    #[error("the MPS daemon at {} is not used: {what} belongs to {}, not to you or root", .pipes.display(), user(*.owner))]
    Foreign {
        /// The pipe folder.
        pipes: PathBuf,
        /// What of it.
        what: &'static str,
        /// Whose it is.
        owner: u32,
    },
    /// It was told to end, but did not.
    #[error(
        "the MPS daemon in {} has not ended{}\n\
         hint: its clients may still run", .pipes.display(), process(*.pid)
    )]
    StillRunning {
        /// The pipe folder.
        pipes: PathBuf,
        /// The daemon's process, if it is known.
        pid: Option<u32>,
    },
    /// It gave an unexpected answer.
    #[error("MPS refused `{command}`: {answer}{}", hint(.answer))]
    Refused { command: String, answer: String },
}

fn user(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|| format!("user {uid}"))
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// What to do about an answer.
fn hint(answer: &str) -> &'static str {
    let answer = answer.to_ascii_lowercase();
    if answer.contains("permission") || answer.contains("permitted") {
        "\nhint: this user may not use the GPU or this daemon: a daemon serves only the user who \
         started it"
    } else if answer.contains("exclusive") {
        "\nhint: a GPU in exclusive process mode has room for one daemon's server and nothing \
         else; `nvidia-smi -c DEFAULT` changes that"
    } else {
        ""
    }
}
