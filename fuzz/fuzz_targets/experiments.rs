//! An experiment file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_fuzz::experiments(data));
