use packhorse_model::{Bytes, MemoryRequest, Milli, Outcome};
use proptest::prelude::*;

use crate::Outside;
use crate::SchedulerEvent::{Hold, MoreToCome, Unhold};
use crate::tests::lab::{Lab, gib, task};

#[test]
fn pack_keeps_whole_devices_for_tasks_like_those_seen() {
    let mut lab = Lab::default().node(3).start();
    assert_eq!(lab.submit(task(1)), "start 1 on 10");
    assert_eq!(lab.submit(task(2).share(300)), "start 2 on 11:0.3");
    assert_eq!(lab.submit(task(3).share(200)), "start 3 on 11:0.2");
    assert_eq!(lab.submit(task(4).share(500)), "start 4 on 11:0.5");
    assert_eq!(lab.submit(task(5)), "start 5 on 12");
}

#[test]
fn pack_takes_the_emptier_device_where_nobody_loses_by_it() {
    let mut lab = Lab::default().node(3).start();
    for (number, device) in [(1, 10), (2, 11), (3, 12), (4, 10), (5, 11), (6, 12)] {
        let started = format!("start {number} on {device}:0.5");
        assert_eq!(lab.submit(task(number).share(500)), started);
    }
}

#[test]
fn of_equally_full_devices_the_one_with_fewer_tasks_is_the_emptier() {
    let mut lab = Lab::default().node(2).start();
    lab.step(MoreToCome(false));
    lab.submit(task(1).share(200));
    lab.submit(task(2).share(400));
    assert_eq!(lab.submit(task(3).share(200)), "start 3 on 10:0.2");
    assert_eq!(lab.submit(task(4).share(200)), "start 4 on 11:0.2");
}

#[test]
fn once_all_tasks_are_known_only_those_that_have_not_started_count() {
    let mut lab = Lab::default().node(3).start();
    lab.submit(task(1));
    lab.step(MoreToCome(false));
    assert_eq!(lab.submit(task(2).share(500)), "start 2 on 11:0.5");
    assert_eq!(lab.submit(task(3).share(500)), "start 3 on 12:0.5");
    lab.step(MoreToCome(true));
    assert_eq!(lab.done(3), "succeeded 3/1");
    assert_eq!(lab.submit(task(4).share(500)), "start 4 on 11:0.5");
}

#[test]
fn one_that_is_blocked_counts_until_it_is_cancelled() {
    let mut lab = Lab::default().node(3).start();
    lab.step(MoreToCome(false));
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).after(&[1]));
    assert_eq!(lab.submit(task(3).share(400)), "start 3 on 10:0.4");
    assert_eq!(lab.submit(task(4).share(400)), "start 4 on 10:0.4");
    lab.cancel(2);
    assert_eq!(lab.submit(task(5).share(100)), "start 5 on 11:0.1");
    assert_eq!(lab.submit(task(6).share(100)), "start 6 on 12:0.1");
}

#[test]
fn one_that_is_tried_again_counts_again() {
    let mut lab = Lab::default().node(3).start();
    lab.step(MoreToCome(false));
    lab.submit(task(1).retries(1));
    lab.step(Hold);
    lab.end(1, Outcome::Failed { code: 1 });
    lab.submit(task(2).share(500).priority(-1));
    lab.submit(task(3).share(500).priority(-1));
    assert_eq!(lab.step(Unhold), "start 2 on 10:0.5, start 3 on 10:0.5, start 1#2 on 11");
}

#[test]
fn one_that_may_use_any_model_leaves_the_rare_one_to_those_who_must() {
    let lab = Lab::default().node(9).models(&[0, 1, 1, 1, 1, 1, 1, 1, 1]);
    let mut lab = lab.start();
    let others = Outside { share: Milli(500), ..Outside::default() };
    lab.outside(10, others);
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3).share(500).models(&[0]).after(&[1]));
    // 10 is of no use for 2, but 3 can go nowhere else.
    assert_eq!(lab.submit(task(4).share(500)), "start 4 on 11:0.5");
}

proptest! {
    #[test]
    fn tasks_that_are_alike_are_spread_evenly(
        devices in 1..9_u32, tasks in 1..30_u32, share in 1..500_u32, more in any::<bool>()
    ) {
        let mut lab = Lab::default().node(devices).start();
        lab.step(MoreToCome(more));
        for number in 1..=tasks {
            lab.submit(task(number).share(share));
        }
        let attempts = lab.state.devices().map(|device| device.attempts);
        let attempts: Vec<u32> = attempts.collect();
        let (least, most) = (attempts.iter().min(), attempts.iter().max());
        prop_assert!(most.unwrap() - least.unwrap() <= 1, "{attempts:?}");
    }

    #[test]
    fn all_start_at_once_that_were_known_and_fit(
        halves in 0..9_u32, wholes in 0..5_u32, spare in 0..3_u32, more in any::<bool>()
    ) {
        let devices = halves.div_ceil(2) + wholes + spare;
        let mut lab = Lab::default().node(devices.max(1)).start();
        lab.step(MoreToCome(more));
        lab.step(Hold);
        for number in 1..=halves {
            lab.submit(task(number).share(500));
        }
        for number in halves + 1..=halves + wholes {
            lab.submit(task(number));
        }
        let started = lab.step(Unhold);
        let started = started.matches("start ").count();
        prop_assert_eq!(started, (halves + wholes) as usize);
    }
}

#[test]
fn pack_leaves_what_others_can_use() {
    let mut lab = Lab::default().node(2).start();
    let others = |share| Outside { share: Milli(share), ..Outside::default() };
    lab.outside(10, others(400));
    lab.outside(11, others(100));
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).share(900).after(&[1]));
    // On 11, which is emptier, it would leave too little for the other.
    assert_eq!(lab.submit(task(3).share(300)), "start 3 on 10:0.3");
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 11:0.9");
}

#[test]
fn pack_spares_the_cores_that_devices_need() {
    let mut lab = Lab::default().node(2).host(8000, 64);
    lab = lab.node(1).host(8000, 64);
    let mut lab = lab.start();
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).cpu(4000).after(&[1]));
    assert_eq!(
        lab.submit(task(3).no_gpu().cpu(4000)),
        "start 3 at node 2",
        "the other has two devices to feed"
    );
}

#[test]
fn pack_uses_all_devices_when_all_tasks_are_alike() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    for (number, device) in [(1, 10), (2, 11), (3, 10), (4, 11)] {
        let started = format!("start {number} on {device} with 9.0 GiB");
        assert_eq!(lab.submit(task(number).memory(9)), started);
    }
}

#[test]
fn a_node_that_is_kept_does_not_stand_for_one_like_it() {
    let mut lab = Lab::default().node(2).models(&[0, 1]);
    lab = lab.node(2).models(&[0, 1]);
    let mut lab = lab.start();
    let others = Outside { share: Milli(500), ..Outside::default() };
    lab.outside(10, others);
    lab.outside(20, others);
    lab.submit(task(1).share(600).models(&[1]));
    lab.submit(task(2).share(600).models(&[1]));
    lab.submit(task(3).share(500).after(&[1]));
    assert_eq!(lab.submit(task(4).models(&[1])), "", "it has to wait for 11");
    // The best place is on a device like 11, which is kept: on 21.
    assert_eq!(lab.submit(task(5).share(100)), "start 5 on 21:0.1");
}

#[test]
fn needs_that_are_known_better_replace_what_was_seen() {
    let mut lab = Lab::default().node(2).start();
    let others = |share| Outside { share: Milli(share), ..Outside::default() };
    lab.outside(10, others(400));
    lab.outside(11, others(100));
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).share(900).after(&[1]));
    lab.revise(task(2).share(100));
    assert_eq!(lab.submit(task(3).share(300)), "start 3 on 11:0.3");
}

#[test]
fn spread_takes_the_least_loaded_device() {
    let mut lab = Lab::default().node(2).spread().start();
    assert_eq!(lab.submit(task(1).share(200)), "start 1 on 10:0.2");
    assert_eq!(lab.submit(task(2).share(400)), "start 2 on 11:0.4");
    assert_eq!(lab.submit(task(3).share(200)), "start 3 on 10:0.2");
    // Both devices have 0.4 given out; 11 to fewer attempts.
    assert_eq!(lab.submit(task(4).share(100)), "start 4 on 11:0.1");
    assert_eq!(lab.submit(task(5).share(100)), "start 5 on 10:0.1");
}

#[test]
fn whole_devices_come_from_the_node_with_the_fewest_that_suffice() {
    let mut lab = Lab::default().node(4).node(2).node(3).start();
    assert_eq!(lab.submit(task(1).whole(2)), "start 1 on 20+21");
    assert_eq!(lab.submit(task(2).whole(2)), "start 2 on 30+31");
    assert_eq!(lab.submit(task(3).whole(2)), "start 3 on 10+11");
    assert_eq!(lab.submit(task(4).whole(1)), "start 4 on 32");
}

#[test]
fn spread_takes_whole_devices_from_the_node_with_the_most_free() {
    let mut lab = Lab::default().node(2).node(3).spread().start();
    assert_eq!(lab.submit(task(1)), "start 1 on 20");
    assert_eq!(lab.submit(task(2)), "start 2 on 10", "both have two free");
    assert_eq!(lab.submit(task(3)), "start 3 on 21");
}

#[test]
fn whole_devices_never_span_nodes() {
    let mut lab = Lab::default().node(2).node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).whole(2));
    assert_eq!(lab.submit(task(3).whole(2)), "", "11 and nothing else is free");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10+11");
}

#[test]
fn a_whole_device_is_one_that_nobody_uses() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(1));
    assert_eq!(lab.submit(task(2)), "start 2 on 11");
    assert_eq!(lab.submit(task(3)), "");
}

#[test]
fn thirds_fill_a_device_three_times() {
    let mut lab = Lab::default().node(1).start();
    for number in 1..=3 {
        assert_ne!(lab.submit(task(number).share(333)), "");
    }
    assert_eq!(lab.submit(task(4).share(333)), "");
    let load = lab.state.devices().next().unwrap();
    assert_eq!((load.used, load.attempts), (Milli(999), 3));
}

#[test]
fn a_device_takes_no_more_attempts_than_allowed() {
    let mut lab = Lab::default().node(2).max_per_device(2).start();
    assert_eq!(lab.submit(task(1).share(100)), "start 1 on 10:0.1");
    assert_eq!(lab.submit(task(2).share(100)), "start 2 on 11:0.1");
    assert_eq!(lab.submit(task(3).share(100)), "start 3 on 10:0.1");
    assert_eq!(lab.submit(task(4).share(100)), "start 4 on 11:0.1");
    assert_eq!(lab.submit(task(5).share(100)), "");
    assert_eq!(lab.done(2), "succeeded 2/1, start 5 on 11:0.1");
}

#[test]
fn cores_near_the_device_come_first() {
    let pool = || Lab::default().node(2).cores(6).near(0, &[4, 5]).near(1, &[1, 2, 99]);
    let mut lab = pool().start();
    assert_eq!(lab.submit(task(1).cores(1)), "start 1 on 10 cores 4");
    assert_eq!(lab.submit(task(2).cores(3)), "start 2 on 11 cores 0+1+2");
    assert_eq!(lab.submit(task(3).no_gpu().cores(2)), "start 3 at node 1 cores 3+5");
    let mut lab = pool().start();
    assert_eq!(lab.submit(task(1).whole(2).cores(4)), "start 1 on 10+11 cores 1+2+4+5");
}

#[test]
fn cores_are_given_once_and_come_back() {
    let mut lab = Lab::default().node(0).cores(3).start();
    assert_eq!(lab.submit(task(1).no_gpu().cores(2)), "start 1 at node 1 cores 0+1");
    assert_eq!(lab.submit(task(2).no_gpu().cores(2)), "");
    assert_eq!(lab.submit(task(3).no_gpu()), "start 3 at node 1", "it shares");
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 at node 1 cores 0+1");
}

#[test]
fn a_device_whose_node_has_too_few_cores_does_not_fit() {
    let mut lab = Lab::default().node(2).cores(2).node(1).cores(8).start();
    assert_eq!(lab.submit(task(1).share(100).cores(1)), "start 1 on 10:0.1 cores 0");
    assert_eq!(lab.submit(task(2).share(100).cores(2)), "start 2 on 20:0.1 cores 0+1");
    assert_eq!(lab.submit(task(3).whole(1).cores(1)), "start 3 on 11 cores 1");
}

#[test]
fn without_a_device_pack_and_spread_choose_the_node() {
    let pool = || Lab::default().node(0).cores(4).node(0).cores(2).node(0).cores(1);
    let mut packed = pool().start();
    assert_eq!(packed.submit(task(1).no_gpu().cores(2)), "start 1 at node 2 cores 0+1");
    assert_eq!(packed.submit(task(2).no_gpu().cores(2)), "start 2 at node 1 cores 0+1");
    let mut spread = pool().spread().start();
    assert_eq!(spread.submit(task(1).no_gpu().cores(2)), "start 1 at node 1 cores 0+1");
    assert_eq!(spread.submit(task(2).no_gpu()), "start 2 at node 2");
    assert_eq!(spread.submit(task(3).no_gpu()), "start 3 at node 3");
}

#[test]
fn amounts_of_memory_that_do_not_divide_a_device_go_to_the_emptier_one_too() {
    for eighths in 1..=94 {
        let memory = gib(1).0 / 8 * eighths;
        let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
        lab.step(MoreToCome(false));
        lab.step(Hold);
        for number in 1..=4 {
            let mut task = task(number).memory(1);
            task.0.request.memory = MemoryRequest::Bytes(Bytes(memory));
            lab.submit(task);
        }
        lab.step(Unhold);
        let on = |number| lab.running(number).placement.devices[0].device;
        assert_ne!(on(1), on(2), "{eighths}/8 GiB");
    }
}
