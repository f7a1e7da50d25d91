//! Signal masks and dispositions.
//!
//! The program's own are only read, and blocked for the moment of a start. All
//! calls go straight to the kernel: the C library keeps two signals for itself
//! that its functions silently leave out, and the child of a start must not touch
//! `errno`.

use std::ffi::c_int;
use std::mem::size_of;
use std::ptr;

use syscalls::{Sysno, syscall};

/// A set of signals that are blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMask(u64);

const SET_SIZE: usize = size_of::<SignalMask>();
/// The highest signal's number.
const LAST: c_int = 64;

impl SignalMask {
    /// Every signal.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// What the calling thread has blocked.
    pub fn of_this_thread() -> Self {
        Self::replace(ptr::null())
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
        Self::replace(&raw const self)
    }

    /// Sets the mask of the calling thread, unless there is none to set, and returns
    /// the one before.
    fn replace(mask: *const Self) -> Self {
        let mut before = Self::default();
        let how = libc::SIG_SETMASK;
        // SAFETY: the kernel reads one set, if there is one, and writes one.
        let _ = unsafe { syscall!(Sysno::rt_sigprocmask, how, mask, &raw mut before, SET_SIZE) };
        before
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
    let action = KernelAction { handler, ..Default::default() };
    // SAFETY: neither "default" nor "ignore" is a function that could be called.
    unsafe { replace_action(signal, &raw const action) }
}

/// Sets what a signal does, unless there is no action to set, and returns what it did.
///
/// # Safety
/// The action is null, or one that may run whenever the signal comes.
unsafe fn replace_action(signal: c_int, action: *const KernelAction) -> usize {
    let mut before = KernelAction::default();
    // SAFETY: the kernel reads one action, if there is one, and writes one.
    let _ = unsafe { syscall!(Sysno::rt_sigaction, signal, action, &raw mut before, SET_SIZE) };
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
        // SAFETY: asks only.
        let handler = unsafe { replace_action(signal, ptr::null()) };
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
