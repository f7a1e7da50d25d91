//! Files that tasks are read from.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err::File;
use packhorse_model::{InputFile, printable};
use packhorse_proc::refuse_devices;

use crate::SessionError;
use crate::source::InputStream;

/// Opens everything before anything starts. `-` is standard input, and so is nothing at
/// all.
pub fn open_inputs(files: &[PathBuf]) -> Result<VecDeque<InputStream>, SessionError> {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    files.iter().map(|path| open(path)).collect()
}

fn open(path: &Path) -> Result<InputStream, SessionError> {
    let (name, file) = if path == Path::new("-") {
        let file = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0);
        let closed = |error| SessionError::Rendered(format!("standard input is closed: {error}"));
        let name = "standard input";
        (name.to_owned(), File::from_parts(file.map_err(closed)?.into(), name))
    } else {
        (path.display().to_string(), File::open(path)?)
    };
    if file.metadata()?.is_dir() {
        let name = printable(&name);
        let text = format!("{name} is a folder, not a file with commands");
        return Err(SessionError::Rendered(text));
    }
    refuse_devices(file.file(), &name)?;
    Ok(InputStream { name, file })
}

/// What is to be remembered of an open file; nothing of a pipe.
pub fn input_file(file: &File) -> Option<InputFile> {
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    // Standard input has no name of its own, but the file behind it has.
    let name = format!("/proc/self/fd/{}", file.file().as_raw_fd());
    Some(InputFile {
        path: fs_err::read_link(name).ok()?,
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        start: rustix::fs::tell(file.file()).ok()?,
    })
}

/// Opens files again, if all of them are still the same.
pub fn open_again(files: &[InputFile]) -> Option<VecDeque<InputStream>> {
    let open = |known: &InputFile| {
        let file = File::open(&known.path).ok()?;
        rustix::fs::seek(file.file(), rustix::fs::SeekFrom::Start(known.start)).ok()?;
        (input_file(&file)? == *known)
            .then(|| InputStream { name: known.path.display().to_string(), file })
    };
    let streams: Option<VecDeque<_>> = files.iter().map(open).collect();
    streams.filter(|streams| !streams.is_empty())
}
