//! The one place that starts a process.
//!
//! The child shares our memory, on a stack of its own, until it executes: so a
//! start is as quick from a big process as from a small one, which `fork` is not.
//! `posix_spawn` does the same, but suspends the caller that long, maps and unmaps
//! a stack for each child, and has the child ask for the disposition of all 64
//! signals. Here the stack is kept, of the signals we ignore there are two, and
//! the caller can go on at once: loading a program takes the kernel longer than
//! all our bookkeeping, and while this thread stood still a core might have
//! nothing to do. `std::process::Command` takes the library's road, and rebuilds
//! the environment every time; here its unchanging part is laid out once.
//!
//! Neither `rustix` nor the standard library offers this call, hence `libc`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use packhorse_model::CoreId;
use rustix::process::Pid;
use syscalls::{Sysno, syscall};

use crate::arguments::{Environment, Words};

/// What the child needs of stack: a few calls deep.
const STACK: usize = 32 * 1024;

/// Signals that we ignore ourselves. What is ignored stays so across an exec:
/// `yes | head` would complain instead of ending.
const IGNORED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Which of our descriptors become the child's 0, 1 and 2. Only what is named is
/// changed; what is not named is inherited.
pub(crate) struct Stdio(Vec<(RawFd, RawFd)>);

impl Stdio {
    /// The descriptors must stay open as long as this is used.
    pub(crate) fn new(replacements: &[(BorrowedFd<'_>, RawFd)]) -> Self {
        let pairs = replacements.iter();
        Self(pairs.map(|(from, to)| (from.as_raw_fd(), *to)).collect())
    }
}

/// Everything that one child uses between its first breath and its program. It
/// stays where it is and as it is until that child has ended.
pub(crate) struct Cradle {
    /// The program's name as the person gave it.
    pub(crate) program: Vec<u8>,
    /// Where it runs, if that is not here.
    pub(crate) folder: Option<CString>,
    pub(crate) words: Words,
    pub(crate) environment: Environment,
    /// The cores it is pinned to. Empty: wherever we may run.
    pub(crate) cores: Vec<CoreId>,
    stack: Box<[MaybeUninit<u8>]>,
    plan: Plan,
}

/// What the child reads, and where it leaves word.
struct Plan {
    program: CString,
    folder: *const c_char,
    words: *const *const c_char,
    environment: *const *const c_char,
    stdio: *const [(RawFd, RawFd)],
    mask: libc::sigset_t,
    /// The error that kept it from its program, or 0.
    error: AtomicI32,
}

/// Whether to go on before the child has come to its program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Wait, and return the error of its `execve` if there is one.
    Wait,
    /// Go on. [`Cradle::error`] has the error when the child has ended.
    GoOn,
}

impl Cradle {
    /// `mask` are the signals that children have blocked.
    pub(crate) fn new(environment: Environment, mask: &libc::sigset_t) -> Box<Self> {
        Box::new(Self {
            program: Vec::new(),
            folder: None,
            words: Words::default(),
            environment,
            cores: Vec::new(),
            stack: Box::new_uninit_slice(STACK),
            plan: Plan {
                program: CString::default(),
                folder: ptr::null(),
                words: ptr::null(),
                environment: ptr::null(),
                stdio: ptr::slice_from_raw_parts(ptr::null(), 0),
                mask: *mask,
                error: AtomicI32::new(0),
            },
        })
    }

    /// What kept the last child from its program, once it has ended.
    pub(crate) fn error(&self) -> Option<io::Error> {
        match self.plan.error.load(Ordering::Acquire) {
            0 => None,
            error => Some(io::Error::from_raw_os_error(error)),
        }
    }

    /// The stack's upper end, from which it grows down, aligned as calls want it.
    fn top(&mut self) -> *mut c_void {
        let end = self.stack.as_mut_ptr_range().end;
        let excess = end.addr() % 16;
        end.wrapping_sub(excess).cast()
    }

    /// Starts the program in `file`.
    ///
    /// # Safety
    /// Until the child has executed its program or ended, which is certain only
    /// with [`Pace::Wait`] or after it was waited for, this must be neither changed
    /// nor dropped nor moved, and `stdio` must stay.
    pub(crate) unsafe fn spawn(
        &mut self,
        file: CString,
        stdio: &Stdio,
        pace: Pace,
    ) -> io::Result<Pid> {
        let top = self.top();
        self.plan.program = file;
        self.plan.folder = self.folder.as_deref().map_or(ptr::null(), CStr::as_ptr);
        self.plan.words = self.words.as_ptr().cast();
        self.plan.environment = self.environment.as_ptr().cast();
        self.plan.stdio = &raw const *stdio.0;
        self.plan.error.store(0, Ordering::Relaxed);
        let suspend = match pace {
            Pace::Wait => libc::CLONE_VFORK,
            Pace::GoOn => 0,
        };
        // SAFETY: the child runs `become_program` on a stack that nobody else
        // uses, and what the plan points to stays, as the caller promises. It has
        // its own signal handlers and descriptors, and no signal has a handler of
        // ours that touches memory.
        let pid = unsafe {
            libc::clone(
                become_program,
                top,
                libc::CLONE_VM | libc::SIGCHLD | suspend,
                (&raw mut self.plan).cast(),
            )
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let pid =
            Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone returned no process"))?;
        if pace == Pace::Wait
            && let Some(error) = self.error()
        {
            // It has ended, or is about to.
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            return Err(error);
        }
        Ok(pid)
    }
}

/// The child, from its first breath to its program.
///
/// It shares memory with threads that go on, and even the thread-local storage of
/// the one that started it: it must not allocate, lock or panic, nor call anything
/// that may set `errno`. What can fail here goes to the kernel without the C
/// library.
extern "C" fn become_program(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a plan that stays until we are done with it, and that
    // nobody changes meanwhile. Every call takes numbers or pointers from it.
    unsafe {
        let plan = &*plan.cast::<Plan>();
        let error = prepare(plan).err().unwrap_or_else(|| {
            for signal in IGNORED {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const plan.mask, ptr::null_mut());
            let executed = syscall!(
                Sysno::execve,
                plan.program.as_ptr(),
                plan.words,
                plan.environment
            );
            executed.map_or_else(syscalls::Errno::into_raw, |_| 0)
        });
        plan.error.store(error, Ordering::Release);
        libc::_exit(127)
    }
}

/// Gives the child its group, descriptors and folder, or returns the error's number.
///
/// # Safety
/// As for [`become_program`].
unsafe fn prepare(plan: &Plan) -> Result<(), i32> {
    // SAFETY: the plan's pointers are valid, see there.
    let (stdio, folder) = unsafe {
        let folder = (!plan.folder.is_null()).then(|| CStr::from_ptr(plan.folder));
        (&*plan.stdio, folder)
    };
    let call = |done: rustix::io::Result<()>| done.map_err(rustix::io::Errno::raw_os_error);
    // A process group of its own, so that all of it can be signalled.
    call(rustix::process::setpgid(None, None))?;
    for &(from, to) in stdio {
        // SAFETY: open as long as the plan is used.
        let from = unsafe { BorrowedFd::borrow_raw(from) };
        call(match to {
            0 => rustix::stdio::dup2_stdin(from),
            1 => rustix::stdio::dup2_stdout(from),
            _ => rustix::stdio::dup2_stderr(from),
        })?;
    }
    folder.map_or(Ok(()), |folder| call(rustix::process::chdir(folder)))
}
