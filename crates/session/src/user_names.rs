//! The names of users, without waiting for them: where users are kept in LDAP, to look one up
//! may take seconds.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Looks each user up once, in a thread.
pub(crate) struct UserNames {
    look_up: fn(u32) -> Option<String>,
    found: Arc<Mutex<FoundNames>>,
    /// An eventfd that rings when a name is known, once one was asked for.
    bell: OnceCell<Option<Arc<OwnedFd>>>,
}

#[derive(Default)]
struct FoundNames {
    /// By the user's number: the name, once it is known.
    names: BTreeMap<u32, Option<String>>,
    /// Whether any became known since somebody asked for that.
    news: bool,
}

impl Default for UserNames {
    fn default() -> Self {
        Self::new(packhorse_trust::user_name)
    }
}

impl UserNames {
    fn new(look_up: fn(u32) -> Option<String>) -> Self {
        Self { look_up, found: Arc::default(), bell: OnceCell::new() }
    }

    /// Becomes readable when a name is known that was not. `None` while nobody was looked up.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        let bell = self.bell.get()?.as_ref()?;
        Some(bell.as_fd())
    }

    /// Takes note that the bell has rung.
    pub(crate) fn hear_bell(&self) {
        if let Some(bell) = self.bell() {
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
    }

    /// The name of a user, or the number while, or if, there is none.
    pub(crate) fn get(&self, uid: u32) -> String {
        let mut found = lock(&self.found);
        let name = found.names.entry(uid).or_insert_with(|| {
            let (look_up, found) = (self.look_up, Arc::clone(&self.found));
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            // Without a bell it is known the next time that somebody asks.
            let bell = self.bell.get_or_init(|| eventfd(0, flags).ok().map(Arc::new));
            let bell = bell.clone();
            let thread = std::thread::Builder::new().name("user-name".to_owned());
            // Without a thread the number has to do.
            let _ = thread.spawn(move || {
                let name = look_up(uid);
                let is_news = name.is_some();
                let mut found = lock(&found);
                found.news |= is_news;
                found.names.insert(uid, name);
                if let Some(bell) = bell.filter(|_| is_news) {
                    // Fails only if the counter is full: then it is readable anyway.
                    let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
                }
            });
            None
        });
        name.clone().unwrap_or_else(|| uid.to_string())
    }

    /// Whether names became known since this was last asked.
    pub(crate) fn take_news(&self) -> bool {
        std::mem::take(&mut lock(&self.found).news)
    }
}

fn lock(found: &Mutex<FoundNames>) -> MutexGuard<'_, FoundNames> {
    // Whoever has it locked does nothing that could fail.
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// Not answered before this is unlocked.
    static SLOW: Mutex<()> = Mutex::new(());
    static ASKED: AtomicU32 = AtomicU32::new(0);

    fn look_up(uid: u32) -> Option<String> {
        let _slow = SLOW.lock().unwrap();
        ASKED.fetch_add(1, Ordering::Relaxed);
        (uid > 0).then(|| format!("user-{uid}"))
    }

    #[test]
    fn nobody_waits_for_a_name_and_it_is_asked_for_once() {
        let slow = SLOW.lock().unwrap();
        let names = UserNames::new(look_up);
        assert!(names.bell().is_none());
        assert_eq!(names.get(7), "7", "at once: this test ends");
        assert_eq!(names.get(7), "7");
        assert!(!names.take_news());
        drop(slow);
        let bell = names.bell().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], None).unwrap();
        names.hear_bell();
        assert!(names.take_news());
        assert_eq!(names.get(7), "user-7");
        assert!(!names.take_news());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}
