//! How many descriptors may be open.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of open descriptors, raised for us and never for attempts: some of them count
/// on the usual one.
pub(crate) struct DescriptorLimit {
    /// What it was before we raised it.
    original: Option<Rlimit>,
}

/// What one attempt has open on our side: two pipes with both ends, a log, its
/// index, and the handle of its process.
const EACH: u64 = 7;
/// What we have open ourselves, and then some.
const OURS: u64 = 64;
/// What we may open from the start, if that is allowed. More could slow down other programs
/// that we start: some of them close every descriptor that there might be, one by one.
const AT_FIRST: u64 = 1 << 16;

impl DescriptorLimit {
    /// Raises it at once, and not when it is reached: others in this process, who watch the
    /// leases of other runs for instance, open descriptors as well, and may miss something
    /// if they cannot.
    pub(crate) fn raised() -> Self {
        let mut limit = Self { original: None };
        // Whoever may not raise it has to make do.
        let _ = limit.raise(AT_FIRST);
        limit
    }

    /// Sees to it that there is room for so many attempts at once, or fails: an attempt
    /// that has its pipes must also get its log. One is tried in any case.
    pub(crate) fn ensure(&mut self, attempts: usize) -> io::Result<()> {
        let needed = attempts as u64 * EACH + OURS;
        self.raise(needed)?;
        let limit = getrlimit(Resource::Nofile);
        if attempts > 1 && limit.maximum.is_some_and(|maximum| maximum < needed) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(())
    }

    /// Raises our limit to so much, or as far as we may.
    fn raise(&mut self, wanted: u64) -> io::Result<()> {
        let limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
        if limit.current.is_none_or(|current| current >= most) {
            return Ok(());
        }
        let raised = Rlimit { current: Some(most), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)?;
        self.original.get_or_insert(limit);
        Ok(())
    }

    /// The limit that attempts get, if it is not ours.
    pub(crate) fn for_children(&self) -> Option<Rlimit> {
        self.original
    }
}
