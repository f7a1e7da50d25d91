//! A template in the first line, its parameters in the others.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_fuzz::sweep(data));
