use std::fs::Metadata;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use fs_err::OpenOptions;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::OFlags;

/// How much of the end of a log is looked at: an error is among the last things a program
/// writes, but a launcher may add its own report of every worker.
const TAIL: u64 = 256 * 1024;

/// The end of a log, if there is one.
pub(crate) fn read_tail(log: &Path) -> Option<Vec<u8>> {
    // An attempt that wrote nothing has no log. What is no file, such as a pipe or a
    // terminal, is not waited for.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(log);
    let mut file = file.ok()?;
    let about = file.metadata().ok().filter(Metadata::is_file)?;
    let length = about.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("1.1.log");
        let mut text = vec![b'.'; 3 << 20];
        text.extend_from_slice(b"CUDA out of memory\n");
        fs_err::write(&log, &text).unwrap();
        let tail = read_tail(&log).unwrap();
        assert_eq!(tail.len() as u64, TAIL);
        assert!(tail.ends_with(b"CUDA out of memory\n"));
        assert_eq!(read_tail(&folder.path().join("none")), None);
    }
}
