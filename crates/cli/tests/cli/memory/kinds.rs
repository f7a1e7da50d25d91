//! Which tasks are alike, and share what was learned.

use super::started_together;
use crate::machine::{Machine, taking};

/// What the program of these tests needs is in the file that it is given.
fn machine() -> Machine {
    let machine = Machine::new(1);
    let world = &machine.world;
    world.write("train.sh", taking("$(cat $2) --hold-looks 6"));
    fs_err::create_dir(world.work().join("cfg")).unwrap();
    machine
}

fn run(machine: &Machine, tasks: &str) -> String {
    machine.world.write("tasks", tasks);
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("out of GPU memory"), "{done:?}");
    done.stdout
}

/// Tasks with these numbers.
fn numbered(numbers: &[u32]) -> String {
    let lines = numbers.iter().map(|number| format!("sh train.sh {number}\n"));
    lines.collect::<Vec<_>>().concat()
}

/// What peaks are remembered by, the newest first.
fn remembered(machine: &Machine) -> Vec<String> {
    let done = machine.packhorse(&["peaks", "--json"]);
    let peaks: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let peaks = peaks.as_array().unwrap().iter();
    let names = peaks.map(|peak| peak["signature"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn files_of_settings_with_other_content_are_another_kind() {
    let machine = machine();
    let task = |name: &str| format!("sh train.sh --config cfg/{name}.yaml\n");
    machine.world.write("cfg/exp1.yaml", "--peak 4G");
    machine.world.write("cfg/exp2.yaml", "--peak 12G");
    machine.world.write("cfg/exp3.yaml", "--peak 4G");
    run(&machine, &task("exp1"));
    // With one peak for all, both would run at once, and out of memory.
    run(&machine, &task("exp2").repeat(2));
    assert_eq!(remembered(&machine).len(), 2);
    // What counts is what is in them, and not what they are called.
    let output = run(&machine, &[task("exp1"), task("exp3")].concat());
    assert_eq!(started_together(&output), 2, "{output}");
    machine.world.write("cfg/exp3.yaml", "--peak 12G  ");
    run(&machine, &task("exp3").repeat(2));
}

#[test]
fn so_are_files_without_an_ending_and_those_of_experiments() {
    let machine = machine();
    machine.world.write("exp1", "--peak 4G");
    machine.world.write("exp2", "--peak 12G");
    for option in ["with", "--exp", "--experiment"] {
        let task = |name: &str| format!("sh train.sh {option} {name}\n");
        run(&machine, &task("exp1"));
        // With one peak for all, both would run at once, and out of memory.
        run(&machine, &task("exp2").repeat(2));
    }
    assert_eq!(remembered(&machine).len(), 6);
}

#[test]
fn an_edited_script_is_the_same_kind() {
    let machine = machine();
    machine.world.write("cfg/a.yaml", "--peak 4G");
    let tasks = "sh train.sh --config cfg/a.yaml\n";
    run(&machine, tasks);
    let script = taking("$(cat $2) --hold-looks 6 # edited");
    machine.world.write("train.sh", script);
    let output = run(&machine, &tasks.repeat(2));
    assert_eq!(started_together(&output), 2, "{output}");
}

#[test]
fn numbers_are_kinds_of_their_own_until_evidence_shows_that_they_do_not_matter() {
    let machine = Machine::new(1);
    let script = taking("--peak 4G --hold-looks 6");
    machine.world.write("train.sh", script);
    let tasks = numbered(&[1, 2, 3, 4, 5, 6]);
    let output = run(&machine, &tasks);
    let rest = output.split_once("1.3 succeeded").unwrap();
    assert_eq!(rest.0.matches(" started on ").count(), 3, "{output}");
    assert_eq!(started_together(rest.1), 3, "{output}");
    // And later runs know: nothing was seen of these.
    let tasks = numbered(&[7, 8, 9]);
    let output = run(&machine, &tasks);
    assert_eq!(started_together(&output), 3, "{output}");
    let names = remembered(&machine);
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn numbers_that_matter_never_share() {
    let machine = Machine::new(1);
    let script = taking("--peak $1G --hold-looks 6");
    machine.world.write("train.sh", script);
    let output = run(&machine, &numbered(&[2, 4, 6, 20, 18]));
    assert_eq!(started_together(&output), 1, "{output}");
    // Each of them is known now.
    let output = run(&machine, &numbered(&[4, 6]));
    assert_eq!(started_together(&output), 2, "{output}");
}

#[test]
fn what_stands_in_front_makes_no_new_kind_and_what_is_exported_does() {
    let machine = Machine::new(1);
    let task = taking("--peak 1G --hold-looks 6");
    run(&machine, &format!("{task}\n"));
    let fronts = ["nice -n 5", "env A=1", "taskset -c 0", "stdbuf -oL", "timeout 1h"];
    let tasks = fronts.map(|front| format!("{front} {task}\n")).concat();
    let output = run(&machine, &tasks);
    assert_eq!(started_together(&output), fronts.len(), "{output}");
    assert_eq!(remembered(&machine).len(), 1);
    run(&machine, &format!("export BS=32; {task}\n"));
    run(&machine, &format!("export BS=64 && {task}\n"));
    let names = remembered(&machine);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].contains("BS=64 "), "{names:?}");
    assert!(names[1].contains("BS=32 "), "{names:?}");
}
