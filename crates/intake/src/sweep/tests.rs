use std::collections::HashSet;
use std::io;

use proptest::prelude::*;

use super::*;
use crate::lines::Separator;

fn sweep(template: &str, parameters: &[(&str, &[&str])]) -> SweepBuilder {
    let mut builder = Sweep::builder(Template::parse(template).unwrap());
    for (name, values) in parameters {
        builder = builder.parameter(Parameter::parse(name, values).unwrap());
    }
    builder
}

fn commands(builder: SweepBuilder) -> Vec<String> {
    let sweep = builder.build().unwrap();
    let all: Vec<String> = sweep
        .commands()
        .map(|command| String::from_utf8(command).unwrap())
        .collect();
    assert_eq!(all.len() as u128, sweep.len());
    all
}

fn error(builder: SweepBuilder) -> String {
    let message = builder.build().unwrap_err().to_string();
    assert!(message.contains("\nhint: "), "{message}");
    message
}

const TWO_BY_THREE: [(&str, &[&str]); 2] = [("a", &["x", "y"]), ("b", &["1..3"])];

#[test]
fn in_a_grid_the_last_parameter_changes_fastest() {
    // However the template orders them.
    for template in ["{a}{b}", "{b}{a}", "{a} {b} {a}", "-{b}-"] {
        let fill = |(a, b)| template.replace("{a}", a).replace("{b}", b);
        let wanted: Vec<String> = [
            ("x", "1"),
            ("x", "2"),
            ("x", "3"),
            ("y", "1"),
            ("y", "2"),
            ("y", "3"),
        ]
        .into_iter()
        .map(fill)
        .collect();
        let sweep = sweep(template, &TWO_BY_THREE).allow_unused();
        assert_eq!(commands(sweep), wanted, "{template}");
    }
}

#[test]
fn a_template_without_placeholders_is_one_command() {
    assert_eq!(commands(sweep("make", &[])), ["make"]);
}

#[test]
fn zipped_parameters_advance_together_at_the_place_of_the_first() {
    let three: [(&str, &[&str]); 3] = [("a", &["1", "2"]), ("b", &["x", "y"]), ("c", &["3", "4"])];
    assert_eq!(
        commands(sweep("{a}{b}{c}", &three).zip(["c", "a"])),
        ["1x3", "1y3", "2x4", "2y4"]
    );
    assert_eq!(
        commands(sweep("{a}{b}{c}", &three).zip(["b", "c"])),
        ["1x3", "1y4", "2x3", "2y4"]
    );
}

#[test]
fn the_values_of_a_command_are_those_it_was_made_of() {
    let three: [(&str, &[&str]); 3] = [("a", &["1", "2"]), ("b", &["7..9"]), ("c", &["3", "4"])];
    let sweep = sweep("{a} {b} {c}", &three)
        .zip(["a", "c"])
        .order(SweepOrder::Shuffled { seed: 5 })
        .build()
        .unwrap();
    for index in 0..sweep.len() {
        let values = sweep.values(index);
        let names: Vec<&str> = values.iter().map(|value| value.0).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let line: Vec<&str> = values.iter().map(|value| value.1.as_str()).collect();
        assert_eq!(sweep.command(index).unwrap(), line.join(" ").as_bytes());
    }
    assert!(sweep.values(sweep.len()).is_empty());
}

#[test]
fn an_impossible_zip_is_refused() {
    let zip = |names: &[&str]| sweep("{a}{b}", &TWO_BY_THREE).zip(names.iter().copied());
    let message = error(zip(&["a", "b"]));
    assert!(message.contains("`a` has 2, `b` has 3"), "{message}");
    assert!(error(zip(&["a", "A"])).contains("did you mean `a`?"));
    assert!(error(zip(&["a"])).contains("at least two"));
    assert!(error(zip(&["a", "a"])).contains("zipped twice"));
}

#[test]
fn a_parameter_must_be_used_once_named_and_once_given() {
    let unused = sweep("{a}", &TWO_BY_THREE);
    assert!(error(unused.clone()).contains("there is no `{b}` in the template"));
    assert_eq!(commands(unused.allow_unused()).len(), 6);
    let twice = sweep("{a}", &[("a", &["1"]), ("a", &["2"])]);
    assert!(error(twice).contains("given twice"));
}

#[test]
fn more_combinations_than_can_be_counted_are_refused() {
    let names = ["a", "b", "c", "d", "e"];
    let mut builder = sweep("{a}{b}{c}{d}{e}", &[]);
    for name in names {
        builder = builder.parameter(Parameter::parse(name, &["1..100000000"]).unwrap());
    }
    assert!(error(builder).contains("10^38"));
}

#[test]
fn a_few_samples_of_a_trillion_come_at_once_and_differ() {
    let axis: &[&str] = &["1..10000"];
    let grid = [("a", axis), ("b", axis), ("c", axis)];
    let sample = sweep("{a} {b} {c}", &grid)
        .order(SweepOrder::Shuffled { seed: 3 })
        .limit(10);
    let first = commands(sample.clone());
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 10);
    assert_eq!(commands(sample.clone()), first, "the same seed again");
    assert_ne!(
        commands(sample.order(SweepOrder::Shuffled { seed: 4 })),
        first
    );
}

#[test]
fn a_sample_larger_than_the_grid_is_the_grid() {
    assert_eq!(commands(sweep("{a}{b}", &TWO_BY_THREE).limit(100)).len(), 6);
    let nothing = sweep("{a}{b}", &TWO_BY_THREE).limit(0).build().unwrap();
    assert!(nothing.is_empty() && nothing.command(0).is_none());
}

#[test]
fn a_value_that_would_cut_a_command_in_two_is_refused_only_with_that_separator() {
    for (template, value, wrong, fine) in [
        ("{a}", "x\ny", Separator::Newline, Separator::Null),
        ("{a}", "x\0y", Separator::Null, Separator::Newline),
        ("{a}\n.", "x", Separator::Newline, Separator::Null),
    ] {
        let sweep = sweep(template, &[("a", &["1..2", value])]).build().unwrap();
        let refused = sweep.write_to(&mut io::sink(), wrong).unwrap_err();
        assert!(matches!(refused, SweepWriteError::Sweep(_)), "{refused}");
        assert!(refused.to_string().contains("\nhint: "));
        sweep.write_to(&mut io::sink(), fine).unwrap();
    }
}

#[test]
fn a_writer_that_fails_is_reported() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sweep = sweep("{a}{b}", &TWO_BY_THREE).build().unwrap();
    let refused = sweep.write_to(&mut Full, Separator::Newline);
    assert!(matches!(refused, Err(SweepWriteError::Io(_))));
}

#[test]
fn writing_hands_over_blocks_and_not_lines() {
    #[derive(Default)]
    struct Blocks {
        largest: usize,
        count: usize,
        bytes: usize,
    }
    impl io::Write for Blocks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.largest = self.largest.max(bytes.len());
            self.count += 1;
            self.bytes += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sweep = sweep("echo {n}", &[("n", &["100000..199999"])])
        .build()
        .unwrap();
    let mut blocks = Blocks::default();
    sweep.write_to(&mut blocks, Separator::Null).unwrap();
    assert_eq!(blocks.bytes, 12 * 100_000);
    assert!(blocks.largest < 70_000 && blocks.count < 25);
}

proptest! {
    /// Any order has each combination once, and the cursor, the index and the
    /// written text agree, whatever is zipped.
    #[test]
    fn every_combination_comes_exactly_once(
        lens in prop::collection::vec(1_usize..5, 1..5), zipped: bool, seed: u64
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut shown: Vec<String> = names[..lens.len()].iter().map(|n| format!("{{{n}}}.")).collect();
        shown.reverse();
        let template = shown.concat();
        let mut builder = sweep(&template, &[]);
        for (name, len) in names.iter().zip(&lens) {
            builder = builder.parameter(Parameter::parse(name, &[format!("1..{len}")]).unwrap());
        }
        let mut wanted: u128 = lens.iter().map(|&len| len as u128).product();
        if zipped && lens.len() > 1 && lens[0] == lens[lens.len() - 1] {
            builder = builder.zip([names[0], names[lens.len() - 1]]);
            wanted /= lens[0] as u128;
        }
        let mut grid = commands(builder.clone());
        prop_assert_eq!(grid.len() as u128, wanted);

        let shuffled = builder.order(SweepOrder::Shuffled { seed }).build().unwrap();
        let mut written = Vec::new();
        shuffled.write_to(&mut written, Separator::Newline).unwrap();
        let written = String::from_utf8(written).unwrap();
        for (index, line) in written.lines().enumerate() {
            prop_assert_eq!(shuffled.command(index as u128).unwrap(), line.as_bytes());
        }
        let mut lines: Vec<&str> = written.lines().collect();
        lines.sort_unstable();
        grid.sort_unstable();
        prop_assert_eq!(lines, grid);
    }
}
