use proptest::prelude::*;

use super::*;

fn values(values: &[&str]) -> Vec<String> {
    let parameter = Parameter::parse("p", values).unwrap();
    (0..parameter.len())
        .map(|index| {
            let mut out = Vec::new();
            parameter.push_value(index, &mut out);
            String::from_utf8(out).unwrap()
        })
        .collect()
}

fn problem(value: &str) -> ParameterProblem {
    match Parameter::parse("p", &[value]) {
        Err(SweepError::Parameter { problem, .. }) => problem,
        other => panic!("{value}: {other:?}"),
    }
}

#[test]
fn ranges_include_both_ends_and_keep_their_digits() {
    for (range, wanted) in [
        ("1..5", "1 2 3 4 5"),
        ("3..3", "3"),
        ("0..10:5", "0 5 10"),
        ("0..10:4", "0 4 8"),
        ("0.1..0.5:0.1", "0.1 0.2 0.3 0.4 0.5"),
        ("0.10..0.30:0.1", "0.10 0.20 0.30"),
        ("1..2:0.25", "1.00 1.25 1.50 1.75 2.00"),
        (".5..1:.25", "0.50 0.75 1.00"),
        ("-2..2", "-2 -1 0 1 2"),
        ("-0.5..0.5:0.5", "-0.5 0.0 0.5"),
        ("5..1", "5 4 3 2 1"),
        ("5..1:2", "5 3 1"),
        ("5..1:-2", "5 3 1"),
        ("0.3..0.1:-0.1", "0.3 0.2 0.1"),
        ("-1..-3", "-1 -2 -3"),
        ("08..11", "08 09 10 11"),
        ("1e-4..3e-4:1e-4", "0.0001 0.0002 0.0003"),
        ("1e3..3e3:1e3", "1000 2000 3000"),
    ] {
        assert_eq!(values(&[range]).join(" "), wanted, "{range}");
    }
}

#[test]
fn logarithmic_ranges_have_exact_ends_and_short_numbers_between() {
    for (range, wanted) in [
        ("log:1e-4..1e-1:4", "0.0001 0.001 0.01 0.1"),
        ("log:1e-1..1e-4:4", "0.1 0.01 0.001 0.0001"),
        ("log:1e-6..1e-3:4", "1e-06 1e-05 0.0001 0.001"),
        ("log:1e-4..1e-3:3", "0.0001 0.000316228 0.001"),
        ("log:1..1000000:3", "1 1000 1000000"),
        ("log:16..1024:7", "16 32 64 128 256 512 1024"),
        ("log:0.1234567891..1:2", "0.1234567891 1"),
        ("log:3..7:2", "3 7"),
        ("log:1..7.123456789:2", "1 7.123456789"),
        ("log:1..1.000001:3", "1 1.0000005 1.000001"),
    ] {
        assert_eq!(values(&[range]).join(" "), wanted, "{range}");
    }
}

#[test]
fn dense_logarithmic_values_are_still_all_different() {
    let parameter = Parameter::parse("p", &["log:1..10:3000000"]).unwrap();
    let mut before = 0.0;
    for index in (0..3000).chain(2_997_000..3_000_000) {
        let mut out = Vec::new();
        parameter.push_value(index, &mut out);
        let number: f64 = str::from_utf8(&out).unwrap().parse().unwrap();
        assert!(number > before, "{index}: {number} after {before}");
        before = number;
    }
}

#[test]
fn what_only_resembles_a_range_is_text() {
    for text in [
        "../data",
        "..",
        "a..b",
        "a..",
        "..b",
        "1..b",
        "a..1",
        "./1..2",
        "v1..v2",
        "1.5",
        "1:5",
        "2020-01..2020-03",
        "log:",
        "log:a..b",
        "log:x",
        "log",
        "",
        " ",
        "1 .. 5",
        "..../x",
        "...",
        "Log:1..2:3",
    ] {
        assert_eq!(values(&[text]), [text]);
    }
}

#[test]
fn a_broken_range_is_refused_with_a_hint() {
    for (range, wanted) in [
        ("1..", "no end"),
        ("1..:2", "no end"),
        ("..5", "no beginning"),
        ("1...5", "more than two dots"),
        ("1..5:0", "is zero"),
        ("1..5:0.0", "is zero"),
        ("1..5:", "not a number"),
        ("1..5:x", "not a number"),
        ("1..5:1:1", "not a number"),
        ("1..9..2", "not a number"),
        ("1..5:-1", "leads away"),
        ("0.1..0.5", "needs a step"),
        ("1..1e40", "too many digits"),
        ("0..1e30:1e-30", "too many digits"),
        ("log:1..", "no end"),
        ("log:1..10", "number of values"),
        ("log:1..10:1", "number of values"),
        ("log:1..10:0", "number of values"),
        ("log:1..10:-4", "number of values"),
        ("log:1..10:2.5", "number of values"),
        ("log:0..10:3", "above zero"),
        ("log:-1..10:3", "above zero"),
        ("log:1..1e999:3", "above zero"),
        ("log:2..2:3", "told apart"),
        ("log:1..10:18446744073709551615", "told apart"),
    ] {
        let message = problem(range).to_string();
        assert!(message.contains(wanted), "{range}: {message}");
        assert!(message.contains("\nhint: "), "{range}: {message}");
    }
}

#[test]
fn lists_and_ranges_may_be_mixed() {
    assert_eq!(
        values(&["off", "1..3", "log:1..100:3", "3..1:2", "on"]),
        ["off", "1", "2", "3", "1", "10", "100", "3", "1", "on"]
    );
}

#[test]
fn the_drop_in_takes_ranges_as_text() {
    let parameter = Parameter::literal("p", &["1..3", "1.."]).unwrap();
    assert_eq!(parameter.len(), 2);
    let mut out = Vec::new();
    parameter.push_value(0, &mut out);
    assert_eq!(out, b"1..3");
}

#[test]
fn a_huge_range_costs_nothing() {
    let parameter = Parameter::parse("p", &["1..10000000", "0..1e29"]).unwrap();
    assert_eq!(parameter.len(), 10_000_001 + 10_u128.pow(29));
    let mut out = Vec::new();
    parameter.push_value(9_999_999, &mut out);
    out.push(b' ');
    parameter.push_value(parameter.len() - 1, &mut out);
    assert_eq!(out, b"10000000 100000000000000000000000000000");
}

#[test]
fn no_name_and_no_values_are_refused() {
    assert!(Parameter::parse("", &["1"]).is_err());
    assert!(Parameter::parse::<&str>("p", &[]).is_err());
    assert!(Parameter::literal::<&str>("p", &[]).is_err());
}

proptest! {
    /// Against plain counting in units of the last digit.
    #[test]
    fn a_decimal_range_counts_exactly(
        lo in -2000_i64..2000, hi in -2000_i64..2000, step in 1_i64..300, scale in 0_usize..4
    ) {
        let unit = 10_i64.pow(u32::try_from(scale).unwrap());
        let show = |n: i64| {
            let sign = if n < 0 { "-" } else { "" };
            let n = n.abs();
            match scale {
                0 => format!("{sign}{n}"),
                _ => format!("{sign}{}.{:0scale$}", n / unit, n % unit),
            }
        };
        let mut wanted = Vec::new();
        let mut at = lo;
        while if lo <= hi { at <= hi } else { at >= hi } {
            wanted.push(show(at));
            at += if lo <= hi { step } else { -step };
        }
        let range = format!("{}..{}:{}", show(lo), show(hi), show(step));
        prop_assert_eq!(values(&[&range]), wanted);
    }
}
