use std::collections::HashSet;
use std::io;

use proptest::prelude::*;

use packhorse_model::SweepSpec;

use super::*;
use crate::lines::Separator;

fn sweep(template: &str, parameters: &[(&str, &[&str])]) -> SweepSpec {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let parameters = parameters.iter().map(|&(name, values)| (name.to_owned(), texts(values)));
    SweepSpec {
        template: template.to_owned(),
        parameters: parameters.collect(),
        ..SweepSpec::default()
    }
}

fn zipped(names: &[&str], sweep: SweepSpec) -> SweepSpec {
    let zips = vec![names.iter().map(|&name| name.to_owned()).collect()];
    SweepSpec { zips, ..sweep }
}

fn shuffled(seed: u64, sweep: SweepSpec) -> SweepSpec {
    let seed = Some(seed);
    SweepSpec { seed, ..sweep }
}

fn limited(limit: u64, sweep: SweepSpec) -> SweepSpec {
    let limit = Some(limit);
    SweepSpec { limit, ..sweep }
}

fn build(sweep: &SweepSpec) -> Result<Sweep, SweepError> {
    Sweep::new(sweep, SweepLanguage::Packhorse)
}

fn commands(sweep: &SweepSpec) -> Vec<String> {
    all_of(&build(sweep).unwrap())
}

fn all_of(sweep: &Sweep) -> Vec<String> {
    let all: Vec<String> =
        sweep.commands().map(|command| String::from_utf8(command).unwrap()).collect();
    assert_eq!(all.len() as u128, sweep.len());
    all
}

fn error(sweep: &SweepSpec) -> String {
    let message = build(sweep).unwrap_err().to_string();
    assert!(message.contains("\nhint: "), "{message}");
    message
}

const TWO_BY_THREE: [(&str, &[&str]); 2] = [("a", &["x", "y"]), ("b", &["1..3"])];
const TWO_BY_THREE_TEXTS: [(&str, &[&str]); 2] = [("a", &["x", "y"]), ("b", &["1", "2", "3"])];

#[test]
fn in_a_grid_the_last_parameter_changes_fastest() {
    // However the template orders them.
    for template in ["{a}{b}", "{b}{a}", "{a} {b} {a}", "-{b}-"] {
        let fill = |(a, b)| template.replace("{a}", a).replace("{b}", b);
        let wanted: Vec<String> =
            [("x", "1"), ("x", "2"), ("x", "3"), ("y", "1"), ("y", "2"), ("y", "3")]
                .into_iter()
                .map(fill)
                .collect();
        let sweep = sweep(template, &TWO_BY_THREE_TEXTS);
        let sweep = Sweep::new(&sweep, SweepLanguage::Original).unwrap();
        assert_eq!(all_of(&sweep), wanted, "{template}");
    }
}

#[test]
fn a_template_without_placeholders_is_one_command() {
    assert_eq!(commands(&sweep("make", &[])), ["make"]);
}

#[test]
fn zipped_parameters_advance_together_at_the_place_of_the_first() {
    let three: [(&str, &[&str]); 3] = [("a", &["1", "2"]), ("b", &["x", "y"]), ("c", &["3", "4"])];
    assert_eq!(
        commands(&zipped(&["c", "a"], sweep("{a}{b}{c}", &three))),
        ["1x3", "1y3", "2x4", "2y4"]
    );
    assert_eq!(
        commands(&zipped(&["b", "c"], sweep("{a}{b}{c}", &three))),
        ["1x3", "1y4", "2x3", "2y4"]
    );
}

#[test]
fn the_values_of_a_command_are_those_it_was_made_of() {
    let three: [(&str, &[&str]); 3] = [("a", &["1", "2"]), ("b", &["7..9"]), ("c", &["3", "4"])];
    let sweep = zipped(&["a", "c"], sweep("{a} {b} {c}", &three));
    let sweep = build(&shuffled(5, sweep)).unwrap();
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
    let zip = |names: &[&str]| zipped(names, sweep("{a}{b}", &TWO_BY_THREE));
    let message = error(&zip(&["a", "b"]));
    assert!(message.contains("`a` has 2, `b` has 3"), "{message}");
    assert!(error(&zip(&["a", "A"])).contains("did you mean `a`?"));
    assert!(error(&zip(&["a"])).contains("at least two"));
    assert!(error(&zip(&["a", "a"])).contains("zipped twice"));
}

#[test]
fn a_parameter_must_be_used_once_named_and_once_given() {
    let unused = sweep("{a}", &TWO_BY_THREE_TEXTS);
    let original = Sweep::new(&unused, SweepLanguage::Original).unwrap();
    assert_eq!(all_of(&original).len(), 6);
    assert!(error(&unused).contains("there is no `{b}` in the template"));
    let twice = sweep("{a}", &[("a", &["1"]), ("a", &["2"])]);
    assert!(error(&twice).contains("given twice"));
}

#[test]
fn more_combinations_than_can_be_counted_are_refused() {
    let many = ["a", "b", "c", "d", "e"].map(|name| (name, ["1..100000000"].as_slice()));
    assert!(error(&sweep("{a}{b}{c}{d}{e}", &many)).contains("10^38"));
}

#[test]
fn a_few_samples_of_a_trillion_come_at_once_and_differ() {
    let axis: &[&str] = &["1..10000"];
    let grid = [("a", axis), ("b", axis), ("c", axis)];
    let sample = limited(10, shuffled(3, sweep("{a} {b} {c}", &grid)));
    let first = commands(&sample);
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 10);
    assert_eq!(commands(&sample), first, "the same seed again");
    assert_ne!(commands(&shuffled(4, sample)), first);
}

#[test]
fn a_sample_larger_than_the_grid_is_the_grid() {
    let grid = sweep("{a}{b}", &TWO_BY_THREE);
    assert_eq!(commands(&limited(100, grid.clone())).len(), 6);
    let nothing = build(&limited(0, grid)).unwrap();
    assert!(nothing.is_empty() && nothing.command(0).is_none());
}

#[test]
fn a_value_that_would_cut_a_command_in_two_is_refused_only_with_that_separator() {
    for (template, value, wrong, fine) in [
        ("{a}", "x\ny", Separator::Newline, Separator::Null),
        ("{a}", "x\0y", Separator::Null, Separator::Newline),
        ("{a}\n.", "x", Separator::Newline, Separator::Null),
    ] {
        let sweep = build(&sweep(template, &[("a", &["1..2", value])])).unwrap();
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
    let sweep = build(&sweep("{a}{b}", &TWO_BY_THREE)).unwrap();
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
    let sweep = build(&sweep("echo {n}", &[("n", &["100000..199999"])])).unwrap();
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
        lens in prop::collection::vec(1_usize..5, 1..5), zip: bool, seed: u64
    ) {
        let names = ["a", "b", "c", "d", "e"];
        let mut shown: Vec<String> = names[..lens.len()].iter().map(|n| format!("{{{n}}}.")).collect();
        shown.reverse();
        let template = shown.concat();
        let mut parts = sweep(&template, &[]);
        for (name, len) in names.iter().zip(&lens) {
            parts.parameters.push((name.to_string(), vec![format!("1..{len}")]));
        }
        let mut wanted: u128 = lens.iter().map(|&len| len as u128).product();
        if zip && lens.len() > 1 && lens[0] == lens[lens.len() - 1] {
            parts = zipped(&[names[0], names[lens.len() - 1]], parts);
            wanted /= lens[0] as u128;
        }
        let mut grid = commands(&parts);
        prop_assert_eq!(grid.len() as u128, wanted);

        let shuffled = build(&shuffled(seed, parts)).unwrap();
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
