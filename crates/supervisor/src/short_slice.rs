//! Getting a turn as soon as there is something to do.
//!
//! The thread that waits for tasks to end works for some microseconds and sleeps
//! again; while it waits for a turn, a GPU has nothing to do. On cores that tasks
//! keep busy the kernel lets whoever runs finish his slice of some milliseconds
//! first, unless the one who wakes up asks for less: so ask for the least there
//! is. Kernels before 6.12 take no notice.

use std::mem::size_of;

/// The shortest slice that the kernel gives, in nanoseconds.
const SLICE: u64 = 100_000;

/// Lets the calling thread interrupt longer slices when it wakes up. Whatever it
/// starts is scheduled as if nothing had been asked for.
///
/// For a program whose thread does little but wait for a [`crate::Supervisor`];
/// the supervisor itself does not call it.
pub fn request_short_slice() {
    // SAFETY: all zeros are a `sched_attr`.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let Ok(size) = u32::try_from(size_of::<libc::sched_attr>()) else {
        return;
    };
    // SAFETY: the kernel writes at most `size` bytes.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    // Whoever has chosen how to be scheduled is left alone; and a priority above
    // the usual would not pass to tasks.
    let usual = i32::try_from(attr.sched_policy) == Ok(libc::SCHED_OTHER);
    if read != 0 || !usual || attr.sched_nice < 0 {
        return;
    }
    attr.size = size;
    attr.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attr.sched_runtime = SLICE;
    // SAFETY: the kernel reads `size` bytes. It may refuse, and then nothing has
    // changed.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
