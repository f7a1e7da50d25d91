//! GPUs that break.

use packhorse_engine::{Input, StopMode};
use packhorse_model::{DeviceId, Record};

use crate::lab::{INTERRUPTED, Lab, OK, SECOND, task};

fn fails(lab: &mut Lab, device: u32) {
    lab.feed(Input::DeviceFailed {
        device: DeviceId(device),
        reason: "Xid 79: it has fallen off the bus".to_owned(),
    });
}

fn drained(lab: &Lab) -> Vec<String> {
    let records = lab.records.iter();
    let drained = records.filter_map(|(_, entry)| match entry {
        Record::Drained { device, .. } => Some(device.to_string()),
        _ => None,
    });
    drained.collect()
}

#[test]
fn a_gpu_with_a_grave_xid_is_taken_out_and_stays_out() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a"), task("b"), task("c")]);
    fails(&mut lab, 0);
    lab.assert_told("GPU 0 is taken out: Xid 79: it has fallen off the bus");
    assert_eq!(drained(&lab), ["GPU-0"]);
    assert_eq!(lab.stops(), [("1.1".to_owned(), StopMode::Terminate)]);
    lab.ends("1.1", INTERRUPTED);
    assert_eq!(lab.running(), ["1.2@1"], "nothing starts there");
    lab.ends("1.2", OK);
    assert_eq!(lab.running(), ["1.1@1"], "it has kept its place in line");
}

#[test]
fn it_is_taken_out_once() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    fails(&mut lab, 0);
    lab.told();
    fails(&mut lab, 0);
    assert!(lab.told().is_empty());
    assert_eq!(drained(&lab).len(), 1);
}

#[test]
fn a_gpu_that_a_sample_shows_lost_is_taken_out() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.gpus[1].lost = Some("the driver lost it".to_owned());
    lab.add(1, [task("a").vram(4)]);
    lab.assert_told("GPU 1 is taken out: the driver lost it");
    assert_eq!(drained(&lab), ["GPU-1"]);
    assert_eq!(lab.running(), ["1.1@0"], "it is not waited for");
}

#[test]
fn one_that_was_taken_out_is_not_waited_for_any_more() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.gpus[1].lost = Some("the driver lost it".to_owned());
    lab.add(1, [task("a").vram(4)]);
    lab.ends("1.1", OK);
    lab.pass(SECOND * 60);
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn one_that_starts_while_its_gpu_is_taken_out_is_ended_again() {
    let mut lab = Lab::with_gpus(2);
    lab.answers.starts = false;
    lab.run(1);
    lab.add(1, [task("a")]);
    fails(&mut lab, 0);
    lab.stops();
    let (task, attempt) = (crate::lab::id("1.1"), 1);
    lab.feed(Input::Process(packhorse_engine::ProcessEvent::Started { task, attempt }));
    assert_eq!(lab.stops().len(), 1);
}

#[test]
fn what_an_earlier_run_left_out_is_not_used() {
    let mut lab = Lab::with_gpus(2);
    lab.feed(Input::LeaveOut { device: DeviceId(0), reason: "Xid 79".to_owned() });
    lab.run(1);
    lab.add(1, [task("a"), task("b").vram(4)]);
    lab.assert_told("GPU 0 was taken out by an earlier run and is not used: Xid 79");
    assert_eq!(lab.running(), ["1.1@1"]);
    assert!(drained(&lab).is_empty(), "it is known already");
}

#[test]
fn when_all_are_broken_the_run_ends_and_says_what_to_do() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a"), task("b")]);
    lab.end_input(1);
    fails(&mut lab, 0);
    lab.ends("1.1", INTERRUPTED);
    lab.assert_told("2 tasks wait for GPUs that were taken out");
    assert_eq!(lab.summary(1).left, 2);
}

#[test]
fn a_device_that_does_not_exist_changes_nothing() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.told();
    fails(&mut lab, 7);
    assert!(lab.told().is_empty());
}
