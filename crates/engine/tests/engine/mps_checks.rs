//! Whether an MPS daemon still runs is found out before anybody is sent to it again.

use packhorse_engine::{Action, Input, MpsAction, MpsInput, MpsSettings};
use packhorse_model::DeviceId;

use crate::lab::{FAILED, Lab, SECOND, id, task};

const DEVICE: DeviceId = DeviceId(0);

/// A task whose MPS server has died under it.
fn server_died() -> Lab {
    let mut lab = Lab::built(&[24], None, |settings| {
        settings.mps = Some(MpsSettings::default());
    });
    lab.run(1);
    lab.add(1, [task("python train.py").share(500)]);
    lab.feed(Input::Mps(MpsInput::Ready(DEVICE)));
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.mps_failures.push(id("1.1"));
    asked(&mut lab);
    lab.answers.questions = false;
    lab.ends("1.1", FAILED);
    // What it wrote.
    lab.answer_next();
    lab.pass(SECOND);
    lab
}

fn asked(lab: &mut Lab) -> Vec<MpsAction> {
    lab.take_actions(|action| match action {
        Action::Mps(action) => Some(action),
        _ => None,
    })
}

#[test]
fn the_next_attempt_waits_for_the_answer() {
    let mut lab = server_died();
    assert_eq!(asked(&mut lab), [MpsAction::Check(DEVICE)]);
    assert_eq!(lab.running(), [""; 0]);
    lab.feed(Input::Mps(MpsInput::Ready(DEVICE)));
    assert!(lab.running[&id("1.1")].mps.is_some());
}

#[test]
fn a_daemon_that_is_gone_is_started_again() {
    let mut lab = server_died();
    asked(&mut lab);
    lab.feed(Input::Mps(MpsInput::Gone(DEVICE)));
    assert_eq!(asked(&mut lab), [MpsAction::Start(DEVICE)]);
    assert_eq!(lab.running(), [""; 0]);
    lab.feed(Input::Mps(MpsInput::Ready(DEVICE)));
    assert!(lab.running[&id("1.1")].mps.is_some());
}
