//! The signals of this program as events of the loop.
//!
//! They are blocked for the whole process and read from a descriptor. Children get the
//! mask that we were started with.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use packhorse_engine::StopSignal;
use packhorse_proc::is_blocked_elsewhere;
use packhorse_supervisor::EndNotice;

/// A signal sent to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSignal {
    /// We are asked to stop.
    Stop(StopSignal),
    /// The terminal has another size.
    Resize,
    /// We are to be stopped for a while, as by Ctrl-Z.
    Suspend,
    /// We were stopped, and go on.
    Continue,
    /// A child has ended.
    Child,
}

/// The signals we wait for.
const WATCHED: [(i32, ProgramSignal); 8] = [
    (libc::SIGINT, ProgramSignal::Stop(StopSignal::Interrupt)),
    (libc::SIGTERM, ProgramSignal::Stop(StopSignal::Terminate)),
    (libc::SIGHUP, ProgramSignal::Stop(StopSignal::Hangup)),
    (libc::SIGQUIT, ProgramSignal::Stop(StopSignal::Quit)),
    (libc::SIGWINCH, ProgramSignal::Resize),
    (libc::SIGTSTP, ProgramSignal::Suspend),
    (libc::SIGCONT, ProgramSignal::Continue),
    (libc::SIGCHLD, ProgramSignal::Child),
];

/// The watched signals, blocked while this lives.
pub struct Signals {
    descriptor: OwnedFd,
    end_notice: EndNotice,
    /// What was in force before: what other signals did, and the mask.
    child_action: libc::sigaction,
    original: libc::sigset_t,
}

/// Whether the kernel has refused a write because of the limit on the size of files.
static FILE_TOO_LARGE: AtomicBool = AtomicBool::new(false);

/// Makes a write that the limit on the size of files refuses an error, instead of the end of this
/// process. Tasks get the default back.
pub fn survive_file_size_limit() {
    replace_action(libc::SIGXFSZ, note_file_size as *const () as libc::sighandler_t);
}

/// Returns whether the limit on the size of files has refused a write of this process.
pub fn has_met_file_size_limit() -> bool {
    FILE_TOO_LARGE.load(Ordering::Relaxed)
}

extern "C" fn note_file_size(_: libc::c_int) {
    FILE_TOO_LARGE.store(true, Ordering::Relaxed);
}

impl Signals {
    /// Blocks the signals in this thread and in those it starts from now on.
    pub fn block() -> io::Result<Self> {
        // A thread that was there before and does not have it blocked would take it away.
        let end_notice = if is_blocked_elsewhere(libc::SIGCHLD) {
            EndNotice::Sigchld
        } else {
            EndNotice::Handle
        };
        let mut watched = MaybeUninit::uninit();
        let mut original = MaybeUninit::uninit();
        // Whoever started us may ignore the ends of children, which then
        // would never be told to us.
        let child_action = replace_action(libc::SIGCHLD, libc::SIG_DFL);
        // SAFETY: `sigemptyset` initialises the set, the others change it; no
        // pointer outlives its call.
        unsafe {
            libc::sigemptyset(watched.as_mut_ptr());
            for (number, signal) in WATCHED {
                let wanted = match signal {
                    ProgramSignal::Stop(_) | ProgramSignal::Suspend => !is_ignored(number),
                    ProgramSignal::Resize | ProgramSignal::Continue => true,
                    ProgramSignal::Child => end_notice == EndNotice::Sigchld,
                };
                if wanted {
                    libc::sigaddset(watched.as_mut_ptr(), number);
                }
            }
            let code =
                libc::pthread_sigmask(libc::SIG_BLOCK, watched.as_ptr(), original.as_mut_ptr());
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
        }
        // SAFETY: initialised by `sigemptyset` above.
        let descriptor =
            unsafe { libc::signalfd(-1, watched.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            end_notice,
            child_action,
            // SAFETY: a descriptor that the call just made, owned by nobody else.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            // SAFETY: written by the successful `pthread_sigmask`.
            original: unsafe { original.assume_init() },
        })
    }

    /// How the supervisor may learn of the ends of its children.
    pub(crate) fn end_notice(&self) -> EndNotice {
        self.end_notice
    }

    /// Does what SIGTSTP would have done: stops this process until it is continued, unless
    /// there is nobody who could do that.
    pub fn suspend() {
        let mut suspend = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set; no pointer outlives its call. The
        // signal's action is the usual one: nobody has changed it.
        unsafe {
            libc::sigemptyset(suspend.as_mut_ptr());
            libc::sigaddset(suspend.as_mut_ptr(), libc::SIGTSTP);
            libc::raise(libc::SIGTSTP);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, suspend.as_ptr(), std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, suspend.as_ptr(), std::ptr::null_mut());
        }
    }

    /// Those that came in since the last look.
    pub fn read(&self) -> Vec<ProgramSignal> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut signals = Vec::new();
        let mut buffer = [0_u8; SIZE * 8];
        while let Ok(length) = rustix::io::read(&self.descriptor, &mut buffer) {
            for record in buffer[..length].chunks_exact(SIZE) {
                // `ssi_signo` is the record's first field.
                let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                let watched = WATCHED.iter().find(|(watched, _)| *watched == number);
                signals.extend(watched.map(|(_, signal)| *signal));
            }
            if length < buffer.len() {
                break;
            }
        }
        signals
    }
}

/// Lets the signals that ask to stop end this process if it is the first one of a container,
/// until [`Signals`] takes them over: the kernel keeps signals from such a process that have no
/// handler, and what it waits for, such as a driver that hangs, could not be ended.
pub fn end_on_signals() {
    if std::process::id() != 1 {
        return;
    }
    for (number, signal) in WATCHED {
        if matches!(signal, ProgramSignal::Stop(_)) && !is_ignored(number) {
            replace_action(number, end as *const () as libc::sighandler_t);
        }
    }
}

/// Ends this process as a shell reports the end by a signal.
extern "C" fn end(number: libc::c_int) {
    // SAFETY: `_exit` may be called in a signal handler.
    unsafe { libc::_exit(128 + number) }
}

impl Drop for Signals {
    /// From here on signals do again what they did before us.
    fn drop(&mut self) {
        // SAFETY: the mask and the action are those that were in force; nothing is
        // returned.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child_action, std::ptr::null_mut());
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.original,
                std::ptr::null_mut(),
            );
        }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Has a signal ignored, or do what it usually does; what it did before.
fn replace_action(number: i32, to: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeros is an action without flags; the call reads one and writes one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before = action;
        action.sa_sigaction = to;
        libc::sigaction(number, &raw const action, &raw mut before);
        before
    }
}

/// `nohup` ignores SIGHUP for us, and means it.
fn is_ignored(number: i32) -> bool {
    let mut action: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();
    // SAFETY: asks only; the call fills in `action` when it returns 0.
    unsafe {
        libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
