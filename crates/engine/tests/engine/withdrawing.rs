//! What a run that is over takes out of the scheduler.

use packhorse_engine::StopSignal;

use crate::lab::{INTERRUPTED, Lab, OK, task};

#[test]
fn those_who_wait_for_a_measurement_of_another_run_are_measured_themselves() {
    let mut lab = Lab::with_gpus(1);
    for run in [1, 2] {
        lab.run(run);
    }
    lab.add(1, [task("other"), task("python train.py").vram_auto().probe("{}")]);
    lab.add(2, [task("python train.py").vram_auto().probe("{}")]);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.stop(1, StopSignal::Terminate);
    lab.ends("1.1", INTERRUPTED);
    assert!(lab.is_over(1));
    assert_eq!(lab.running(), ["2.1@0"], "1.2 was to measure for both");
    lab.started();
    lab.ends("2.1", OK);
    assert_eq!(lab.started(), ["2.1#1@0"]);
}
