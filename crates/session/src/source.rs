//! Where the tasks of a run come from.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use fs_err::File;
use packhorse_intake::lines::LineError;
use packhorse_intake::{Colour, TaskLanguage, TaskReader};
use packhorse_model::{TaskSpec, printable};
use rustc_hash::FxHashMap;
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, retry_on_intr};

use crate::own_paths::OwnPaths;

/// At most so many tasks are taken from what has been read at once: the rest of it takes
/// less memory as it is.
const AT_ONCE: usize = 512;

/// Where the tasks of a run come from: a door.
pub trait TaskSource {
    /// What becomes readable when there are tasks. `None`: they are made when they are
    /// needed.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the next tasks: from what the descriptor has, which was reported readable, or
    /// at most `room` if they are made.
    fn read(&mut self, room: usize) -> SourceRead;

    /// How many tasks there will be in all, if that is known.
    fn total(&self) -> Option<u32> {
        None
    }

    /// No more than this are still to come, if that is known.
    fn most(&self) -> Option<u64> {
        None
    }

    /// How many are still to come, as far as anybody knows.
    fn unread(&self) -> u64 {
        0
    }
}

/// What came from a source.
#[derive(Debug, Default)]
pub struct SourceRead {
    /// Each with the numbers of the tasks that it comes after.
    pub tasks: Vec<(TaskSpec, Vec<u32>)>,
    /// What was no task, in words, and how many tasks are lost by that.
    pub rejected: Vec<(u64, String)>,
    /// How it goes on.
    pub next: NextRead,
}

/// How reading goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextRead {
    /// There is more already of what arrived together with this.
    AtOnce,
    /// When the descriptor is readable again, or there is room.
    #[default]
    Later,
    /// The same with another descriptor.
    OtherDescriptor,
    /// There will be nothing more.
    Never,
}

/// Tasks that were made before.
#[derive(Debug, Default)]
pub struct MadeTasks(VecDeque<TaskSpec>);

impl MadeTasks {
    /// In this order.
    pub fn new(tasks: Vec<TaskSpec>) -> Self {
        Self(tasks.into())
    }
}

impl TaskSource for MadeTasks {
    fn read(&mut self, _room: usize) -> SourceRead {
        // The most urgent goes first, wherever it stands.
        let count = self.0.len().min(AT_ONCE);
        let tasks = self.0.drain(..count);
        SourceRead {
            tasks: tasks.map(|task| (task, Vec::new())).collect(),
            next: if self.0.is_empty() { NextRead::Never } else { NextRead::AtOnce },
            ..SourceRead::default()
        }
    }

    fn most(&self) -> Option<u64> {
        Some(self.unread())
    }

    fn unread(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Tasks that are made by their place in the run when they are needed.
///
/// The same place always gives the same task: a later session goes on where this one
/// stopped.
pub struct Generator<F> {
    total: u32,
    next: u32,
    make: F,
}

impl<F: FnMut(u32) -> TaskSpec> Generator<F> {
    /// `make` makes the task at a place, counted from 0. Those before `first` were
    /// made by earlier sessions.
    pub fn new(total: u32, first: u32, make: F) -> Self {
        Self { total, next: first, make }
    }
}

impl<F: FnMut(u32) -> TaskSpec> TaskSource for Generator<F> {
    fn read(&mut self, room: usize) -> SourceRead {
        let count = u32::try_from(room.min(AT_ONCE)).unwrap_or(0);
        let end = self.total.min(self.next.saturating_add(count));
        let tasks = (self.next..end).map(|place| ((self.make)(place), Vec::new()));
        let tasks = tasks.collect();
        self.next = end;
        SourceRead {
            tasks,
            next: if self.next >= self.total {
                NextRead::Never
            } else if room > AT_ONCE {
                NextRead::AtOnce
            } else {
                NextRead::Later
            },
            ..SourceRead::default()
        }
    }

    fn total(&self) -> Option<u32> {
        Some(self.total)
    }

    fn most(&self) -> Option<u64> {
        Some(self.unread())
    }

    fn unread(&self) -> u64 {
        self.total.saturating_sub(self.next).into()
    }
}

/// Something to read from.
#[derive(Debug)]
pub struct InputStream {
    /// Its name, for messages.
    pub name: String,
    /// The open file.
    pub file: File,
}

/// Tasks that are read from files, pipes or a terminal, one after the other.
pub struct ReadTasks {
    streams: VecDeque<InputStream>,
    reader: TaskReader,
    buffer: Vec<u8>,
    /// How many tasks earlier sessions have read, and are to be passed over.
    skip: u32,
    /// How many tasks have been read.
    number: u32,
    /// How many there are in all, if that is known.
    count: Option<u64>,
    /// The numbers of tasks that have a name.
    names: FxHashMap<String, u32>,
    /// What tasks have for themselves, unless that was checked before.
    paths: Option<OwnPaths>,
    /// The last line that was rejected: one line may have several mistakes.
    last_rejected: (String, u64),
    /// This stream has ended; what was read of it may not have been taken yet.
    ended: bool,
    /// There may be more in what was read than was taken the last time.
    more: bool,
}

impl ReadTasks {
    /// The first `skip` tasks were read by earlier sessions.
    pub fn new(streams: VecDeque<InputStream>, language: TaskLanguage, skip: u32) -> Self {
        Self {
            streams,
            reader: TaskReader::new(language),
            buffer: Vec::new(),
            skip,
            number: 0,
            count: None,
            names: FxHashMap::default(),
            paths: None,
            last_rejected: (String::new(), 0),
            ended: false,
            more: false,
        }
    }

    /// Tells how many tasks will be read in all.
    #[must_use]
    pub fn with_count(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    /// Refuses tasks that want what an earlier one has for itself, in a run with these defaults.
    /// Not for what was looked through before: a task is counted when its line is read again,
    /// whatever has become of its paths.
    #[must_use]
    pub fn checking_paths(mut self, defaults: &TaskSpec) -> Self {
        self.paths = Some(OwnPaths::new(defaults));
        self
    }

    /// Reads once into the reader. It may block, unless the descriptor was reported
    /// readable. Returns what is wrong if it cannot be read.
    fn fill(&mut self) -> Option<String> {
        self.buffer.resize(64 * 1024, 0);
        let stream = self.streams.front()?;
        if self.reader.is_endless() {
            self.ended = true;
            self.reader.finish();
            let name = &stream.name;
            return Some(format!(
                "a line of {name} is longer than 256 MiB: nothing more is read of it"
            ));
        }
        let (file, buffer) = (stream.file.file(), &mut self.buffer);
        loop {
            match retry_on_intr(|| rustix::io::read(file, &mut buffer[..])) {
                Ok(length @ 1..) => {
                    self.reader.push(&buffer[..length]);
                    // The end of a file is known together with its last tasks. Of
                    // anything else, another read might block.
                    let kind = || fstat(file).map(|it| FileType::from_raw_mode(it.st_mode));
                    if length == buffer.len() || kind() != Ok(FileType::RegularFile) {
                        return None;
                    }
                }
                Err(Errno::AGAIN) => return None,
                ended => {
                    self.ended = true;
                    self.reader.finish();
                    let error = std::io::Error::from(ended.err()?);
                    return Some(format!("cannot read {}: {error}", stream.name));
                }
            }
        }
    }

    fn reject(&mut self, source: &str, error: &LineError) -> (u64, String) {
        let place = (source.to_owned(), error.line());
        let tasks = u64::from(place != self.last_rejected);
        self.last_rejected = place;
        let message = error.render(source, Colour::Off);
        (tasks, format!("a line was not run\n{message}"))
    }

    /// Gives a task its number. Nothing for one that an earlier session has read, but its
    /// name is known.
    fn number(&mut self, spec: TaskSpec) -> Option<(TaskSpec, Vec<u32>)> {
        self.number = self.number.saturating_add(1);
        if let Some(name) = &spec.name {
            self.names.insert(name.clone(), self.number);
        }
        if self.number <= self.skip {
            return None;
        }
        // The names were checked when the line was read.
        let after = spec.after.iter();
        let after = after.filter_map(|name| self.names.get(name).copied());
        let mut after: Vec<u32> = after.collect();
        after.sort_unstable();
        Some((spec, after))
    }
}

impl TaskSource for ReadTasks {
    fn most(&self) -> Option<u64> {
        let read = self.number.max(self.skip);
        Some(self.count?.saturating_sub(read.into()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let stream = self.streams.front();
        stream.map(|stream| stream.file.file().as_fd())
    }

    fn read(&mut self, _room: usize) -> SourceRead {
        let mut read = SourceRead::default();
        let name = self.streams.front().map(|stream| stream.name.clone());
        let Some(name) = name else {
            read.next = NextRead::Never;
            return read;
        };
        // Another read might block.
        let mut filled = std::mem::take(&mut self.more);
        while read.tasks.len() < AT_ONCE {
            match self.reader.next() {
                Some(Ok(entry)) => {
                    let paths = self.paths.as_mut();
                    match paths.and_then(|it| it.take(&entry.spec, &name, entry.line).err()) {
                        None => read.tasks.extend(self.number(entry.spec)),
                        Some(shared) => {
                            let place = format!("{}:{}", printable(&name), entry.line);
                            let message = format!("a line was not run\nerror: {place}: {shared}");
                            read.rejected.push((1, message));
                        }
                    }
                }
                Some(Err(error)) => read.rejected.push(self.reject(&name, &error)),
                None if self.ended => {
                    self.ended = false;
                    self.streams.pop_front();
                    self.reader.next_source();
                    read.next = if self.streams.is_empty() {
                        NextRead::Never
                    } else {
                        NextRead::OtherDescriptor
                    };
                    return read;
                }
                None if filled => return read,
                None => {
                    filled = true;
                    let trouble = self.fill();
                    read.rejected.extend(trouble.map(|message| (1, message)));
                }
            }
        }
        self.more = true;
        read.next = NextRead::AtOnce;
        read
    }
}
