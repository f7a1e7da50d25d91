//! Tasks as JSON objects, one per line.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packhorse_fuzz::task_lines(data));
