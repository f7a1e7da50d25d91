//! How the driver is asked, and what happens while it does not answer.

use packhorse_engine::{Action, DeviceView, Input, MemberView, Owner, ProcessView};
use packhorse_model::Bytes;

use crate::lab::{A_LOOK, Lab, OK, REST, SECOND, SILENCE, gib, id, task};

#[test]
fn nobody_asks_while_nobody_counts_memory() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a")]);
    assert_eq!(lab.samples(), 1, "once: who else is there");
    lab.pass(SECOND * 60);
    assert_eq!(lab.samples(), 0);
    assert_eq!(lab.engine.wake_at(), None);
}

#[test]
fn a_gpu_that_was_not_looked_at_counts_as_full() {
    let mut lab = Lab::with_gpus(2);
    lab.answers.samples = false;
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    assert_eq!(lab.samples(), 1);
    assert!(lab.running().is_empty());
    lab.sample();
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn nothing_is_placed_before_all_were_looked_at() {
    let mut lab = Lab::with_gpus(2);
    lab.gpus[1].answers = false;
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    assert!(lab.running().is_empty());
    lab.gpus[1].answers = true;
    lab.sample();
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn a_slow_one_keeps_the_others_waiting_for_two_seconds() {
    let mut lab = Lab::with_gpus(2);
    lab.gpus[0].answers = false;
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.told();
    lab.pass(SECOND * 2);
    lab.assert_told("GPU 0 takes long to look at");
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn one_that_asks_for_no_memory_waits_for_a_look_for_a_moment_if_there_is_a_choice() {
    let mut lab = Lab::with_gpus(2);
    lab.answers.samples = false;
    lab.run(1);
    lab.add(1, [task("a")]);
    assert!(lab.running().is_empty());
    lab.pass(SECOND / 4);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.add(1, [task("b")]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"], "there is one GPU left");
    lab.pass(SECOND * 3);
    lab.ends("1.1", OK);
    lab.ends("1.2", OK);
    lab.add(1, [task("c")]);
    assert_eq!(lab.running(), ["1.3@0"], "a driver that is silent is not waited for again");
}

#[test]
fn a_look_at_the_start_is_enough_for_a_while() {
    let mut lab = Lab::with_gpus(2);
    lab.stranger(0, 20);
    lab.first_look();
    let seen = lab.engine.outside().map(|(_, held)| (held.memory.0 >> 30, held.has_strangers));
    assert_eq!(seen.collect::<Vec<_>>(), [(20, true), (0, false)]);
    lab.run(1);
    lab.add(1, vec![task("a").share(500); 2]);
    assert_eq!(lab.running(), ["1.1@1", "1.2@1"]);
    assert_eq!(lab.samples(), 0);
    lab.ends("1.1", OK);
    lab.ends("1.2", OK);
    lab.stranger(0, 0);
    lab.stranger(1, 20);
    lab.pass(SECOND * 3);
    lab.add(1, [task("b").share(500)]);
    assert_eq!(lab.running(), ["1.3@0"], "they have moved, and that was seen");
    assert_eq!(lab.samples(), 1);
}

#[test]
fn a_desktop_leaves_the_rest_of_its_gpu_to_tasks() {
    let mut lab = Lab::with_gpus(1);
    lab.desktop(0, 2);
    lab.first_look();
    lab.run(1);
    lab.add(1, [task("a").vram_auto()]);
    assert_eq!(lab.running(), ["1.1@0"]);
    assert_eq!(lab.running[&id("1.1")].placement.devices[0].memory, gib(22));
}

#[test]
fn what_strangers_hold_is_not_given_out() {
    let mut lab = Lab::with_gpus(2);
    lab.stranger(0, 20);
    lab.run(1);
    lab.add(1, [task("a").vram(8)]);
    assert_eq!(lab.running(), ["1.1@1"]);
}

#[test]
fn a_driver_that_shows_more_than_there_can_be_does_no_harm() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let process = |pid| ProcessView {
        pid,
        memory: Some(Bytes(u64::MAX)),
        draws: false,
        owner: Owner::OtherRun(pid),
        description: String::new(),
    };
    let member =
        MemberView { processes: Some(vec![process(1), process(2)]), ..MemberView::default() };
    lab.feed(Input::Sampled(DeviceView { members: vec![member], ..DeviceView::default() }));
    lab.add(1, [task("a")]);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_waits_for_strangers_starts_when_they_leave() {
    let mut lab = Lab::with_gpus(1);
    lab.stranger(0, 20);
    lab.run(1);
    lab.add(1, [task("a").vram(8)]);
    assert!(lab.running().is_empty());
    lab.stranger(0, 0);
    lab.pass(SECOND * 2);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_outgrows_its_promise_leaves_less_for_others() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.holds("1.1", 18);
    lab.add(1, [task("b").vram(8)]);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.holds("1.1", 4);
    assert_eq!(lab.running(), ["1.1@0"], "it may take that again");
    lab.pass(REST + SECOND);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
}

#[test]
fn one_that_runs_is_looked_at_often_at_first_and_seldom_later() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.pass(SECOND);
    assert!(lab.samples() >= 10);
    lab.pass(SECOND * 100);
    lab.samples();
    lab.pass(SECOND * 10);
    assert!((4..=6).contains(&lab.samples()));
}

#[test]
fn a_driver_that_stays_silent_loses_its_gpu() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.gpus[0].answers = false;
    lab.pass(SILENCE / 2);
    assert!(lab.stops().is_empty());
    lab.pass(SILENCE);
    lab.assert_told("GPU 0 is taken out: the driver has not answered for 30s");
    assert_eq!(lab.stops().len(), 1);
}

#[test]
fn silence_while_we_were_stopped_does_not_count() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.answers.samples = false;
    lab.pass(A_LOOK);
    lab.told();
    lab.sleep(SILENCE * 2);
    assert!(lab.told().is_empty());
    lab.answers.samples = true;
    lab.pass(SECOND);
    assert!(lab.stops().is_empty());
    lab.ends("1.1", OK);
    assert_eq!(lab.engine.tracked_on(0), []);
}

#[test]
fn silence_after_we_were_stopped_does_count() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.answers.samples = false;
    lab.pass(A_LOOK);
    lab.sleep(SILENCE * 2);
    lab.pass(SILENCE + SECOND);
    lab.assert_told("GPU 0 is taken out");
}

#[test]
fn those_that_started_before_memory_counted_are_followed_from_then_on() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").share(100)]);
    assert!(lab.engine.tracked_on(0).is_empty());
    lab.holds_unseen("1.1", 20);
    lab.add(1, [task("b").share(100).vram(8)]);
    assert_eq!(lab.engine.tracked_on(0).len(), 1);
    assert_eq!(lab.running(), ["1.1@0"], "it holds too much for the other");
}

#[test]
fn an_old_look_is_no_ground_to_place_on() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("a").vram(4)]);
    lab.ends("1.1", OK);
    lab.pass(SECOND * 60);
    lab.actions.clear();
    lab.answers.samples = false;
    lab.stranger(0, 24);
    lab.add(1, [task("b").vram(4)]);
    assert!(lab.running().is_empty());
    let asked = |action| matches!(action, Action::Sample).then_some(());
    assert_eq!(lab.take_actions(asked).len(), 1);
    lab.sample();
    assert!(lab.running().is_empty(), "strangers have come");
}
