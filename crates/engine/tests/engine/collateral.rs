//! Ends that are not the task's own fault: no retry is used up, and the right one is
//! blamed.

use packhorse_engine::Input;
use packhorse_model::{DeviceId, Outcome};

use crate::lab::{A_LOOK, FAILED, INTERRUPTED, Lab, OK, REST, SECOND, id, task};

const CUDA: &str = "CUDA out of memory";

/// Two tasks with 8 GiB each on one GPU, of different kinds.
fn neighbours() -> Lab {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, ["a", "c"].map(|name| task(&format!("python {name}.py")).vram(8).retries(1)));
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    for victim in ["1.1", "1.2"] {
        lab.logs.insert(id(victim), CUDA.to_owned());
    }
    lab
}

#[test]
fn a_neighbour_that_outgrew_its_promise_is_to_blame() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.1", 6);
    lab.ends("1.1", FAILED);
    lab.assert_told(
        "retrying 1.1#1, 1 left: out of GPU memory (PyTorch: CUDA out of memory), because 1.2 \
         outgrew what it was promised on GPU 0; it runs again, and no retry is used up",
    );
}

#[test]
fn one_that_outgrew_its_own_promise_is_to_blame_itself() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.1", 9);
    lab.ends("1.2", FAILED);
    lab.assert_told("seen at 18.0 GiB of 8.0 GiB; it runs again with");
}

#[test]
fn a_neighbour_that_outgrew_and_gave_it_back_is_still_to_blame() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.2", 4);
    lab.holds("1.1", 6);
    lab.ends("1.1", FAILED);
    lab.assert_told("because 1.2 outgrew");
}

#[test]
fn a_neighbour_that_outgrew_its_promise_and_ended_first_is_to_blame() {
    for outcome in [OK, FAILED] {
        let mut lab = neighbours();
        lab.holds("1.2", 18);
        lab.holds("1.1", 6);
        lab.ends("1.2", outcome);
        lab.pass(A_LOOK);
        lab.ends("1.1", FAILED);
        lab.assert_told("because 1.2 outgrew what it was promised on GPU 0; it runs again, and no");
    }
}

#[test]
fn one_that_outgrew_its_promise_and_ended_before_is_not_to_blame() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.1", 6);
    lab.ends("1.2", OK);
    lab.pass(SECOND);
    lab.add(1, [task("python b.py").vram(8)]);
    lab.pass(SECOND);
    lab.logs.insert(id("1.3"), CUDA.to_owned());
    lab.holds("1.3", 6);
    lab.ends("1.3", FAILED);
    lab.assert_told("seen at 6.0 GiB of 8.0 GiB; it runs again with");
}

#[test]
fn one_that_outgrew_its_promise_and_has_left_long_ago_is_not_to_blame() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.1", 6);
    lab.ends("1.2", OK);
    lab.pass(SECOND * 3600);
    lab.ends("1.1", FAILED);
    lab.assert_told("seen at 6.0 GiB of 8.0 GiB; it runs again with");
}

#[test]
fn strangers_that_left_after_they_had_crowded_a_gpu_are_to_blame() {
    let mut lab = neighbours();
    lab.stranger(0, 15);
    lab.holds("1.1", 6);
    lab.stranger(0, 0);
    lab.ended.push(id("1.1"));
    lab.pass(SECOND);
    lab.ends("1.1", FAILED);
    lab.assert_told("because others hold 15.0 GiB on GPU 0; it runs again, and no retry");
}

#[test]
fn of_two_that_outgrew_the_first_is_named() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, (1..=4).map(|number| task(&format!("python kind{}.py", number * 11)).vram(4)));
    for (one, memory) in [("1.4", 7), ("1.2", 6), ("1.3", 3)] {
        lab.holds(one, memory);
    }
    lab.logs.insert(id("1.3"), CUDA.to_owned());
    lab.ends("1.3", FAILED);
    lab.assert_told("because 1.2 outgrew");
}

#[test]
fn strangers_that_crowd_a_gpu_are_to_blame() {
    let mut lab = neighbours();
    lab.holds("1.1", 6);
    lab.stranger(0, 15);
    lab.pass(A_LOOK);
    lab.ends("1.1", FAILED);
    lab.assert_told("because others hold 15.0 GiB on GPU 0; it runs again, and no retry");
}

#[test]
fn one_that_outgrew_its_promise_cannot_blame_strangers() {
    let mut lab = neighbours();
    lab.stranger(0, 12);
    lab.holds("1.1", 10);
    lab.ends("1.1", FAILED);
    lab.assert_told("seen at 10.0 GiB of 8.0 GiB; it runs again with");
}

#[test]
fn a_few_windows_crowd_nobody_out() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto()]);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.stranger(0, 1);
    lab.holds("1.1", 23);
    lab.ends("1.1", FAILED);
    lab.assert_told("finished 1.1: exit status 1 out of GPU memory");
}

#[test]
fn a_broken_gpu_is_to_blame_and_its_task_runs_elsewhere() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a").retries(1)]);
    lab.pass(SECOND);
    lab.gpus[0].lost = Some("it has fallen off the bus".to_owned());
    lab.ends("1.1", Outcome::Killed { signal: 6 });
    lab.assert_told("retrying 1.1#1, 1 left: GPU 0 failed while it ran; it runs again");
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn one_that_is_ended_because_of_its_gpu_was_not_interrupted() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a")]);
    lab.feed(Input::DeviceFailed { device: DeviceId(0), reason: "Xid 48".to_owned() });
    assert_eq!(lab.stops().len(), 1);
    lab.ends("1.1", INTERRUPTED);
    lab.assert_told("retrying 1.1#1, 0 left: its GPU was taken out while it ran");
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn one_that_ends_well_on_a_broken_gpu_has_ended_well() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a")]);
    lab.end_input(1);
    lab.feed(Input::DeviceFailed { device: DeviceId(0), reason: "Xid 48".to_owned() });
    lab.ends("1.1", OK);
    assert_eq!(lab.summary(1).succeeded, 1);
}

#[test]
fn a_victim_waits_until_the_task_that_took_its_memory_has_ended() {
    let mut lab = neighbours();
    lab.holds("1.2", 15);
    lab.holds("1.1", 6);
    lab.ends("1.1", FAILED);
    // 9 GiB are free.
    lab.pass(SECOND * 9);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn a_victim_waits_until_the_task_that_took_its_memory_gave_it_back() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.holds("1.1", 6);
    lab.ends("1.1", FAILED);
    lab.holds("1.2", 5);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.pass(REST + SECOND);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    // It is believed once.
    lab.holds("1.2", 20);
    lab.ends("1.1", FAILED);
    lab.holds("1.2", 5);
    lab.pass(REST * 5);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn a_victim_runs_on_another_gpu_at_once() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("python b.py").vram(20)]);
    lab.add(1, [task("python a.py").vram(8), task("python c.py").vram(8)]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1", "1.3@1"]);
    lab.logs.insert(id("1.2"), CUDA.to_owned());
    lab.holds("1.3", 15);
    lab.ends("1.2", FAILED);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0", "1.3@1"]);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0", "1.3@1"]);
}

#[test]
fn what_was_known_when_the_victim_was_placed_was_not_taken_from_it() {
    let mut lab = neighbours();
    lab.holds("1.2", 12);
    lab.ends("1.1", FAILED);
    lab.assert_told("because 1.2 outgrew");
    lab.pass(REST + SECOND);
    // 13.2 GiB are promised to the other one, and no more is held.
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    lab.holds("1.1", 6);
    lab.ends("1.1", FAILED);
    lab.assert_told("seen at 6.0 GiB of 8.0 GiB; it runs again with 12.0 GiB");
    lab.pass(REST * 5);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn one_that_asked_for_more_than_it_was_promised_runs_again_with_that() {
    let mut lab = neighbours();
    lab.holds("1.2", 18);
    lab.logs.insert(id("1.1"), format!("{CUDA}. Tried to allocate 12.00 GiB"));
    lab.holds("1.1", 4);
    lab.ends("1.1", FAILED);
    lab.assert_told(
        "seen at 4.0 GiB of 8.0 GiB, when it asked for 12.0 GiB more; it runs again with 20.0 GiB",
    );
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
    assert!(lab.promised("1.1") > 19.9);
}
