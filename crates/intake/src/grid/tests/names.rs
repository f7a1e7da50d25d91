//! Folder names that are not enough, and tests that are there twice.

use std::collections::HashSet;

use super::super::{Condition, OnlyError};
use super::{folders, yaml};

#[test]
fn names_follow_the_settings() {
    let grid = yaml(
        "scheduler_config:\n  test_config_string_indicator: '='\n  test_config_string_separator: ';'\n\
         \n  config_string_value_maxlen: 2\n  ignored_keys_for_folder_name: [seed]\n\
         \n  ignored_characters_for_folder_name: [a]\n  result_root_folder: out\n\
         test_config: [{b: [äbcd], seed: [1], a: [[1, 2]]}]",
    );
    assert_eq!(grid.folder(0), "out/=[1;b=äb;");
    let whole = yaml(
        "scheduler_config: {config_string_value_maxlen: null, ignored_characters_for_folder_name: ['y,a']}\n\
         test_config: [{x: [y], a: [12345678901234567890123456789012345]}]",
    );
    assert_eq!(folders(&whole), ["a-12345678901234567890123456789012345,x-y,"]);
    // A text of several characters may reach from one value into the next.
    let across = yaml(
        "scheduler_config: {ignored_characters_for_folder_name: ['1,b']}\ntest_config: [{a: [1], b: [2]}]",
    );
    assert_eq!(folders(&across), ["a--2,"]);
    assert_eq!(yaml("command: x").folder(0), "results/");
}

#[test]
fn names_that_would_be_equal_are_told_apart_whatever_the_order() {
    let long = "x".repeat(30);
    let grid = yaml(&format!("test_config: [{{v: [{long}A, b, {long}B]}}]"));
    let names = folders(&grid);
    assert_eq!(names[1], "v-b,");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3);
    for name in [&names[0], &names[2]] {
        assert!(name.starts_with(&format!("v-{long},#")), "{name}");
    }
    assert_eq!(grid.report().shared, 2);
    let turned = yaml(&format!("test_config: [{{v: [{long}B]}}, {{v: [{long}A]}}]"));
    assert_eq!(folders(&turned), [names[2].as_str(), &names[0]]);
    // The same text, and not the same value.
    let grid = yaml("test_config: [{v: ['1', 1]}]");
    assert_eq!((grid.report().shared, grid.report().repeated), (2, 0));
    assert_eq!(folders(&grid).iter().collect::<HashSet<_>>().len(), 2);
    // These names are part of what people have on their disks.
    assert_eq!(folders(&grid), ["v-1,#74f9fe2e68da6462", "v-1,#07e20cf0cb6e031e"]);
}

#[test]
fn names_that_no_folder_can_have_are_made_so() {
    let long = "ä".repeat(200);
    let grid = yaml(&format!(
        "scheduler_config: {{config_string_value_maxlen: null}}\n\
         test_config: [{{v: [{long}, data/train.csv, plain]}}]"
    ));
    let names = folders(&grid);
    assert!(names[0].len() <= 255 && names[0].starts_with("v-ääää"), "{}", names[0]);
    assert!(names[1].starts_with("v-data_train.csv,#"), "{}", names[1]);
    assert_eq!(names[2], "v-plain,");
    assert_eq!(grid.report().unusable, 2);
    let dots = yaml(
        "scheduler_config: {test_config_string_indicator: '', test_config_string_separator: ''}\n\
         test_config: [{'.': ['', '.']}]",
    );
    assert!(folders(&dots).iter().all(|name| name.len() > 2), "{:?}", folders(&dots));
}

#[test]
fn the_union_has_each_test_once() {
    let grid = yaml("test_config: [{a: [1, 2], b: [3]}, {b: [3], a: [2, 4]}, {a: [5, 5], b: [3]}]");
    let selected = grid.select(&[]).unwrap();
    let places = (0..grid.len()).filter(|place| grid.is_selected(&selected, *place));
    let names: Vec<String> = places.map(|place| grid.folder_name(place)).collect();
    assert_eq!(names, ["a-1,b-3,", "a-2,b-3,", "a-4,b-3,", "a-5,b-3,"]);
    assert_eq!((grid.report().repeated, grid.report().shared), (2, 0));
}

#[test]
fn only_some_tests_are_selected_and_keep_their_names() {
    let grid = yaml(
        "global_config: {lr: 1e-3}\n\
         test_config: [{method: [GAN, ALI], k: [1, 2]}, {method: [GAN], lr: [0.5], z: [true]}]",
    );
    let some = |conditions: &[&str]| {
        let conditions: Result<Vec<Condition>, OnlyError> =
            conditions.iter().map(|text| text.parse()).collect();
        let selection = grid.select(&conditions?)?;
        let places = (0..grid.len()).filter(|place| grid.is_selected(&selection, *place));
        Ok::<_, OnlyError>(places.collect::<Vec<u32>>())
    };
    assert_eq!(some(&["method=GAN"]), Ok(vec![0, 1, 4]));
    assert_eq!(some(&["method=GAN", "k=2"]), Ok(vec![1]));
    assert_eq!(some(&["k=1", "k=2", "method=ALI"]), Ok(vec![2, 3]));
    assert_eq!(some(&["lr=0.001"]), Ok(vec![0, 1, 2, 3]));
    assert_eq!(some(&["lr = 5e-1"]), Ok(vec![4]));
    assert_eq!(some(&["z=True"]), Ok(vec![4]));
    assert_eq!(some(&["z=true"]), Ok(vec![4]));
    for (condition, wanted) in [
        ("metod=GAN", "did you mean `method`?"),
        ("method=GAM", "did you mean `GAN`?"),
        ("method", "KEY=VALUE"),
    ] {
        let message = some(&[condition]).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn more_hashes_than_are_held_at_once_are_compared_all_the_same() {
    // Five passes over the names, of which one pair is equal.
    let values: Vec<String> = (0..50).map(|value| value.to_string()).collect();
    let rest: Vec<String> = (0..100).map(|value| value.to_string()).collect();
    let grid = yaml(&format!(
        "test_config: [{{a: [{}], b: [{}]}}, {{a: ['7'], b: [8]}}]",
        values.join(", "),
        rest.join(", ")
    ));
    assert_eq!(grid.len(), 5001);
    assert_eq!(grid.report().shared, 2);
    assert!(grid.folder_name(708).starts_with("a-7,b-8,#"));
    assert!(grid.folder_name(5000).starts_with("a-7,b-8,#"));
    assert_eq!(folders(&grid).iter().collect::<HashSet<_>>().len(), 5001);
}
