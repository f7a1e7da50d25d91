//! Commands that differ in details are different kinds, until evidence shows otherwise.

use packhorse_model::Record;

use crate::lab::{A_LOOK, FAILED, Lab, NewTask, OK, task};

fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<NewTask> {
    let numbers = numbers.into_iter();
    let tasks = numbers.map(|number| task(&format!("python a.py {number}")).vram_auto());
    tasks.collect()
}

/// One GPU and tasks with these numbers.
fn lab(numbers: impl IntoIterator<Item = u32>) -> Lab {
    let mut lab = Lab::with_gpus(1);
    lab.run(1);
    lab.add(1, numbered(numbers));
    lab
}

/// The task runs alone, and takes so much.
fn measure(lab: &mut Lab, number: u32, memory: u64) {
    assert_eq!(lab.running(), [format!("1.{number}@0")]);
    lab.holds(&format!("1.{number}"), memory);
    lab.ends(&format!("1.{number}"), OK);
    lab.pass(A_LOOK);
}

/// What peaks are remembered by.
fn remembered(lab: &Lab) -> Vec<&str> {
    let records = lab.records.iter();
    let peaks = records.filter_map(|(_, record)| match record {
        Record::Peak(peak) => Some(&*peak.signature),
        _ => None,
    });
    peaks.collect()
}

#[test]
fn numbers_are_different_kinds_until_three_of_them_took_the_same() {
    let mut lab = lab(1..=6);
    for number in 1..=3 {
        measure(&mut lab, number, 4);
    }
    assert_eq!(lab.running(), ["1.4@0", "1.5@0", "1.6@0"]);
    assert!(lab.promised("1.5") < 9.0);
    lab.holds("1.4", 4);
    lab.ends("1.4", OK);
    let family = "work: python a.py #";
    let names = [1, 2, 3].map(|number| format!("{family} [{number}]"));
    let names = names.iter().map(String::as_str);
    // From then on one name is enough for all.
    assert_eq!(remembered(&lab), names.chain([family]).collect::<Vec<_>>());
}

#[test]
fn numbers_that_matter_stay_apart() {
    let mut lab = lab(1..=5);
    for (number, memory) in [(1, 4), (2, 8), (3, 4), (4, 4)] {
        measure(&mut lab, number, memory);
    }
    assert_eq!(lab.running(), ["1.5@0"]);
    assert!(lab.promised("1.5") > 20.0);
    lab.ends("1.5", OK);
    // What was measured itself is known by that.
    lab.add(1, numbered([1, 2]));
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.6@0", "1.7@0"]);
    assert!(lab.promised("1.6") < lab.promised("1.7"));
}

#[test]
fn one_that_does_not_fit_ends_it() {
    let mut lab = lab(1..=6);
    for number in 1..=3 {
        measure(&mut lab, number, 4);
    }
    assert_eq!(lab.running().len(), 3);
    lab.holds("1.4", 9);
    lab.ends("1.4", OK);
    for number in [5, 6] {
        lab.ends(&format!("1.{number}"), OK);
    }
    lab.add(1, numbered([7, 8]));
    lab.pass(A_LOOK);
    assert_eq!(lab.running(), ["1.7@0"]);
    assert!(lab.promised("1.7") > 20.0);
}

#[test]
fn what_earlier_runs_saw_is_evidence_too() {
    for (third, together) in [(4, 3), (9, 1)] {
        let mut lab = Lab::with_gpus(1);
        lab.learned("work: python a.py # [1]", 4);
        lab.learned("work: python a.py # [2]", 4);
        // As all of them were remembered once.
        lab.learned("work: python a.py #", third);
        // Another command.
        lab.learned("work: python a.py #5", 20);
        lab.run(1);
        lab.add(1, numbered([7, 8, 9]));
        assert_eq!(lab.running().len(), together, "{third}");
    }
}

#[test]
fn what_is_in_a_file_makes_a_kind() {
    let config = |name: &str| task(&format!("python a.py --config {name}.yaml")).vram_auto();
    let mut lab = Lab::with_gpus(1);
    for (name, content) in [("exp1", 1), ("exp2", 2), ("exp3", 1)] {
        lab.files.insert(format!("/work/{name}.yaml").into(), content << 32);
    }
    lab.run(1);
    lab.add(1, [config("exp1")]);
    lab.holds("1.1", 4);
    lab.ends("1.1", OK);
    lab.pass(A_LOOK);
    for (number, name, known) in [(2, "exp2", false), (3, "exp3", true), (4, "exp4", false)] {
        lab.add(1, [config(name)]);
        let task = format!("1.{number}");
        assert_eq!(lab.promised(&task) < 9.0, known, "{name}");
        lab.ends(&task, FAILED);
        lab.pass(A_LOOK);
    }
}
