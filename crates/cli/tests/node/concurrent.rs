//! Many prologs at once, and prologs that are killed.

use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::fake_slurm::FakeNode;

#[test]
fn two_hundred_at_once_give_the_same_as_one_after_the_other() {
    let node = FakeNode::new("");
    let jobs: Vec<u32> = (1..=200).collect();
    node.knows(&jobs);
    // mps:6 of 320: 200 of them are 50 on each GPU.
    for &job in &jobs {
        node.says(job, 6);
    }
    let start = |&job: &u32| -> Child {
        let mut command = node.command("prolog", job, Some(6));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<Child> = jobs.iter().map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let questions = node.asked().lines().count();
    assert!(questions < 20, "one is enough for many: {questions}");
    assert_eq!(node.used(), [300; 4]);
    for job in jobs {
        assert_eq!(node.gpus(job).len(), 1, "job {job}");
    }
}

#[test]
fn a_prolog_or_epilog_that_is_killed_at_any_moment_breaks_nothing() {
    let node = FakeNode::new("");
    let mut alive = Vec::new();
    for round in 0..60_u32 {
        let job = round + 1;
        let verb = if round % 4 == 3 { "epilog" } else { "prolog" };
        let of = if verb == "epilog" { job - 1 } else { job };
        let mut command = node.command(verb, of, Some(64));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        // A little later each time.
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(round) * 300_000 };
        let mut wait = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        let _ = poll(&mut wait, Some(&patience)).unwrap();
        let _ = child.kill();
        child.wait().unwrap();
        if verb == "prolog" {
            alive.push(job);
        } else {
            alive.retain(|other| *other != of);
        }
        // Slurm goes on with at most three of them.
        while alive.len() > 3 {
            alive.remove(0);
        }
        node.knows(&alive);
        for used in node.used() {
            assert!(used <= 320, "{used}");
        }
    }
    // All that Slurm does not know is gone, and there is room for everything again.
    node.knows(&[]);
    assert_eq!(node.used(), [0; 4]);
    let jobs: Vec<u32> = (1001..=1020).collect();
    node.knows(&jobs);
    for job in jobs {
        node.prolog(job, 64);
    }
    assert_eq!(node.used(), [320; 4]);
    let folder = node.state().join("jobs");
    assert_eq!(fs_err::read_dir(folder).unwrap().count(), 20, "nothing else is left");
}

#[test]
fn what_slurm_says_is_there_for_others_only_when_the_state_is_right_by_it() {
    let node = FakeNode::new("");
    node.prolog(1, 64);
    // Its epilog never runs.
    node.knows(&[2]);
    node.forgets();
    let lock = fs_err::File::open(node.state().join("lock")).unwrap();
    lock.file().lock().unwrap();
    let opened = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let path = node.state().join("lock");
    inotify::add_watch(&opened, path, inotify::WatchFlags::OPEN).unwrap();
    let mut command = node.command("prolog", 2, Some(64));
    let mut prolog = command.stderr(Stdio::null()).spawn().unwrap();
    // It asks, and wants the lock to put the state right by the answer.
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&opened, &mut buffer);
    while events.next().is_ok() && !node.asked().contains("squeue") {}
    let kept = node.state().join("queue");
    assert!(!kept.exists());
    drop(lock);
    assert!(prolog.wait().unwrap().success());
    assert!(kept.exists());
    assert_eq!(node.used(), [64, 0, 0, 0]);
}
