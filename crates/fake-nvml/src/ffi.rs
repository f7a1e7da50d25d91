//! NVML's C interface.
//!
//! Every function goes through [`call::call`], which turns panics into an
//! error code, and touches the caller's memory only through the types of
//! [`pointers`]. A handle is a number dressed as a pointer: it is never
//! followed, so a stale or invented one is an error and not a crash.

mod affinity;
mod call;
mod device;
mod events;
mod mig;
mod pointers;
mod processes;
mod readings;
mod system;
mod target;

/// Defines C functions: one body, under each of the names that NVML has given
/// it over the years.
macro_rules! nvml {
    ($($name:ident)|+: fn $arguments:tt |$state:ident| $body:block) => {
        $(nvml!(@one $name $arguments |$state| $body);)+
    };
    (@one $name:ident ($($argument:ident: $type:ty),*) |$state:ident| $body:block) => {
        /// As in NVML's manual.
        ///
        /// # Safety
        ///
        /// Pointers are null, or valid for what the manual says is read or
        /// written through them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            $crate::ffi::call::call(stringify!($name), |$state| $body)
        }
    };
}
use nvml;
