use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packhorse_model::{Event, TerminalFilter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::output::{OutputGate, Room};
use crate::terminal;

/// Standard output, a turn of the loop at a time.
///
/// Nobody may be reading it: `packhorse run | less` stops taking after a page.
/// That must not stop the scheduler, so from the first write on that would block
/// a thread of its own does the writing. If too much waits for it there is no
/// [`Room`] for what tasks write; all else waits, for as long as it takes. What
/// cannot be written at all is dropped, and said once on standard error: a closed
/// pipe or a full disk must not stop a run either.
pub struct Sink {
    buffer: Vec<u8>,
    route: OutputRoute,
    /// For lines that go to a terminal.
    filter: Option<TerminalFilter>,
    broken: bool,
    gate: OutputGate,
    /// Whether too much waits, and has not yet become much less.
    full: bool,
    /// When something was written last.
    last: Option<Instant>,
}

/// How bytes get out.
enum OutputRoute {
    /// To a file, which takes what it is given.
    File,
    /// To a pipe, as long as it has room.
    Pipe,
    /// To a terminal, as long as it has room. How much that is nobody can tell
    /// beforehand, so this one does not block.
    Terminal(OwnedFd),
    /// To a terminal that is another user's.
    Foreign,
    /// Through a thread that may block. It is not started before it is needed:
    /// by then signals are blocked, and it must not be the one to get them.
    Thread(Courier),
}

impl OutputRoute {
    /// What standard output is like.
    fn of_stdout() -> Self {
        let stdout = rustix::stdio::stdout();
        if terminal::is_stdout() {
            // Opened anew, for others have it too and want it to block.
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let terminal = rustix::fs::open("/proc/self/fd/1", flags, Mode::empty());
            return terminal.map_or(Self::Foreign, Self::Terminal);
        }
        let kind = rustix::fs::fstat(stdout).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            // The second such as /dev/null.
            Ok(FileType::RegularFile | FileType::CharacterDevice) => Self::File,
            _ => Self::Pipe,
        }
    }
}

/// The time from one write to the next.
const PAUSE: Duration = Duration::from_millis(5);
/// More than this is not collected before it is written.
const ENOUGH: usize = 64 * 1024;
/// A pipe that is ready to be written takes so much without blocking.
const ROOM: usize = 4096;
/// More than this of what tasks write is not kept for somebody who does not read.
const MOST_OUTPUT: usize = 16 << 20;
/// Nor more than this of anything: half a million tasks start and end in it.
const MOST_UNREAD: usize = 256 << 20;

impl Sink {
    /// Writes lines to standard output. A terminal gets nothing but text and colours.
    pub fn lines() -> Self {
        let mut sink = Self::drawing();
        sink.filter = terminal::is_stdout().then(TerminalFilter::default);
        sink
    }

    /// Writes to a terminal that is drawn on: every text has to be made printable before.
    pub fn drawing() -> Self {
        Self {
            buffer: Vec::new(),
            route: OutputRoute::of_stdout(),
            filter: None,
            broken: false,
            gate: OutputGate::default(),
            full: false,
            last: None,
        }
    }

    /// Where to put what comes next.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.len() > ENOUGH {
            self.flush();
        }
        &mut self.buffer
    }

    /// How many bytes wait for whoever reads.
    pub fn unread(&self) -> usize {
        match &self.route {
            OutputRoute::Thread(courier) => courier.unread.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// What there is to show of an event, if so many bytes are on their way here. If there
    /// is no room for what tasks write it takes a while until there is again: one long gap
    /// is better than many short ones.
    pub fn pass<'a>(
        &mut self,
        event: &'a Event,
        coming: usize,
    ) -> impl Iterator<Item = Cow<'a, Event>> + use<'a> {
        let most = if self.full { MOST_OUTPUT / 2 } else { MOST_OUTPUT };
        self.full = self.unread() + coming > most;
        let room = if self.full { Room::None } else { Room::Enough };
        self.gate.pass(event, room)
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl std::fmt::Display) {
        // Writing to a Vec cannot fail.
        let _ = writeln!(self.buffer(), "{text}");
    }

    /// Writes what has been collected, if it has been a while; else says when to
    /// come again. A thousand lines a second need no thousand writes.
    pub fn flush_now_and_then(&mut self, now: Instant) -> Option<Instant> {
        if self.buffer.is_empty() {
            return None;
        }
        if let Some(due) = self.last.map(|last| last + PAUSE)
            && due > now
        {
            return Some(due);
        }
        self.last = Some(now);
        self.flush();
        None
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if let Some(filter) = &mut self.filter {
            let bytes = std::mem::take(&mut self.buffer);
            filter.push(&bytes, &mut self.buffer);
        }
        if !self.broken
            && let Err(error) = self.write()
        {
            self.broken = true;
            crate::complain(&format!(
                "warning: cannot write to standard output ({error}): the run goes on without it"
            ));
        }
        self.buffer.clear();
    }

    fn write(&mut self) -> io::Result<()> {
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let stdout = rustix::stdio::stdout();
            let (out, length) = match &self.route {
                OutputRoute::File => (stdout, rest.len()),
                OutputRoute::Terminal(terminal) => (terminal.as_fd(), rest.len()),
                OutputRoute::Pipe if is_ready() => (stdout, rest.len().min(ROOM)),
                OutputRoute::Pipe | OutputRoute::Foreign => {
                    self.route = OutputRoute::Thread(Courier::start()?);
                    continue;
                }
                OutputRoute::Thread(courier) => return courier.take(rest),
            };
            match retry_on_intr(|| rustix::io::write(out, &rest[..length])) {
                Ok(written) => rest = &rest[written..],
                // A terminal that is full; or a pipe, made non-blocking by others.
                Err(Errno::AGAIN) => self.route = OutputRoute::Thread(Courier::start()?),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether a write of [`ROOM`] bytes would not block.
fn is_ready() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut state = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut state, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A thread that writes, and may wait as long as it likes.
struct Courier {
    sender: Sender<Vec<u8>>,
    thread: JoinHandle<()>,
    unread: Arc<AtomicUsize>,
}

impl Courier {
    fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Vec<u8>>();
        let unread = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&unread);
        let thread = std::thread::Builder::new()
            .name("stdout".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                for bytes in receiver {
                    if write_all(rustix::stdio::stdout(), &bytes).is_err() {
                        return;
                    }
                    theirs.fetch_sub(bytes.len(), Ordering::Relaxed);
                }
            })
            .map_err(packhorse_proc::explain_start)?;
        Ok(Self { sender, thread, unread })
    }

    fn take(&self, bytes: &[u8]) -> io::Result<()> {
        let unread = self.unread.fetch_add(bytes.len(), Ordering::Relaxed);
        if unread > MOST_UNREAD {
            return Err(io::Error::other("nobody reads it"));
        }
        let sent = self.sender.send(bytes.to_vec());
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits for whoever reads. The run is over by now, and Ctrl-C ends us again
    /// as it ends any program.
    fn finish(self) {
        drop(self.sender);
        // It has nothing to say beyond what it could not write.
        let _ = self.thread.join();
    }
}

fn write_all(stdout: rustix::fd::BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(stdout, bytes)) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::AGAIN) => {
                let mut state = [PollFd::new(&stdout, PollFlags::OUT)];
                retry_on_intr(|| poll(&mut state, None))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.flush();
        if let OutputRoute::Thread(courier) = std::mem::replace(&mut self.route, OutputRoute::File)
        {
            courier.finish();
        }
    }
}
