use std::io;
use std::path::PathBuf;

use packhorse_model::RunId;
use packhorse_session::SessionError;
use packhorse_store::StoreError;

/// What keeps a run from going to the cluster, or from being followed there.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// Slurm's commands are not here.
    #[error(
        "there is no `{0}` on the PATH\n\
         hint: --slurm is for machines that have Slurm's commands, such as the login node of a cluster"
    )]
    NoCommand(&'static str),
    /// Slurm refused something.
    #[error("{doing}: {said}")]
    Refused {
        /// What was tried.
        doing: String,
        /// Slurm's own words.
        said: String,
    },
    /// Slurm did not answer as it should.
    #[error("`{command}` answered `{answer}`, which means nothing here")]
    Nonsense {
        /// What was asked.
        command: &'static str,
        /// What came.
        answer: String,
    },
    /// Nobody knows whether Slurm has taken a job.
    #[error("{error}\nit is not known whether Slurm has taken the job all the same{rest}")]
    Unanswered {
        /// What is known.
        error: Box<SlurmError>,
        /// Why no more is.
        rest: String,
    },
    /// Jobs are on a cluster that cannot be asked from here.
    #[error(
        "the jobs are on the cluster `{theirs}`, and this machine belongs to `{here}`: {error}\n\
         hint: type this where you log in to `{theirs}`"
    )]
    OtherCluster {
        /// Where the jobs are.
        theirs: String,
        /// Where we are.
        here: String,
        /// What Slurm says when it is asked for the other.
        error: Box<SlurmError>,
    },
    /// A signal came before anything was submitted.
    #[error("nothing was submitted")]
    Stopped(u8),
    /// Only some of the arrays were submitted.
    #[error("{error}\n{rest}")]
    HalfSubmitted {
        /// Why not all.
        error: Box<SlurmError>,
        /// What has become of the others, and what to do.
        rest: String,
    },
    /// What is asked for makes no sense.
    #[error("{0}")]
    Plan(String),
    /// There are no tasks.
    #[error("there were no commands in the input, so nothing was submitted")]
    NoTasks,
    /// Lines of the input were no tasks.
    #[error("nothing was submitted")]
    Rejected,
    /// A run that never went to Slurm.
    #[error("run {0} is not on Slurm\nhint: `packhorse show {0}` shows it")]
    NotOnSlurm(RunId),
    /// There is no run on Slurm.
    #[error("there is no run on Slurm yet\nhint: start one with `packhorse run --slurm`")]
    NoRun,
    /// The folder of a run is gone.
    #[error(
        "the folder of run {run} is not there: {path}\n\
         hint: what was read of it before is in `packhorse show {run}`"
    )]
    FolderGone {
        run: RunId,
        /// Where it was.
        path: PathBuf,
    },
    /// A file in the shared folder cannot be understood.
    #[error("{path} is damaged: {source}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The person's template.
    #[error("{path}: {message}")]
    Template {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// This is no job of Slurm.
    #[error("{0} is not set\nhint: `packhorse slurm element` runs inside a job of Slurm")]
    NoJob(&'static str),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file.
    #[error(transparent)]
    Io(#[from] io::Error),
}
