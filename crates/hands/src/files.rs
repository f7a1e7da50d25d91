//! How many descriptors may be open.

use std::io;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit of open descriptors, raised when we need it and never for children:
/// some of them count on the usual one.
#[derive(Default)]
pub(crate) struct Files {
    /// What it was before we raised it.
    original: Option<Rlimit>,
}

impl Files {
    /// Raises our limit as far as we may.
    pub(crate) fn raise(&mut self) -> io::Result<()> {
        let limit = getrlimit(Resource::Nofile);
        let highest = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, highest)?;
        if self.original.is_none() {
            self.original = Some(limit);
        }
        Ok(())
    }

    /// Gives a child the limit that we were started with.
    pub(crate) fn restore_for(&self, child: Pid) {
        if let Some(limit) = &self.original {
            // It may have ended already.
            let _ = prlimit(Some(child), Resource::Nofile, *limit);
        }
    }
}
