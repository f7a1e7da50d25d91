//! The shape of a command.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_fuzz::shape(data));
