//! What tests need of a machine beyond a Rust toolchain, and what happens where it is missing.
//!
//! A test that cannot run what it tests fails, and says what is missing. The variable
//! `PACKHORSE_SKIP` (`slurm,torch`, or `all`) leaves out the tests of some parts; each one left
//! out is recorded in the file that `PACKHORSE_SKIPPED` names, which `cargo xtask test` counts.
//! With `CI=true` nothing may be left out.
//!
//! ```no_run
//! use packhorse_test_parts::needs;
//!
//! fn a_folder_of_another_user_does_not_count() {
//!     needs!(TwoUsers);
//!     // …
//! }
//! ```

mod changes;
mod found;
mod part;
mod skip;

pub use changes::wait_for_change;
pub use found::{VENV_STAMP, find, originals, slurm_24_11, target, test_python};
pub use part::Part;
pub use skip::{SKIP, SKIPPED, must_be_there, must_run, parse_parts};

/// Leaves the test where `PACKHORSE_SKIP` names one of these parts, and fails where one is
/// missing.
#[macro_export]
macro_rules! needs {
    ($($part:ident),+ $(,)?) => {
        $(if !$crate::must_run($crate::Part::$part) {
            return;
        })+
    };
}
