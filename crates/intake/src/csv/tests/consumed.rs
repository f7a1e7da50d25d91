//! Rows are taken out of a file, and nothing else happens to it.

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::super::consume::without;
use super::super::records::CsvRecords;
use super::super::{ConsumeError, Header, consume};

/// Takes rows out of a file with these contents: what is left, and how many
/// there were.
fn consumed(header: Header, contents: &str, rows: &[&str]) -> (String, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.csv");
    fs_err::write(&file, contents).unwrap();
    let removed = consume(&file, header, rows.iter().map(|row| row.as_bytes())).unwrap();
    assert_eq!(entries(folder.path()), ["tasks.csv"]);
    (fs_err::read_to_string(file).unwrap(), removed)
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<fs_err::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn every_other_byte_stays() {
    for (contents, rows, wanted) in [
        ("h\na\nb\nc\n", &["b"][..], "h\na\nc\n"),
        ("\u{feff}h\r\n\r\na \r\n,,\r\nb", &["a "], "\u{feff}h\r\n\r\n,,\r\nb"),
        ("h\na\nb", &["b"], "h\na\n"),
        ("h\n\"a\n\",1\nb\n", &["\"a\n\",1"], "h\nb\n"),
        ("h\na\nb\n", &["a", "b"], "h\n"),
        ("h\na\n", &[], "h\na\n"),
    ] {
        let (left, removed) = consumed(Header::Row(0), contents, rows);
        assert_eq!((left.as_str(), removed), (wanted, rows.len()), "{contents:?}");
    }
}

#[test]
fn without_a_header_the_first_row_may_go() {
    assert_eq!(consumed(Header::None, "\u{feff}a\nb\n", &["a"]).0, "\u{feff}b\n");
    assert_eq!(consumed(Header::Row(0), "a\nb\na\n", &["a"]).0, "a\nb\n");
}

#[test]
fn a_row_that_is_not_there_any_more_is_let_be() {
    let (left, removed) = consumed(Header::Row(0), "h\nb, 2\nnew\n", &["a", "b,2", "new"]);
    assert_eq!((left.as_str(), removed), ("h\nb, 2\n", 1));
}

#[test]
fn of_equal_rows_as_many_go_as_are_done() {
    let (left, removed) = consumed(Header::Row(0), "h\na\nb\na\na\n", &["a", "a"]);
    assert_eq!((left.as_str(), removed), ("h\nb\na\n", 2));
}

#[test]
fn the_file_keeps_its_permissions_and_links_lead_to_it_still() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link] = ["tasks.csv", "link.csv"].map(|name| folder.path().join(name));
    fs_err::write(&file, "h\na\nb\n").unwrap();
    fs_err::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    symlink("tasks.csv", &link).unwrap();
    let before = fs_err::metadata(&file).unwrap();
    assert_eq!(consume(&link, Header::Row(0), [&b"a"[..]]).unwrap(), 1);
    assert_eq!(fs_err::read_to_string(&file).unwrap(), "h\nb\n");
    assert!(fs_err::symlink_metadata(&link).unwrap().is_symlink());
    let after = fs_err::metadata(&file).unwrap();
    assert_eq!(after.mode(), before.mode());
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "replaced at once, not rewritten");
}

#[test]
fn a_file_from_which_nothing_goes_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.csv");
    fs_err::write(&file, "h\na\n").unwrap();
    let before = fs_err::metadata(&file).unwrap().ino();
    assert_eq!(consume(&file, Header::Row(0), [&b"b"[..]]).unwrap(), 0);
    assert_eq!(fs_err::metadata(&file).unwrap().ino(), before);
}

#[test]
fn a_file_that_somebody_else_changes_is_left_to_him() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.csv");
    fs_err::write(&file, "h\na\n").unwrap();
    let other = fs_err::File::open(&file).unwrap();
    other.lock().unwrap();
    let error = consume(&file, Header::Row(0), [&b"a"[..]]).unwrap_err();
    assert!(matches!(error, ConsumeError::Busy { .. }), "{error}");
    drop(other);
    assert_eq!(consume(&file, Header::Row(0), [&b"a"[..]]).unwrap(), 1);
}

#[test]
fn a_file_that_is_gone_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let error = consume(&folder.path().join("tasks.csv"), Header::None, []).unwrap_err();
    assert!(error.to_string().contains("tasks.csv"), "{error}");
}

/// Rows that several threads take out at the same time all go, and nothing else.
#[test]
fn two_runs_on_one_file_do_not_undo_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.csv");
    let rows: Vec<String> = (0..40).map(|row| format!("row{row}")).collect();
    fs_err::write(&file, format!("h\n{}\nlast\n", rows.join("\n"))).unwrap();
    std::thread::scope(|scope| {
        for half in rows.chunks(20) {
            let file = &file;
            scope.spawn(move || {
                for row in half {
                    while let Err(error) = consume(file, Header::Row(0), [row.as_bytes()]) {
                        assert!(matches!(error, ConsumeError::Busy { .. }), "{error}");
                        fs_err::File::open(file).unwrap().lock().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs_err::read_to_string(&file).unwrap(), "h\nlast\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_not_taken_out_stays_in_its_order(
        rows in prop::collection::vec(("[a-c]{1,2}(,[a-c]?\"?)?", any::<bool>()), 0..8),
        end in prop::sample::select(&["\n", "\r\n", "\n\n"][..]),
    ) {
        // A quote that does not begin a field is only a character.
        let rows: Vec<_> = rows.into_iter().map(|(row, gone)| (row.replace(",\"", ","), gone)).collect();
        let contents: Vec<&str> = rows.iter().flat_map(|(row, _)| [row, end]).collect();
        let gone: Vec<&str> = rows.iter().filter(|row| row.1).map(|row| row.0.as_str()).collect();
        let mut wanted: Vec<&str> = rows.iter().map(|row| row.0.as_str()).collect();
        for row in &gone {
            let at = wanted.iter().position(|wanted| wanted == row);
            wanted.remove(at.unwrap());
        }
        let mut counts = HashMap::new();
        for row in &gone {
            *counts.entry(row.as_bytes()).or_default() += 1;
        }
        let (left, removed) = without(contents.concat().as_bytes(), Header::None, counts);
        prop_assert_eq!(removed, gone.len());
        let records = CsvRecords::new(&left).map(|record| left[record.place].to_vec());
        let wanted: Vec<Vec<u8>> = wanted.iter().map(|row| row.as_bytes().to_vec()).collect();
        prop_assert_eq!(records.collect::<Vec<_>>(), wanted);
    }
}
