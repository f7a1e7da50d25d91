use std::io::{self, Read};
use std::path::Path;

use fs_err::File;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::{FileType, FsWord, OFlags, fcntl_setfl, fstat, fstatfs, major, minor};

/// The kernel's number for the file system of pipes without a name.
const PIPES: FsWord = 0x5049_5045;

/// The largest table of commands that is read as a whole, in bytes.
pub const LARGEST_TABLE: u64 = 256 << 20;

/// The largest file of settings that is read as a whole, in bytes: a grid, experiments, a
/// template. What is made of one takes many times its size.
pub const LARGEST_SETTINGS: u64 = 64 << 20;

/// The contents of a file that the user named: a regular file, or a pipe, such as the shell
/// makes of `<(command)`. More than `limit` bytes are an error.
pub fn read_whole(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    refuse_devices(file.file(), &path.display().to_string())?;
    read_to_limit(file, &path.display().to_string(), limit)
}

/// What is in a file that a person has named where a command that waits would be a surprise: the
/// same, except for a pipe with a name, which may have no writer.
pub fn read_at_once(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_at_once(path)?;
    let name = path.display().to_string();
    refuse_devices(file.file(), &name)?;
    let is_pipe = FileType::from_raw_mode(fstat(file.file())?.st_mode) == FileType::Fifo;
    if is_pipe && fstatfs(file.file())?.f_type != PIPES {
        return Err(is_no_file(&name, word(FileType::Fifo)));
    }
    fcntl_setfl(file.file(), OFlags::empty())?;
    read_to_limit(file, &name, limit)
}

fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = fs_err::OpenOptions::new();
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0);
    options.read(true).custom_flags(flags).open(path)
}

/// What is in a file that another file names, or that was found: a regular file. A pipe
/// would be waited for, and is an error.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    read_to_limit(file, &path.display().to_string(), limit)
}

/// Opens a regular file; anything else is an error, and is not waited for.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    match FileType::from_raw_mode(fstat(file.file())?.st_mode) {
        FileType::RegularFile => Ok(file),
        kind => Err(is_no_file(&path.display().to_string(), word(kind))),
    }
}

/// Reads an open input, such as standard input, up to a limit.
pub fn read_to_limit(input: impl Read, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= limit {
        return Ok(bytes);
    }
    let message = format!(
        "`{name}` is larger than {} MiB, which is the most that is read of such a file",
        limit >> 20
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

/// The text of a file.
pub fn utf8(bytes: Vec<u8>, name: &str) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("`{name}` is not UTF-8")))
}

/// An error for what is no text that somebody wrote: folders, disks, and devices such as
/// `/dev/zero`. Terminals and `/dev/null` may be read.
pub fn refuse_devices(file: &std::fs::File, name: &str) -> io::Result<()> {
    let stat = fstat(file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_null = (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3);
    match kind {
        FileType::CharacterDevice if is_null || rustix::termios::isatty(file) => Ok(()),
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Directory => {
            Err(is_no_file(name, word(kind)))
        }
        _ => Ok(()),
    }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "folder",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "device",
    }
}

fn is_no_file(name: &str, kind: &str) -> io::Error {
    let message = format!("`{name}` is a {kind}, not a regular file");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_what_is_regular_and_not_too_large_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs_err::write(&path, "12345").unwrap();
        let fifo = folder.path().join("fifo");
        mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_whole(&path, 5).unwrap(), b"12345");
        let regular = |path: &Path| read_regular(path, 4).unwrap_err().to_string();
        assert!(regular(&path).contains("file` is larger than 0 MiB"), "{}", regular(&path));
        assert!(regular(&fifo).contains("is a pipe, not a regular file"), "{}", regular(&fifo));
        for (device, kind) in [("/dev/zero", "device"), ("/dev/null", "device"), ("/", "folder")] {
            let message = regular(Path::new(device));
            assert_eq!(message, format!("`{device}` is a {kind}, not a regular file"));
        }
        let at_once = |path: &Path| read_at_once(path, 5).map_err(|error| error.to_string());
        assert_eq!(at_once(&path).unwrap(), b"12345");
        assert_eq!(at_once(Path::new("/dev/null")).unwrap(), b"");
        assert!(at_once(&fifo).unwrap_err().contains("is a pipe, not a regular file"));
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"text").unwrap();
        drop(writer);
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&reader);
        assert_eq!(at_once(Path::new(&format!("/dev/fd/{descriptor}"))).unwrap(), b"text");
        let whole = |path: &str| read_whole(Path::new(path), 4);
        assert_eq!(whole("/dev/null").unwrap(), b"");
        for device in ["/dev/zero", "/dev/urandom", "/"] {
            assert!(whole(device).unwrap_err().to_string().contains("not a regular file"));
        }
    }
}
