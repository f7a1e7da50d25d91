use packhorse_model::Outcome;

use crate::tests::lab::{FAILED, Lab, task};

#[test]
fn a_task_starts_when_all_it_comes_after_have_succeeded() {
    let mut lab = Lab::default().node(3).start();
    lab.submit(task(1));
    lab.submit(task(2));
    assert_eq!(lab.submit(task(3).after(&[1, 2, 1])), "");
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
}

#[test]
fn a_dependency_may_have_succeeded_long_ago() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.done(1);
    assert_eq!(lab.submit(task(2).after(&[1])), "start 2 on 10");
}

#[test]
fn a_failure_skips_the_whole_chain() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3).after(&[2]));
    lab.submit(task(4).after(&[1]));
    lab.submit(task(5));
    lab.submit(task(6).after(&[5, 3]));
    let ended = lab.end(1, FAILED);
    assert_eq!(ended, "failed 1/1, skipped 2/0, skipped 4/0, skipped 3/0, skipped 6/0");
    assert_eq!(lab.done(5), "succeeded 5/1");
    assert_eq!(lab.submit(task(7).after(&[6])), "skipped 7/0");
    assert!(lab.state.is_idle());
}

#[test]
fn a_retry_keeps_those_after_it_waiting() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    lab.submit(task(2).after(&[1]));
    assert_eq!(lab.end(1, FAILED), "retry 1#2, start 1#2 on 10");
    assert_eq!(lab.done(1), "succeeded 1/2, start 2 on 10");
}

#[test]
fn an_interruption_is_passed_on_as_one() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3).after(&[2]));
    lab.submit(task(4));
    lab.submit(task(5).after(&[4]));
    assert_eq!(lab.cancel(4), "interrupted 4/0, interrupted 5/0");
    let ended = lab.end(1, Outcome::Interrupted);
    assert_eq!(ended, "interrupted 1/1, interrupted 2/0, interrupted 3/0");
    assert_eq!(lab.submit(task(6).after(&[3])), "interrupted 6/0");
    lab.submit(task(7));
    lab.end(7, FAILED);
    assert_eq!(lab.submit(task(8).after(&[7, 3])), "interrupted 8/0");
    assert_eq!(lab.submit(task(9).after(&[3, 7])), "interrupted 9/0");
}

#[test]
fn a_cancelled_task_that_was_blocked_is_forgotten_by_its_dependency() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3).after(&[1]));
    assert_eq!(lab.cancel(2), "interrupted 2/0");
    // Takes the place that task 2 had in memory.
    assert_eq!(lab.submit(task(4)), "start 4 on 11");
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 on 10");
}

#[test]
fn an_unblocked_task_stands_where_it_was_submitted() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3));
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10");
}
