use crate::EndCause;
use packhorse_model::{Bytes, MemoryRequest, Outcome};

use crate::tests::lab::{FAILED, Lab, task};

#[test]
fn out_of_memory_climbs_to_more_then_alone_then_larger_then_over() {
    let mut lab = Lab::default().node(2).sizes(&[24, 40]).start();
    lab.submit(task(1).memory(8));
    assert_eq!(
        lab.out_of_memory(1, 8),
        "with 12.0 GiB 1#2, start 1#2 on 10 with 12.0 GiB",
        "half as much again"
    );
    assert_eq!(
        lab.out_of_memory(1, 16),
        "with 20.0 GiB 1#3, start 1#3 on 10 with 20.0 GiB",
        "a quarter more than was seen"
    );
    assert_eq!(lab.out_of_memory(1, 20), "with 30.0 GiB 1#4, start 1#4 on 11 with 30.0 GiB");
    assert_eq!(
        lab.out_of_memory(1, 30),
        "alone 1#5, start 1#5 on 11 with 40.0 GiB",
        "not on one that is too small for what was seen"
    );
    assert_eq!(lab.out_of_memory(1, 40), "failed 1/5");
    lab.submit(task(2).memory(30));
    lab.submit(task(3).memory(20));
    assert_eq!(lab.end(2, Outcome::Succeeded), "succeeded 2/1", "it was on the larger one");
    assert_eq!(lab.out_of_memory(3, 23), "with 30.0 GiB 3#2, start 3#2 on 11 with 30.0 GiB");
}

#[test]
fn what_was_alone_on_a_small_device_goes_to_a_larger_one() {
    let mut lab = Lab::default().node(2).sizes(&[24, 26]).start();
    lab.submit(task(1).memory(20));
    assert_eq!(lab.out_of_memory(1, 20), "alone 1#2, start 1#2 on 10 with 24.0 GiB");
    assert_eq!(lab.out_of_memory(1, 24), "above 24.0 GiB 1#3, start 1#3 on 11 with 26.0 GiB");
    assert_eq!(lab.out_of_memory(1, 26), "failed 1/3");
}

#[test]
fn what_needs_more_than_any_device_has_is_not_tried_alone() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(20));
    assert_eq!(lab.out_of_memory(1, 25), "failed 1/1");
}

#[test]
fn of_several_devices_the_smallest_was_too_small() {
    let mut lab = Lab::default().node(4).sizes(&[24, 40, 40, 80]).start();
    let mut pair = task(1).whole(2);
    pair.0.request.memory = MemoryRequest::Whole;
    assert_eq!(lab.submit(pair), "start 1 on 10+11");
    assert_eq!(lab.out_of_memory(1, 24), "above 24.0 GiB 1#2, start 1#2 on 11+12");
    assert_eq!(lab.out_of_memory(1, 40), "failed 1/2", "only one is larger");
}

#[test]
fn nothing_is_larger_than_a_device_of_unknown_size() {
    let mut lab = Lab::default().node(2).sizes(&[0, 24]).start();
    assert_eq!(lab.submit(task(1).alone()), "start 1 on 10 with 0 B");
    assert_eq!(lab.out_of_memory(1, 4), "failed 1/1");
}

#[test]
fn amounts_on_the_ladder_are_multiples_of_64_mib() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    let mut odd = task(1).memory(1);
    odd.0.request.memory = MemoryRequest::Bytes(Bytes(1));
    lab.submit(odd);
    assert_eq!(lab.out_of_memory(1, 0), "with 64.0 MiB 1#2, start 1#2 on 10 with 64.0 MiB");
}

#[test]
fn what_did_not_count_memory_is_alone_next() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).share(500));
    let again = lab.out_of_memory(1, 3);
    assert!(again.starts_with("alone 1#2, start 1#2 on 10"), "{again}");
    assert_eq!(lab.out_of_memory(1, 24), "failed 1/2");
}

#[test]
fn what_had_a_whole_device_was_alone_and_has_its_retries() {
    let mut lab = Lab::default().node(2).sizes(&[24, 80]).start();
    lab.submit(task(1).whole(1).retries(1));
    let again = lab.out_of_memory(1, 24);
    assert!(again.contains("start 1#2 on 11"), "{again}");
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).whole(1).retries(1));
    let again = lab.out_of_memory(1, 24);
    assert!(again.starts_with("retry 1#2, start 1#2 on 10"), "{again}");
    assert_eq!(lab.out_of_memory(1, 24), "failed 1/2");
}

#[test]
fn the_ladder_uses_up_no_retries() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(8).retries(1));
    lab.out_of_memory(1, 8);
    assert_eq!(
        lab.end(1, FAILED),
        "retry 1#3, start 1#3 on 10 with 12.0 GiB",
        "and what was learned on it stays"
    );
    assert_eq!(lab.end(1, FAILED), "failed 1/3");
}

#[test]
fn where_there_is_no_gpu_running_out_of_memory_is_a_failure() {
    let mut lab = Lab::default().node(0).start();
    lab.submit(task(1).no_gpu().retries(1));
    assert_eq!(lab.out_of_memory(1, 1), "retry 1#2, start 1#2 at node 1");
    assert_eq!(lab.out_of_memory(1, 1), "failed 1/2");
}

#[test]
fn one_that_was_cancelled_or_succeeded_is_over_whatever_the_cause() {
    let cause = EndCause::Collateral;
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    assert_eq!(lab.end_by(1, Outcome::Succeeded, cause), "succeeded 1/1");
    lab.submit(task(2));
    lab.cancel(2);
    let killed = Outcome::Killed { signal: 15 };
    assert_eq!(lab.end_by(2, killed, cause), "killed 2/1");
}

#[test]
fn another_ones_doing_uses_up_no_retry_but_not_for_ever() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).retries(1));
    for attempt in 2..=17 {
        assert_eq!(
            lab.end_by(1, FAILED, EndCause::Collateral),
            format!("collateral 1#{attempt}, start 1#{attempt} on 10")
        );
    }
    let ended = lab.end_by(1, FAILED, EndCause::Collateral);
    assert_eq!(ended, "retry 1#18, start 1#18 on 10", "as if it were its own");
    assert_eq!(lab.end_by(1, FAILED, EndCause::Collateral), "failed 1/18");
}

#[test]
fn a_task_is_run_elsewhere_when_its_device_is_lost() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.drain(10);
    let killed = Outcome::Killed { signal: 9 };
    let again = lab.end_by(1, killed, EndCause::Collateral);
    assert_eq!(again, "collateral 1#2, start 1#2 on 11");
}

#[test]
fn a_probe_is_attempt_0_and_the_task_comes_after_it() {
    for outcome in [Outcome::Succeeded, FAILED, Outcome::NotStarted] {
        let mut lab = Lab::default().node(1).start();
        assert_eq!(lab.submit(task(1).probe()), "start 1#0 on 10");
        lab.submit(task(2).after(&[1]));
        assert_eq!(lab.end(1, outcome), "probed 1#1, start 1 on 10");
        assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10");
    }
}

#[test]
fn what_a_probe_found_out_holds_from_its_end() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    assert_eq!(lab.submit(task(1).alone().probe()), "start 1#0 on 10 with 24.0 GiB");
    assert_eq!(lab.submit(task(2).memory(20)), "");
    assert_eq!(lab.revise(task(1).memory(4)), "", "it still holds all");
    assert_eq!(
        lab.out_of_memory(1, 4),
        "probed 1#1, start 1 on 10 with 4.0 GiB, start 2 on 10 with 20.0 GiB"
    );
}

#[test]
fn a_stopped_probe_is_an_interrupted_task_even_if_it_succeeded() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).probe());
    lab.submit(task(2).after(&[1]));
    assert_eq!(lab.cancel(1), "stop 1#0");
    assert_eq!(lab.done(1), "interrupted 1/0, interrupted 2/0");
    lab.submit(task(3).probe());
    assert_eq!(lab.end(3, Outcome::Interrupted), "interrupted 3/0");
}

#[test]
fn a_waiting_task_can_be_revised() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(20));
    lab.submit(task(2).memory(20));
    lab.submit(task(3).after(&[1]));
    assert_eq!(lab.revise(task(2).memory(3)), "start 2 on 10 with 3.0 GiB");
    assert_eq!(lab.revise(task(3).memory(1)), "", "it is blocked");
    assert_eq!(lab.revise(task(1).memory(1)), "", "it runs");
    assert_eq!(lab.submit(task(4).memory(4)), "");
    assert_eq!(lab.revise(task(4).memory(99)), "", "no device has so much");
    assert_eq!(
        lab.done(1),
        "succeeded 1/1, start 3 on 10 with 1.0 GiB, start 4 on 10 with 4.0 GiB"
    );
}

#[test]
fn one_that_waits_for_anothers_probe_is_not_in_line_before_it_is_revised() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    lab.submit(task(1).alone().probe());
    assert_eq!(lab.submit(task(2).alone().awaiting()), "");
    assert_eq!(
        lab.submit(task(3).memory(20)),
        "start 3 on 11 with 20.0 GiB",
        "it is not in the way of others"
    );
    assert_eq!(lab.done(3), "succeeded 3/1");
    assert_eq!(lab.why(2), "1.2 waits until one like it has been measured");
    // It keeps its place in line.
    lab.submit(task(4).memory(24));
    lab.submit(task(5).memory(21));
    assert_eq!(lab.revise(task(2).memory(4)), "");
    assert_eq!(lab.done(4), "succeeded 4/1, start 2 on 11 with 4.0 GiB");
}

#[test]
fn one_that_waits_for_anothers_probe_can_be_taken_out_of_line_again_and_cancelled() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2));
    lab.revise(task(2).awaiting());
    lab.submit(task(3).awaiting());
    lab.submit(task(4).after(&[3]));
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(lab.revise(task(2)), "start 2 on 10");
    assert_eq!(lab.cancel(3), "interrupted 3/0, interrupted 4/0");
}

#[test]
fn a_revision_can_ask_for_another_probe() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).alone().probe());
    lab.revise(task(1).alone().probe());
    assert_eq!(lab.end(1, FAILED), "probed 1#0, start 1#0 on 10 with 24.0 GiB");
    assert_eq!(lab.done(1), "probed 1#1, start 1 on 10 with 24.0 GiB");
}

#[test]
fn one_that_had_to_leave_something_to_others_is_alone_next() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(4));
    lab.submit(task(2).at_least(4));
    assert_eq!(lab.out_of_memory(2, 19), "alone 2#2");
    lab.done(1);
    assert_eq!(lab.out_of_memory(2, 23), "failed 2/2");
}

#[test]
fn one_that_had_all_of_it_has_nothing_more_to_get() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).at_least(4));
    assert_eq!(lab.out_of_memory(1, 23), "failed 1/1");
}

#[test]
fn one_whose_memory_was_taken_runs_again_then_alone_and_never_fails_for_it() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(8));
    for attempt in 2..=4 {
        let again = lab.end_by(1, FAILED, EndCause::Crowded);
        assert_eq!(again, format!("collateral 1#{attempt}, start 1#{attempt} on 10 with 8.0 GiB"));
    }
    let again = lab.end_by(1, FAILED, EndCause::Crowded);
    assert_eq!(again, "alone 1#5, start 1#5 on 10 with 24.0 GiB");
    for attempt in 6..400 {
        let again = lab.end_by(1, FAILED, EndCause::Crowded);
        assert!(again.starts_with(&format!("collateral 1#{attempt}")), "{again}");
    }
    assert_eq!(lab.end(1, FAILED), "failed 1/399");
}

#[test]
fn one_that_ran_out_gets_what_its_kind_is_promised() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(4));
    let cause = EndCause::OutOfMemory { peak: Bytes(6 << 30), at_least: Bytes(10 << 30) };
    let again = lab.end_by(1, FAILED, cause);
    assert_eq!(again, "with 10.0 GiB 1#2, start 1#2 on 10 with 10.0 GiB");
}
