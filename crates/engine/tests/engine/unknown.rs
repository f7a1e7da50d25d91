//! Tasks of unknown kinds: all that is free at first, and what they need once that is seen.

use packhorse_model::{PeakOrigin, Record};

use crate::lab::{A_LOOK, FAILED, INTERRUPTED, Lab, NewTask, OK, REST, SECOND, gib, id, task};

const CUDA: &str = "CUDA out of memory";

/// A GPU of 24 GiB and tasks of so many different kinds, of which the first runs.
fn lab(kinds: usize) -> Lab {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let kind = |number: usize| task(&format!("python kind{number}.py")).vram_auto().retries(1);
    lab.add(1, (1..=kinds).map(|number| kind(number * 11)));
    assert_eq!(lab.running(), ["1.1@0"]);
    lab
}

/// A task holds so much and does not grow any more.
fn rests(lab: &mut Lab, task: &str, memory: u64) {
    lab.holds(task, memory);
    lab.pass(REST + SECOND);
}

#[test]
fn the_next_starts_beside_one_whose_memory_rests() {
    let mut lab = lab(7);
    for number in 1..=5 {
        let name = format!("1.{number}");
        lab.holds(&name, 1);
        lab.pass(REST / 2);
        lab.holds(&name, 3);
        lab.pass(SECOND * 9);
        assert_eq!(lab.running().len(), number, "it has just grown");
        lab.pass(SECOND * 2);
        assert_eq!(lab.running().len(), number + 1);
    }
    rests(&mut lab, "1.6", 3);
    assert_eq!(lab.running().len(), 6, "a quarter of the GPU has to be free");
    assert!(lab.why("1.7").contains("6.0 GiB of GPU memory or more"));
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running().len(), 6);
}

#[test]
fn one_that_was_not_seen_yet_does_not_rest() {
    let mut lab = lab(2);
    lab.pass(REST * 3);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_of_a_kind_that_rests_elsewhere_needs_as_much() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 3]);
    rests(&mut lab, "1.1", 10);
    rests(&mut lab, "1.2", 3);
    let why = lab.why("1.3");
    assert!(why.contains("11.0 GiB of GPU memory or more (2.0 GiB free)"), "{why}");
}

#[test]
fn what_is_free_goes_to_one_of_them_only() {
    let mut lab = lab(3);
    rests(&mut lab, "1.1", 3);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    assert!((20.0..21.0).contains(&lab.promised("1.2")));
}

#[test]
fn nobody_comes_between_strangers_and_what_they_may_need() {
    let mut lab = Lab::with_gpus(1);
    lab.stranger(0, 2);
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto()]);
    assert!(lab.running().is_empty());
}

#[test]
fn one_that_grows_late_has_more_if_there_is_more() {
    let mut lab = lab(3);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 2);
    lab.holds("1.1", 15);
    assert!(lab.stops().is_empty());
    lab.pass(REST + SECOND);
    assert_eq!(lab.running().len(), 2, "17 GiB of 24 are promised");
    lab.ends("1.1", OK);
    let mut origins = lab.records.iter().filter_map(|(_, record)| match record {
        Record::Peak(peak) => Some(peak.learned.origin),
        _ => None,
    });
    assert_eq!(origins.next_back(), Some(PeakOrigin::GrewLate));
}

#[test]
fn the_last_that_came_is_moved_away_when_another_grows_late() {
    let mut lab = lab(2);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 10);
    lab.holds("1.1", 16);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.ends("1.2", INTERRUPTED);
    lab.assert_told(
        "retrying 1.2#1, 1 left: moved away, because 1.1 grew to 16.0 GiB on GPU 0 after its \
         memory had rested; it runs again, and no retry is used up",
    );
    lab.pass(SECOND * 9);
    let why = lab.why("1.2");
    assert!(why.contains("(0 B free)"), "it has all that is free again: {why}");
    lab.pass(REST * 3);
    let why = lab.why("1.2");
    assert!(why.contains("(6.3 GiB free)"), "it rests again: {why}");
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn one_that_came_last_and_grows_late_is_moved_away_itself() {
    let mut lab = lab(2);
    rests(&mut lab, "1.1", 12);
    rests(&mut lab, "1.2", 4);
    lab.holds("1.2", 12);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.ends("1.2", INTERRUPTED);
    lab.assert_told("because it grew to 12.0 GiB on GPU 0 after its memory had rested");
    lab.pass(REST * 3);
    assert_eq!(lab.running(), ["1.1@0"], "there is no room for 12 GiB");
}

#[test]
fn a_kind_that_grows_late_is_not_believed_as_early_again() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    let first = || task("python a.py").vram_auto();
    lab.add(1, [first()]);
    rests(&mut lab, "1.1", 3);
    lab.pass(SECOND * 60);
    lab.holds("1.1", 5);
    lab.add(1, [first(), task("python b.py").vram(20), task("python c.py").vram(16)]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"], "it is where most is free");
    lab.holds("1.2", 3);
    lab.pass(SECOND * 50);
    assert_eq!(lab.running().len(), 2);
    lab.pass(SECOND * 40);
    assert_eq!(lab.running().len(), 3);
}

#[test]
fn one_that_grew_late_is_remembered_whatever_becomes_of_it() {
    let mut lab = lab(1);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.1", 15);
    let age = REST + SECOND + A_LOOK * 2;
    let peaks = |lab: &Lab| {
        let peaks = lab.records.iter().filter_map(|(_, record)| match record {
            Record::Peak(peak) => Some(peak.learned),
            _ => None,
        });
        peaks.collect::<Vec<_>>()
    };
    let [grown] = peaks(&lab)[..] else {
        panic!("{:?}", peaks(&lab));
    };
    assert_eq!(grown.origin, PeakOrigin::Growing);
    assert_eq!((grown.peak, grown.duration), (gib(15), Some(age)));
    lab.ends("1.1", INTERRUPTED);
    assert_eq!(peaks(&lab).len(), 1);
}

#[test]
fn a_kind_that_grew_late_in_an_earlier_run_is_not_believed_as_early_again() {
    let mut lab = Lab::with_gpus(1);
    lab.grew_late("work: python a.py", 5, SECOND * 60);
    lab.run(1);
    lab.add(1, [task("python a.py"), task("python b.py")].map(NewTask::vram_auto));
    rests(&mut lab, "1.1", 3);
    lab.pass(SECOND * 40);
    assert_eq!(lab.running(), ["1.1@0"]);
    lab.pass(SECOND * 30);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
}

#[test]
fn running_out_beside_one_that_grew_late_is_not_ones_own_fault() {
    let mut lab = lab(2);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 6);
    lab.holds("1.1", 15);
    lab.logs.insert(id("1.2"), CUDA.to_owned());
    lab.ends("1.2", FAILED);
    lab.assert_told(
        "retrying 1.2#1, 1 left: out of GPU memory (PyTorch: CUDA out of memory), because 1.1",
    );
}

#[test]
fn one_that_grew_late_and_ran_out_has_a_gpu_to_itself() {
    let mut lab = lab(2);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 6);
    lab.holds("1.1", 15);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told("it runs again with a GPU to itself");
    lab.pass(REST * 2);
    assert_eq!(lab.running(), ["1.2@0"]);
    lab.ends("1.2", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_had_all_of_the_largest_gpu_and_ran_out_has_failed() {
    let mut lab = lab(1);
    lab.holds("1.1", 23);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told("finished 1.1: exit status 1 out of GPU memory");
}

#[test]
fn a_probe_runs_beside_what_is_known() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let kind = |name: &str| task(&format!("python {name}.py")).vram_auto().probe("{} --epochs 1");
    lab.add(1, [kind("a"), kind("b"), kind("c")]);
    assert_eq!(lab.started(), ["1.1#0@0"]);
    for (one, next) in [("1.1", "1.2#0@0"), ("1.2", "1.3#0@0")] {
        lab.holds(one, 3);
        lab.ends(one, OK);
        lab.pass(A_LOOK);
        let started = lab.started();
        assert_eq!(started, [format!("{one}#1@0"), next.to_owned()]);
    }
}

/// A container, or a daemon that works for a task, takes so much.
fn container_holds(lab: &mut Lab, memory: u64) {
    lab.stranger(0, memory);
    lab.pass(A_LOOK);
    lab.sample();
}

#[test]
fn what_a_gpu_grows_by_while_a_task_is_alone_there_is_the_tasks() {
    let mut lab = lab(2);
    lab.pass(SECOND);
    container_holds(&mut lab, 5);
    lab.pass(REST + SECOND);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"], "it rests at 5 GiB");
    // Whose this is nobody knows.
    container_holds(&mut lab, 9);
    lab.gpus[0].leave_strangers();
    lab.ends("1.1", OK);
    let peaks = lab.records.iter().filter_map(|(_, record)| match record {
        Record::Peak(peak) => Some(peak.learned.peak.0 >> 30),
        _ => None,
    });
    assert_eq!(peaks.collect::<Vec<_>>(), [5]);
    let notes = lab.records.iter().filter_map(|(_, record)| match record {
        Record::AttemptEnded(end) => end.note.as_deref(),
        _ => None,
    });
    let notes: Vec<&str> = notes.collect();
    assert!(notes[0].contains("no process of its own was seen"), "{notes:?}");
}

#[test]
fn strangers_that_come_before_its_own_processes_are_strangers() {
    let mut lab = lab(1);
    lab.pass(SECOND);
    container_holds(&mut lab, 8);
    lab.holds("1.1", 3);
    lab.ends("1.1", OK);
    lab.assert_told("measured");
    let peaks = lab.records.iter().filter_map(|(_, record)| match record {
        Record::Peak(peak) => Some(peak.learned.peak.0 >> 30),
        _ => None,
    });
    assert_eq!(peaks.collect::<Vec<_>>(), [3]);
}

#[test]
fn one_that_strangers_crowded_out_is_not_to_blame_for_what_they_took() {
    let mut lab = lab(1);
    lab.pass(SECOND);
    container_holds(&mut lab, 22);
    lab.pass(A_LOOK / 2);
    lab.logs.insert(id("1.1"), CUDA.to_owned());
    lab.ends("1.1", FAILED);
    lab.assert_told(
        "because others hold 22.0 GiB on GPU 0; it runs again, and no retry is used up",
    );
}

#[test]
fn a_member_of_a_family_is_measured_and_those_like_it_learn_of_it() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    let member = || task("python a.py 5").vram_auto().probe("{} --epochs 1");
    lab.add(1, [member(), member(), member()]);
    lab.holds("1.1", 3);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running().len(), 3, "{}", lab.why("1.2"));
}

#[test]
fn one_that_needs_nearly_all_of_a_gpu_gets_it_in_spite_of_a_few_windows() {
    let mut lab = Lab::with_gpus(1);
    lab.stranger(0, 1);
    lab.run(1);
    lab.add(1, vec![task("python a.py").vram_auto(); 2]);
    for held in 2..=22 {
        lab.holds("1.1", held);
    }
    lab.pass(REST * 2);
    lab.ends("1.1", FAILED);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn a_small_gpu_is_used_beside_a_large_one() {
    let mut lab = Lab::with_memory(&[80, 16]);
    lab.run(1);
    let unknown = |name: &str| task(&format!("python {name}.py")).vram_auto();
    lab.add(1, [unknown("a"), unknown("b")]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@1"]);
}

#[test]
fn a_gpu_that_does_not_answer_makes_nobody_grow_on_another() {
    let mut lab = Lab::with_gpus(2);
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto()]);
    lab.holds("1.1", 3);
    lab.pass(SECOND * 7);
    lab.gpus[1].answers = false;
    lab.pass(SECOND * 3);
    lab.add(1, [task("python b.py").vram_auto()]);
    lab.pass(REST);
    assert!(lab.stops().is_empty());
}

#[test]
fn of_two_that_grow_at_once_one_is_moved_away() {
    let mut lab = lab(2);
    rests(&mut lab, "1.1", 3);
    rests(&mut lab, "1.2", 3);
    lab.stops();
    lab.holds_unseen("1.1", 12);
    lab.holds_unseen("1.2", 12);
    lab.pass(SECOND * 3);
    assert_eq!(lab.stops().len(), 1);
}

#[test]
fn one_that_grows_late_alone_is_left_alone() {
    let mut lab = lab(1);
    rests(&mut lab, "1.1", 20);
    lab.holds("1.1", 23);
    assert!(lab.stops().is_empty());
}

#[test]
fn what_somebody_was_moved_away_for_is_not_given_to_it_again() {
    let mut lab = Lab::with_gpus(1);
    lab.learned("work: python b.py", 9);
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto(), task("python b.py").vram_auto()]);
    rests(&mut lab, "1.1", 3);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    lab.holds("1.1", 14);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.pass(SECOND);
    lab.ends("1.2", INTERRUPTED);
    lab.pass(SECOND);
    assert_eq!(lab.running(), ["1.1@0"]);
}

#[test]
fn one_that_rests_again_before_the_other_is_gone_keeps_no_more_than_it_needs() {
    let mut lab = lab(3);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 10);
    lab.holds("1.1", 16);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.holds("1.2", 0);
    lab.pass(REST * 3);
    lab.ends("1.2", INTERRUPTED);
    lab.pass(REST * 3);
    let why = lab.why("1.2");
    assert!(why.contains("(6.3 GiB free)"), "{why}");
}

#[test]
fn a_probe_that_is_moved_away_leaves_the_others_to_be_measured() {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, [task("python a.py").vram_auto()]);
    rests(&mut lab, "1.1", 3);
    let probed = || task("python b.py").vram_auto().probe("{} --epochs 1");
    lab.add(1, [probed(), probed(), probed()]);
    lab.holds("1.2", 10);
    lab.holds("1.1", 16);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.ends("1.2", INTERRUPTED);
    let why = lab.why("1.4");
    assert!(why.contains("until one like it has been measured"), "{why}");
}

#[test]
fn a_container_that_is_gone_before_its_task_was_still_seen() {
    let mut lab = lab(1);
    lab.pass(SECOND);
    container_holds(&mut lab, 5);
    lab.gpus[0].leave_strangers();
    lab.pass(SECOND);
    lab.ends("1.1", OK);
    let noted = lab.records.iter().any(|(_, record)| match record {
        Record::AttemptEnded(end) => end.note.is_some(),
        _ => false,
    });
    assert!(noted);
}

#[test]
fn one_that_was_moved_away_comes_back_where_there_is_room_for_what_it_held() {
    let mut lab = Lab::with_memory(&[80]);
    lab.run(1);
    let kind = |name: &str| task(&format!("python {name}.py")).vram_auto();
    lab.add(1, [kind("a"), kind("b")]);
    rests(&mut lab, "1.1", 3);
    lab.holds("1.2", 60);
    lab.holds("1.1", 20);
    assert_eq!(lab.stops()[0].0, "1.2");
    lab.ends("1.2", INTERRUPTED);
    lab.pass(REST * 10);
    assert_eq!(lab.running(), ["1.1@0"], "there is no room for 60 GiB");
    let why = lab.why("1.2");
    assert!(why.contains("66.0 GiB of GPU memory or more"), "{why}");
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.2@0"]);
}

#[test]
fn one_whose_memory_does_not_count_is_not_moved_away() {
    let mut lab = lab(1);
    rests(&mut lab, "1.1", 3);
    lab.add(1, [task("python uncounted.py").share(1)]);
    assert_eq!(lab.running(), ["1.1@0", "1.2@0"]);
    lab.holds("1.2", 10);
    lab.holds("1.1", 16);
    assert!(lab.stops().is_empty(), "it would be back in a moment");
}
