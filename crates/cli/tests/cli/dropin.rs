//! The originals' names, side by side with the originals.
//!
//! Those are the programs of simple-gpu-scheduler 0.1.4 as PyPI has it.

use std::collections::BTreeSet;
use std::process::Command;

use packhorse_test_parts::{needs, originals};
use rustix::process::Signal;

use crate::machine::Machine;
use crate::support::{Done, Running, World, finish, finish_with};

const SCHEDULER: &str = "simple_gpu_scheduler";
const HYPERSEARCH: &str = "simple_hypersearch";

/// Our binary, called by one of the originals' names.
fn ours(world: &World, name: &str, words: &[&str]) -> Command {
    let link = world.work().join(name);
    if !link.is_symlink() {
        let binary = env!("CARGO_BIN_EXE_packhorse");
        fs_err::os::unix::fs::symlink(binary, &link).unwrap();
    }
    world.program(link, words)
}

/// The original and ours, each in a world of its own.
fn both(name: &str, words: &[&str]) -> [(World, Command); 2] {
    let original = originals().join(name);
    let theirs = World::new();
    let mut command = theirs.program(original, words);
    // Otherwise Python keeps its lines to itself until the end.
    command.env("PYTHONUNBUFFERED", "1");
    let mine = World::new();
    let own = ours(&mine, name, words);
    [(theirs, command), (mine, own)]
}

/// Runs both to their ends; the original's comes first.
fn compare(name: &str, words: &[&str], input: &str) -> [Done; 2] {
    both(name, words).map(|(_world, command)| finish_with(command, input))
}

/// What is in the lines ``Processing command `CMD` on gpu ID``.
fn handed_out(output: &str) -> Vec<(&str, &str)> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("Processing command `"))
        .map(|rest| rest.rsplit_once("` on gpu ").unwrap())
        .collect()
}

#[test]
fn on_one_gpu_everything_is_printed_as_by_the_original() {
    needs!(Python);
    let input = "echo first\n\
                 echo \"[$CUDA_VISIBLE_DEVICES]\"   \n\
                 for i in 1 2 3; do echo $i; done | tail -n 1\n\
                 A=b; echo \"`echo $A`\" # a comment\n\
                 echo no end of line";
    for gpu in ["0", "7", "GPU-5c2f", "MIG-5c2f/1/0"] {
        let [theirs, mine] = compare(SCHEDULER, &["--gpus", gpu], input);
        assert_eq!(mine.stdout, theirs.stdout);
        assert_eq!(handed_out(&mine.stdout).len(), 5);
        assert_eq!((mine.code, theirs.code), (0, 0));
        assert_eq!(mine.stderr, theirs.stderr);
    }
}

#[test]
fn on_several_gpus_the_same_commands_are_handed_out_and_see_their_gpu() {
    needs!(Python);
    let input = (1..=9).map(|number| format!("echo $CUDA_VISIBLE_DEVICES > {number}"));
    let input = input.collect::<Vec<_>>().join("\n");
    let both = both(SCHEDULER, &["--gpus", "3", "5", "8"]);
    let commands = both.map(|(world, command)| {
        let done = finish_with(command, &input);
        let mut commands = Vec::new();
        for (command, gpu) in handed_out(&done.stdout) {
            let (_, file) = command.rsplit_once(' ').unwrap();
            assert!(["3", "5", "8"].contains(&gpu), "{gpu}");
            assert_eq!(world.read(file).trim_end(), gpu);
            commands.push(command.to_owned());
        }
        commands.sort();
        commands
    });
    assert_eq!(commands[0].len(), 9);
    assert_eq!(commands[0], commands[1]);
}

/// The ids that are handed out while as many tasks run as there should be GPUs.
fn ids(command: Command, world: &World, gpus: usize) -> BTreeSet<String> {
    let gate = world.gate("gate");
    let mut running = Running::start(command);
    running.send("read x < gate\n".repeat(gpus));
    for _ in 0..gpus {
        running.wait_for("Processing");
    }
    gate.pass(gpus);
    let done = running.finish();
    let handed_out = handed_out(&done.stdout);
    handed_out.iter().map(|(_, id)| (*id).to_owned()).collect()
}

#[test]
fn ids_are_split_at_commas_only_where_there_is_one_value() {
    needs!(Python);
    for (values, wanted) in [
        (&["0", "1", "2"][..], &["0", "1", "2"][..]),
        (&["0,1,2"], &["0", "1", "2"]),
        (&["0"], &["0"]),
        (&["GPU-5c2", "MIG-7/1/0", "x:y"], &["GPU-5c2", "MIG-7/1/0", "x:y"]),
        (&["GPU-a,GPU-b"], &["GPU-a", "GPU-b"]),
        (&["0,1", "2,3"], &["0,1", "2,3"]),
    ] {
        let words = [&["--gpus"], values].concat();
        let wanted: BTreeSet<String> = wanted.iter().map(|id| (*id).to_owned()).collect();
        let world = World::new();
        let mine = ids(ours(&world, SCHEDULER, &words), &world, wanted.len());
        assert_eq!(mine, wanted, "{values:?}");
        let [(world, command), _] = both(SCHEDULER, &words);
        assert_eq!(ids(command, &world, wanted.len()), wanted, "{values:?}");
    }
}

#[test]
fn an_id_named_twice_takes_two_commands_at_a_time() {
    needs!(Python);
    let both = both(SCHEDULER, &["--gpus", "7", "7"]);
    for (world, command) in both {
        let gate = world.gate("gate");
        let mut running = Running::start(command);
        running.send("read x < gate\n".repeat(2));
        running.wait_for("` on gpu 7\n");
        running.wait_for("` on gpu 7\n");
        gate.pass(2);
        assert_eq!(running.finish().code, 0);
    }
}

#[test]
fn a_task_with_a_list_for_an_id_sees_the_list() {
    let world = World::new();
    let command = ours(&world, SCHEDULER, &["--gpus", "0,1", "2,3"]);
    let input = "echo $CUDA_VISIBLE_DEVICES\n";
    let done = finish_with(command, input);
    assert!(done.stdout.contains("\n0,1\n") || done.stdout.contains("\n2,3\n"), "{done:?}");
}

#[test]
fn tasks_write_to_the_outputs_that_we_were_given() {
    needs!(Python);
    let input = "echo to out; echo to err >&2\n";
    let [theirs, mine] = compare(SCHEDULER, &["--gpus", "0"], input);
    assert_eq!(mine.stdout, theirs.stdout);
    assert!(mine.stdout.ends_with("\nto out\n"));
    assert_eq!((mine.stderr.as_str(), theirs.stderr.as_str()), ("to err\n", "to err\n"));
}

#[test]
fn a_line_is_handed_out_as_soon_as_it_has_arrived() {
    needs!(Python);
    let both = both(SCHEDULER, &["--gpus", "0,1"]);
    for (_world, command) in both {
        let mut running = Running::start(command);
        for word in ["first", "second"] {
            running.send(format!("echo \"<{word}>\"\n"));
            running.wait_for(&format!("<{word}>\n"));
        }
        // A line that has not ended is none yet; the end of input ends it.
        running.send("echo last");
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(handed_out(&done.stdout).len(), 3);
        assert!(done.stdout.contains("\nlast\n"), "{done:?}");
    }
}

#[test]
fn the_end_of_input_waits_for_what_still_runs() {
    needs!(Python);
    let both = both(SCHEDULER, &["--gpus", "0,1"]);
    for (world, command) in both {
        let gate = world.gate("gate");
        let mut running = Running::start(command);
        running.send("echo here; read x < gate; echo late\n");
        running.wait_for("here\n");
        running.end_input();
        gate.pass(1);
        let done = running.finish();
        assert!(done.stdout.ends_with("late\n"), "{done:?}");
    }
}

#[test]
fn without_gpus_both_refuse() {
    needs!(Python);
    let done = compare(SCHEDULER, &[], "touch started\n");
    for done in done {
        assert_eq!((done.code, done.stdout.as_str()), (2, ""));
        assert!(done.stderr.contains("--gpus"), "{done:?}");
    }
}

#[test]
fn ours_tells_of_failed_commands() {
    needs!(Python);
    let input = "true\nexit 3\nno-such-program-anywhere\n";
    let [theirs, _] = compare(SCHEDULER, &["--gpus", "0"], input);
    assert_eq!(theirs.code, 0);
    let world = World::new();
    let done = finish_with(ours(&world, SCHEDULER, &["--gpus", "0"]), input);
    assert_eq!(done.code, 1);
    assert_eq!(handed_out(&done.stdout).len(), 3);
    assert_eq!(done.stdout.lines().count(), 3, "{done:?}");
    assert!(done.stderr.contains("exit status 3: exit 3"), "{done:?}");
    assert!(done.stderr.contains("1 succeeded, 2 failed"), "{done:?}");
}

#[test]
fn ours_skips_blank_lines_and_comments() {
    needs!(Python);
    let input = "\n  \n# a comment\necho here\n";
    let [theirs, _] = compare(SCHEDULER, &["--gpus", "0"], input);
    assert_eq!(handed_out(&theirs.stdout).len(), 4);
    let world = World::new();
    let done = finish_with(ours(&world, SCHEDULER, &["--gpus", "0"]), input);
    assert_eq!(done.stdout, "Processing command `echo here` on gpu 0\nhere\n");
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn ours_makes_cuda_count_as_the_driver_does() {
    needs!(Python);
    let input = "echo ${CUDA_DEVICE_ORDER-unset}\n";
    let [theirs, _] = compare(SCHEDULER, &["--gpus", "0"], input);
    assert!(theirs.stdout.ends_with("\nunset\n"));
    let world = World::new();
    let done = finish_with(ours(&world, SCHEDULER, &["--gpus", "0"]), input);
    assert!(done.stdout.ends_with("\nPCI_BUS_ID\n"), "{done:?}");
}

/// Templates and parameters that both must understand.
const SEARCHES: &[&[&str]] = &[
    &["train --lr {lr} --bs {bs}", "-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64"],
    &["awk '{{print {n}}}' }}{{", "-p", "n", "$1", "$2"],
    &["{x} {x}", "-p", "x", "a b", "\"q\" 'q' $HOME", "{x}", "a;b|c", "*", "", "ü 日本"],
    &["train {lr}", "-p", "lr", "1", "2", "-p", "unused", "a", "b"],
    &["train {lr}", "-p", "lr", "1..5", "log:1..2:3", "0..1:0.5"],
    &["train {x}", "-p", "x", "-1", "-0.5"],
    &["train {x}", "--parameter", "x", "same", "same"],
    &["{a}{b}{c}", "-p", "c", "1", "2", "3", "-p", "a", "x", "y", "-p", "b", "-"],
    &["{ünicode} {with-dash}", "-p", "ünicode", "1", "-p", "with-dash", "2"],
    &["no placeholder", "-p", "x", "1", "2"],
];

#[test]
fn a_grid_is_the_same_to_the_byte() {
    needs!(Python);
    for search in SEARCHES {
        for samples in [&[][..], &["--n-samples", "3"], &["--n-samples", "0"]] {
            let words = [*search, &["--sampling-mode", "grid"], samples].concat();
            let [theirs, mine] = compare(HYPERSEARCH, &words, "");
            assert_eq!(mine.stdout, theirs.stdout, "{words:?}\n{}", mine.stderr);
            assert_eq!((mine.code, theirs.code), (0, 0), "{words:?}");
        }
    }
}

fn sorted(done: &Done) -> Vec<&str> {
    assert_eq!(done.code, 0, "{done:?}");
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_shuffled_grid_has_the_same_commands() {
    needs!(Python);
    for search in SEARCHES {
        for mode in [&[][..], &["--sampling-mode", "shuffled_grid", "--seed", "5"]] {
            let words = [*search, mode].concat();
            let [theirs, mine] = compare(HYPERSEARCH, &words, "");
            assert_eq!(sorted(&mine), sorted(&theirs), "{words:?}");
        }
    }
}

#[test]
fn samples_are_some_of_the_commands_none_twice() {
    needs!(Python);
    let search = ["{a}{b}", "-p", "a", "1", "2", "3", "4", "-p", "b", "w", "x", "y", "z"];
    let grid = [&search[..], &["--sampling-mode", "grid"]].concat();
    let samples = [&search[..], &["--n-samples", "7"]].concat();
    let [all, _] = compare(HYPERSEARCH, &grid, "");
    let both = compare(HYPERSEARCH, &samples, "");
    let all: BTreeSet<&str> = all.stdout.lines().collect();
    for done in both {
        let some: BTreeSet<&str> = done.stdout.lines().collect();
        assert_eq!((done.stdout.lines().count(), some.len()), (7, 7), "{done:?}");
        assert!(some.is_subset(&all), "{done:?}");
    }
}

#[test]
fn a_seed_gives_the_same_order_every_time() {
    let world = World::new();
    let order = |seed| {
        let words = ["{a}", "-p", "a", "1", "2", "3", "4", "5", "6", "7", "8", "--seed", seed];
        finish(ours(&world, HYPERSEARCH, &words)).stdout
    };
    assert_eq!(order("1"), order("1"));
    let others: BTreeSet<String> = ["2", "3", "4", "5"].map(order).into();
    assert!(others.len() > 1);
}

#[test]
fn both_refuse_a_template_that_makes_no_sense() {
    needs!(Python);
    for template in ["{missing}", "{lr} {lr", "lr}", "{}", "{0}"] {
        let words = [template, "-p", "lr", "1"];
        let both = compare(HYPERSEARCH, &words, "");
        for done in both {
            assert_ne!(done.code, 0, "{template}");
            assert_eq!(done.stdout, "", "{template}");
        }
    }
}

/// A machine with one GPU, and on it a run under the original's name on other ids:
/// it was interrupted while it ran a command on each of them, and these are left.
fn interrupted(gpus: &[&str], left: &str) -> Machine {
    let machine = Machine::new(1);
    let world = &machine.world;
    let gate = world.gate("first");
    let link = ours(world, SCHEDULER, &[]).get_program().to_owned();
    // What the original does not say goes to standard error.
    let script = "exec \"$0\" --gpus \"$@\" 2>&1";
    let mut command = world.program("sh", ["-c", script]);
    command.arg(link).args(gpus);
    for (name, value) in machine.command(&[]).get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let mut running = Running::start(command);
    for _ in gpus {
        running.send("read x < first\n");
        running.wait_for("Processing");
    }
    running.send(left);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.end_input();
    gate.pass(gpus.len());
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    machine
}

#[test]
fn what_was_interrupted_is_resumed_on_the_same_ids_whatever_the_driver_knows() {
    for gpus in [&["0", "0"][..], &["7"], &["0,1", "2,3"]] {
        let left = "echo $CUDA_VISIBLE_DEVICES >> out\n".repeat(2);
        let machine = interrupted(gpus, &left);
        let done = machine.packhorse(&["resume"]);
        assert_eq!(done.code, 0, "{gpus:?}: {done:?}");
        let out = machine.world.read("out");
        assert_eq!(out.lines().count(), 2, "{gpus:?}: {out}");
        assert!(out.lines().all(|id| gpus.contains(&id)), "{gpus:?}: {out}");
    }
}

#[test]
fn an_id_named_twice_takes_two_commands_at_a_time_in_a_later_session() {
    let machine = interrupted(&["7", "7"], &"read x < gate\n".repeat(2));
    let gate = machine.world.gate("gate");
    let mut running = machine.start(&["resume"]);
    running.wait_for("started on GPU 7");
    running.wait_for("started on GPU 7");
    gate.pass(2);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_later_session_on_other_ids_asks_the_driver() {
    let machine = interrupted(&["7"], "true\n");
    let done = machine.packhorse(&["resume", "--gpus", "7"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("there is no GPU `7`"), "{done:?}");
    let done = machine.packhorse(&["resume", "--gpus", "0"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_run_keeps_the_name_that_it_was_started_by() {
    let world = World::new();
    let done = finish_with(ours(&world, SCHEDULER, &["--gpus", "0", "1"]), "true\n");
    assert_eq!(done.code, 0, "{done:?}");
    let wanted = "simple_gpu_scheduler --gpus 0 1\n";
    let list = world.packhorse(["ls"]).stdout;
    assert!(list.ends_with(&format!("  {wanted}")), "{list}");
    let shown = world.packhorse(["show"]).stdout;
    assert!(shown.contains(&format!("  command  {wanted}")), "{shown}");
}
