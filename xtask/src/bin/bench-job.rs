//! `bench-job FILE [MILLISECONDS]`: a job that records when it ran.
//!
//! It reads the monotonic clock first of all, sleeps as long as it is told, and appends
//! `START END` in nanoseconds to FILE in one write, so that jobs that end at the same time
//! do not mix their lines. It is C's `main`, without Rust's start-up, to be as light as
//! `/bin/true`.

#![no_main]

use std::ffi::{CStr, c_char, c_int};
use std::{mem, ptr};

// SAFETY: nothing else in this program is called `main`.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    let start = now();
    if count < 2 {
        return 2;
    }
    // SAFETY: `words` holds `count` strings and a null pointer, as C promises.
    let (file, milliseconds) = unsafe { (*words.add(1), *words.add(2)) };
    if !milliseconds.is_null() {
        // SAFETY: the second argument is a string, for it is not null.
        sleep(unsafe { libc::atoi(milliseconds) });
    }
    // SAFETY: the first argument is a string, for there are two.
    let written = append(unsafe { CStr::from_ptr(file) }, start);
    c_int::from(!written)
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    // SAFETY: all zeros is a valid `timespec`.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is ours to write to for the length of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn sleep(milliseconds: c_int) {
    let time = libc::timespec {
        tv_sec: i64::from(milliseconds / 1000),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    };
    // SAFETY: `time` outlives the call; the time left over is not asked for.
    unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
}

/// Appends `START END`, where the end is now. Returns whether that worked.
fn append(file: &CStr, start: u64) -> bool {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: `file` is a string that outlives the call.
    let file = unsafe { libc::open(file.as_ptr(), flags, 0o600) };
    if file < 0 {
        return false;
    }
    let line = format!("{start} {}\n", now());
    // SAFETY: the pointer and the length are those of `line`, which outlives
    // the call.
    let written = unsafe { libc::write(file, line.as_ptr().cast(), line.len()) };
    written.cast_unsigned() == line.len()
}
