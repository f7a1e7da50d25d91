//! The one place that starts a process.
//!
//! The child shares our memory, on a stack of its own, until it executes: so a
//! start is as quick from a big process as from a small one, which `fork` is not.
//! `posix_spawn` does the same, but suspends the caller that long, maps and unmaps
//! a stack for each child, and has the child ask for the disposition of all 64
//! signals. Here the stack is kept, the signals to reset are known, and the caller
//! can go on at once: loading a program takes the kernel longer than all our
//! bookkeeping, and while this thread stood still a core might have nothing to do.
//! `std::process::Command` takes the library's road, and rebuilds the environment
//! every time; here its unchanging part is laid out once.
//!
//! A signal that a terminal sends to our process group must not reach the child.
//! So all signals are blocked from before it exists; when it has a group of its
//! own, it throws away what came until then; and only then its program gets the
//! mask that it should have.
//!
//! Neither `rustix` nor the standard library offers this call, hence `libc`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use packhorse_model::CoreId;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, kill_process};
use rustix::thread::CpuSet;
use syscalls::{Sysno, syscall};

use crate::SignalMask;
use crate::argv::Argv;
use crate::environment::Environment;
use crate::signals;

/// What the child needs of stack: a few calls deep.
const STACK: usize = 32 * 1024;

/// Which of our descriptors become the child's 0, 1 and 2. What is not named is
/// inherited. They must stay open until the child exists.
pub(crate) type Stdio = [Option<RawFd>; 3];

/// What all children have in common.
#[derive(Clone)]
pub(crate) struct Inheritance {
    pub(crate) environment: Environment,
    /// The signals that they have blocked.
    pub(crate) mask: SignalMask,
    /// The signals to set to their default: see [`signals::to_reset`].
    pub(crate) reset: Arc<[c_int]>,
}

/// Everything that one child uses before it executes its program. It stays where
/// it is and as it is until that child has ended.
pub(crate) struct SpawnBuffer {
    /// The program's name as the person gave it.
    pub(crate) program: Vec<u8>,
    /// Where it runs, if that is not here.
    pub(crate) folder: Option<CString>,
    pub(crate) argv: Argv,
    pub(crate) environment: Environment,
    /// The file to execute.
    pub(crate) file: Arc<CStr>,
    stack: Box<[MaybeUninit<u8>]>,
    reset: Arc<[c_int]>,
    plan: ChildPlan,
}

/// What the child reads, and where it leaves word.
struct ChildPlan {
    file: *const c_char,
    folder: *const c_char,
    argv: *const *const c_char,
    environment: *const *const c_char,
    stdio: Stdio,
    cores: Option<CpuSet>,
    descriptor_limit: Option<Rlimit>,
    mask: SignalMask,
    reset: *const [c_int],
    /// We have sent SIGTERM, which must not be thrown away.
    terminated: AtomicBool,
    /// The error that kept it from its program, or 0.
    error: AtomicI32,
}

// SAFETY: the plan's pointers are to what the buffer owns, or to what outlives its
// child; nothing is bound to a thread.
unsafe impl Send for SpawnBuffer {}

/// Whether to wait until the child has executed its program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitExec {
    /// Wait, and return the error of its `execve` if there is one.
    Yes,
    /// Go on. [`SpawnBuffer::error`] has the error when the child has ended.
    No,
}

/// A child, by its number and, if that is wanted, by a handle that becomes readable
/// when it ends.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) handle: Option<OwnedFd>,
}

impl SpawnBuffer {
    pub(crate) fn new(inheritance: &Inheritance) -> Box<Self> {
        Box::new(Self {
            program: Vec::new(),
            folder: None,
            argv: Argv::default(),
            environment: inheritance.environment.clone(),
            file: Arc::default(),
            stack: Box::new_uninit_slice(STACK),
            reset: Arc::clone(&inheritance.reset),
            plan: ChildPlan {
                file: ptr::null(),
                folder: ptr::null(),
                argv: ptr::null(),
                environment: ptr::null(),
                stdio: [None; 3],
                cores: None,
                descriptor_limit: None,
                mask: inheritance.mask,
                reset: ptr::slice_from_raw_parts(ptr::null(), 0),
                terminated: AtomicBool::new(false),
                error: AtomicI32::new(0),
            },
        })
    }

    /// The cores that the next child is pinned to. None: wherever we may run.
    pub(crate) fn pin_to(&mut self, cores: &[CoreId]) {
        self.plan.cores = (!cores.is_empty()).then(|| {
            let mut set = CpuSet::new();
            let cores = cores.iter().map(|core| core.0 as usize);
            for core in cores.filter(|&core| core < CpuSet::MAX_CPU) {
                set.set(core);
            }
            set
        });
    }

    /// How many descriptors the next child may open, if that is not our limit.
    pub(crate) fn limit_descriptors(&mut self, limit: Option<Rlimit>) {
        self.plan.descriptor_limit = limit;
    }

    /// What kept the last child from its program, once it has ended.
    pub(crate) fn error(&self) -> Option<io::Error> {
        match self.plan.error.load(Ordering::Acquire) {
            0 => None,
            error => Some(io::Error::from_raw_os_error(error)),
        }
    }

    /// The next leader is not started from here.
    pub(crate) fn forget_error(&self) {
        self.plan.error.store(0, Ordering::Relaxed);
    }

    /// Must be said before the child is sent SIGTERM: it may be about to throw
    /// away what came for it.
    pub(crate) fn announce_termination(&self) {
        self.plan.terminated.store(true, Ordering::SeqCst);
    }

    /// The stack's upper end, from which it grows down, aligned as calls want it.
    fn top(&mut self) -> *mut c_void {
        let end = self.stack.as_mut_ptr_range().end;
        let excess = end.addr() % 16;
        end.wrapping_sub(excess).cast()
    }

    /// Starts what is laid out.
    ///
    /// # Safety
    /// Until the child has executed its program or ended, which is certain only
    /// with [`AwaitExec::Yes`] or after it was waited for, this must be neither
    /// changed nor dropped nor moved.
    pub(crate) unsafe fn spawn(
        &mut self,
        stdio: Stdio,
        wait: AwaitExec,
        with_handle: bool,
    ) -> io::Result<Child> {
        let top = self.top();
        self.plan.file = self.file.as_ptr();
        self.plan.folder = self.folder.as_deref().map_or(ptr::null(), CStr::as_ptr);
        self.plan.argv = self.argv.as_ptr();
        self.plan.environment = self.environment.as_ptr();
        self.plan.stdio = stdio;
        self.plan.reset = &raw const *self.reset;
        self.plan.terminated.store(false, Ordering::SeqCst);
        self.plan.error.store(0, Ordering::Relaxed);
        let suspend = match wait {
            AwaitExec::Yes => libc::CLONE_VFORK,
            AwaitExec::No => 0,
        };
        let mut handle: c_int = -1;
        let handles = if with_handle { libc::CLONE_PIDFD } else { 0 };
        let mask = SignalMask::ALL.apply();
        // SAFETY: the child runs `execute_plan` on a stack that nobody else uses,
        // and what the plan points to stays, as the caller promises. It has its
        // own descriptors and signal actions, and all signals blocked.
        let pid = unsafe {
            libc::clone(
                execute_plan,
                top,
                libc::CLONE_VM | libc::SIGCHLD | handles | suspend,
                (&raw mut self.plan).cast(),
                &raw mut handle,
            )
        };
        // The error, before another call can change it.
        let failed = (pid < 0).then(io::Error::last_os_error);
        mask.apply();
        if let Some(error) = failed {
            return Err(error);
        }
        let pid =
            Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone returned no process"))?;
        // SAFETY: a descriptor that the call just made, owned by nobody else.
        let handle = with_handle.then(|| unsafe { OwnedFd::from_raw_fd(handle) });
        if wait == AwaitExec::Yes
            && let Some(error) = self.error()
        {
            // It has ended, or is about to.
            let _ = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            return Err(error);
        }
        Ok(Child { pid, handle })
    }
}

/// The child, until it executes its program.
///
/// It shares memory with threads that go on, and even the thread-local storage of
/// the one that started it: it must not allocate, lock or panic, nor call anything
/// that may set `errno`. All calls go to the kernel without the C library.
extern "C" fn execute_plan(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a plan that stays until we are done with it, and that
    // nobody changes meanwhile. Every call takes numbers or pointers from it.
    unsafe {
        let plan = &*plan.cast::<ChildPlan>();
        let error = prepare(plan).err().unwrap_or_else(|| {
            plan.mask.apply();
            let executed = syscall!(Sysno::execve, plan.file, plan.argv, plan.environment);
            executed.map_or_else(syscalls::Errno::into_raw, |_| 0)
        });
        plan.error.store(error, Ordering::Release);
        loop {
            let _ = syscall!(Sysno::exit_group, 127);
        }
    }
}

/// Gives the child its group, signals, descriptors, cores, limits and folder, or
/// returns the error's number.
///
/// # Safety
/// As for [`execute_plan`].
unsafe fn prepare(plan: &ChildPlan) -> Result<(), i32> {
    // SAFETY: the plan's pointers are valid, see there.
    let (folder, reset) = unsafe {
        let folder = (!plan.folder.is_null()).then(|| CStr::from_ptr(plan.folder));
        (folder, &*plan.reset)
    };
    let call = |done: rustix::io::Result<()>| done.map_err(rustix::io::Errno::raw_os_error);
    // A process group of its own, so that all of it can be signalled. What was
    // sent to the group it came from is not meant for it.
    call(rustix::process::setpgid(None, None))?;
    signals::discard_pending();
    signals::reset(reset);
    if plan.terminated.load(Ordering::SeqCst) {
        call(kill_process(getpid(), Signal::TERM))?;
    }
    let replace =
        [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr];
    for (from, dup2) in plan.stdio.into_iter().zip(replace) {
        if let Some(from) = from {
            // SAFETY: we have a copy of what was open when we were started.
            call(dup2(unsafe { BorrowedFd::borrow_raw(from) }))?;
        }
    }
    if let Some(cores) = &plan.cores {
        // Cores that are not there, or not ours, are no reason not to run.
        let _ = rustix::thread::sched_setaffinity(None, cores);
    }
    if let Some(limit) = plan.descriptor_limit {
        call(rustix::process::setrlimit(Resource::Nofile, limit))?;
    }
    folder.map_or(Ok(()), |folder| call(rustix::process::chdir(folder)))
}
