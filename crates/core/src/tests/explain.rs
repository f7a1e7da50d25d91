use crate::{Now, Outside, SchedulerEvent, explain};
use packhorse_model::Milli;

use crate::tests::lab::{FAILED, Lab, gib, id, task};

#[test]
fn a_running_task_tells_where_and_how_long() {
    let mut lab = Lab::default().node(2).cores(4).start();
    lab.submit(task(1).share(500).cores(2).retries(1));
    lab.submit(task(2).no_gpu());
    lab.pass(3725);
    assert_eq!(lab.why(1), "1.1 has been running on 0.5 of gpu10 with cores 0, 1 for 1h2m");
    assert_eq!(lab.why(2), "1.2 has been running without a GPU for 1h2m");
    lab.end(1, FAILED);
    lab.pass(59);
    lab.cancel(1);
    let again = "on 0.5 of gpu10 with cores 0, 1 for 59s (attempt 2) and is being stopped";
    assert_eq!(lab.why(1), format!("1.1 has been running {again}"));
}

#[test]
fn a_blocked_task_tells_what_it_comes_after() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    for number in 3..=6 {
        lab.submit(task(number));
    }
    lab.submit(task(7).after(&[3, 1]));
    lab.submit(task(8).after(&[1, 3, 4, 5, 6]));
    lab.pass(10);
    assert_eq!(lab.why(2), "1.2 waits until 1.1 (running for 10s) has succeeded");
    let two = "1.3 (not started) and 1.1 (running for 10s) have succeeded";
    assert_eq!(lab.why(7), format!("1.7 waits until {two}"));
    let many = "1.1 (running for 10s), 1.3 (not started), 1.4 (not started) and 2 more";
    assert_eq!(lab.why(8), format!("1.8 waits until {many} have succeeded"));
}

#[test]
fn a_waiting_task_tells_what_is_missing_who_holds_it_and_who_is_first() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1));
    lab.pass(60);
    lab.submit(task(2).share(500));
    lab.pass(5);
    lab.submit(task(3).whole(2));
    lab.submit(task(4).share(700));
    lab.submit(task(5).share(200));
    let missing = "1.1 holds gpu10 (for 1m5s) and 1.2 holds 0.5 of gpu11 (for 5s)";
    assert_eq!(
        lab.why(3),
        format!(
            "1.3 waits for 2 whole GPUs of one machine: {missing}; \
             gpu10 and gpu11 are kept for it; it is first in line"
        )
    );
    assert_eq!(
        lab.why(4),
        "1.4 waits for 0.7 of a GPU: 1.2 holds 0.5 of gpu11 (for 5s); \
         gpu10 and gpu11 are kept for 1.3; 1.3 is in front of it"
    );
    assert_eq!(
        lab.why(5),
        "1.5 waits: gpu10 and gpu11 are kept for 1.3, and it fits nowhere else; \
         2 tasks are in front of it, 1.3 first"
    );
}

#[test]
fn missing_cores_are_told_with_those_who_have_them() {
    let mut lab = Lab::default().node(1).cores(4).start();
    lab.submit(task(1).share(100).cores(3));
    lab.submit(task(2).share(100).cores(2));
    lab.submit(task(3).no_gpu().cores(1));
    assert_eq!(
        lab.why(2),
        "1.2 waits for 2 cores of one machine with 1 free: 1.1 holds 3 cores (for 0s); \
         gpu10 and 2 cores are kept for it; it is first in line"
    );
    assert_eq!(
        lab.why(3),
        "1.3 waits: gpu10 and 2 cores are kept for 1.2, and it fits nowhere else; \
         1.2 is in front of it"
    );
}

#[test]
fn a_full_device_tells_of_its_limit_of_attempts_by_its_holders() {
    let mut lab = Lab::default().node(1).max_per_device(1).start();
    lab.submit(task(1).share(100));
    lab.submit(task(2).share(100));
    let why = lab.why(2);
    assert!(why.contains("0.1 of a GPU: 1.1 holds 0.1 of gpu10 (for 0s)"), "{why}");
}

#[test]
fn a_lack_of_slots_and_a_hold_are_told() {
    let mut lab = Lab::default().node(0).slots(2).start();
    lab.submit(task(1).no_gpu());
    lab.submit(task(2).no_gpu());
    lab.submit(task(3).no_gpu().retries(1));
    lab.pass(2 * 86400 + 7200);
    assert_eq!(
        lab.why(3),
        "1.3 waits for one of 2 slots: all are taken, the longest by 1.1 (for 2d2h); \
         it is first in line"
    );
    lab.done(1);
    lab.step(SchedulerEvent::Hold);
    lab.end(3, FAILED);
    assert_eq!(
        lab.why(3),
        "1.3 waits: nothing is handed out at the moment; it is first in line; \
         it will be attempt 2"
    );
}

#[test]
fn a_finished_task_tells_how_and_an_unknown_one_nothing() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1));
    lab.submit(task(2).after(&[1]));
    lab.submit(task(3));
    lab.cancel(3);
    lab.end(1, FAILED);
    assert_eq!(lab.why(1), "1.1 is over and did not succeed");
    assert_eq!(lab.why(2), "1.2 is over and did not succeed");
    assert_eq!(lab.why(3), "1.3 was interrupted");
    let nameless = |_| String::new();
    assert_eq!(explain(&lab.state, id(4), Now::default(), &nameless, &|_| Vec::new()), None);
}

#[test]
fn what_lacks_memory_tells_how_much_is_free_and_who_holds_it() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(12));
    lab.pass(5);
    lab.submit(task(2).share(500).with_memory(3));
    lab.strangers(10, 4);
    lab.submit(task(3).memory(9));
    assert_eq!(
        lab.why(3),
        "1.3 waits for 9.0 GiB of GPU memory (5.0 GiB free): \
         1.1 holds 12.0 GiB of gpu10 (for 5s), 1.2 holds 3.0 GiB of gpu10 (for 0s) \
         and processes of others hold 4.0 GiB of gpu10; \
         gpu10 is kept for it; it is first in line"
    );
    lab.observe(1, 10, 16);
    assert!(lab.why(3).contains("1.1 holds 16.0 GiB"), "{}", lab.why(3));
    assert_eq!(lab.why(1), "1.1 has been running on gpu10 with 12.0 GiB for 5s");
    assert_eq!(lab.why(2), "1.2 has been running on 0.5 of gpu10 with 3.0 GiB for 0s");
}

#[test]
fn one_that_strangers_keep_waiting_tells_so() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    lab.strangers(10, 20);
    lab.strangers(11, 10);
    lab.submit(task(1).memory(20));
    assert_eq!(
        lab.why(1),
        "1.1 waits for 20.0 GiB of GPU memory (14.0 GiB free): \
         processes of others hold 10.0 GiB of gpu11; it is first in line"
    );
    lab.submit(task(2).alone());
    assert_eq!(
        lab.why(2),
        "1.2 waits for a GPU to itself: processes of others hold 10.0 GiB of gpu11; \
         1.1 is in front of it"
    );
}

#[test]
fn other_runs_are_told_of() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    let held = Outside { memory: gib(2), share: Milli(600), attempts: 1, ..Outside::default() };
    lab.outside(10, held);
    lab.submit(task(1).share(500));
    assert_eq!(
        lab.why(1),
        "1.1 waits for 0.5 of a GPU: other runs hold 0.6 of gpu10; it is first in line"
    );
    lab.outside(10, Outside { whole: true, ..held });
    assert_eq!(
        lab.why(1),
        "1.1 waits for 0.5 of a GPU: another run holds gpu10; it is first in line"
    );
}

#[test]
fn memory_of_other_runs_and_of_strangers_is_told_once_each() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    let held = Outside { memory: gib(15), runs: gib(15), attempts: 1, ..Outside::default() };
    lab.outside(10, held);
    lab.submit(task(1).memory(12));
    assert_eq!(
        lab.why(1),
        "1.1 waits for 12.0 GiB of GPU memory (9.0 GiB free): \
         other runs hold 15.0 GiB of gpu10; it is first in line"
    );
    lab.outside(10, Outside { memory: gib(19), ..held });
    assert_eq!(
        lab.why(1),
        "1.1 waits for 12.0 GiB of GPU memory (5.0 GiB free): other runs hold 15.0 GiB of gpu10 \
         and processes of others hold 4.0 GiB of gpu10; it is first in line"
    );
}

#[test]
fn of_a_device_that_nobody_has_looked_at_no_amounts_are_told() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    let held = Outside { memory: gib(24), unseen: true, ..Outside::default() };
    lab.outside(10, held);
    lab.submit(task(1).memory(12));
    assert_eq!(
        lab.why(1),
        "1.1 waits for 12.0 GiB of GPU memory: gpu10 has not been looked at yet; \
         it is first in line"
    );
}

#[test]
fn one_that_needs_a_drained_device_tells_which() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).share(100));
    lab.drain(11);
    lab.submit(task(2).whole(2));
    assert_eq!(
        lab.why(2),
        "1.2 waits: gpu11 takes nothing new, being drained; it is first in line"
    );
    lab.drain(10);
    assert_eq!(
        lab.why(2),
        "1.2 waits: gpu10 and gpu11 take nothing new, being drained; it is first in line"
    );
}

#[test]
fn a_reservation_with_a_time_tells_it() {
    let mut lab = Lab::default().node(2).start();
    lab.submit(task(1).limit(600));
    lab.submit(task(2).whole(2));
    lab.submit(task(3));
    lab.pass(10);
    assert_eq!(
        lab.why(3),
        "1.3 waits: gpu10 and gpu11 are kept for 1.2 (it starts within 9m50s), \
         and it fits nowhere else; 1.2 is in front of it"
    );
    assert!(lab.why(2).contains("are kept for it (it starts within 9m50s)"), "{}", lab.why(2));
    lab.pass(600);
    assert!(!lab.why(2).contains("within"), "{}", lab.why(2));
}

#[test]
fn busy_cores_and_main_memory_are_told() {
    let mut lab = Lab::default().node(0).host(4000, 16).start();
    lab.submit(task(1).no_gpu().cpu(2500).ram(10));
    lab.submit(task(2).no_gpu().cpu(2000).ram(8));
    assert_eq!(
        lab.why(2),
        "1.2 waits for 2 cores' work on one machine with 1.5 left \
         and 8.0 GiB of main memory (6.0 GiB free): \
         1.1 holds 2.5 cores' work and 10.0 GiB of main memory (for 0s); \
         2 cores' work and 8.0 GiB of main memory are kept for it; it is first in line"
    );
}

#[test]
fn a_probe_tells_that_it_is_one() {
    let mut lab = Lab::default().node(1).start();
    lab.submit(task(1).probe());
    lab.submit(task(2).probe());
    assert_eq!(lab.why(1), "1.1 has been running on gpu10 for 0s to be measured");
    assert!(lab.why(2).ends_with("; it will be measured first"), "{}", lab.why(2));
}
