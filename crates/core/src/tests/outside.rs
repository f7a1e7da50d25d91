use crate::{KeptRoom, Outside};
use packhorse_model::{DeviceId, Milli};

use crate::tests::lab::{Lab, id, task};

#[test]
fn what_strangers_hold_is_not_given_out() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.strangers(10, 10);
    assert_eq!(lab.submit(task(1).memory(15)), "", "it waits, and does not fail");
    assert_eq!(lab.strangers(10, 9), "start 1 on 10 with 15.0 GiB");
    assert_eq!(lab.strangers(10, 20), "", "nor is what runs disturbed");
}

#[test]
fn one_that_only_strangers_keep_waiting_does_not_hold_up_the_others() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.strangers(10, 10);
    lab.submit(task(1).memory(20));
    assert_eq!(lab.submit(task(2).memory(9)), "start 2 on 10 with 9.0 GiB");
    assert_eq!(lab.reserved(), [0; 0]);
    assert_eq!(lab.strangers(10, 1), "");
    assert_eq!(lab.reserved(), [10], "now it is worth while");
    assert_eq!(lab.submit(task(3).memory(9)), "");
    assert_eq!(lab.done(2), "succeeded 2/1, start 1 on 10 with 20.0 GiB");
}

#[test]
fn a_reservation_that_strangers_spoil_moves() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    lab.submit(task(1).memory(10));
    lab.submit(task(2).memory(20));
    lab.submit(task(3).memory(18));
    assert_eq!(lab.reserved(), [10]);
    lab.strangers(10, 7);
    assert_eq!(lab.reserved(), [11]);
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 11 with 18.0 GiB");
}

#[test]
fn alone_means_that_strangers_hold_no_more_than_a_twentieth() {
    let mut lab = Lab::default().node(1).sizes(&[40]).start();
    lab.strangers(10, 3);
    assert_eq!(lab.submit(task(1).alone()), "");
    assert_eq!(lab.strangers(10, 2), "start 1 on 10 with 40.0 GiB");
}

#[test]
fn other_runs_share_and_attempts_count() {
    let others = |share: u32, attempts: u32, whole: bool| Outside {
        share: Milli(share),
        attempts,
        whole,
        ..Outside::default()
    };
    let mut lab = Lab::default().node(1).sizes(&[24]).max_per_device(3).start();
    lab.outside(10, others(600, 1, false));
    assert_eq!(lab.submit(task(1).share(500)), "");
    assert_eq!(lab.outside(10, others(500, 1, false)), "start 1 on 10:0.5");
    lab.outside(10, others(0, 2, false));
    assert_eq!(lab.submit(task(2).share(100)), "", "three are there");
    assert_eq!(lab.outside(10, others(0, 1, false)), "start 2 on 10:0.1");
    lab.done(1);
    lab.done(2);
    assert_eq!(lab.submit(task(3)), "", "another run is there");
    assert_eq!(lab.outside(10, others(0, 0, false)), "start 3 on 10");
    lab.done(3);
    lab.outside(10, others(0, 1, true));
    assert_eq!(lab.submit(task(4).memory(1)), "", "another run has it whole");
    let load = lab.state.devices().next().unwrap();
    assert!(load.outside.whole);
}

#[test]
fn a_device_that_other_runs_will_make_room_on_is_kept_for_the_first_in_line() {
    let others = |share: u32, yields| Outside {
        share: Milli(share),
        attempts: 1,
        yields,
        ..Outside::default()
    };
    let mut lab = Lab::default().node(1).start();
    lab.outside(10, others(500, false));
    assert_eq!(lab.submit(task(1)), "");
    assert!(lab.reserved().is_empty());
    assert_eq!(lab.state.wanted(), None, "nobody would make room for it");
    assert_eq!(lab.submit(task(2).share(500)), "start 2 on 10:0.5");
    lab.outside(10, others(500, true));
    assert_eq!(lab.reserved(), [10]);
    let wanted = lab.state.wanted().unwrap();
    assert_eq!((wanted.task, wanted.needs_others), (id(1), true));
    assert_eq!(wanted.devices, [DeviceId(10)]);
    lab.done(2);
    assert_eq!(lab.submit(task(3).share(500)), "", "it would delay the first");
    assert_eq!(lab.outside(10, Outside::default()), "start 1 on 10");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10:0.5");
}

#[test]
fn what_is_kept_for_another_run_is_left_and_the_rest_given_out() {
    let kept = |held: u32, share: u32, whole| Outside {
        share: Milli(held),
        attempts: u32::from(held > 0),
        yields: true,
        kept: KeptRoom { share: Milli(share), whole, ..KeptRoom::default() },
        ..Outside::default()
    };
    let mut lab = Lab::default().node(1).start();
    lab.outside(10, kept(500, 600, false));
    assert_eq!(lab.submit(task(1).share(500)), "", "0.1 too much beside 0.6");
    let why = lab.why(1);
    assert!(why.contains("is kept for another run"), "{why}");
    assert!(!why.contains("kept for it"), "not for both: {why}");
    lab.cancel(1);
    assert_eq!(lab.submit(task(2).share(400)), "start 2 on 10:0.4");
    lab.done(2);
    lab.outside(10, kept(500, 1000, true));
    assert_eq!(lab.submit(task(3).share(100)), "");
    assert_eq!(lab.reserved(), [10]);
    assert!(lab.state.wanted().unwrap().needs_others);
    assert_eq!(lab.outside(10, kept(500, 0, false)), "start 3 on 10:0.1");
}

#[test]
fn devices_that_need_nobody_else_are_kept_first() {
    let mut lab = Lab::default().node(2).start();
    let held = Outside { whole: true, yields: true, ..Outside::default() };
    lab.outside(10, held);
    lab.submit(task(1));
    assert_eq!(lab.submit(task(2)), "");
    assert_eq!(lab.reserved(), [11]);
    assert!(!lab.state.wanted().unwrap().needs_others);
}

#[test]
fn a_drained_device_gets_nothing_new() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(500));
    lab.drain(10);
    assert!(lab.state.devices().next().unwrap().drained);
    assert_eq!(lab.submit(task(2).share(500)), "start 2 on 11:0.5");
    assert_eq!(lab.submit(task(3).whole(1)), "");
    assert_eq!(lab.reserved(), [11]);
    assert_eq!(lab.done(1), "succeeded 1/1", "what ran there was left alone");
    assert_eq!(lab.restore(10), "start 3 on 10");
}

#[test]
fn what_needs_a_drained_device_waits_and_the_others_go_on() {
    let mut lab = Lab::default().node(2).start();
    lab.drain(11);
    assert_eq!(lab.submit(task(1).whole(2)), "");
    assert_eq!(lab.submit(task(2)), "start 2 on 10");
    assert!(!lab.state.is_stuck(), "something runs");
    lab.done(2);
    assert!(lab.state.is_stuck());
    assert_eq!(lab.restore(11), "start 1 on 10+11");
    assert!(!lab.state.is_stuck());
}

#[test]
fn strangers_alone_do_not_make_it_stuck() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    lab.strangers(10, 24);
    lab.drain(11);
    lab.submit(task(1).memory(20));
    assert!(!lab.state.is_stuck(), "they may go");
    lab.drain(10);
    assert!(lab.state.is_stuck());
}

#[test]
fn the_next_one_that_could_start_has_the_reservation() {
    let mut lab = Lab::default().node(3).models(&[0, 0, 1]).start();
    lab.drain(12);
    lab.submit(task(1).models(&[1]));
    lab.submit(task(2).share(500));
    assert_eq!(lab.submit(task(3).whole(2)), "");
    assert_eq!(lab.reserved(), [10, 11], "the first waits for what is drained");
    assert_eq!(lab.submit(task(4).share(500)), "");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 10+11");
}

#[test]
fn strangers_are_avoided_where_anything_else_fits() {
    let mut lab = Lab::default().node(3).sizes(&[24, 24, 24]).start();
    lab.computing(10, 20);
    lab.computing(11, 4);
    assert_eq!(lab.submit(task(1).share(500)), "start 1 on 12:0.5");
    assert_eq!(lab.submit(task(2).share(500)), "start 2 on 12:0.5");
    assert_eq!(lab.submit(task(3)), "start 3 on 11", "where they hold less");
    assert_eq!(lab.submit(task(4).share(500)), "start 4 on 10:0.5", "rather than wait");
}

#[test]
fn whole_devices_are_those_without_strangers() {
    let mut lab = Lab::default().node(4).sizes(&[24; 4]).start();
    lab.computing(10, 1);
    lab.drawing(11, 1);
    assert_eq!(lab.submit(task(1).whole(2)), "start 1 on 12+13");
    assert_eq!(lab.submit(task(2)), "start 2 on 11", "a desktop is in the way least");
}

#[test]
fn a_desktop_takes_memory_and_forbids_nothing() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.drawing(10, 2);
    assert_eq!(lab.submit(task(1).at_least(6)), "start 1 on 10 with 22.0 GiB");
    lab.done(1);
    assert_eq!(lab.submit(task(2).alone()), "start 2 on 10 with 24.0 GiB");
    lab.done(2);
    assert_eq!(lab.submit(task(3).memory(23)), "", "there is not so much");
    assert_eq!(lab.computing(10, 2), "");
    assert_eq!(lab.submit(task(4).at_least(6)), "", "a program may take more");
}

#[test]
fn who_is_there_is_looked_at_before_a_choice_and_not_otherwise() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).look_lasts(2).start();
    assert_eq!(lab.submit(task(1)), "look");
    assert_eq!(lab.submit(task(2).no_gpu()), "", "one look at a time");
    assert!(lab.why(1).contains("a look who is on the GPUs"), "{}", lab.why(1));
    assert_eq!(lab.computing(10, 20), "");
    assert_eq!(lab.looked(), "start 1 on 11, start 2 at node 1");
    assert_eq!(lab.submit(task(3)), "start 3 on 10");
    lab.submit(task(4));
    lab.pass(3);
    assert_eq!(lab.done(1), "succeeded 1/1, start 4 on 11", "there is nothing to choose");
    lab.done(3);
    lab.done(4);
    assert_eq!(lab.submit(task(5).share(500)), "look");
    assert_eq!(lab.looked(), "start 5 on 11:0.5");
    assert_eq!(lab.submit(task(6).share(500)), "start 6 on 11:0.5");
}

#[test]
fn a_device_for_one_process_is_not_shared_and_waits_for_strangers() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).one_process(10).start();
    assert_eq!(lab.submit(task(1)), "start 1 on 10");
    assert_eq!(lab.submit(task(2).share(500)), "start 2 on 11:0.5");
    assert_eq!(lab.submit(task(3).memory(4)), "start 3 on 11 with 4.0 GiB");
    lab.done(1);
    assert_eq!(lab.submit(task(4).share(600)), "", "not even the first of them");
    lab.computing(10, 1);
    assert_eq!(lab.submit(task(5)), "");
    assert_eq!(lab.computing(10, 0), "");
    assert_eq!(lab.outside(10, Outside::default()), "start 5 on 10");

    let mut lab = Lab::default().node(1).sizes(&[24]).one_process(10).start();
    for shared in [task(1).share(500), task(2).memory(4), task(3).alone()] {
        let refused = lab.submit(shared);
        assert!(refused.contains("EXCLUSIVE_PROCESS"), "{refused}");
    }
    assert_eq!(lab.drawing(10, 2), "");
    assert_eq!(lab.submit(task(4)), "start 4 on 10");
}
