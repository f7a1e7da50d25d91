use crate::tests::lab::{Lab, task};

#[test]
fn what_fits_beside_the_holder_whoever_ends_first_may_start() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(6));
    lab.submit(task(2).memory(10));
    // 8 are free. With 1 gone there are 14, with 2 gone 18, with both 24.
    assert_eq!(lab.submit(task(3).memory(12)), "");
    assert_eq!(lab.reserved(), [10]);
    assert_eq!(lab.submit(task(4).memory(3)), "", "14 less 3 were too few");
    assert_eq!(lab.submit(task(5).memory(2)), "start 5 on 10 with 2.0 GiB");
    assert_eq!(lab.submit(task(6).memory(1)), "", "nothing is left over");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10 with 12.0 GiB");
}

#[test]
fn shares_have_slack_too() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).share(500));
    lab.submit(task(2).share(400));
    // 0.1 is free: with 1 gone 0.6, with 2 gone 0.5.
    assert_eq!(lab.submit(task(3).share(450)), "");
    assert_eq!(lab.submit(task(4).share(60)), "");
    assert_eq!(lab.submit(task(5).share(50)), "start 5 on 10:0.05");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 10:0.45");
}

#[test]
fn what_does_not_say_its_memory_is_not_let_in_beside_one_that_does() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(20));
    lab.submit(task(2).memory(10));
    assert_eq!(lab.submit(task(3).share(100)), "", "nobody knows what it will take");
    assert_eq!(lab.submit(task(4).share(100).with_memory(2)), "start 4 on 10:0.1");
}

#[test]
fn a_limit_of_attempts_leaves_a_place_for_the_holder() {
    let mut lab = Lab::default().node(1).sizes(&[24]).max_per_device(3).start();
    lab.submit(task(1).memory(20));
    lab.submit(task(2).memory(10));
    assert_eq!(lab.submit(task(3).memory(1)), "start 3 on 10 with 1.0 GiB");
    assert_eq!(lab.submit(task(4).memory(1)), "");
}

#[test]
fn one_that_is_over_in_time_may_start_on_what_is_kept() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).limit(100));
    lab.submit(task(2).whole(2));
    assert_eq!(lab.reserved(), [10, 11]);
    lab.pass(20);
    assert_eq!(lab.submit(task(3)), "", "nobody knows how long it takes");
    assert_eq!(lab.submit(task(4).limit(90)), "", "too long");
    assert_eq!(lab.submit(task(5).expected(75)), "start 5 on 11");
    lab.pass(10);
    lab.done(5);
    assert_eq!(lab.submit(task(6).limit(80)), "");
    assert_eq!(lab.submit(task(7).limit(300).expected(60)), "start 7 on 11 for 300s");
    lab.done(1);
    assert_eq!(lab.submit(task(8).limit(61)), "", "60 seconds are all that is left");
    assert_eq!(lab.submit(task(9).limit(40)), "start 9 on 10 for 40s");
}

#[test]
fn an_unknown_duration_gives_the_reservation_no_time() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).whole(2));
    assert_eq!(lab.submit(task(3).limit(1)), "");
}

#[test]
fn one_that_is_overdue_lets_nobody_else_in() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).expected(100).limit(1000));
    lab.submit(task(2).whole(2));
    lab.pass(101);
    assert_eq!(lab.submit(task(3).limit(1)), "", "2 should have started by now");
}

#[test]
fn known_durations_decide_which_devices_are_kept() {
    let mut lab = Lab::default().node(3).start();
    lab.submit(task(1).limit(300));
    lab.submit(task(2).share(900).limit(50));
    lab.submit(task(3).share(500).limit(200));
    lab.submit(task(4));
    assert_eq!(lab.reserved(), [11], "the first to be free, not the emptiest");

    let mut lab = Lab::default().node(3).start();
    lab.submit(task(1));
    lab.submit(task(2).share(900).limit(50));
    lab.submit(task(3).share(500).limit(200));
    lab.submit(task(4));
    assert_eq!(lab.reserved(), [12], "if one is unknown, the emptiest");
}

#[test]
fn memory_that_is_free_in_time_counts_for_the_time() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(4).limit(10));
    lab.submit(task(2).memory(10).limit(100));
    lab.submit(task(3).memory(4).limit(1000));
    assert_eq!(lab.submit(task(4).memory(12)), "");
    // 6 are free now, 10 after 10 seconds, 20 after 100.
    assert_eq!(lab.submit(task(5).memory(5).limit(110)), "");
    assert_eq!(lab.submit(task(6).memory(5).limit(96)), "start 6 on 10 with 5.0 GiB for 96s");
}

#[test]
fn cores_that_are_free_in_time_may_be_used() {
    let mut lab = Lab::default().node(0).cores(4).start();
    lab.submit(task(1).no_gpu().cores(2).limit(100));
    lab.submit(task(2).no_gpu().cores(3));
    assert_eq!(lab.submit(task(3).no_gpu().cores(1)), "");
    let short = lab.submit(task(4).no_gpu().cores(1).limit(90));
    assert_eq!(short, "start 4 at node 1 cores 2 for 90s");
}

#[test]
fn main_memory_is_kept_as_cores_are() {
    let mut lab = Lab::default().node(0).host(64000, 16).start();
    lab.submit(task(1).no_gpu().ram(10));
    lab.submit(task(2).no_gpu().ram(8));
    assert_eq!(lab.submit(task(3).no_gpu().ram(1)), "");
    assert_eq!(lab.submit(task(4).no_gpu().cpu(1000)), "start 4 at node 1");
}
