use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::process::is_shortage;

/// Why this run cannot know about others, or others about it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Something that is not a folder has the folder's path.
    #[error(
        "`{}` is not a folder or is a symbolic link; leases can only be kept in a folder\n\
         hint: remove it, or set PACKHORSE_LEASES to another folder", path.display()
    )]
    NotAFolder { path: PathBuf },
    /// Anybody could remove any lease.
    #[error(
        "other users may write to the folder `{}` and its sticky bit is not set: they could \
         remove any lease in it\n\
         hint: `chmod 1777` it, or set PACKHORSE_LEASES to another folder", path.display()
    )]
    NotSticky {
        /// The folder.
        path: PathBuf,
    },
    /// There are too many devices for one lease.
    #[error("a lease of {devices} devices is too long for other runs to read")]
    TooLong {
        /// How many there are.
        devices: usize,
    },
    /// Somebody does not release the lock.
    #[error(
        "somebody has held the lock on `{}` for three seconds{}: until it is free, two runs \
         that start tasks at the same moment may use the same GPU",
        path.display(), by(*holder)
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process that holds it, if that can be told.
        holder: Option<u32>,
    },
    /// The folder cannot be locked at all.
    #[error(
        "`{}` cannot be locked: {reason}; two runs that start tasks at the same moment may use \
         the same GPU\n\
         hint: set PACKHORSE_LEASES to a folder on a local file system", path.display()
    )]
    NoLock {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// There are too many open files, or too little memory, to look at what others hold.
    #[error(
        "what other runs hold cannot be seen at the moment: {reason}\n\
         hint: `ulimit -n` shows how many files a process may open"
    )]
    Shortage {
        /// What the system said.
        reason: io::Error,
    },
    /// One user has more leases than can be followed.
    #[error(
        "what other runs hold cannot be seen at the moment: more than {most} runs of user {uid} \
         hold GPUs; nothing is started until some of them have ended"
    )]
    TooMany {
        /// The user.
        uid: u32,
        /// How many can be followed.
        most: usize,
    },
    /// The system refused; the message says what.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LeaseError {
    /// Whether others may hold what is not seen: nothing that they could hold must be taken
    /// for free.
    pub const fn hides_others(&self) -> bool {
        matches!(self, Self::Shortage { .. } | Self::TooMany { .. })
    }

    /// The system's error, with what was tried.
    pub(crate) fn system(errno: Errno, doing: &str, path: &Path) -> Self {
        if is_shortage(errno) {
            let reason = errno.into();
            return Self::Shortage { reason };
        }
        let text = format!("failed to {doing} `{}`: {errno}", path.display());
        io::Error::new(errno.kind(), text).into()
    }
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
}
