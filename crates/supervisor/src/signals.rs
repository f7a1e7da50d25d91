//! Signal masks and dispositions.
//!
//! The program's own are only read, and blocked for the moment of a start. All
//! calls go straight to the kernel: the C library keeps two signals for itself
//! that its functions silently leave out, and the child of a start must not touch
//! `errno`.

use std::ffi::c_int;
use std::mem::{MaybeUninit, size_of};

use syscalls::{Sysno, syscall};

/// A set of signals that are blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMask(u64);

const SET_SIZE: usize = size_of::<SignalMask>();
/// The highest signal's number.
const LAST: c_int = 64;

impl SignalMask {
    const ALL: Self = Self(u64::MAX);

    /// What the calling thread has blocked.
    pub fn of_this_thread() -> Self {
        let mut mask = Self::default();
        // SAFETY: asks only; the kernel writes one set.
        let _ = unsafe {
            syscall!(
                Sysno::rt_sigprocmask,
                libc::SIG_SETMASK,
                0,
                &raw mut mask,
                SET_SIZE
            )
        };
        mask
    }

    /// This set and one more signal.
    #[must_use]
    pub const fn with(self, signal: i32) -> Self {
        if signal < 1 || signal > LAST {
            return self;
        }
        Self(self.0 | 1 << (signal - 1))
    }

    /// Makes it the mask of the calling thread, and returns the one before.
    pub(crate) fn apply(self) -> Self {
        let mut before = Self::default();
        // SAFETY: the kernel reads one set and writes one.
        let _ = unsafe {
            syscall!(
                Sysno::rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const self,
                &raw mut before,
                SET_SIZE
            )
        };
        before
    }
}

/// Blocks all signals in the calling thread as long as it lives.
pub(crate) struct AllBlocked {
    before: SignalMask,
}

impl AllBlocked {
    pub(crate) fn new() -> Self {
        Self {
            before: SignalMask::ALL.apply(),
        }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        self.before.apply();
    }
}

/// What the kernel knows of a signal's action. Only the handler matters here.
#[derive(Default)]
#[repr(C)]
struct KernelAction {
    handler: usize,
    rest: [u64; 3],
}

/// Changes what a signal does in this process, and returns what it did.
fn set_action(signal: c_int, handler: usize) -> usize {
    let action = KernelAction {
        handler,
        ..Default::default()
    };
    let mut before = KernelAction::default();
    // SAFETY: neither "default" nor "ignore" is a function that could be called,
    // and the kernel reads and writes one action each.
    let _ = unsafe {
        syscall!(
            Sysno::rt_sigaction,
            signal,
            &raw const action,
            &raw mut before,
            SET_SIZE
        )
    };
    before.handler
}

/// The signals to set to their default in a child before it executes.
///
/// Executing resets those that have a handler, but until then the child shares
/// memory with us, and our handlers must not run in it. SIGTERM is the one that we
/// send ourselves, so it is among them whoever handles it later. What is ignored
/// stays ignored across an execution: `nohup` ignores SIGHUP on purpose, but
/// language runtimes ignore SIGPIPE and SIGXFSZ for themselves (`yes | head` would
/// complain instead of ending).
pub(crate) fn to_reset() -> Vec<c_int> {
    let handled = |signal: c_int| {
        let mut action: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();
        // SAFETY: asks only; the call fills in `action` when it returns 0.
        let handler = unsafe {
            if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
                return false;
            }
            action.assume_init().sa_sigaction
        };
        match signal {
            // A process raises these itself, by a fault that we do not have.
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL => false,
            libc::SIGPIPE | libc::SIGXFSZ => true,
            libc::SIGTERM => handler != libc::SIG_IGN,
            _ => handler != libc::SIG_IGN && handler != libc::SIG_DFL,
        }
    };
    (1..=LAST).filter(|&signal| handled(signal)).collect()
}

/// Sets signals to their default. For the child of a start: see there.
pub(crate) fn reset(signals: &[c_int]) {
    for &signal in signals {
        set_action(signal, libc::SIG_DFL);
    }
}

/// Throws away the blocked signals that came for this process. For the child of a
/// start: see there.
pub(crate) fn discard_pending() {
    let mut pending = 0_u64;
    // SAFETY: the kernel writes one set.
    let _ = unsafe { syscall!(Sysno::rt_sigpending, &raw mut pending, SET_SIZE) };
    while pending != 0 {
        let signal = pending.trailing_zeros().cast_signed() + 1;
        pending &= pending - 1;
        if set_action(signal, libc::SIG_IGN) != libc::SIG_IGN {
            set_action(signal, libc::SIG_DFL);
        }
    }
}
