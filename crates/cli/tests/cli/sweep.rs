//! `packhorse sweep`: a command for each combination of parameters.

use std::collections::BTreeSet;

use crate::support::{Done, World, cut_short};

/// Prints a sweep in grid order.
fn grid<'a>(template: &'a str, words: impl IntoIterator<Item = &'a str>) -> Done {
    let fixed = ["sweep", template, "--sampling-mode", "grid"];
    World::new().packhorse(fixed.into_iter().chain(words))
}

/// Prints a sweep and gives its commands in alphabetical order.
fn sorted(words: &[&str]) -> Vec<String> {
    let done = World::new().packhorse([&["sweep"], words].concat());
    assert_eq!(done.code, 0, "{done:?}");
    let mut lines: Vec<String> = done.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn in_a_grid_the_last_parameter_changes_fastest() {
    let words = ["-p", "lr", "0.1", "0.01", "-p", "bs", "32", "64"];
    let done = grid("train {lr} {bs}", words);
    assert_eq!(done.stdout, "train 0.1 32\ntrain 0.1 64\ntrain 0.01 32\ntrain 0.01 64\n");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn doubled_braces_are_braces_and_a_placeholder_may_come_twice() {
    let done = grid("awk '{{print {n}}}' {n}", ["-p", "n", "{n}", "$2 \"'"]);
    assert_eq!(done.stdout, "awk '{print {n}}' {n}\nawk '{print $2 \"'}' $2 \"'\n");
}

#[test]
fn ranges_count_as_people_read_them() {
    for (range, wanted) in [
        ("1..3", "1 2 3"),
        ("3..1", "3 2 1"),
        ("0..1:0.5", "0.0 0.5 1.0"),
        ("10..1:-4", "10 6 2"),
        ("log:1e-3..1e-1:3", "0.001 0.01 0.1"),
        ("log:1..100:3", "1 10 100"),
        ("1..2x", "1..2x"),
    ] {
        let done = grid("{x}", ["-p", "x", range]);
        let values: Vec<&str> = done.stdout.lines().collect();
        assert_eq!(values.join(" "), wanted, "{range}: {done:?}");
    }
}

#[test]
fn a_range_and_single_values_stand_together() {
    let done = grid("{x}", ["-p", "x", "a", "1..2", "b"]);
    assert_eq!(done.stdout, "a\n1\n2\nb\n");
}

#[test]
fn negative_values_are_values() {
    for values in [&["-1", "-0.5"][..], &["1", "-2"], &["-1e-3", "0"], &["-2..0", "7"]] {
        let words = [&["-p", "x"], values].concat();
        let done = grid("{x}", words);
        assert_eq!(done.code, 0, "{values:?}: {}", done.stderr);
    }
    assert_eq!(grid("{x}", ["-p", "x", "-2..0"]).stdout, "-2\n-1\n0\n");
}

#[test]
fn zipped_parameters_go_together_value_by_value() {
    let zipped = ["-p", "lr", "1", "2", "-p", "bs", "a", "b", "--zip", "lr,bs"];
    let words = [&zipped[..], &["-p", "seed", "7", "8"]].concat();
    let done = grid("{lr}{bs} {seed}", words);
    assert_eq!(done.stdout, "1a 7\n1a 8\n2b 7\n2b 8\n");

    let uneven = ["-p", "lr", "1", "2", "-p", "bs", "a", "--zip", "lr,bs"];
    let done = grid("{lr}{bs}", uneven);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("`lr` has 2, `bs` has 1"), "{done:?}");
}

#[test]
fn the_default_is_the_grid_in_another_order() {
    let words = ["{a}-{b}", "-p", "a", "1..20", "-p", "b", "1..20"];
    let straight = grid(words[0], words[1..].iter().copied());
    let shuffled = World::new().packhorse([&["sweep"], &words[..]].concat());
    assert_ne!(shuffled.stdout, straight.stdout);
    let mut wanted: Vec<&str> = straight.stdout.lines().collect();
    wanted.sort_unstable();
    assert_eq!(sorted(&words), wanted);
}

#[test]
fn a_seed_gives_the_same_order_every_time_and_another_seed_another() {
    let order = |seed: &str| {
        World::new().packhorse(["sweep", "{a}", "-p", "a", "1..100", "--seed", seed]).stdout
    };
    assert_eq!(order("7"), order("7"));
    assert_ne!(order("7"), order("8"));
}

#[test]
fn samples_are_the_first_of_the_shuffled_order_without_repetition() {
    let words = ["{a} {b}", "-p", "a", "1..10", "-p", "b", "1..10"];
    let seed = ["--seed", "3"];
    let all = World::new().packhorse([&["sweep"], &words[..], &seed].concat());
    let some = World::new().packhorse([&["sweep"], &words[..], &seed, &["-n", "40"]].concat());
    assert_eq!(some.stdout.lines().count(), 40);
    assert!(all.stdout.starts_with(&some.stdout));
    let different: BTreeSet<&str> = some.stdout.lines().collect();
    assert_eq!(different.len(), 40);
}

#[test]
fn more_samples_than_combinations_are_all_of_them() {
    let words = ["{a}", "-p", "a", "x", "y", "--n-samples", "9"];
    assert_eq!(sorted(&words), ["x", "y"]);
}

#[test]
fn samples_of_a_huge_grid_come_at_once() {
    // 10^24 combinations: neither a list nor a loop over them would ever end.
    let mut words = vec!["{a}{b}{c}{d}", "-n", "10"];
    for name in ["a", "b", "c", "d"] {
        words.extend(["-p", name, "1..1000000"]);
    }
    let commands = sorted(&words);
    let different: BTreeSet<&String> = commands.iter().collect();
    assert_eq!(different.len(), 10);
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let world = World::new();
    let words = ["{a} {b}", "-p", "a", "1..100000", "-p", "b", "1..100000"];
    let order = ["--sampling-mode", "grid"];
    let done = cut_short(world.command([&["sweep"], &words[..], &order].concat()));
    assert_eq!(done.stdout, "1 1\n");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn commands_of_several_lines_are_separated_by_nul_bytes() {
    let template = "echo {x}\necho end";
    let done = grid(template, ["-p", "x", "1", "2", "--null"]);
    assert_eq!(done.stdout, "echo 1\necho end\0echo 2\necho end\0");

    let refused = grid(template, ["-p", "x", "1", "2"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("--null"), "{refused:?}");
}

#[test]
fn a_sweep_piped_into_run_and_one_run_at_once_do_the_same() {
    let words = ["echo {a}{b} >> out", "-p", "a", "1..3", "-p", "b", "x", "y"];
    let order = ["--sampling-mode", "grid"];
    let piped = World::new();
    let printed = piped.packhorse([&["sweep"], &words[..], &order].concat());
    let done = piped.packhorse_with(["run", "--gpus", "0"], &printed.stdout);
    assert_eq!(done.code, 0, "{done:?}");

    let direct = World::new();
    let how = ["--run", "--gpus", "0"];
    let done = direct.packhorse([&["sweep"], &words[..], &order, &how].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(direct.read("out"), "1x\n1y\n2x\n2y\n3x\n3y\n");
    assert_eq!(direct.read("out"), piped.read("out"));
}

#[test]
fn a_sweep_with_nul_bytes_reaches_run_with_its_lines() {
    let world = World::new();
    let template = "echo {x} >> out\necho end >> out";
    let words = ["sweep", template, "-p", "x", "1", "2", "-0"];
    let printed = world.packhorse([&words[..], &["--sampling-mode", "grid"]].concat());
    let done = world.packhorse_with(["run", "--slots", "1", "-0"], &printed.stdout);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "1\nend\n2\nend\n");
}

#[test]
fn a_sweep_that_is_run_shares_gpus_as_asked_and_tells_of_failures() {
    let world = World::new();
    let gate = world.gate("gate");
    let template = "read x < gate; test {x} != 2";
    let words = ["sweep", template, "-p", "x", "1..3"];
    let how = ["--run", "--gpus", "0", "-g", "0.5"];
    let mut running = world.start([&words[..], &how].concat());
    running.wait_for("1.2 started on GPU 0");
    gate.pass(3);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("2 succeeded, 1 failed"), "{done:?}");
}

#[test]
fn mistakes_in_the_template_are_shown_where_they_are() {
    for (template, place, hint) in [
        ("train {lr", ":1:7", "write {{ for a literal brace"),
        ("train }lr", ":1:7", "write }} for a literal brace"),
        ("train {}", ":1:7", "write {NAME}"),
        ("train {lrr}", ":1:7", "did you mean {lr}?"),
        ("train {lrr}", ":1:7", "-p lrr"),
        ("train {momentum}", ":1:7", "-p momentum"),
    ] {
        let done = grid(template, ["-p", "lr", "1"]);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{template}");
        assert!(done.stderr.contains(place), "{}", done.stderr);
        assert!(done.stderr.contains(hint), "{}", done.stderr);
        assert!(!done.stderr.contains("error: error:"), "{}", done.stderr);
    }
}

#[test]
fn a_parameter_that_the_template_does_not_use_is_a_mistake() {
    let done = grid("train {lr}", ["-p", "lr", "1", "-p", "bs", "32"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("`bs` is not used"), "{done:?}");
}

#[test]
fn values_that_make_no_range_are_explained() {
    for range in ["log:0..1:3", "log:1..2", "1..2:0", "0..1:-1"] {
        let done = grid("{x}", ["-p", "x", range]);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{range}");
        assert!(done.stderr.contains(range), "{}", done.stderr);
        assert!(done.stderr.contains("hint: "), "{}", done.stderr);
    }
}

#[test]
fn a_parameter_of_one_letter_is_no_slip_for_another() {
    let done = grid("train {x} {y}", ["-p", "x", "1"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("give it values: -p y"), "{done:?}");
    assert!(!done.stderr.contains("did you mean"), "{done:?}");
}

#[test]
fn options_about_running_need_commands_that_are_run() {
    for (words, named) in [
        (&["-g", "0.5"][..], "-g"),
        (&["--vram", "9G"], "--vram"),
        (&["--gpus", "0,1"], "--gpus"),
        (&["--no-leases"], "--no-leases"),
        (&["--json"], "--json"),
    ] {
        let done = grid("{a}", [&["-p", "a", "1"], words].concat());
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        let wanted = format!("error: {named} is about running, and needs --run\n");
        assert_eq!(done.stderr, wanted);
    }
}
