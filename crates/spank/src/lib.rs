//! The SPANK plugin: carries out in each task what the prolog has ordered for its job.
//!
//! ```text
//! slurmstepd ─ init                          reads the job's orders, waits for its MPS server
//!            ├ task_post_fork                after the last task: devices, by cgroups
//!            └ fork ┬ task_init_privileged   each task: a refused job ends here
//!                   └ task_init              each task: sets its environment
//! ```
//!
//! Devices are changed in `task_post_fork`: before it, tasks are not in their cgroups yet,
//! and after it they run.
//!
//! A job that has `mps` but no orders that can be read would have the GPU that Slurm counts
//! on, beside whoever was given it: its tasks are ended. So are tasks that cannot be held to
//! their devices. Whether a job has `mps` only Slurm knows, and it is asked only where a job
//! without orders looks like it.
//!
//! Everywhere else (`srun`, `sbatch`, `slurmd`) the plugin does nothing. Nothing that goes
//! wrong in it ends a step of a job that has no `mps`, and no panic crosses into Slurm.

mod patience;
mod slurm;
mod step;

use std::ffi::{c_char, c_int, c_uint};

use slurm::Spank;

/// Slurm looks these up as arrays of characters and as numbers.
#[unsafe(no_mangle)]
pub static plugin_name: [u8; 10] = *b"packhorse\0";

/// The kind of plugin.
#[unsafe(no_mangle)]
pub static plugin_type: [u8; 6] = *b"spank\0";

/// The Slurm that the plugin was built for.
#[unsafe(no_mangle)]
pub static plugin_version: c_uint = slurm_version(env!("PACKHORSE_BUILT_FOR"));

/// The version of the interface.
#[unsafe(no_mangle)]
pub static spank_plugin_version: c_uint = 1;

/// For `packhorse node check`, which reads it in the file.
#[unsafe(no_mangle)]
#[used]
pub static PACKHORSE_BUILT_FOR: &[u8] =
    concat!("packhorse plugin for Slurm ", env!("PACKHORSE_BUILT_FOR"), "\0").as_bytes();

const fn slurm_version(text: &str) -> c_uint {
    let (mut number, mut at) = (0, 0);
    while at < text.len() {
        number = number * 10 + (text.as_bytes()[at] - b'0') as c_uint;
        at += 1;
    }
    number
}

/// A step begins.
///
/// # Safety
///
/// Slurm calls it with its handle and the words of the line in `plugstack.conf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(
    spank: Spank,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: passed on from Slurm.
    let words = unsafe { slurm::words(count, words) };
    slurm::guarded(&words, || step::begin(spank, &words))
}

/// A task is forked, and waits until this returns.
///
/// # Safety
///
/// Slurm calls it with its handle and the words of the line in `plugstack.conf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_post_fork(
    spank: Spank,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: passed on from Slurm.
    let words = unsafe { slurm::words(count, words) };
    slurm::guarded(&words, || step::confine_task(spank))
}

/// In the task's own process, as root.
///
/// # Safety
///
/// Slurm calls it with its handle and the words of the line in `plugstack.conf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init_privileged(
    _spank: Spank,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: passed on from Slurm.
    let words = unsafe { slurm::words(count, words) };
    slurm::guarded(&words, step::begin_task)
}

/// In the task's own process, as its user, right before its program.
///
/// # Safety
///
/// Slurm calls it with its handle and the words of the line in `plugstack.conf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(
    spank: Spank,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: passed on from Slurm.
    let words = unsafe { slurm::words(count, words) };
    slurm::guarded(&words, || step::prepare_task(spank))
}
