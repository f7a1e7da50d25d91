//! The one place that starts a process.
//!
//! `posix_spawn` shares our memory with the child until it executes, so it is
//! as quick from a big process as from a small one; `fork` is not, and
//! `std::process::Command` takes the same road but rebuilds the environment
//! every time. Here the environment's unchanging part is laid out once.
//!
//! Neither `rustix` nor the standard library offers this call, hence `libc`.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use rustix::process::Pid;

/// How many variables one start may add to the prepared environment.
const ADDED: usize = 24;

/// What every child gets in the same way: an own process group, the signal
/// mask we were started with, and signals that we ignore back at their default.
pub(crate) struct Attributes(Box<libc::posix_spawnattr_t>);

impl Attributes {
    pub(crate) fn new(mask: &libc::sigset_t) -> io::Result<Self> {
        let mut attributes = Box::new(MaybeUninit::uninit());
        // SAFETY: the pointer is to memory of the right type, which the call
        // initialises.
        check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        let this = &raw mut *attributes.0;
        let flags = libc::POSIX_SPAWN_SETPGROUP
            | libc::POSIX_SPAWN_SETSIGMASK
            | libc::POSIX_SPAWN_SETSIGDEF;
        let mut defaults = MaybeUninit::uninit();
        // SAFETY: `this` is initialised and outlives the calls; `defaults` is
        // initialised by the first of them; `mask` is a valid reference.
        unsafe {
            libc::sigemptyset(defaults.as_mut_ptr());
            // Rust ignores SIGPIPE, and what is ignored stays so across an
            // exec: `yes | head` would complain instead of ending.
            libc::sigaddset(defaults.as_mut_ptr(), libc::SIGPIPE);
            libc::sigaddset(defaults.as_mut_ptr(), libc::SIGXFSZ);
            check(libc::posix_spawnattr_setsigdefault(this, defaults.as_ptr()))?;
            check(libc::posix_spawnattr_setsigmask(this, mask))?;
            check(libc::posix_spawnattr_setpgroup(this, 0))?;
            check(libc::posix_spawnattr_setflags(
                this,
                c_short::try_from(flags).unwrap_or_default(),
            ))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed only here.
        unsafe { libc::posix_spawnattr_destroy(&raw mut *self.0) };
    }
}

/// Which of our descriptors become the child's 0, 1 and 2.
pub(crate) struct Stdio(Box<libc::posix_spawn_file_actions_t>);

impl Stdio {
    /// Only what is named is changed; what is not named is inherited.
    pub(crate) fn new(replacements: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Self> {
        let mut actions = Box::new(MaybeUninit::uninit());
        // SAFETY: memory of the right type, which the call initialises.
        check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above.
        let mut actions = Self(unsafe { actions.assume_init() });
        for (from, to) in replacements {
            // SAFETY: the actions are initialised; the call only records numbers.
            check(unsafe {
                libc::posix_spawn_file_actions_adddup2(&raw mut *actions.0, from.as_raw_fd(), *to)
            })?;
        }
        Ok(actions)
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed only here.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut *self.0) };
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

/// Starts `program`. An error of the child's `execve` is returned here.
pub(crate) fn spawn(
    program: &CStr,
    words: &mut Words,
    environment: &mut Environment,
    stdio: &Stdio,
    attributes: &Attributes,
) -> io::Result<Pid> {
    let mut pid = 0;
    // SAFETY: all pointers are valid for the call: `program` is a C string, the
    // two arrays end in null and point to C strings owned by `words` and
    // `environment`, actions and attributes are initialised.
    check(unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            &raw const *stdio.0,
            &raw const *attributes.0,
            words.as_ptr(),
            environment.as_ptr(),
        )
    })?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn returned no process"))
}

/// These calls return the error instead of setting `errno`.
fn check(code: i32) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}
