//! Other runs on this machine: what they hold, and what they are told.

use std::time::Duration;

use packhorse_engine::{Action, Input, LeasedDevice, OtherRun, ProcessEvent};
use packhorse_model::{Claim, Milli, RunId};

use crate::lab::{A_LOOK, FAILED, Lab, OK, REST, SECOND, gib, id, task};

fn lab(gpus: usize) -> Lab {
    let mut lab = Lab::built(&vec![24; gpus], None, |settings| settings.leases = true);
    lab.run(1);
    lab
}

fn whole() -> LeasedDevice {
    LeasedDevice { share: Milli::ONE, attempts: 1, whole: true, ..LeasedDevice::default() }
}

fn memory(memory: u64) -> LeasedDevice {
    LeasedDevice { memory: gib(memory), attempts: 1, ..LeasedDevice::default() }
}

/// What others are told, as GPU, GiB, attempts and whether it is whole.
fn told(lease: Option<Vec<LeasedDevice>>) -> Vec<(String, u64, u32, bool)> {
    let held = lease.into_iter().flatten();
    held.map(|it| (it.device.into(), it.memory.0 >> 30, it.attempts, it.whole)).collect()
}

#[test]
fn a_gpu_that_another_run_has_to_itself_is_left_alone_until_it_ends() {
    let mut lab = lab(2);
    lab.other_run(77, 0, &whole());
    lab.add(1, vec![task("a"); 2]);
    assert_eq!(lab.running(), ["1.1@1"]);
    lab.feed(Input::OtherRuns(Vec::new()));
    assert_eq!(lab.running(), ["1.1@1", "1.2@0"]);
}

#[test]
fn while_another_run_decides_nothing_is_started_and_all_else_goes_on() {
    let mut lab = lab(2);
    lab.add(1, [task("a")]);
    lab.feed(Input::AwaitTurn);
    lab.add(1, [task("b")]);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), [""; 0]);
    lab.feed(Input::OurTurn);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn why_a_task_waits_is_said_when_it_is_known_what_other_runs_hold() {
    let mut lab = lab(1);
    lab.feed(Input::AwaitTurn);
    lab.add(1, [task("a")]);
    assert_eq!(lab.why("1.1"), "");
    // What does not depend on them is said at once.
    assert!(lab.why("1.2").starts_with("there is no task 1.2"), "{}", lab.why("1.2"));
    lab.other_run(77, 0, &whole());
    lab.feed(Input::OurTurn);
    assert!(lab.replies().contains("another run holds"), "{}", lab.why("1.1"));
    assert_eq!(lab.replies(), "", "each question has one answer");
}

#[test]
fn shares_that_another_run_has_are_not_given_out() {
    let mut lab = lab(1);
    let share = Milli(600);
    lab.other_run(77, 0, &LeasedDevice { share, ..memory(0) });
    lab.add(1, [task("a").share(500), task("b").share(400)]);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn memory_that_another_run_was_promised_counts_before_it_takes_it() {
    let mut lab = lab(1);
    lab.other_run(77, 0, &memory(16));
    lab.add(1, [task("a").vram(10)]);
    assert!(lab.running().is_empty());
    assert!(lab.why("1.1").contains("other run"), "{}", lab.why("1.1"));
    lab.other_run(77, 0, &memory(8));
    lab.pass(SECOND * 2);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn what_another_run_holds_of_its_promise_does_not_count_twice() {
    let mut lab = lab(1);
    lab.other_run_holds(0, 77, 10);
    lab.other_run(77, 0, &memory(12));
    lab.add(1, [task("a").vram(11)]);
    assert_eq!(lab.running(), ["1.1@0"], "12 are theirs");
}

#[test]
fn what_another_run_holds_beyond_its_promise_counts() {
    let mut lab = lab(1);
    lab.other_run_holds(0, 77, 16);
    lab.other_run(77, 0, &memory(4));
    lab.add(1, [task("a").vram(11)]);
    assert!(lab.running().is_empty());
}

#[test]
fn where_no_driver_looks_promises_are_all_there_is() {
    let mut lab = Lab::built(&[24], None, |settings| {
        settings.leases = true;
        settings.sampled = false;
    });
    lab.run(1);
    lab.other_run(77, 0, &memory(16));
    lab.add(1, [task("a").vram(10), task("b").vram(8)]);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn what_is_taken_has_to_be_told_and_is_told_once() {
    let mut lab = lab(2);
    lab.add(1, [task("a").vram(4)]);
    assert_eq!(told(lab.raised()), [("GPU-0".to_owned(), 4, 1, false)]);
    assert_eq!(lab.raised(), None);
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn what_is_free_for_a_moment_is_not_given_up() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a"); 2]);
    lab.raised();
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"]);
    assert_eq!(lab.raised(), None, "the next one takes what was told");
    lab.ends("1.2", OK);
    assert_eq!(lab.raised(), None, "less is no reason to hurry");
    let lowered = lab.engine.lease_to_lower().map(|lease| lease.held);
    assert_eq!(lowered, Some(Vec::new()));
    lab.engine.lease_told(true);
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn what_could_not_be_told_is_told_a_second_later() {
    let mut lab = lab(1);
    lab.add(1, [task("a")]);
    let lease = lab.engine.lease_to_raise();
    assert!(lease.is_some());
    lab.engine.lease_told(false);
    assert_eq!(lab.engine.lease_to_lower(), None, "not at once");
    assert_eq!(lab.engine.wake_at(), Some(lab.now + SECOND));
    assert_eq!(lab.engine.lease_to_raise(), lease, "whoever has the lock tries again");
    lab.engine.lease_told(false);
    lab.now += SECOND;
    lab.feed(Input::Wake);
    assert_eq!(lab.engine.lease_to_lower(), lease);
    lab.engine.lease_told(true);
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn one_that_outgrows_its_promise_is_told_with_all_that_is_free_until_it_rests() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(4)]);
    lab.raised();
    lab.holds("1.1", 10);
    let held = |lab: &mut Lab| told(lab.engine.lease_to_lower().map(|lease| lease.held));
    assert_eq!(held(&mut lab), [("GPU-0".to_owned(), 24, 1, false)]);
    lab.pass(REST + SECOND);
    assert_eq!(held(&mut lab), [("GPU-0".to_owned(), 11, 1, false)]);
}

#[test]
fn only_what_may_take_something_needs_the_lock() {
    let mut lab = lab(1);
    let now = lab.clock();
    let tasks = |run| Input::Tasks { run: RunId(run), tasks: vec![task("a").parts()], more: false };
    let started = Input::Process(ProcessEvent::Started { task: id("1.1"), attempt: 1 });
    assert!(lab.engine.may_take(&tasks(1), now));
    assert!(!lab.engine.may_take(&Input::Wake, now), "nobody waits");
    assert!(!lab.engine.may_take(&started, now));
    lab.add(1, [task("a").share(500), task("b")]);
    lab.raised();
    assert!(lab.engine.may_take(&Input::Wake, now), "somebody waits");
    let ended = Input::InputEnded(RunId(1));
    assert!(lab.engine.may_take(&ended, now), "it may end their arrival");
    assert!(!lab.engine.may_take(&started, now));
    lab.ends("1.1", OK);
    lab.raised();
    assert!(!lab.engine.may_take(&tasks(1), now), "all is ours");
}

#[test]
fn nobody_is_asked_where_nobody_is_told() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let now = lab.clock();
    assert!(!lab.engine.may_take(&Input::InputEnded(RunId(1)), now));
    lab.add(1, [task("a").vram(4)]);
    let asked = |action| matches!(action, Action::RefreshOtherRuns).then_some(());
    assert!(lab.take_actions(asked).is_empty());
    assert_eq!(lab.engine.lease_to_lower(), None);
}

#[test]
fn others_are_looked_at_again_with_the_devices() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(4)]);
    let asked = |action| matches!(action, Action::RefreshOtherRuns).then_some(());
    assert_eq!(lab.take_actions(asked).len(), 1);
}

#[test]
fn trouble_with_others_is_told_once() {
    let mut lab = lab(1);
    lab.told();
    for _ in 0..3 {
        lab.feed(Input::OtherRunsTrouble("no lock".to_owned()));
    }
    assert_eq!(lab.told(), ["warning: no lock"]);
}

#[test]
fn one_that_waits_for_another_run_is_named_as_such() {
    let mut lab = lab(1);
    assert!(!lab.engine.has_other_runs());
    lab.other_run(77, 0, &whole());
    lab.add(1, [task("a")]);
    assert!(lab.engine.has_other_runs());
    let why = lab.engine.why_first_waits().unwrap();
    assert!(why.contains("GPU 0"), "{why}");
}

#[test]
fn what_is_due_by_now_may_take_something_whatever_the_input_is() {
    let mut lab = lab(1);
    lab.add(1, [task("a").share(500), task("b").share(600)]);
    lab.raised();
    lab.pass(SECOND);
    lab.answers.samples = false;
    lab.ends("1.1", FAILED);
    let committed = Input::Committed { records: 0, kept: 0, trouble: None };
    assert!(!lab.engine.may_take(&committed, lab.clock()));
    lab.now += SECOND * 2;
    assert!(lab.engine.may_take(&committed, lab.clock()), "1.1 is judged");
    lab.feed(committed);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn a_newcomer_is_looked_at_before_its_memory_counts_twice() {
    let mut lab = lab(1);
    lab.stranger(0, 8);
    lab.add(1, [task("a").vram(4), task("b").vram(14)]);
    lab.pass(SECOND * 20);
    assert_eq!(lab.running(), ["1.1@0"]);
    // They were seen before they said who they are.
    lab.stranger(0, 0);
    lab.other_run_holds(0, 77, 4);
    lab.other_run(77, 0, &memory(6));
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
}

/// Another run that holds this of GPU 0, and waits for that since then.
fn other(
    pid: u32,
    held: Option<LeasedDevice>,
    claim: Option<(LeasedDevice, Duration)>,
) -> OtherRun {
    let on_gpu = |held| LeasedDevice { device: "GPU-0".into(), ..held };
    OtherRun {
        pid,
        name: format!("run of process {pid}"),
        devices: held.map(on_gpu).into_iter().collect(),
        claim: claim.map(|(wanted, since)| Claim {
            since: u64::try_from(since.as_nanos()).unwrap(),
            devices: vec![on_gpu(wanted)],
        }),
        ..OtherRun::default()
    }
}

/// A moment after which a claim counts.
const RIPE: Duration = Duration::from_millis(100);

#[test]
fn a_run_leaves_room_for_another_that_waits() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a").share(500); 4]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    let claim = other(77, None, Some((whole(), lab.now)));
    lab.feed(Input::OtherRuns(vec![claim.clone()]));
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0", "1.3@0"], "it has only just come");
    lab.now += RIPE;
    assert!(lab.engine.is_kept_room_stale(lab.now));
    lab.feed(Input::OtherRuns(vec![claim]));
    lab.ends("1.2", OK);
    lab.ends("1.3", OK);
    assert!(lab.running().is_empty());
    let why = lab.why("1.4");
    let kept = "GPU 0 is kept for another run, which has waited longer (run of process 77)";
    assert!(why.contains(kept), "{why}");
    lab.feed(Input::OtherRuns(vec![other(77, Some(whole()), None)]));
    assert!(lab.running().is_empty(), "now it has it");
    let told = lab.engine.lease_to_lower().unwrap();
    assert!(told.claim.is_some(), "and we wait for it");
    lab.engine.lease_told(true);
    lab.feed(Input::OtherRuns(Vec::new()));
    assert_eq!(lab.running(), ["1.4@0"]);
    assert_eq!(lab.engine.lease_to_lower().unwrap().claim, None);
}

#[test]
fn of_two_that_wait_the_older_goes_first() {
    for (older, starts) in [(true, 0), (false, 1)] {
        let mut lab = lab(1);
        lab.now += SECOND * 10;
        let holder = other(77, Some(whole()), None);
        let since = if older { lab.now.saturating_sub(SECOND) } else { lab.now + SECOND };
        let rival = other(78, None, Some((whole(), since)));
        lab.feed(Input::OtherRuns(vec![holder, rival.clone()]));
        lab.add(1, [task("a")]);
        assert!(lab.engine.lease_to_lower().unwrap().claim.is_some());
        lab.engine.lease_told(true);
        lab.now += SECOND * 3;
        lab.feed(Input::OtherRuns(vec![rival]));
        assert_eq!(lab.running().len(), starts, "{older}");
    }
}

#[test]
fn who_makes_no_use_of_its_claim_is_not_waited_for() {
    let mut lab = lab(1);
    lab.now += SECOND;
    let claim = other(77, None, Some((whole(), Duration::ZERO)));
    lab.feed(Input::OtherRuns(vec![claim.clone()]));
    lab.add(1, vec![task("a"); 2]);
    assert!(lab.running().is_empty());
    assert_eq!(lab.engine.wake_at(), Some(lab.now + SECOND * 2));
    lab.now += SECOND * 2;
    assert!(lab.engine.is_kept_room_stale(lab.now));
    lab.feed(Input::OtherRuns(vec![claim.clone()]));
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.ends("1.1", OK);
    assert_eq!(lab.running(), ["1.2@0"], "nor a moment later");
}

#[test]
fn who_waits_for_memory_that_should_be_gone_may_still_make_use_of_its_claim() {
    let mut lab = lab(1);
    lab.now += SECOND;
    lab.add(1, [task("a").vram(20), task("b").vram(20)]);
    let claim = other(77, None, Some((memory(20), Duration::ZERO)));
    lab.feed(Input::OtherRuns(vec![claim.clone()]));
    lab.holds("1.1", 16);
    lab.stranger(0, 16);
    lab.ends("1.1", OK);
    for _ in 0..3 {
        lab.pass(SECOND);
        lab.feed(Input::OtherRuns(vec![claim.clone()]));
        assert!(lab.running().is_empty());
    }
    lab.stranger(0, 0);
    lab.pass(A_LOOK);
    lab.feed(Input::OtherRuns(vec![claim.clone()]));
    assert!(lab.running().is_empty(), "it is there for the claim now");
    lab.pass(SECOND * 2);
    lab.feed(Input::OtherRuns(vec![claim]));
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn nothing_is_kept_where_a_dead_run_left_something() {
    let mut lab = lab(1);
    lab.now += SECOND;
    let left = LeasedDevice { share: Milli(300), ..memory(0) };
    let dead = OtherRun { is_dead: true, ..other(76, Some(left), None) };
    let claim = other(77, None, Some((whole(), Duration::ZERO)));
    lab.feed(Input::OtherRuns(vec![dead, claim]));
    lab.add(1, [task("a").share(500), task("b")]);
    assert_eq!(lab.running(), ["1.1@0"]);
    let told = lab.engine.lease_to_lower().unwrap();
    assert_eq!(told.claim, None, "nobody would make room");
}

#[test]
fn what_others_hold_is_known_before_less_is_kept_for_them() {
    let mut lab = lab(1);
    lab.now += SECOND;
    let claim = other(77, None, Some((whole(), Duration::ZERO)));
    lab.feed(Input::OtherRuns(vec![claim]));
    lab.add(1, [task("a")]);
    assert!(lab.running().is_empty());
    // So long that nobody would wait for it any more; but it has taken it by then.
    lab.now += SECOND * 100;
    lab.feed(Input::OtherRuns(vec![other(77, Some(whole()), None)]));
    assert!(lab.running().is_empty());
}

#[test]
fn a_claim_on_what_we_do_not_use_keeps_nobody_awake() {
    let mut lab = lab(1);
    lab.add(1, vec![task("a"); 2]);
    assert!(lab.raised().is_some());
    let mut claim = other(77, None, Some((whole(), Duration::ZERO)));
    for wanted in claim.claim.iter_mut().flat_map(|claim| &mut claim.devices) {
        wanted.device = "GPU-9".into();
    }
    lab.feed(Input::OtherRuns(vec![claim]));
    lab.pass(SECOND * 10);
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn a_claim_is_kept_while_it_waits_for_a_device_that_is_not_ours() {
    let mut lab = lab(1);
    lab.now += SECOND;
    let elsewhere = || LeasedDevice { device: "GPU-9".into(), ..whole() };
    let mut claim = other(77, None, Some((whole(), Duration::ZERO)));
    let wanted = claim.claim.iter_mut();
    wanted.for_each(|wanted| wanted.devices.push(elsewhere()));
    let mut holder = other(78, None, None);
    holder.devices.push(elsewhere());
    let both = || Input::OtherRuns(vec![claim.clone(), holder.clone()]);
    lab.feed(both());
    lab.add(1, [task("a")]);
    for _ in 0..10 {
        lab.now += SECOND;
        lab.feed(both());
        assert!(lab.running().is_empty());
    }
    // From here on it could start, and does not.
    for _ in 0..3 {
        assert!(lab.running().is_empty());
        lab.feed(Input::OtherRuns(vec![claim.clone()]));
        lab.now += SECOND;
    }
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn what_is_made_up_costs_no_more_than_our_devices_are() {
    let mut lab = lab(1);
    let made_up = |pid| {
        let mut other = other(pid, Some(memory(0)), Some((memory(0), SECOND)));
        other.devices = vec![other.devices[0].clone(); 400];
        let claim = other.claim.as_mut().unwrap();
        claim.devices = vec![claim.devices[0].clone(); 400];
        other
    };
    lab.feed(Input::OtherRuns((100..200).map(made_up).collect()));
    lab.add(1, vec![task("a").share(1); 300]);
    // If all of that were added up for each of these, it would take minutes.
    for number in 1..=300 {
        lab.ends(&format!("1.{number}"), OK);
    }
    assert!(lab.running().is_empty());
}

#[test]
fn what_was_taken_since_is_known_before_what_is_free_now_is_used() {
    let mut lab = lab(2);
    let on = |gpu: &str| LeasedDevice { device: gpu.into(), ..whole() };
    let holding = |pid, gpu| OtherRun { pid, devices: vec![on(gpu)], ..OtherRun::default() };
    for (free, taken) in [("GPU-0", "GPU-1"), ("GPU-1", "GPU-0")] {
        lab.feed(Input::OtherRuns(vec![holding(77, free)]));
        lab.add(1, [task("a").gpus(2)]);
        lab.feed(Input::OtherRuns(vec![holding(78, taken)]));
        assert!(lab.running().is_empty(), "{taken} was taken meanwhile");
        lab.feed(Input::OtherRuns(Vec::new()));
        assert_eq!(lab.running().len(), 1);
        let number = if free == "GPU-0" { 1 } else { 2 };
        lab.ends(&format!("1.{number}"), OK);
    }
}

#[test]
fn others_are_not_said_to_hold_more_than_there_is() {
    let mut lab = lab(1);
    lab.add(1, [task("a").vram(10)]);
    lab.holds("1.1", 3);
    lab.other_run(77, 0, &memory(28));
    lab.logs.insert(id("1.1"), "CUDA out of memory".to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told("because others hold 24.0 GiB on GPU 0; it runs again");
}
