//! Files that only we, or root, can have written.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// No file of ours is larger.
const MOST: u64 = 1 << 16;

/// Whether nobody but root, or whoever runs this program, could have written it.
pub fn is_trusted(metadata: &Metadata) -> bool {
    // SAFETY: it cannot fail, and touches no memory.
    let us = unsafe { libc::geteuid() };
    (metadata.uid() == 0 || metadata.uid() == us) && metadata.mode() & 0o022 == 0
}

/// What is in a small file that can be trusted. Follows no link, and waits for no pipe.
pub fn read_trusted(path: &Path) -> io::Result<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if !is_trusted(&metadata) {
        return Err(io::Error::other("somebody other than root could have written it"));
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other("it is too large"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs_err::write(&file, "text").unwrap();
        let mode = |mode| fs_err::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert_eq!(read_trusted(&file).unwrap(), "text");
        for writable in [0o664, 0o646] {
            mode(writable);
            assert!(read_trusted(&file).is_err(), "{writable:o}");
        }
        mode(0o600);
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(read_trusted(&link).is_err(), "a link");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(read_trusted(&pipe).is_err(), "a pipe");
        fs_err::write(&file, "x".repeat(1 << 17)).unwrap();
        assert!(read_trusted(&file).is_err(), "too large");
    }
}
