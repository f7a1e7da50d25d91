use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why other runs cannot be known, or cannot know of this one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something else has the folder's name.
    #[error(
        "`{}` is a symbolic link or no folder, and leases are only kept in a folder\n\
         hint: remove it, or set PACKHORSE_LEASES to another folder", path.display()
    )]
    NoFolder {
        /// What should have been a folder.
        path: PathBuf,
    },
    /// Anybody could remove anybody's lease.
    #[error(
        "others may write to the folder `{}`, and its sticky bit is not set: they could remove \
         any lease in it\n\
         hint: `chmod 1777` it, or set PACKHORSE_LEASES to another folder", path.display()
    )]
    NotSticky {
        /// The folder.
        path: PathBuf,
    },
    /// So many devices do not go into one lease.
    #[error("a lease of {devices} devices is longer than other runs would read")]
    TooLong {
        /// How many they are.
        devices: usize,
    },
    /// Somebody keeps the lock.
    #[error(
        "somebody has held the lock on `{}` for more than a second{}: until it is free, two runs \
         that start something at the same moment may promise the same GPU twice",
        path.display(), by(*holder)
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process that holds it, if that can be told.
        holder: Option<u32>,
    },
    /// The lock cannot be had at all.
    #[error(
        "`{}` cannot be locked: {reason}; two runs that start something at the same moment may \
         promise the same GPU twice\n\
         hint: set PACKHORSE_LEASES to a folder on a local file system", path.display()
    )]
    NoLock {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// The system refused; the message says what.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// The system's error with what was tried.
    pub(crate) fn system(errno: Errno, doing: &str, path: &Path) -> Self {
        let text = format!("failed to {doing} `{}`: {errno}", path.display());
        io::Error::new(errno.kind(), text).into()
    }
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
}
