use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{STATE_VARIABLE, State};

/// One process has one environment, so one test at a time has the machine.
static TURN: Mutex<()> = Mutex::new(());

/// While this lives, the shared library in this very process reads one state,
/// and no other test's.
#[derive(Debug)]
pub struct Active {
    _turn: MutexGuard<'static, ()>,
}

impl State {
    /// Makes this the machine that this process sees. Another test of the same
    /// process waits until the guard is dropped.
    ///
    /// For programs that a test starts, set [`STATE_VARIABLE`] on their command
    /// instead.
    pub fn activate(&self) -> Active {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the standard library's own lock orders this against every
        // use of the environment by Rust code of this program. The one reader
        // with another lock is the shared library, which has its own copy of
        // the standard library; it is only called by who holds the guard.
        unsafe { std::env::set_var(STATE_VARIABLE, self.path()) };
        Active { _turn: turn }
    }
}
