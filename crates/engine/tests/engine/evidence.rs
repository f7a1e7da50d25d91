//! What a failure is taken for: a test for each row of the table of evidence.

use packhorse_engine::{Input, OomSigns};
use packhorse_model::{DeviceId, Outcome, Record};

use crate::lab::{A_LOOK, FAILED, Lab, SECOND, id, task};

const CUDA: &str = "torch.OutOfMemoryError: CUDA out of memory.\n";
const SEGV: Outcome = Outcome::Killed { signal: 11 };
const FULL: u64 = 23;

/// A task with two retries, alone on a GPU of 24 GiB, of which it holds so much. It was
/// promised 20.
fn holding(memory: u64) -> Lab {
    let signs = OomSigns::parse(std::path::Path::new("signs"), "exit 42\n").unwrap();
    let mut lab = Lab::built(&[24], None, |settings| settings.oom_signs = signs);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(20).retries(2)]);
    lab.holds("1.1", memory);
    lab.told();
    lab
}

/// How the end of the task was told, with what it wrote last.
fn ends(lab: &mut Lab, log: &str, outcome: Outcome) -> String {
    lab.logs.insert(id("1.1"), log.to_owned());
    lab.ends("1.1", outcome);
    let told = lab.told();
    let end = told.iter().find(|line| line.contains(" 1.1#1") || line.contains("finished 1.1"));
    end.unwrap_or_else(|| panic!("{told:?}")).clone()
}

/// Asserts that the failure is the task's own, and that this is said of it: a retry is used
/// up, and nothing is learned.
#[track_caller]
fn assert_own(lab: &Lab, told: &str, said: &str) {
    let again = if said.is_empty() { "" } else { "; it runs again, and a retry is used up" };
    assert_eq!(told, format!("retrying 1.1#1, 1 left: {said}{again}"));
    let learned = lab.records.iter().any(|(_, record)| matches!(record, Record::Peak(_)));
    assert!(!learned, "a failure of its own teaches nothing");
}

#[track_caller]
fn assert_out_of_memory(told: &str) {
    assert!(told.contains("out of GPU memory ("), "{told}");
}

#[test]
fn a_device_that_failed_is_to_blame_whatever_was_written() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("python a.py").vram(20)]);
    lab.holds("1.1", 20);
    lab.told();
    lab.gpus[0].lost = Some("it has fallen off the bus".to_owned());
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.pass(A_LOOK / 2);
    lab.ends("1.1", FAILED);
    lab.assert_told("retrying 1.1#1, 0 left: GPU 0 failed while it ran; it runs again, and no");
}

#[test]
fn words_near_the_end_are_evidence_however_much_is_free() {
    for memory in [1, FULL] {
        assert_out_of_memory(&ends(&mut holding(memory), CUDA, FAILED));
        assert_out_of_memory(&ends(&mut holding(memory), CUDA, SEGV));
    }
}

#[test]
fn a_declared_exit_status_is_evidence() {
    let outcome = Outcome::Failed { code: 42 };
    assert_out_of_memory(&ends(&mut holding(1), "KeyError: 'lr'\n", outcome));
}

#[test]
fn another_error_at_the_end_is_believed_also_on_a_full_gpu() {
    for log in [
        "loading\nKeyError: 'lr'\n",
        "error: no such file\nbye\n",
        "usage: a.py\na.py: error: unrecognized arguments\n",
    ] {
        let mut lab = holding(FULL);
        let told = ends(&mut lab, log, FAILED);
        assert_own(&lab, &told, "");
    }
}

#[test]
fn words_that_tell_nothing_are_no_other_error() {
    for log in [
        "loading\n",
        "RuntimeError: failed to allocate a buffer\n",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n",
        "RuntimeError: CUDA error: unknown error\n",
        "errors.ChildFailedError:\n",
        "val error: 0.12\n",
        "dlerror: libnvinfer.so.7: cannot open\n",
        "KeyError: 'lr', using 0.1\n1\n2\n3\n4\n5\n",
    ] {
        let mut lab = holding(FULL);
        let told = ends(&mut lab, log, FAILED);
        assert_own(&lab, &told, "exit status 1; GPU 0 had 1.0 GiB free when last seen, 0ms before");
    }
}

#[test]
fn a_crash_on_a_full_gpu_is_a_crash_and_what_was_seen_is_told() {
    for (log, outcome, said) in [
        ("", SEGV, "killed by SIGSEGV"),
        ("Bus error\n", Outcome::Failed { code: 135 }, "exit status 135"),
        ("Killed\n", Outcome::Failed { code: 137 }, "exit status 137"),
        ("terminate called without\n", Outcome::Killed { signal: 6 }, "killed by SIGABRT"),
        // One that was killed need not have known why.
        ("KeyError: 'lr'\n", Outcome::Killed { signal: 9 }, "killed by SIGKILL"),
        ("", FAILED, "exit status 1"),
    ] {
        let mut lab = holding(FULL);
        let told = ends(&mut lab, log, outcome);
        let said = format!("{said}; GPU 0 had 1.0 GiB free when last seen, 0ms before");
        assert_own(&lab, &told, &said);
    }
}

#[test]
fn a_crash_soon_after_a_large_allocation_is_a_crash() {
    for outcome in [SEGV, FAILED, Outcome::Failed { code: 135 }, Outcome::Failed { code: 137 }] {
        // 8 GiB are free, and it has just taken 16.
        let mut lab = holding(16);
        let told = ends(&mut lab, "", outcome);
        assert_own(&lab, &told, "");
    }
}

#[test]
fn a_gpu_that_was_full_long_before_is_not_told_of() {
    let mut lab = holding(FULL);
    lab.answers.samples = false;
    lab.pass(SECOND * 3);
    lab.logs.clear();
    lab.ends("1.1", SEGV);
    lab.pass(SECOND * 2);
    let told = lab.told();
    assert!(told.iter().any(|line| line == "retrying 1.1#1, 1 left: "), "{told:?}");
}

#[test]
fn a_task_that_was_never_seen_has_failed_by_itself() {
    let mut lab = holding(0);
    let told = ends(&mut lab, "", SEGV);
    assert_own(&lab, &told, "");
}

#[test]
fn words_further_up_count_only_on_a_gpu_that_was_seen_full() {
    let log = format!("caught: {CUDA}{}", "step\n".repeat(300));
    assert_out_of_memory(&ends(&mut holding(FULL), &log, FAILED));
    let mut lab = holding(16);
    let told = ends(&mut lab, &log, FAILED);
    assert_own(&lab, &told, "");
}

#[test]
fn words_further_up_do_not_hide_another_error() {
    let log = format!("caught: {CUDA}{}KeyError: 'lr'\n", "step\n".repeat(300));
    for memory in [1, FULL] {
        let mut lab = holding(memory);
        let told = ends(&mut lab, &log, FAILED);
        let said = "exit status 1; its last error is `KeyError: 'lr'` (it had caught one of GPU \
                    memory before)";
        assert_own(&lab, &told, said);
    }
}

#[test]
fn an_error_of_a_program_that_the_driver_reported_is_told() {
    let fault = || Input::ProgramFault { device: DeviceId(0), error: "Xid 31".to_owned() };
    let caught = format!("caught: {CUDA}{}", "step\n".repeat(300));
    for log in ["", &caught] {
        let mut lab = holding(FULL);
        lab.feed(fault());
        let told = ends(&mut lab, log, SEGV);
        assert_own(&lab, &told, "killed by SIGSEGV; the driver reported Xid 31 on GPU 0");
    }
    // Long ago it was another program's.
    let mut lab = holding(16);
    lab.feed(fault());
    lab.pass(SECOND * 6);
    let told = ends(&mut lab, "", SEGV);
    assert_own(&lab, &told, "");
    let mut lab = holding(16);
    lab.feed(fault());
    assert_out_of_memory(&ends(&mut lab, CUDA, FAILED));
}

#[test]
fn what_is_seen_after_a_death_that_was_not_reported_yet_changes_nothing() {
    let mut lab = holding(FULL);
    lab.ended.push(id("1.1"));
    for _ in 0..3 {
        lab.holds("1.1", 0);
    }
    let told = ends(&mut lab, "", SEGV);
    let said = "killed by SIGSEGV; GPU 0 had 1.0 GiB free when last seen, 150ms before";
    assert_own(&lab, &told, said);
}
