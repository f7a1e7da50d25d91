use crate::{EndCause, KeptRoom, Outside, SchedulerEvent};
use packhorse_model::{Bytes, DeviceId, Milli, Outcome};

use crate::tests::lab::{FAILED, Lab, gib, id, task};

#[test]
fn what_no_node_could_ever_run_is_refused_at_once() {
    let mut lab = Lab::default().node(2).cores(4).node(1).cores(8).start();
    for (task, reason) in [
        (task(1).whole(3), "it needs 3 GPUs, but one machine has no more than 2 GPUs"),
        (task(1).cores(9), "it needs 9 cores of its own, but one machine has no more than 8 cores"),
        (
            task(1).whole(2).cores(5),
            "it needs 2 GPUs and 5 cores on one machine, and none has both",
        ),
    ] {
        assert_eq!(lab.submit(task), format!("refuse 1: {reason}"));
    }
    assert_eq!(lab.submit(task(1)), "start 1 on 20", "its id is still free");
    let mut lab = Lab::default().node(0).start();
    assert_eq!(
        lab.submit(task(1).share(500)),
        "refuse 1: it needs 1 GPU, but there is no GPU to give out\n\
         hint: ask for 0 GPUs, or name the GPUs to use"
    );
}

#[test]
fn a_share_must_be_more_than_nothing_and_less_than_all() {
    let mut lab = Lab::default().node(2).start();
    for task in [task(1).share(0), task(1).share(1000), task(1).share(u32::MAX), task(1).whole(0)] {
        let refused = lab.submit(task);
        assert!(refused.contains("is not an amount of GPU"), "{refused}");
    }
}

#[test]
fn an_id_is_used_once() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    let refused = |number| format!("refuse {number}: a task with this number was submitted before");
    assert_eq!(lab.submit(task(1)), refused(1), "running");
    assert_eq!(lab.submit(task(2)), refused(2), "waiting");
    lab.done(1);
    assert_eq!(lab.submit(task(1)), refused(1), "finished");
}

#[test]
fn a_dependency_must_be_known() {
    let mut lab = Lab::default().node(1).start();
    let refused = lab.submit(task(1).after(&[7]));
    assert!(
        refused.starts_with("refuse 1: it comes after task 1.7, which is not known"),
        "{refused}"
    );
    let refused = lab.submit(task(1).after(&[1]));
    assert_eq!(refused, "refuse 1: it comes after itself, so it could never start");
    assert!(lab.state.is_idle());
}

#[test]
fn events_about_what_does_not_run_are_ignored() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    lab.submit(task(2));
    let ended = |number, attempt| SchedulerEvent::Ended {
        task: id(number),
        attempt,
        outcome: Outcome::Succeeded,
        cause: EndCause::Own,
    };
    for event in [ended(1, 0), ended(1, 2), ended(2, 0), ended(2, 1), ended(9, 1)] {
        assert_eq!(lab.step(event), "");
    }
    lab.end(1, FAILED);
    assert_eq!(lab.step(ended(1, 1)), "", "an attempt that is over");
    lab.done(1);
    assert_eq!(lab.step(ended(1, 2)), "", "a task that is over");
    assert_eq!(lab.cancel(1), "");
    assert_eq!(lab.cancel(9), "");
    assert_eq!(lab.step(SchedulerEvent::Unhold), "");
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(u32::MAX).retries(u32::MAX).priority(i32::MIN).limit(u64::MAX));
    assert_eq!(lab.end(u32::MAX, FAILED), "retry 4294967295#2, start 4294967295#2 on 10");
    let refused = lab.submit(task(1).whole(u32::MAX).cores(u32::MAX));
    assert!(refused.starts_with("refuse 1: it needs 4294967295 GPUs"), "{refused}");
}

#[test]
fn events_about_unknown_devices_and_attempts_are_ignored() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(20));
    lab.submit(task(2).memory(20));
    for device in [0, 99] {
        assert_eq!(lab.drain(device), "");
        assert_eq!(lab.restore(device), "");
        assert_eq!(lab.strangers(device, 1), "");
        assert_eq!(lab.observe(1, device, 99), "");
    }
    let observed = |number, attempt| SchedulerEvent::Observed {
        task: id(number),
        attempt,
        device: DeviceId(10),
        memory: Bytes(u64::MAX),
    };
    for event in [observed(1, 2), observed(1, 0), observed(2, 1), observed(9, 1)] {
        assert_eq!(lab.step(event), "");
    }
    let load = lab.state.devices().next().unwrap();
    assert_eq!(load.counted, gib(20));
    assert_eq!(lab.revise(task(9).memory(1)), "");
}

#[test]
fn whatever_a_driver_shows_does_no_harm() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(2));
    lab.submit(task(2).memory(2));
    for number in [1, 2] {
        let event = SchedulerEvent::Observed {
            task: id(number),
            attempt: 1,
            device: DeviceId(10),
            memory: Bytes(u64::MAX),
        };
        lab.step(event);
    }
    lab.submit(task(3).memory(1));
    let held = Outside {
        memory: Bytes(u64::MAX),
        runs: Bytes(u64::MAX),
        drawn: Bytes(u64::MAX),
        has_strangers: true,
        share: Milli(u32::MAX),
        attempts: u32::MAX,
        whole: false,
        unseen: false,
        yields: true,
        kept: KeptRoom { share: Milli(u32::MAX), memory: Bytes(u64::MAX), whole: false },
    };
    lab.outside(10, held);
    assert!(lab.why(3).starts_with("1.3 waits"), "{}", lab.why(3));
    lab.outside(10, Outside::default());
    lab.done(1);
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 10 with 1.0 GiB");
}
