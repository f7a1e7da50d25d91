use crate::SchedulerEvent;

use crate::tests::lab::{Lab, task};

#[test]
fn small_tasks_do_not_starve_a_large_one() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2));
    assert_eq!(lab.submit(task(3).whole(2)), "");
    lab.submit(task(4));
    lab.submit(task(5));
    assert_eq!(lab.done(1), "succeeded 1/1", "10 drains");
    assert_eq!(lab.submit(task(6).share(100)), "");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 10+11");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10, start 5 on 11");
}

#[test]
fn others_start_outside_the_reservation() {
    let mut lab = Lab::default().node(3).start();
    lab.submit(task(1));
    lab.submit(task(2).share(500));
    lab.submit(task(3).whole(2));
    // 10 is taken; 11 has 0.5 given out; 12 is free.
    assert_eq!(lab.reserved(), [11, 12]);
    assert_eq!(lab.submit(task(4).share(500)), "", "11 has room, but is kept");
    assert_eq!(lab.submit(task(5)), "", "12 is free, but is kept");
    assert_eq!(
        lab.done(1),
        "succeeded 1/1, start 3 on 10+12, start 4 on 11:0.5",
        "anywhere, as soon as it fits"
    );
    assert_eq!(lab.reserved(), [10], "now task 5 is first of those that wait");
}

#[test]
fn work_goes_on_beside_the_reservation() {
    let mut lab = Lab::default().node(2).node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    lab.submit(task(3));
    lab.submit(task(4).whole(2));
    lab.submit(task(5));
    lab.submit(task(6));
    assert_eq!(lab.reserved(), [10, 11]);
    assert_eq!(lab.done(1), "succeeded 1/1, start 5 on 20");
    assert_eq!(lab.done(5), "succeeded 5/1, start 6 on 20");
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10+11");
}

#[test]
fn the_reservation_stays_where_it_is() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(400));
    lab.submit(task(2).share(700));
    assert_eq!(lab.submit(task(3)), "");
    assert_eq!(lab.reserved(), [10]);
    lab.submit(task(4).share(300));
    let other: Vec<_> = lab.state.running().iter().map(|running| running.task.number).collect();
    assert_eq!(other, [1, 2, 4], "4 fits on 11, beside 2");
    lab.done(2);
    assert_eq!(lab.reserved(), [10], "though 11 has less on it now");
    assert_eq!(lab.done(4), "succeeded 4/1, start 3 on 11");
    assert_eq!(lab.reserved(), [0; 0]);
}

#[test]
fn a_more_urgent_task_takes_over() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(500));
    lab.submit(task(2));
    lab.submit(task(3));
    assert_eq!(lab.reserved(), [10]);
    assert_eq!(lab.submit(task(4).priority(-1).share(500)), "start 4 on 10:0.5");
    assert_eq!(lab.submit(task(5).priority(-1).whole(2)), "");
    assert_eq!(lab.reserved(), [10, 11]);
    lab.done(2);
    assert_eq!(lab.reserved(), [10, 11]);
    assert_eq!(lab.cancel(5), "interrupted 5/0, start 3 on 11");
}

#[test]
fn a_cancelled_holder_lets_others_in_at_once() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).whole(2));
    assert_eq!(lab.submit(task(3)), "");
    assert_eq!(lab.cancel(2), "interrupted 2/0, start 3 on 11");
}

#[test]
fn others_leave_the_cores_the_first_one_needs() {
    let mut lab = Lab::default().node(1).cores(4).node(0).cores(1).start();
    lab.submit(task(1).share(500).cores(1));
    lab.submit(task(2).whole(1).cores(2));
    assert_eq!(lab.reserved(), [10]);
    let third = lab.submit(task(3).no_gpu().cores(1));
    assert_eq!(third, "start 3 at node 2 cores 0");
    let fourth = lab.submit(task(4).no_gpu().cores(1));
    assert_eq!(fourth, "start 4 at node 1 cores 1", "two are left");
    assert_eq!(lab.submit(task(5).no_gpu().cores(1)), "");
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10 cores 2+3, start 5 at node 1 cores 0");
}

#[test]
fn one_that_lacks_cores_gets_them_in_the_end() {
    let mut lab = Lab::default().node(0).cores(2).start();
    lab.submit(task(1).no_gpu().cores(1));
    lab.submit(task(2).no_gpu().cores(1));
    lab.submit(task(3).no_gpu().cores(2));
    lab.submit(task(4).no_gpu().cores(1));
    assert_eq!(lab.done(1), "succeeded 1/1");
    let sharing = lab.submit(task(5).no_gpu());
    assert_eq!(sharing, "start 5 at node 1", "it takes none from anybody");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 at node 1 cores 0+1");
}

#[test]
fn without_a_slot_nothing_starts_and_the_first_is_asked_first() {
    let mut lab = Lab::default().node(1).slots(2).start();
    lab.submit(task(1));
    lab.submit(task(2).no_gpu());
    lab.submit(task(3));
    assert_eq!(lab.submit(task(4).no_gpu()), "");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
    assert_eq!(lab.done(2), "succeeded 2/1, start 4 at node 1");
}

#[test]
fn a_hold_keeps_the_reservation() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(400));
    lab.submit(task(2).share(700));
    lab.submit(task(3));
    lab.step(SchedulerEvent::Hold);
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert_eq!(lab.reserved(), [10]);
    assert_eq!(lab.step(SchedulerEvent::Unhold), "start 3 on 11");
}

#[test]
fn cores_are_kept_where_the_fewest_are_lacking() {
    let mut lab = Lab::default().node(0).cores(4).node(0).cores(4).start();
    lab.submit(task(1).no_gpu().cores(3));
    lab.submit(task(2).no_gpu().cores(2));
    lab.submit(task(3).no_gpu().cores(4));
    let beside = lab.submit(task(4).no_gpu().cores(1));
    assert_eq!(beside, "start 4 at node 1 cores 3");
    assert_eq!(lab.submit(task(5).no_gpu().cores(1)), "", "node 2 drains");
    let ended = lab.done(2);
    assert_eq!(ended, "succeeded 2/1, start 3 at node 2 cores 0+1+2+3");
}
