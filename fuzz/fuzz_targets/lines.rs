//! Commands from a stream of bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_fuzz::lines(data));
