//! One descriptor for everything that may change: the files of the folder, and whether
//! their processes are alive.
//!
//! Files are watched only on request: the kernel takes several milliseconds to close an
//! inotify instance, and a run that is alone on a machine should not have to wait for that
//! at its end.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::LeaseError;
use crate::folder::LeaseFolder;
use crate::lease_name::LeaseName;

/// How many events to read at a time, so that nobody can make us read for ever.
const AT_ONCE: usize = 64;

const FOLDER: u64 = u64::MAX;
const WAKE_UP: u64 = u64::MAX - 1;

/// A lease is renamed into place, so one event announces all of its content.
const EVENTS: inotify::WatchFlags = inotify::WatchFlags::MOVED_TO
    .union(inotify::WatchFlags::DELETE)
    .union(inotify::WatchFlags::ONLYDIR)
    .union(inotify::WatchFlags::DONT_FOLLOW);

/// Watches the folder of leases and the processes that hold them.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    epoll: OwnedFd,
    /// An eventfd to make the descriptor readable.
    wake_up: OwnedFd,
    /// Watches for files that appear and disappear.
    inotify: Option<OwnedFd>,
}

/// What has happened since the last time.
#[derive(Debug, Default)]
pub(crate) struct WatchEvents {
    /// Leases that were added, changed or removed.
    pub(crate) leases: Vec<LeaseName>,
    /// Processes that have ended.
    pub(crate) ended: Vec<u32>,
    /// Some events were lost: read the whole folder.
    pub(crate) overflowed: bool,
    /// [`FolderWatch::wake_up`] was called.
    pub(crate) woken_up: bool,
}

impl WatchEvents {
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.ended.is_empty() && !self.overflowed && !self.woken_up
    }
}

impl FolderWatch {
    pub(crate) fn new() -> io::Result<Self> {
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = epoll::EventData::new_u64(WAKE_UP);
        epoll::add(&epoll, &wake_up, token, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            wake_up,
            inotify: None,
        })
    }

    /// Whether files are watched.
    pub(crate) const fn is_listening(&self) -> bool {
        self.inotify.is_some()
    }

    /// Watches the files of this folder from now on, and of no other.
    pub(crate) fn listen(&mut self, folder: &LeaseFolder) -> Result<(), LeaseError> {
        if let Some(old) = self.inotify.take() {
            self.remove(old);
        }
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .map_err(|errno| match errno {
                Errno::MFILE => io::Error::other(
                    "your processes watch too many folders\n\
                     hint: raise the limit fs.inotify.max_user_instances",
                ),
                errno => errno.into(),
            })?;
        inotify::add_watch(&inotify, &folder.path, EVENTS)
            .map_err(|errno| LeaseError::system(errno, "watch folder", &folder.path))?;
        let token = epoll::EventData::new_u64(FOLDER);
        epoll::add(&self.epoll, &inotify, token, epoll::EventFlags::IN).map_err(io::Error::from)?;
        self.inotify = Some(inotify);
        Ok(())
    }

    /// Watches for the end of a process.
    pub(crate) fn add(&self, process: impl AsFd, pid: u32) -> Result<(), Errno> {
        let token = epoll::EventData::new_u64(pid.into());
        epoll::add(&self.epoll, process, token, epoll::EventFlags::IN)
    }

    /// Must be called before the descriptor is closed: a child that has just been forked may
    /// have it too, and then closing it is not enough.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake_up(&self) {
        // Fails only if the counter is full: then it is readable anyway.
        let _ = rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes());
    }

    /// What has happened since the last call, or part of it.
    pub(crate) fn take_events(&self) -> WatchEvents {
        let mut happened = WatchEvents::default();
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let now = Timespec::default();
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else {
            return happened;
        };
        for event in events {
            match event.data.u64() {
                FOLDER => self.read_folder(&mut happened),
                WAKE_UP => {
                    happened.woken_up |= rustix::io::read(&self.wake_up, &mut [0_u8; 8]).is_ok();
                }
                pid => happened.ended.extend(u32::try_from(pid)),
            }
        }
        happened
    }

    fn read_folder(&self, happened: &mut WatchEvents) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = events.next() {
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                happened.overflowed = true;
            } else if let Some(file) = event.file_name()
                && let Some(name) = LeaseName::parse(file.to_bytes())
                && !happened.leases.contains(&name)
            {
                happened.leases.push(name);
            }
            if happened.leases.len() >= AT_ONCE && events.is_buffer_empty() {
                break;
            }
        }
    }
}

impl AsFd for FolderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
