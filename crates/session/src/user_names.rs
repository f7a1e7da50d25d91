//! The names of users, without waiting for them: where users are kept in LDAP, to look one up
//! may take seconds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Looks each user up once, in a thread.
pub(crate) struct UserNames {
    look_up: fn(u32) -> Option<String>,
    found: Arc<Mutex<FoundNames>>,
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
        Self::new(packhorse_proc::user_name)
    }
}

impl UserNames {
    fn new(look_up: fn(u32) -> Option<String>) -> Self {
        Self {
            look_up,
            found: Arc::default(),
        }
    }

    /// The name of a user, or the number while, or if, there is none.
    pub(crate) fn get(&self, uid: u32) -> String {
        let mut found = lock(&self.found);
        let name = found.names.entry(uid).or_insert_with(|| {
            let (look_up, found) = (self.look_up, Arc::clone(&self.found));
            let thread = std::thread::Builder::new().name("user-name".to_owned());
            // Without a thread the number has to do.
            let _ = thread.spawn(move || {
                let name = look_up(uid);
                let mut found = lock(&found);
                found.news |= name.is_some();
                found.names.insert(uid, name);
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
        assert_eq!(names.get(7), "7", "at once: this test ends");
        assert_eq!(names.get(7), "7");
        assert!(!names.take_news());
        drop(slow);
        while !names.take_news() {
            std::thread::yield_now();
        }
        assert_eq!(names.get(7), "user-7");
        assert!(!names.take_news());
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}
