use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use fs_err as fs;

use crate::{FakeState, STATE_VARIABLE};

/// One process has one environment, so one test at a time has the machine.
static TURN: Mutex<()> = Mutex::new(());

/// While this lives, the shared library in this very process reads one state,
/// and no other test's.
#[derive(Debug)]
pub struct Active {
    _turn: MutexGuard<'static, ()>,
}

impl FakeState {
    /// Makes this the machine that this process sees. Another test of the same
    /// process waits until the guard is dropped.
    ///
    /// For programs that a test starts, set [`STATE_VARIABLE`] on their command
    /// instead.
    pub fn activate(&self) -> Active {
        static NAMED: Once = Once::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // What changes from test to test is the link: threads of a test that is
        // over may still read the environment inside the shared library.
        let _ = fs::remove_file(link());
        fs::os::unix::fs::symlink(self.path(), link()).expect("the test's folder is writable");
        NAMED.call_once(|| {
            // SAFETY: done once, before anything in this process calls the
            // shared library, which is the one reader of the environment that
            // does not take the standard library's lock of this program.
            unsafe { std::env::set_var(STATE_VARIABLE, link()) };
        });
        Active { _turn: turn }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let _ = fs::remove_file(link());
    }
}

fn link() -> PathBuf {
    std::env::temp_dir().join(format!("fake-nvml-{}", std::process::id()))
}
