//! One descriptor for everything that may change: the files of the folders, and whether
//! their processes are alive.
//!
//! Files are watched only on request: the kernel takes several milliseconds to close an
//! inotify instance, and a run that is alone on a machine should not have to wait for that
//! at its end.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::LeaseError;
use crate::folder::LeaseFolder;
use crate::lease_name::{LeaseName, UserFolderName};

/// How many events to read at a time, so that nobody can make us read for ever.
const AT_ONCE: usize = 64;

const FILES: u64 = u64::MAX;
const WAKE_UP: u64 = u64::MAX - 1;
const TIMER: u64 = u64::MAX - 2;

/// What happens to the folders of users.
const FOLDER_EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// A lease is renamed into place, so one event announces all of its content.
const LEASE_EVENTS: WatchFlags = WatchFlags::MOVED_TO
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// Somebody takes our own file away.
const OWN_EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DONT_FOLLOW);

/// Watches the folders of leases and the processes that hold them.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    epoll: OwnedFd,
    /// An eventfd to make the descriptor readable.
    wake_up: OwnedFd,
    /// Makes the descriptor readable when it is time to look at something again.
    timer: OwnedFd,
    /// What the timer is set to.
    look_again: Option<Instant>,
    /// Watches for files that appear and disappear.
    inotify: Option<OwnedFd>,
    /// What its numbers mean.
    watched: HashMap<i32, Watched>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Folder,
    User(UserFolderName),
    OwnFile,
}

/// What has happened since the last time.
#[derive(Debug, Default)]
pub(crate) struct WatchEvents {
    /// Leases that were added, changed or removed.
    pub(crate) leases: Vec<(UserFolderName, LeaseName)>,
    /// Processes that have ended.
    pub(crate) ended: Vec<u32>,
    /// What has to be looked at besides.
    pub(crate) look: Look,
    /// Something happened to our own file.
    pub(crate) own: bool,
    /// [`FolderWatch::wake_up`] was called.
    pub(crate) woken_up: bool,
    /// The timer has rung.
    pub(crate) timer: bool,
}

/// What has to be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// Nothing.
    #[default]
    Nowhere,
    /// All that has changed: folders of users may have come or gone.
    Changes,
    /// Everything: some events were lost.
    Everywhere,
}

impl WatchEvents {
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.ended.is_empty()
            && self.look == Look::Nowhere
            && !self.own
            && !self.woken_up
            && !self.timer
    }
}

impl FolderWatch {
    pub(crate) fn new() -> io::Result<Self> {
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let token = epoll::EventData::new_u64(WAKE_UP);
        epoll::add(&epoll, &wake_up, token, epoll::EventFlags::IN)?;
        let token = epoll::EventData::new_u64(TIMER);
        epoll::add(&epoll, &timer, token, epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake_up, timer, look_again: None, inotify: None, watched: HashMap::new() })
    }

    /// Whether folders are watched.
    pub(crate) fn is_listening(&self) -> bool {
        self.watched.values().any(|it| *it == Watched::Folder)
    }

    /// Watches the folders from now on, and no others.
    pub(crate) fn listen<'a>(
        &mut self,
        folder: &LeaseFolder,
        users: impl Iterator<Item = &'a UserFolderName>,
    ) -> Result<(), LeaseError> {
        self.unlisten();
        let listening = self
            .watch_path(&folder.path, FOLDER_EVENTS, Watched::Folder)
            .and_then(|()| users.into_iter().try_for_each(|&user| self.listen_to(folder, user)));
        if listening.is_err() {
            // Whoever is not watched must not be taken for somebody who does nothing.
            self.unlisten();
        }
        listening
    }

    /// Watches the folder of one more user.
    pub(crate) fn listen_to(
        &mut self,
        folder: &LeaseFolder,
        user: UserFolderName,
    ) -> Result<(), LeaseError> {
        let path = folder.path.join(user.to_string());
        match self.watch_path(&path, LEASE_EVENTS, Watched::User(user)) {
            // It is gone already, which is an event of its own, or its user keeps us out,
            // and so holds nothing.
            Err(LeaseError::Io(error)) if is_out_of_reach(&error) => Ok(()),
            other => other,
        }
    }

    /// Watches no folders any more.
    pub(crate) fn unlisten(&mut self) {
        self.forget(|watched| watched != Watched::OwnFile);
    }

    /// Watches our own file, whichever it was before.
    pub(crate) fn guard(&mut self, file: &Path) -> Result<(), LeaseError> {
        self.unguard();
        self.watch_path(file, OWN_EVENTS, Watched::OwnFile)
    }

    /// Watches no file of ours any more.
    pub(crate) fn unguard(&mut self) {
        self.forget(|watched| watched == Watched::OwnFile);
    }

    fn forget(&mut self, which: impl Fn(Watched) -> bool) {
        if let Some(inotify) = &self.inotify {
            self.watched.retain(|&number, &mut watched| {
                let is_over = which(watched);
                if is_over {
                    // Whoever was removed is not watched any more anyway.
                    let _ = inotify::remove_watch(inotify, number);
                }
                !is_over
            });
        }
    }

    fn watch_path(
        &mut self,
        path: &Path,
        events: WatchFlags,
        what: Watched,
    ) -> Result<(), LeaseError> {
        let inotify = match &self.inotify {
            Some(inotify) => inotify,
            None => self.inotify.insert(self.new_inotify()?),
        };
        let number = inotify::add_watch(inotify, path, events).map_err(|errno| match errno {
            Errno::NOSPC => io::Error::other(
                "your processes watch too many files\n\
                 hint: raise the limit fs.inotify.max_user_watches",
            )
            .into(),
            errno => LeaseError::system(errno, "watch", path),
        })?;
        self.watched.insert(number, what);
        Ok(())
    }

    fn new_inotify(&self) -> io::Result<OwnedFd> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .map_err(|errno| match errno {
                Errno::MFILE => io::Error::other(
                    "your processes watch too many folders\n\
                     hint: raise the limit fs.inotify.max_user_instances",
                ),
                errno => errno.into(),
            })?;
        let token = epoll::EventData::new_u64(FILES);
        epoll::add(&self.epoll, &inotify, token, epoll::EventFlags::IN)?;
        Ok(inotify)
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

    /// Makes the descriptor readable then, and at no other time.
    pub(crate) fn set_timer(&mut self, at: Option<Instant>) {
        if self.look_again == at {
            return;
        }
        self.look_again = at;
        let left = at.map(|at| at.saturating_duration_since(Instant::now()));
        // Zero would turn it off.
        let left = left.map(|left| left.max(Duration::from_nanos(1)));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let set =
            Itimerspec { it_interval: Timespec::default(), it_value: left.unwrap_or_default() };
        // Cannot fail: the descriptor is a timer, and the time is valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set);
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
                FILES => self.read_files(&mut happened),
                WAKE_UP => {
                    happened.woken_up |= rustix::io::read(&self.wake_up, &mut [0_u8; 8]).is_ok();
                }
                TIMER => happened.timer |= rustix::io::read(&self.timer, &mut [0_u8; 8]).is_ok(),
                pid => happened.ended.extend(u32::try_from(pid)),
            }
        }
        happened
    }

    fn read_files(&self, happened: &mut WatchEvents) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                happened.look = Look::Everywhere;
            }
            // What is not known has been watched before.
            match self.watched.get(&event.wd()) {
                Some(Watched::Folder) => happened.look = happened.look.max(Look::Changes),
                Some(Watched::OwnFile) => happened.own = true,
                Some(&Watched::User(user)) => {
                    if let Some(file) = event.file_name()
                        && let Some(name) = LeaseName::parse(user.uid, file.to_bytes())
                        && !happened.leases.contains(&(user, name))
                    {
                        happened.leases.push((user, name));
                    }
                }
                None => {}
            }
            if happened.leases.len() >= AT_ONCE && events.is_buffer_empty() {
                break;
            }
        }
    }
}

fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory)
}

impl AsFd for FolderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whose_folder_cannot_be_watched_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = LeaseFolder::open(place.path()).unwrap().unwrap();
        let [gone, no_folder, good] = [(); 3].map(|()| UserFolderName::random(1000).unwrap());
        fs_err::write(place.path().join(no_folder.to_string()), "").unwrap();
        fs_err::create_dir(place.path().join(good.to_string())).unwrap();
        let mut watch = FolderWatch::new().unwrap();
        let users = [gone, no_folder, good];
        watch.listen(&folder, users.iter()).unwrap();
        let watched: Vec<_> = watch.watched.values().collect();
        assert!(watched.contains(&&Watched::User(good)), "{watched:?}");
    }
}
