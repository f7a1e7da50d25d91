use crate::{SchedulerCounts, SchedulerEvent};

use crate::tests::lab::{Lab, task};

#[test]
fn tasks_start_in_the_order_they_came() {
    let mut lab = Lab::default().node(1).start();
    assert_eq!(lab.submit(task(3)), "start 3 on 10");
    assert_eq!(lab.submit(task(1)), "");
    assert_eq!(lab.submit(task(2)), "");
    assert_eq!(lab.done(3), "succeeded 3/1, start 1 on 10");
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10");
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert!(lab.state.is_idle());
}

#[test]
fn a_lower_priority_number_goes_first() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).priority(5));
    lab.submit(task(3).priority(-5).share(500));
    lab.submit(task(4));
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10:0.5");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10");
    assert_eq!(lab.done(4), "succeeded 4/1, start 2 on 10");
}

#[test]
fn order_holds_between_different_requests_of_one_priority() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).share(900));
    lab.submit(task(3));
    lab.submit(task(4).share(900));
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10:0.9");
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 10");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10:0.9");
}

#[test]
fn a_time_limit_comes_with_the_start() {
    let mut lab = Lab::default().node(1).start();
    assert_eq!(lab.submit(task(1).limit(90)), "start 1 on 10 for 90s");
}

#[test]
fn slots_limit_how_many_run_at_once() {
    let mut lab = Lab::default().node(0).slots(2).start();
    assert_eq!(lab.submit(task(1).no_gpu()), "start 1 at node 1");
    assert_eq!(lab.submit(task(2).no_gpu()), "start 2 at node 1");
    assert_eq!(lab.submit(task(3).no_gpu()), "");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 at node 1");
}

#[test]
fn nothing_is_handed_out_while_held() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    assert_eq!(lab.step(SchedulerEvent::Hold), "");
    assert!(lab.state.held);
    assert_eq!(lab.submit(task(2).priority(-1)), "");
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(lab.step(SchedulerEvent::Unhold), "start 2 on 10");
}

#[test]
fn a_cancelled_task_finishes_where_it_stands() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(3));
    lab.submit(task(2));
    lab.submit(task(3));
    assert_eq!(lab.cancel(2), "interrupted 2/0");
    assert_eq!(lab.cancel(1), "stop 1#1");
    assert_eq!(lab.cancel(1), "", "it is being stopped already");
    let ended = lab.end(1, crate::tests::lab::FAILED);
    assert_eq!(ended, "failed 1/1, start 3 on 10", "and is not retried");
}

#[test]
fn counts_tell_who_is_where() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    lab.submit(task(3).after(&[2]));
    lab.submit(task(4));
    lab.cancel(4);
    let counts = SchedulerCounts { waiting: 1, blocked: 1, running: 1, finished: 1 };
    assert_eq!(lab.state.counts(), counts);
    assert!(!lab.state.is_idle());
}

#[test]
fn a_batch_goes_before_the_next_whatever_the_priorities() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).batch(1).priority(-9));
    lab.submit(task(3).batch(0).priority(9));
    lab.submit(task(4).batch(1).priority(-10));
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10");
    assert_eq!(lab.done(4), "succeeded 4/1, start 2 on 10");
}

#[test]
fn waiting_makes_up_for_priority() {
    let mut lab = Lab::default().node(1).ageing(60).start();
    lab.submit(task(1));
    lab.submit(task(2).priority(2));
    lab.pass(119);
    lab.submit(task(3));
    lab.pass(2);
    lab.submit(task(4));
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
    assert_eq!(lab.done(3), "succeeded 3/1, start 2 on 10", "it has waited for two minutes");
    assert_eq!(lab.done(2), "succeeded 2/1, start 4 on 10");
}

#[test]
fn a_task_that_was_fetched_late_ages_from_its_own_arrival() {
    let mut lab = Lab::default().node(1).ageing(60).start();
    lab.submit(task(1));
    lab.pass(300);
    lab.submit(task(2));
    lab.submit(task(3).priority(4).arrived(0));
    lab.submit(task(4).priority(5).arrived(1));
    lab.submit(task(5).arrived(999));
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
    assert_eq!(lab.done(3), "succeeded 3/1, start 2 on 10");
    assert_eq!(lab.done(2), "succeeded 2/1, start 5 on 10");
    assert_eq!(lab.done(5), "succeeded 5/1, start 4 on 10");
}

#[test]
fn probes_go_before_all_that_are_as_urgent() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    lab.submit(task(3).batch(1).probe());
    lab.submit(task(4).probe());
    lab.submit(task(5).priority(-1));
    assert_eq!(lab.done(1), "succeeded 1/1, start 5 on 10");
    assert_eq!(lab.done(5), "succeeded 5/1, start 4#0 on 10");
    assert_eq!(lab.done(4), "probed 4#1, start 2 on 10");
    lab.done(2);
    assert_eq!(lab.done(4), "succeeded 4/1, start 3#0 on 10");
}

#[test]
fn one_that_is_not_to_be_measured_after_all_goes_back_to_its_place() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    lab.submit(task(3).probe());
    lab.revise(task(3));
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10");
    lab.revise(task(3).probe());
    lab.submit(task(4));
    assert_eq!(lab.done(2), "succeeded 2/1, start 3#0 on 10");
}
