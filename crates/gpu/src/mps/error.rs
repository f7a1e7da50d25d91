use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// MPS did not do what it was told to.
#[derive(Debug, thiserror::Error)]
pub enum MpsError {
    /// The program that controls it is not there.
    #[error(
        "cannot find `{}`, which controls MPS\n\
         hint: it comes with NVIDIA's driver; name it with PACKHORSE_MPS_CONTROL if it is \
         somewhere else, or run without --mps", .program.display()
    )]
    NotInstalled {
        /// The program.
        program: PathBuf,
    },
    /// The program that controls it cannot be started.
    #[error("cannot start `{}`: {source}\nhint: correct or unset PACKHORSE_MPS_CONTROL", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A command took too long.
    #[error(
        "MPS did not answer to `{command}` within {} s\n\
         hint: the GPU or its MPS server may hang; look into control.log and server.log in {}",
        .after.as_secs_f32(), .logs.display()
    )]
    TimedOut {
        /// The command.
        command: String,
        /// How long it was waited for.
        after: Duration,
        /// Where the daemon's logs are, or would be.
        logs: PathBuf,
    },
    /// The sockets of a daemon would have names that are too long.
    #[error(
        "the folder {} is too deep for MPS: the names of its sockets may have {limit} bytes\n\
         hint: choose a state folder with a shorter path", .folder.display()
    )]
    TooDeep {
        /// The pipe folder.
        folder: PathBuf,
        /// What the kernel allows.
        limit: usize,
    },
    /// A folder for the daemon cannot be made.
    #[error("cannot prepare a folder for MPS: {0}")]
    Folder(#[from] io::Error),
    /// No daemon answers.
    #[error("no MPS daemon runs in {}", .pipes.display())]
    NotRunning {
        /// The pipe folder.
        pipes: PathBuf,
    },
    /// It is somebody else's daemon.
    #[error(
        "the MPS daemon in {} was started by somebody else, and is not ours to stop\n\
         hint: stop it with `echo quit | {}={0} nvidia-cuda-mps-control`",
        .pipes.display(), super::PIPE_VARIABLE
    )]
    NotOurs {
        /// The pipe folder.
        pipes: PathBuf,
    },
    /// It was told to end, and did not.
    #[error(
        "the MPS daemon in {} has not ended{}\n\
         hint: its clients may still run", .pipes.display(), process(*.pid)
    )]
    StillRunning {
        /// The pipe folder.
        pipes: PathBuf,
        /// The daemon, where it is known.
        pid: Option<u32>,
    },
    /// It answered something else than expected.
    #[error("MPS refused `{command}`: {answer}{}", hint(.answer))]
    Refused {
        /// The command.
        command: String,
        /// Its words.
        answer: String,
    },
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// What to do about what MPS says.
fn hint(answer: &str) -> &'static str {
    let answer = answer.to_ascii_lowercase();
    if answer.contains("permission") || answer.contains("permitted") {
        "\nhint: this user may not use the GPU, or not this daemon: another user's daemon serves \
         him alone"
    } else if answer.contains("exclusive") {
        "\nhint: a GPU in exclusive process mode has place for one daemon's server and nothing \
         beside it; `nvidia-smi -c DEFAULT` changes that"
    } else {
        ""
    }
}
