//! One descriptor for everything that may have changed: files of the folder,
//! and the ends of the processes they are of.
//!
//! The folder is listened to only by who asks for that: the kernel takes several
//! milliseconds to close an inotify instance, and whoever is alone on a machine
//! should not have to wait for that at the end of every run.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::Error;
use crate::folder::Folder;
use crate::name::Name;

/// So much news at a time: whoever makes more does not get us to read for ever.
const AT_ONCE: usize = 64;

const FOLDER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// A lease comes by being renamed, so its whole content comes with one event.
const EVENTS: inotify::WatchFlags = inotify::WatchFlags::MOVED_TO
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::ONLYDIR)
    .union(inotify::WatchFlags::DONT_FOLLOW);

/// Watches a folder and processes.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: OwnedFd,
    bell: OwnedFd,
    ear: Option<Ear>,
}

/// What hears of files that come and go.
#[derive(Debug)]
struct Ear {
    inotify: OwnedFd,
    /// The number of the folder that is listened to.
    folder: Option<i32>,
}

/// What has happened.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Leases that have come, changed or gone.
    pub(crate) leases: Vec<Name>,
    /// Processes that have ended.
    pub(crate) ended: Vec<u32>,
    /// Some news were lost: look at everything.
    pub(crate) lost: bool,
    /// Somebody rang.
    pub(crate) rung: bool,
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.ended.is_empty() && !self.lost && !self.rung
    }
}

impl Watch {
    pub(crate) fn new() -> Result<Self, Error> {
        let made = || {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let token = epoll::EventData::new_u64(BELL);
            epoll::add(&epoll, &bell, token, epoll::EventFlags::IN)?;
            Ok((epoll, bell))
        };
        let (epoll, bell) = made().map_err(|errno: Errno| std::io::Error::from(errno))?;
        Ok(Self {
            epoll,
            bell,
            ear: None,
        })
    }

    /// Whether files that come and go are heard of.
    pub(crate) const fn is_listening(&self) -> bool {
        self.ear.is_some()
    }

    /// Listens to this folder from now on, and to no other any more.
    pub(crate) fn listen(&mut self, folder: &Folder) -> Result<(), Error> {
        let mut ear = match self.ear.take() {
            Some(ear) => ear,
            None => self.grow_ear()?,
        };
        if let Some(old) = ear.folder.take() {
            // Already gone if the folder is.
            let _ = inotify::remove_watch(&ear.inotify, old);
        }
        let number = inotify::add_watch(&ear.inotify, folder.path(), EVENTS)
            .map_err(|errno| Error::system(errno, "watch folder", folder.path()))?;
        ear.folder = Some(number);
        self.ear = Some(ear);
        Ok(())
    }

    fn grow_ear(&self) -> std::io::Result<Ear> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .map_err(|errno| match errno {
                Errno::MFILE => std::io::Error::other(
                    "too many folders are watched by your processes\n\
                     hint: raise the limit fs.inotify.max_user_instances",
                ),
                errno => errno.into(),
            })?;
        let token = epoll::EventData::new_u64(FOLDER);
        epoll::add(&self.epoll, &inotify, token, epoll::EventFlags::IN)?;
        Ok(Ear {
            inotify,
            folder: None,
        })
    }

    /// Watches for the end of a process.
    pub(crate) fn add(&self, process: impl AsFd, pid: u32) -> Result<(), Errno> {
        let token = epoll::EventData::new_u64(pid.into());
        epoll::add(&self.epoll, process, token, epoll::EventFlags::IN)
    }

    /// To be called before the descriptor is closed: a child that has just been
    /// forked may have it too, and then closing is not enough.
    pub(crate) fn remove(&self, process: impl AsFd) {
        let _ = epoll::delete(&self.epoll, process);
    }

    /// Makes the descriptor readable.
    pub(crate) fn ring(&self) {
        // Fails only when nobody has listened 2^64 times.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What has happened since the last call, or part of it.
    pub(crate) fn news(&self) -> News {
        let mut news = News::default();
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let now = Timespec::default();
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else {
            return news;
        };
        for event in events {
            match event.data.u64() {
                FOLDER => self.read_folder(&mut news),
                BELL => news.rung |= rustix::io::read(&self.bell, &mut [0_u8; 8]).is_ok(),
                pid => news.ended.extend(u32::try_from(pid)),
            }
        }
        news
    }

    fn read_folder(&self, news: &mut News) {
        let Some(ear) = &self.ear else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&ear.inotify, &mut buffer);
        while let Ok(event) = events.next() {
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                news.lost = true;
            } else if let Some(file) = event.file_name()
                && let Some(name) = Name::parse(file.to_bytes())
                && !news.leases.contains(&name)
            {
                news.leases.push(name);
            }
            if news.leases.len() >= AT_ONCE && events.is_buffer_empty() {
                break;
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
