//! The log of one attempt.
//!
//! `N.A.log` holds what the attempt wrote, byte for byte, standard output and
//! standard error together in the order in which they arrived: any pager reads
//! it. Which bytes belong to which stream is kept beside it, in `N.A.idx`: one
//! record for each change of stream. A log without an index is all standard
//! output. Neither file exists before there is something to write. An attempt may
//! have its log in a place of its own ([`crate::own_log`]), where it is made before the
//! attempt starts; its index stays where it would be.
//!
//! An attempt can also be given the log itself to write to. Then it goes on writing
//! when we are dead, and nobody knows which bytes are of which stream.
//!
//! A log that cannot be written (disk full, folder gone) never stops the
//! attempt: its output is thrown away from there on, and the reason is told once.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use fs_err::{File, OpenOptions};

use crate::own_log::{ClaimError, ClaimedLog, claim, find_log, keep_emptiness, keep_identity};
use packhorse_model::Stream;
use packhorse_trust::{ensure_private_folder, make_private};
use rustix::fs::{OFlags, fcntl_setfl};

/// A log being written. It is kept from one attempt to the next.
pub(crate) struct Log {
    /// The place in the run's folder of logs.
    path: PathBuf,
    index: PathBuf,
    /// Whether the log is in a place that the task wants.
    is_own: bool,
    state: LogState,
    stream: Stream,
    length: u64,
}

enum LogState {
    Untouched,
    Open {
        log: File,
        index: Option<File>,
    },
    /// It could not be made, which is told when there is something to write.
    Failed(io::Error),
    Lost,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            path: PathBuf::new(),
            index: PathBuf::new(),
            is_own: false,
            state: LogState::Untouched,
            stream: Stream::Stdout,
            length: 0,
        }
    }

    /// Closes what was written, and begins a log in another place. The index is beside `path`.
    pub(crate) fn begin(&mut self, path: &Path) {
        self.close();
        for buffer in [&mut self.path, &mut self.index] {
            let name = buffer.as_mut_os_string();
            name.clear();
            name.push(path);
        }
        self.index.set_extension(INDEX);
    }

    /// Makes the log where the task wants it. Returns what the log of an earlier run is called
    /// now that was there; or why the attempt cannot have its log there.
    pub(crate) fn claim(&mut self, own: &Path) -> Result<Option<PathBuf>, String> {
        self.is_own = true;
        match claim(own) {
            Ok(ClaimedLog { file: log, backup }) => {
                // Without that, the place is trusted.
                let _ = keep_identity(&self.path, &log);
                self.state = LogState::Open { log, index: None };
                Ok(backup)
            }
            Err(ClaimError::Refused(reason)) => Err(reason),
            Err(ClaimError::Io(error)) => {
                self.state = LogState::Failed(error);
                Ok(None)
            }
        }
    }

    /// Closes what was written.
    pub(crate) fn close(&mut self) {
        if let LogState::Open { log, .. } = &self.state
            && self.is_own
        {
            // Without that, the place is trusted.
            let _ = keep_emptiness(&self.path, log);
        }
        self.is_own = false;
        self.state = LogState::Untouched;
        self.stream = Stream::Stdout;
        self.length = 0;
    }

    /// Appends. The error comes once; later output is dropped without a word.
    pub(crate) fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.state, LogState::Lost) {
            return Ok(());
        }
        let result = self.try_write(stream, bytes);
        if result.is_err() {
            self.state = LogState::Lost;
        }
        result
    }

    fn try_write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.open()?;
        let LogState::Open { log, index } = &mut self.state else {
            return Ok(());
        };
        if stream != self.stream {
            let file = match index {
                Some(file) => file,
                None => index.insert(create(&self.index, Owner::State)?),
            };
            // The index first: a record that points to the log's end is
            // harmless, bytes that no record claims would change their stream.
            file.write_all(&record(self.length, stream))?;
            self.stream = stream;
        }
        log.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file, if it is not there yet.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, LogState::Lost) {
            LogState::Untouched => {
                let log = create(&self.path, Owner::State)?;
                self.state = LogState::Open { log, index: None };
            }
            LogState::Failed(error) => return Err(error),
            open => self.state = open,
        }
        Ok(())
    }

    /// What to write to, if it is open.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        match &self.state {
            LogState::Open { log, .. } => Some(log.as_raw_fd()),
            _ => None,
        }
    }

    /// What the links in `/proc/PID/fd` of a process call it that has it open, which is not
    /// always what we call it. `None` for a device: any process may have `/dev/null` open.
    pub(crate) fn link_name(&self) -> Option<PathBuf> {
        let LogState::Open { log, .. } = &self.state else {
            return None;
        };
        if log.metadata().ok()?.file_type().is_char_device() {
            return None;
        }
        fs_err::read_link(format!("/proc/self/fd/{}", log.as_raw_fd())).ok()
    }
}

/// Reads what an attempt wrote into its log itself, once it has ended.
#[derive(Debug, Default)]
pub(crate) struct LogScan {
    /// The log, and where its end is.
    file: Option<(File, u64)>,
    offset: u64,
}

impl LogScan {
    /// The next piece; `None` at the end, and if it cannot be read.
    pub(crate) fn read<'b>(&mut self, log: &Log, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        if self.file.is_none() {
            // Whatever has become of its name meanwhile. Only a file has an end.
            let log = File::open(format!("/proc/self/fd/{}", log.descriptor()?)).ok()?;
            let metadata = log.metadata().ok()?;
            self.file = metadata.is_file().then_some((log, metadata.len()));
        }
        let (file, end) = self.file.as_ref()?;
        let left = usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let room = left.min(buffer.len());
        let length = file.read_at(&mut buffer[..room], self.offset).ok()?;
        self.offset += length as u64;
        (length > 0).then_some(&buffer[..length])
    }
}

/// Where a log belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It is in the state folder, which is for its owner alone.
    State,
    /// The task wants it: it is made with the person's umask.
    Task,
}

/// Makes the file, and its folder if it is not there (any more).
pub(crate) fn create(path: &Path, owner: Owner) -> io::Result<File> {
    match (open(path, owner), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            match owner {
                Owner::State => ensure_private_folder(folder)?,
                Owner::Task => fs_err::create_dir_all(folder)?,
            }
            open(path, owner)
        }
        (other, _) => other,
    }
}

/// Opens a file to write to, but no pipe: nobody might ever read from it, and we would wait
/// for that with everything else.
fn open(path: &Path, owner: Owner) -> io::Result<File> {
    // Somebody else may write to it as well: whoever was given it.
    let flags = OFlags::APPEND;
    let at_once = flags | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        // What is where a task wants its log may be another's.
        .truncate(owner == Owner::State)
        .custom_flags(at_once.bits().cast_signed())
        .mode(match owner {
            Owner::State => 0o600,
            Owner::Task => 0o666,
        })
        .open(path);
    let pipe = || {
        let text = format!("`{}` is a pipe, not a file", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let file = opened.map_err(|error| {
        // If nobody reads from it, the kernel speaks of devices.
        let found = fs_err::metadata(path);
        let is_pipe = found.is_ok_and(|found| found.file_type().is_fifo());
        if is_pipe { pipe() } else { error }
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() {
        return Err(pipe());
    }
    if !kind.is_file() {
        fcntl_setfl(&file, flags)?;
    } else if owner == Owner::State {
        make_private(file.file())?;
    }
    Ok(file)
}

/// The extension of an index.
const INDEX: &str = "idx";

const RECORD: usize = 8;

/// The offset at which a stream takes over, with the stream in the top bit.
fn record(offset: u64, stream: Stream) -> [u8; RECORD] {
    let bit = match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1 << 63,
    };
    (offset | bit).to_le_bytes()
}

/// Reads a log back, piece by piece, with the stream of each piece.
pub struct LogReader {
    log: File,
    index: Option<File>,
    index_path: PathBuf,
    stream: Stream,
    /// The next change of stream, if it is known already.
    change: Option<(u64, Stream)>,
    offset: u64,
}

impl LogReader {
    /// Opens the log at `path`, or at the attempt's `own`.
    pub fn open(path: &Path, own: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            log: File::open(find_log(path, own)?)?,
            index: None,
            index_path: path.with_extension(INDEX),
            stream: Stream::Stdout,
            change: None,
            offset: 0,
        })
    }

    /// The next piece, at most `buffer` long; an empty one at today's end of the
    /// file. It may be called again when the file has grown.
    pub fn read<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<(Stream, &'a [u8])> {
        let room = self.until_change()?.min(buffer.len());
        let read = self.log.read_at(&mut buffer[..room], self.offset)?;
        // Between the look at the index and the read the writer may have changed the
        // stream. Had it, the index has a record by now.
        let length = self.until_change()?.min(read);
        self.offset += length as u64;
        Ok((self.stream, &buffer[..length]))
    }

    /// How many of the next bytes are of one stream, as far as the index says, which
    /// becomes the current one.
    fn until_change(&mut self) -> io::Result<usize> {
        loop {
            if self.change.is_none() {
                self.change = self.next_change()?;
            }
            match self.change {
                None => return Ok(usize::MAX),
                Some((at, stream)) if at <= self.offset => {
                    self.stream = stream;
                    self.change = None;
                }
                Some((at, _)) => {
                    return Ok(usize::try_from(at - self.offset).unwrap_or(usize::MAX));
                }
            }
        }
    }

    fn next_change(&mut self) -> io::Result<Option<(u64, Stream)>> {
        let index = match &mut self.index {
            Some(index) => index,
            None => match File::open(&self.index_path) {
                Ok(index) => self.index.insert(index),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let mut bytes = [0; RECORD];
        if index.read(&mut bytes)? < RECORD {
            return Ok(None);
        }
        let word = u64::from_le_bytes(bytes);
        let stream = match word >> 63 {
            0 => Stream::Stdout,
            _ => Stream::Stderr,
        };
        Ok(Some((word & !(1 << 63), stream)))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn pieces(path: &Path) -> Vec<(Stream, Vec<u8>)> {
        let mut reader = LogReader::open(path, None).unwrap();
        let mut buffer = [0; 4];
        let mut pieces: Vec<(Stream, Vec<u8>)> = Vec::new();
        loop {
            let (stream, bytes) = reader.read(&mut buffer).unwrap();
            if bytes.is_empty() {
                return pieces;
            }
            match pieces.last_mut() {
                Some((last, text)) if *last == stream => text.extend_from_slice(bytes),
                _ => pieces.push((stream, bytes.to_vec())),
            }
        }
    }

    fn log(path: &Path) -> Log {
        let mut log = Log::new();
        log.begin(path);
        log
    }

    #[test]
    fn the_file_is_plain_and_the_streams_can_be_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.2.log");
        let mut log = log(&path);
        assert!(!path.exists());
        for (stream, text) in [
            (Stream::Stderr, "warning\n"),
            (Stream::Stdout, "epoch 1\n"),
            (Stream::Stdout, "epoch 2\n"),
            (Stream::Stderr, "oops\n"),
        ] {
            log.write(stream, text.as_bytes()).unwrap();
        }
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "warning\nepoch 1\nepoch 2\noops\n");
        assert_eq!(
            pieces(&path),
            [
                (Stream::Stderr, b"warning\n".to_vec()),
                (Stream::Stdout, b"epoch 1\nepoch 2\n".to_vec()),
                (Stream::Stderr, b"oops\n".to_vec()),
            ]
        );
    }

    #[test]
    fn plain_output_needs_no_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.1.log");
        log(&path).write(Stream::Stdout, b"hello\n").unwrap();
        assert!(!path.with_extension("idx").exists());
        assert_eq!(pieces(&path), [(Stream::Stdout, b"hello\n".to_vec())]);
    }

    #[test]
    fn the_next_log_knows_nothing_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.log", "b.log"].map(|name| folder.path().join(name));
        let mut log = log(&first);
        log.write(Stream::Stderr, b"one").unwrap();
        log.begin(&second);
        log.write(Stream::Stdout, b"two").unwrap();
        assert_eq!(pieces(&first), [(Stream::Stderr, b"one".to_vec())]);
        assert_eq!(pieces(&second), [(Stream::Stdout, b"two".to_vec())]);
    }

    #[test]
    fn a_folder_that_vanished_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/1.1.log");
        log(&path).write(Stream::Stdout, b"x").unwrap();
        assert!(path.exists());
    }

    #[test]
    fn trouble_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        fs_err::write(&logs, "not a folder").unwrap();
        let mut log = log(&logs.join("1.1.log"));
        assert!(log.write(Stream::Stdout, b"x").is_err());
        assert!(log.write(Stream::Stdout, b"x").is_ok());
    }
}
