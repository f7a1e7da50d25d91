//! The one place that starts a process.
//!
//! It is what `posix_spawn` does, done by hand: the child shares our memory, on a
//! stack of its own, until it executes, and this thread is suspended that long. So
//! it is as quick from a big process as from a small one, which `fork` is not.
//!
//! The C library's `posix_spawn` maps and unmaps a stack for each child, and the
//! child asks for the disposition of all 64 signals; without these a start of
//! `/bin/true` took a few per cent less when tried side by side. What we know and it cannot: no signal that we handle
//! may reach the child in between (all are blocked), and of those we ignore there
//! are two. `std::process::Command` takes the library's road, and rebuilds the
//! environment every time; here its unchanging part is laid out once.
//!
//! Neither `rustix` nor the standard library offers this call, hence `libc`.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use rustix::process::Pid;

/// How many variables one start may add to the prepared environment.
const ADDED: usize = 24;

/// What the child needs of stack: a few calls deep.
const STACK: usize = 64 * 1024;

/// Signals that we ignore ourselves. What is ignored stays so across an exec:
/// `yes | head` would complain instead of ending.
const IGNORED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// What all children have in common: the signal mask that we were started with,
/// and the stack on which one after the other comes to its program.
pub(crate) struct Nursery {
    mask: libc::sigset_t,
    stack: Box<[MaybeUninit<u8>]>,
}

impl Nursery {
    pub(crate) fn new(mask: &libc::sigset_t) -> Self {
        Self {
            mask: *mask,
            stack: Box::new_uninit_slice(STACK),
        }
    }

    /// The stack's upper end, from which it grows down, aligned as calls want it.
    fn top(&mut self) -> *mut c_void {
        let end = self.stack.as_mut_ptr_range().end;
        let excess = end.addr() % 16;
        end.wrapping_sub(excess).cast()
    }
}

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

/// The environment of children: a part that is the same for all of them, laid
/// out once, and room in front of it for what each gets of its own.
pub(crate) struct Environment {
    /// Owns what `pointers` points to, behind the room for the added ones.
    _fixed: Vec<CString>,
    pointers: Vec<*mut c_char>,
    added: Vec<u8>,
    starts: Vec<usize>,
}

impl Environment {
    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let fixed: Vec<CString> = variables
            .filter_map(|(name, value)| {
                let mut entry = name.into_vec();
                entry.push(b'=');
                entry.extend_from_slice(value.as_bytes());
                CString::new(entry).ok()
            })
            .collect();
        let mut pointers = vec![ptr::null_mut(); ADDED];
        pointers.extend(fixed.iter().map(|entry| entry.as_ptr().cast_mut()));
        pointers.push(ptr::null_mut());
        Self {
            _fixed: fixed,
            pointers,
            added: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Starts anew with the fixed part alone.
    pub(crate) fn clear(&mut self) {
        self.added.clear();
        self.starts.clear();
    }

    /// Adds a variable for the next start. A value with a NUL in it cannot be
    /// passed to any program and is cut there.
    pub(crate) fn add(&mut self, name: &str, value: &OsStr) {
        debug_assert!(self.starts.len() < ADDED);
        if self.starts.len() == ADDED {
            return;
        }
        self.starts.push(self.added.len());
        self.added.extend_from_slice(name.as_bytes());
        self.added.push(b'=');
        self.added
            .extend(value.as_bytes().iter().take_while(|&&byte| byte != 0));
        self.added.push(0);
    }

    fn as_ptr(&mut self) -> *const *mut c_char {
        let first = ADDED - self.starts.len();
        for (place, &start) in self.pointers[first..ADDED].iter_mut().zip(&self.starts) {
            *place = self.added[start..].as_mut_ptr().cast();
        }
        self.pointers[first..].as_ptr()
    }
}

/// The words of one command line, as `execve` wants them.
#[derive(Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    pointers: Vec<*mut c_char>,
}

impl Words {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    pub(crate) fn add(&mut self, word: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(word);
        self.bytes.push(0);
    }

    /// Puts other words in the place of the first.
    pub(crate) fn replace_first(&mut self, words: &[&[u8]]) {
        let mut changed = Self::default();
        for word in words {
            changed.add(word);
        }
        for &start in self.starts.iter().skip(1) {
            let word = &self.bytes[start..];
            let end = word.iter().position(|&byte| byte == 0);
            changed.add(&word[..end.unwrap_or(word.len())]);
        }
        *self = changed;
    }

    fn as_ptr(&mut self) -> *const *mut c_char {
        self.pointers.clear();
        for &start in &self.starts {
            self.pointers.push(self.bytes[start..].as_mut_ptr().cast());
        }
        self.pointers.push(ptr::null_mut());
        self.pointers.as_ptr()
    }
}

/// What the child reads, and where it leaves word.
struct Plan<'a> {
    program: *const c_char,
    /// Where it runs; null is here.
    folder: *const c_char,
    words: *const *const c_char,
    environment: *const *const c_char,
    stdio: &'a [(RawFd, RawFd)],
    mask: &'a libc::sigset_t,
    /// The error that kept it from its program.
    error: c_int,
}

/// Starts `program`. An error of the child's `execve` is returned here.
pub(crate) fn spawn(
    program: &CStr,
    folder: Option<&CStr>,
    words: &mut Words,
    environment: &mut Environment,
    stdio: &Stdio,
    nursery: &mut Nursery,
) -> io::Result<Pid> {
    let top = nursery.top();
    let mut plan = Plan {
        program: program.as_ptr(),
        folder: folder.map_or(ptr::null(), CStr::as_ptr),
        words: words.as_ptr().cast(),
        environment: environment.as_ptr().cast(),
        stdio: &stdio.0,
        mask: &nursery.mask,
        error: 0,
    };
    let mut all = MaybeUninit::uninit();
    let mut ours = MaybeUninit::uninit();
    // SAFETY: the sets are initialised by the calls that get them first. The child
    // runs `become_program` on a stack that nobody else uses, while this thread is
    // suspended (CLONE_VFORK) and all signals are blocked, so that it has our
    // memory, thread-local storage included, for itself. `plan` and all it points
    // to outlive the child's use of them for the same reason.
    let pid = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ours.as_mut_ptr());
        let pid = libc::clone(
            become_program,
            top,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut plan).cast(),
        );
        // Read before another call changes it.
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, ours.as_ptr(), ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone returned no process"))?;
    // SAFETY: reads what the child wrote through the same pointer; the compiler
    // cannot know of it.
    let error = unsafe { ptr::read_volatile(&raw const plan.error) };
    if error != 0 {
        // It has ended, or is about to.
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(pid)
}

/// The child, from its first breath to its program.
///
/// It shares memory with a thread that stands still: it must not allocate, lock or
/// panic, and calls nothing but the system.
extern "C" fn become_program(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a plan that is valid until we are done with it, and
    // does not touch it meanwhile. Every call takes numbers or pointers from it.
    unsafe {
        let plan = &mut *plan.cast::<Plan<'_>>();
        // A process group of its own, so that all of it can be signalled.
        let mut failed = libc::setpgid(0, 0) < 0;
        for &(from, to) in plan.stdio {
            failed = failed || libc::dup2(from, to) < 0;
        }
        failed = failed || (!plan.folder.is_null() && libc::chdir(plan.folder) < 0);
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_DFL);
        }
        if !failed {
            libc::sigprocmask(libc::SIG_SETMASK, plan.mask, ptr::null_mut());
            libc::execve(plan.program, plan.words, plan.environment);
        }
        let error = *libc::__errno_location();
        ptr::write_volatile(&raw mut plan.error, error);
        libc::_exit(127)
    }
}
