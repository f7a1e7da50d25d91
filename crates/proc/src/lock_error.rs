use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The error of locking a file with `flock(2)`. Not every file system can: Lustre has to be
/// mounted with `-o flock`, and NFS needs a lock service.
pub fn lock_error(path: &Path, errno: Errno) -> io::Error {
    let hint = match errno {
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK => {
            "\nhint: its file system has no locks, as Lustre mounted without `-o flock`: set \
             PACKHORSE_HOME to a folder on another, such as a local disk"
        }
        _ => "",
    };
    let text = format!("`{}` cannot be locked: {errno}{hint}", path.display());
    io::Error::new(errno.kind(), text)
}
