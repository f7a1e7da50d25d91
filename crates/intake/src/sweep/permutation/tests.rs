use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

fn order(len: u128, seed: u64) -> Vec<u128> {
    let permutation = Permutation::new(len, seed);
    (0..len).map(|index| permutation.get(index)).collect()
}

/// How far counts are from all being equal, in standard deviations.
fn unevenness(counts: impl ExactSizeIterator<Item = u32>, cells: f64, total: f64) -> f64 {
    let expected = total / cells;
    let seen = f64::from(u32::try_from(counts.len()).unwrap());
    let chi: f64 =
        counts.map(|count| (f64::from(count) - expected).powi(2) / expected).sum::<f64>()
            + (cells - seen) * expected;
    (chi - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

#[test]
fn every_order_of_a_few_things_is_as_likely_as_any_other() {
    for (len, orders) in [(3, 6.0), (4, 24.0), (5, 120.0), (6, 720.0), (7, 5040.0)] {
        let mut counts = HashMap::new();
        for seed in 0..50_000 {
            *counts.entry(order(len, seed)).or_insert(0_u32) += 1;
        }
        let off = unevenness(counts.into_values(), orders, 50_000.0);
        assert!(off.abs() < 5.0, "{len} things: {off} deviations");
    }
}

#[test]
fn every_place_is_as_likely_as_any_other_beyond_the_table() {
    const LEN: u128 = 289 + 11;
    for index in [0, 1, 150, LEN - 1] {
        let mut counts = HashMap::new();
        for seed in 0..60_000 {
            let number = Permutation::new(LEN, seed).get(index);
            *counts.entry(number).or_insert(0_u32) += 1;
        }
        let off = unevenness(counts.into_values(), 300.0, 60_000.0);
        assert!(off.abs() < 5.0, "place {index}: {off} deviations");
    }
}

#[test]
fn where_one_number_lies_says_nothing_about_the_next() {
    for len in [257, 1000, 65_537] {
        let mut counts = HashMap::new();
        for seed in 0..60_000 {
            let permutation = Permutation::new(len, seed);
            let part = |index| permutation.get(index) * 10 / len;
            let place = (part(0), part(1), part(len / 2));
            *counts.entry(place).or_insert(0_u32) += 1;
        }
        let off = unevenness(counts.into_values(), 1000.0, 60_000.0);
        assert!(off.abs() < 5.0, "{len} numbers: {off} deviations");
    }
}

#[test]
fn neighbours_do_not_stay_neighbours() {
    let numbers = order(100_000, 1);
    let near = numbers.windows(2).filter(|w| w[0].abs_diff(w[1]) <= 50);
    let near = near.count();
    assert!((60..140).contains(&near), "{near} instead of about 100");
    let rising = numbers.windows(2).filter(|w| w[0] < w[1]).count();
    assert!((49_500..50_500).contains(&rising), "{rising}");
}

/// The order is part of what people rely on: it must never change.
#[test]
fn a_seed_gives_the_same_order_for_ever() {
    assert_eq!(order(8, 0), [4, 5, 2, 1, 3, 0, 7, 6]);
    assert_eq!(order(8, 42), [4, 0, 7, 3, 6, 2, 1, 5]);
    assert_eq!(order(1000, 42)[..4], [403, 739, 514, 948]);
    let huge = Permutation::new(10_u128.pow(30), 42);
    assert_eq!(huge.get(0), 495_271_889_703_253_053_852_836_991_128);
    assert_eq!(huge.get(1), 106_049_151_995_601_860_847_067_251_772);
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    for len in [u128::MAX, u128::MAX - 1, 1 << 127, (1 << 64) + 1, 1 << 64] {
        let permutation = Permutation::new(len, 7);
        let mut seen = HashSet::new();
        for index in (0..100).chain(len - 100..len) {
            let number = permutation.get(index);
            assert!(number < len && seen.insert(number));
        }
    }
}

proptest! {
    #[test]
    fn no_number_comes_twice(len in 0_u128..3000, seed: u64) {
        let mut numbers = order(len, seed);
        numbers.sort_unstable();
        prop_assert!(numbers.into_iter().eq(0..len));
    }
}
