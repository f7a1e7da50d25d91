use std::io;
use std::mem::MaybeUninit;

/// Starts a thread with all signals blocked: a signal for the process must reach
/// the thread that waits for it, and would end the process here.
pub(crate) fn spawn_without_signals(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // A thread inherits the mask of the thread that starts it, so there is no
    // moment without it.
    // SAFETY: `sigfillset` initialises the set; the pointers are to live locals.
    let code = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
    };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    // SAFETY: `before` was written by the successful call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    thread.map(|_| ()).map_err(packhorse_proc::explain_start)
}
