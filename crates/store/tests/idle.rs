//! A writer with nothing to do does nothing. Alone in its file, and so in its process: it looks
//! for the writing thread by its name.

mod support;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use support::*;

#[test]
fn an_idle_writer_neither_wakes_up_nor_wakes_anybody() {
    let test = test_home();
    let (writer, _lock) = begin(&test.home);
    until_committed(&writer, writer.send(lines([1])));
    while rustix::io::read(&writer, &mut [0_u8; 8]).is_ok() {}
    let quiet = |millis: i64| {
        let time = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
        poll(&mut [PollFd::new(&writer, PollFlags::IN)], Some(&time)).unwrap()
    };
    // This never ends for a writer that is never idle.
    let idle = || loop {
        let before = writer_switches();
        if quiet(400) == 0 && writer_switches() == before {
            return before;
        }
        while rustix::io::read(&writer, &mut [0_u8; 8]).is_ok() {}
    };
    let before = idle();
    until_committed(&writer, writer.send(lines([2])));
    assert!(idle() > before, "the count does count");
}

/// How often the thread that writes has let go of its processor.
#[expect(clippy::unwrap_used, reason = "this is part of a test")]
fn writer_switches() -> u64 {
    for entry in fs_err::read_dir("/proc/self/task").unwrap() {
        let status = fs_err::read_to_string(entry.unwrap().path().join("status")).unwrap();
        if status.starts_with("Name:\tstore-writer\n") {
            let mut lines = status.lines();
            let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            return count.unwrap().trim().parse().unwrap();
        }
    }
    panic!("no thread writes");
}
