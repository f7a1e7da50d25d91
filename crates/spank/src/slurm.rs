//! The part of Slurm's interface that is used here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Slurm's handle. Only passed back to it.
pub type Spank = *mut c_void;

/// `S_JOB_UID`, `S_JOB_ID`, `S_JOB_LOCAL_TASK_COUNT` and `S_TASK_PID` of `spank_item_t`.
const JOB_UID: c_int = 0;
const JOB_ID: c_int = 2;
const LOCAL_TASKS: c_int = 6;
const TASK_PID: c_int = 14;

unsafe extern "C" {
    fn spank_remote(spank: Spank) -> c_int;
    fn spank_get_item(spank: Spank, item: c_int, ...) -> c_int;
    fn spank_getenv(spank: Spank, name: *const c_char, value: *mut c_char, length: c_int) -> c_int;
    fn spank_setenv(
        spank: Spank,
        name: *const c_char,
        value: *const c_char,
        overwrite: c_int,
    ) -> c_int;
    fn spank_unsetenv(spank: Spank, name: *const c_char) -> c_int;
    fn slurm_spank_log(format: *const c_char, ...);
    fn slurm_info(format: *const c_char, ...);
}

/// Whether this is `slurmstepd`.
pub fn is_step(spank: Spank) -> bool {
    // SAFETY: the handle is Slurm's.
    unsafe { spank_remote(spank) == 1 }
}

/// The job's number.
pub fn job(spank: Spank) -> Option<u32> {
    item(spank, JOB_ID)
}

/// The user of the job.
pub fn uid(spank: Spank) -> Option<u32> {
    item(spank, JOB_UID)
}

/// The process of the task that a hook is called for.
pub fn task(spank: Spank) -> Option<u32> {
    item(spank, TASK_PID).filter(|pid| *pid > 0)
}

/// How many tasks the step has on this node.
pub fn local_tasks(spank: Spank) -> Option<u32> {
    item(spank, LOCAL_TASKS)
}

/// All of them are numbers of 32 bits.
fn item(spank: Spank, item: c_int) -> Option<u32> {
    let mut value = 0_u32;
    // SAFETY: the handle is Slurm's, and the items above are written through a pointer to
    // a number of this size.
    let code = unsafe { spank_get_item(spank, item, &raw mut value) };
    (code == 0).then_some(value)
}

/// Whether the job's environment has a short variable.
pub fn has_variable(spank: Spank, name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    let mut value = [0; 64];
    // SAFETY: the handle is Slurm's, and both texts are as long as is said.
    let code = unsafe { spank_getenv(spank, name.as_ptr(), value.as_mut_ptr(), 64) };
    code == 0
}

/// Sets a variable of the task, or removes it.
pub fn set_variable(spank: Spank, name: &str, value: Option<&str>) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    match value.map(CString::new) {
        Some(Ok(value)) => {
            // SAFETY: the handle is Slurm's, and the texts live until the call returns.
            unsafe { spank_setenv(spank, name.as_ptr(), value.as_ptr(), 1) == 0 }
        }
        Some(Err(_)) => false,
        None => {
            // SAFETY: as above. A variable that is not there is no harm.
            let _ = unsafe { spank_unsetenv(spank, name.as_ptr()) };
            true
        }
    }
}

/// Tells the user of the job, and Slurm's log.
pub fn tell(text: &str) {
    if let Ok(text) = CString::new(format!("packhorse: {text}")) {
        // SAFETY: the format takes one text, which lives until the call returns.
        unsafe { slurm_spank_log(c"%s".as_ptr(), text.as_ptr()) };
    }
}

/// Tells whoever reads the node's log.
pub fn note(text: &str) {
    if let Ok(text) = CString::new(format!("packhorse: {text}")) {
        // SAFETY: the format takes one text, which lives until the call returns.
        unsafe { slurm_info(c"%s".as_ptr(), text.as_ptr()) };
    }
}

/// The words of a line in `plugstack.conf`.
///
/// # Safety
///
/// `words` points to `count` texts.
pub unsafe fn words(count: c_int, words: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(count).unwrap_or(0);
    if words.is_null() {
        return Vec::new();
    }
    let word = |index| {
        // SAFETY: the caller says that there are so many.
        let word = unsafe { *words.add(index) };
        // SAFETY: the caller says that each is a text.
        (!word.is_null()).then(|| unsafe { CStr::from_ptr(word) })
    };
    let texts = (0..count).filter_map(word);
    texts.map(|text| text.to_string_lossy().into_owned()).collect()
}

/// Calls a hook with the words of the plugin's line. Slurm is told that all is well even if it
/// panicked: the plugin is there for jobs with orders, and must not end others.
pub fn guarded(words: &[String], hook: impl FnOnce()) -> c_int {
    let called = catch_unwind(AssertUnwindSafe(|| {
        // For the test that this is caught: nothing else gets here.
        assert!(!cfg!(debug_assertions) || !words.iter().any(|word| word == "panic"));
        hook();
    }));
    if called.is_err() {
        tell("internal error: please report it");
    }
    0
}
