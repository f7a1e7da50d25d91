//! How many descriptors may be open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of open descriptors, raised when we need it and never for children:
/// some of them count on the usual one.
#[derive(Default)]
pub(crate) struct DescriptorLimit {
    /// What it was before we raised it.
    original: Option<Rlimit>,
}

/// What one attempt has open on our side: two pipes with both ends, a log, its
/// index, and the handle of its process.
const EACH: u64 = 7;
/// What we have open ourselves, and then some.
const OURS: u64 = 64;

impl DescriptorLimit {
    /// Sees to it that there is room for so many attempts at once, or fails: an attempt
    /// that has its pipes must also get its log. One is tried in any case.
    pub(crate) fn ensure(&mut self, attempts: usize) -> io::Result<()> {
        let needed = attempts as u64 * EACH + OURS;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < needed) && limit.current != limit.maximum {
            self.raise()?;
        }
        if attempts > 1 && limit.maximum.is_some_and(|maximum| maximum < needed) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(())
    }

    /// Raises our limit as far as we may.
    pub(crate) fn raise(&mut self) -> io::Result<()> {
        let limit = getrlimit(Resource::Nofile);
        let highest = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, highest)?;
        self.original.get_or_insert(limit);
        Ok(())
    }

    /// The limit that children get, if it is not ours.
    pub(crate) fn for_children(&self) -> Option<Rlimit> {
        self.original
    }
}
