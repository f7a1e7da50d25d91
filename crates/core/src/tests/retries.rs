use crate::SchedulerEvent;
use packhorse_model::Outcome;

use crate::tests::lab::{FAILED, Lab, task};

#[test]
fn a_failed_task_is_tried_again_as_often_as_allowed() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(2));
    assert_eq!(lab.end(1, FAILED), "retry 1#2, start 1#2 on 10");
    assert_eq!(lab.end(1, Outcome::TimedOut), "retry 1#3, start 1#3 on 10");
    assert_eq!(lab.end(1, Outcome::Killed { signal: 9 }), "killed 1/3");
}

#[test]
fn a_retried_task_keeps_its_place_in_line() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).retries(1));
    lab.submit(task(2));
    lab.submit(task(3).whole(2));
    lab.submit(task(4));
    assert_eq!(lab.end(1, FAILED), "retry 1#2, start 1#2 on 10", "before 3");

    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    lab.submit(task(2));
    lab.submit(task(3).priority(-1));
    assert_eq!(lab.end(1, FAILED), "retry 1#2, start 3 on 10", "behind the urgent one");
    assert_eq!(lab.done(3), "succeeded 3/1, start 1#2 on 10", "before 2");
}

#[test]
fn what_cannot_come_out_better_is_not_retried() {
    for outcome in [Outcome::NotStarted, Outcome::Interrupted, Outcome::Succeeded] {
        let mut lab = Lab::default().node(1).start();
        lab.submit(task(1).retries(5));
        assert_eq!(lab.end(1, outcome), format!("{} 1/1", outcome.word()));
    }
}

#[test]
fn a_retry_waits_while_nothing_is_handed_out() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    lab.step(SchedulerEvent::Hold);
    assert_eq!(lab.end(1, FAILED), "retry 1#2");
    assert_eq!(lab.step(SchedulerEvent::Unhold), "start 1#2 on 10");
}

#[test]
fn a_cancelled_task_that_waits_for_a_retry_tells_its_attempts() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    lab.step(SchedulerEvent::Hold);
    lab.end(1, FAILED);
    assert_eq!(lab.cancel(1), "interrupted 1/1");
}
