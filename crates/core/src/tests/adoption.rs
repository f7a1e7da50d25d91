use std::time::Duration;

use crate::{Now, SchedulerEvent};
use packhorse_model::{Bytes, CoreId, DeviceId, Granted, Milli, NodeId, Placement};

use crate::tests::lab::{Builder, FAILED, Lab, Running, gib, task};

/// So much of devices, and these cores.
fn placement(node: u32, devices: &[(u32, u32, u64)], cores: &[u32]) -> Placement {
    let granted = |&(device, milli, memory): &(u32, u32, u64)| Granted {
        device: DeviceId(device),
        share: Milli(milli),
        memory: gib(memory),
    };
    Placement {
        node: NodeId(node),
        devices: devices.iter().map(granted).collect(),
        cores: cores.iter().map(|&core| CoreId(core)).collect(),
    }
}

fn adopt(lab: &mut Running, task: Builder, attempt: u32, placement: Placement) -> String {
    lab.step(SchedulerEvent::Adopt {
        submission: task.0,
        attempt,
        placement,
        since: Now(Duration::from_secs(3)),
    })
}

#[test]
fn what_is_adopted_holds_its_place_until_it_ends() {
    let mut lab = Lab::default().node(1).start();
    lab.pass(10);
    let place = placement(1, &[(10, 1000, 0)], &[]);
    assert_eq!(adopt(&mut lab, task(1).owner(7), 3, place.clone()), "");
    let running = lab.running(1);
    assert_eq!((running.attempt, running.owner.0), (3, 7));
    assert_eq!(running.since, Now(Duration::from_secs(3)));
    assert_eq!(running.placement, place);
    assert_eq!(lab.submit(task(2)), "");
    assert_eq!(lab.done(1), "succeeded 1/3, start 2 on 10");
}

#[test]
fn an_adopted_attempt_that_fails_is_tried_again() {
    let mut lab = Lab::default().node(2).start();
    let place = placement(1, &[(10, 1000, 0)], &[]);
    adopt(&mut lab, task(1).retries(1), 2, place);
    assert_eq!(lab.end(1, FAILED), "retry 1#3, start 1#3 on 10");
    assert_eq!(lab.end(1, FAILED), "failed 1/3");
}

#[test]
fn more_may_be_adopted_than_there_is() {
    let mut lab = Lab::default().node(1).sizes(&[24]).cores(4).host(4000, 8).start();
    lab.submit(task(1).memory(20).cores(3).ram(8));
    assert_eq!(lab.running(1).placement.cores, [CoreId(0), CoreId(1), CoreId(2)]);
    let place = placement(1, &[(10, 700, 20)], &[1, 2, 9]);
    adopt(&mut lab, task(2).memory(20).cores(2).ram(8), 1, place.clone());
    let place = placement(1, &[(10, 700, 20), (10, 1, 1)], &[2]);
    adopt(&mut lab, task(3).memory(20).ram(8), 1, place);
    let load = lab.state.devices().next().unwrap();
    assert_eq!((load.used, load.promised), (Milli(1400), gib(60)));
    lab.submit(task(4).memory(1).cores(2));
    assert!(lab.why(4).contains("waits for"), "{}", lab.why(4));
    assert_eq!(lab.done(1), "succeeded 1/1");
    // Core 2 is still held by 3, and it leaves 4 GiB.
    let started = "succeeded 2/1, start 4 on 10 with 1.0 GiB cores 0+1";
    assert_eq!(lab.done(2), started);
}

#[test]
fn a_core_that_two_hold_is_free_when_both_have_ended() {
    let mut lab = Lab::default().node(0).cores(2).start();
    lab.submit(task(1).no_gpu().cores(1));
    adopt(&mut lab, task(2).no_gpu().cores(1), 1, placement(1, &[], &[0]));
    lab.done(1);
    assert_eq!(lab.submit(task(3).no_gpu().cores(1)), "start 3 at node 1 cores 1");
    assert_eq!(lab.submit(task(4).no_gpu().cores(1)), "");
    assert_eq!(lab.done(2), "succeeded 2/1, start 4 at node 1 cores 0");
}

#[test]
fn what_is_adopted_delays_the_first_in_line_but_takes_nothing_from_it_for_ever() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).whole(2));
    adopt(&mut lab, task(3), 1, placement(1, &[(11, 1000, 0)], &[]));
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(lab.done(3), "succeeded 3/1, start 2 on 10+11");
}

#[test]
fn what_makes_no_sense_is_not_adopted() {
    let mut lab = Lab::default().node(1).node(1).start();
    lab.submit(task(1));
    let place = placement(1, &[(10, 1000, 0)], &[]);
    let refused = |lab: &mut Running, task, placement| adopt(lab, task, 1, placement);
    assert_eq!(
        refused(&mut lab, task(1), place.clone()),
        "refuse 1: a task with this number was submitted before"
    );
    assert_eq!(
        refused(&mut lab, task(2), placement(9, &[], &[])),
        "refuse 2: it runs on node 9, which is not in the pool"
    );
    assert_eq!(
        refused(&mut lab, task(2), placement(1, &[(20, 1000, 0)], &[])),
        "refuse 2: it runs on device 20, which is not on its node"
    );
    let nonsense = refused(&mut lab, task(2).whole(0), place);
    assert!(nonsense.contains("is not an amount of GPU"), "{nonsense}");
    assert_eq!(lab.submit(task(2)), "start 2 on 20", "its id is still free");
}

#[test]
fn whatever_is_adopted_does_no_harm() {
    let mut lab = Lab::default().node(1).sizes(&[24]).cores(1).host(1000, 8).start();
    for number in [1, 2] {
        let mut place = placement(1, &[(10, u32::MAX, 0)], &[0]);
        place.devices[0].memory = Bytes(u64::MAX);
        let mut huge = task(number).share(500).cpu(u32::MAX);
        huge.0.request.ram = Bytes(u64::MAX);
        adopt(&mut lab, huge, u32::MAX, place);
    }
    lab.submit(task(3).memory(1).ram(1));
    assert!(lab.why(3).starts_with("1.3 waits"), "{}", lab.why(3));
    assert_eq!(lab.end(1, FAILED), "failed 1/4294967295");
    assert_eq!(lab.done(2), "succeeded 2/4294967295, start 3 on 10 with 1.0 GiB");
}
