//! Tasks that share a GPU through MPS.

use packhorse_engine::{Action, Input, MpsAction, MpsInput, MpsSettings, ProcessEvent, StopSignal};
use packhorse_model::{DeviceId, Outcome};

use crate::lab::{INTERRUPTED, Lab, OK, SECOND, id, task};

const GPU: DeviceId = DeviceId(0);
const KILLED: Outcome = Outcome::Killed { signal: 6 };

fn lab(gpus: usize) -> Lab {
    let mut lab = Lab::built(&vec![24; gpus], None, |settings| {
        settings.mps = Some(MpsSettings::default());
    });
    lab.run(1);
    lab
}

fn ready(lab: &mut Lab) {
    lab.feed(Input::Mps(MpsInput::Ready(GPU)));
}

/// Two tasks share a GPU, and their server dies.
fn server_dies(lab: &mut Lab, tasks: &[&str]) {
    for task in tasks {
        lab.mps_failures.push(id(task));
    }
    for task in tasks {
        lab.ends(task, KILLED);
    }
    lab.mps_failures.clear();
}

fn mps_actions(lab: &mut Lab) -> Vec<MpsAction> {
    lab.take_actions(|action| match action {
        Action::Mps(action) => Some(action),
        _ => None,
    })
}

#[test]
fn what_a_server_holds_for_itself_is_nothing_that_a_task_has_left() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(20), task("b").vram(20)]);
    ready(&mut lab);
    lab.holds("1.1", 16);
    // It was not seen together with the task.
    lab.mps_server(0);
    lab.ends("1.1", OK);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    lab.pass(SECOND * 10);
    assert!(!lab.told().join("\n").contains("warning"));
}

#[test]
fn an_attempt_waits_for_its_daemon() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 2]);
    assert_eq!(mps_actions(&mut lab), [MpsAction::Start(GPU)]);
    assert!(lab.running().is_empty());
    ready(&mut lab);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    let share = lab.running[&id("1.1")].mps.unwrap();
    assert_eq!((share.device, share.threads), (GPU, Some(50)));
    lab.ends("1.1", OK);
    lab.add(1, [task("c").share(500)]);
    assert_eq!(lab.running(), ["1.2@0", "1.3@0"], "the daemon is there");
}

#[test]
fn one_that_waits_for_its_daemon_is_stopped_without_a_process() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500)]);
    lab.stop(1, StopSignal::Terminate);
    assert!(lab.stops().is_empty());
    assert_eq!(lab.summary(1).left, 1);
    ready(&mut lab);
    assert!(lab.started().is_empty());
}

#[test]
fn one_that_waits_for_its_daemon_leaves_a_broken_gpu() {
    let mut lab = lab(2);
    lab.add(1, [task("a").share(500)]);
    lab.feed(Input::DeviceFailed { device: GPU, reason: "Xid 79".to_owned() });
    let device = DeviceId(1);
    lab.feed(Input::Mps(MpsInput::Ready(device)));
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn without_a_daemon_it_goes_without() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 2]);
    lab.feed(Input::Mps(MpsInput::Unavailable {
        device: GPU,
        reason: "no such program".to_owned(),
    }));
    lab.assert_told("GPU 0 is shared without MPS: no such program");
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    assert!(lab.running[&id("1.1")].mps.is_none());
}

#[test]
fn one_with_several_gpus_goes_without_and_that_is_said_once() {
    let mut lab = lab(4);
    lab.add(1, vec![task("a").gpus(2); 2]);
    assert_eq!(lab.running(), ["1.1@0,1", "1.2@2,3"]);
    let told = lab.told().join("\n");
    assert_eq!(told.matches("go without MPS").count(), 1);
}

#[test]
fn a_client_is_taken_off_its_gpu_before_it_is_ended() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500)]);
    ready(&mut lab);
    mps_actions(&mut lab);
    let (task, leader) = (id("1.1"), 4321);
    lab.feed(Input::Process(ProcessEvent::Ending { task, leader }));
    assert_eq!(mps_actions(&mut lab), [MpsAction::Release { task, leader }]);
    lab.feed(Input::Mps(MpsInput::Released(task)));
    let proceed = lab.take_actions(|action| match action {
        Action::Proceed(task) => Some(task),
        _ => None,
    });
    assert_eq!(proceed, [task]);
}

#[test]
fn a_server_that_dies_is_nobodys_fault_among_several() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 2]);
    ready(&mut lab);
    for _ in 0..3 {
        server_dies(&mut lab, &["1.1", "1.2"]);
        assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
        lab.pass(SECOND * 5);
    }
    lab.assert_told("retrying 1.1#1, 0 left: its MPS server died under it; it runs again");
    assert!(mps_actions(&mut lab).contains(&MpsAction::Check(GPU)));
}

#[test]
fn one_that_was_alone_with_it_twice_is_to_blame() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500)]);
    lab.end_input(1);
    ready(&mut lab);
    server_dies(&mut lab, &["1.1"]);
    lab.assert_told("its MPS server died under it; it runs again, and no retry is used up");
    lab.pass(SECOND * 5);
    server_dies(&mut lab, &["1.1"]);
    lab.assert_told("its MPS server died under it again, and it was alone there");
    assert_eq!(lab.summary(1).failed, 1);
}

#[test]
fn a_daemon_that_is_gone_is_started_again() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500)]);
    ready(&mut lab);
    lab.feed(Input::Mps(MpsInput::Gone(GPU)));
    lab.ends("1.1", OK);
    mps_actions(&mut lab);
    lab.add(1, [task("b").share(500)]);
    assert_eq!(mps_actions(&mut lab), [MpsAction::Start(GPU)]);
    assert!(lab.running().is_empty());
}

#[test]
fn one_that_is_drained_while_it_waits_for_its_daemon_still_starts() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 3]);
    lab.stop(1, StopSignal::Interrupt);
    ready(&mut lab);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    lab.stop(1, StopSignal::Interrupt);
    lab.ends("1.1", INTERRUPTED);
    lab.ends("1.2", INTERRUPTED);
    assert_eq!(lab.summary(1).left, 3);
}

#[test]
fn those_that_died_with_a_server_were_not_alone_with_it() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 2]);
    ready(&mut lab);
    lab.add(1, [task("whole").gpus(1).priority(-1)]);
    server_dies(&mut lab, &["1.1", "1.2"]);
    assert_eq!(lab.running(), ["1.3@0"], "it has its turn");
    for task in ["1.3", "1.1"] {
        lab.ends(task, OK);
    }
    lab.pass(SECOND * 5);
    lab.told();
    server_dies(&mut lab, &["1.2"]);
    lab.assert_told("its MPS server died under it; it runs again");
}
