use std::os::unix::fs::symlink;

use super::*;

/// A folder of results, with these files in it. A name that ends with a slash is a folder.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        if name.ends_with('/') {
            fs_err::create_dir_all(&path).unwrap();
        } else {
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(&path, text).unwrap();
        }
    }
    root
}

/// The folders that were found with their outcomes, and how many notices there were.
fn found(root: &Path) -> (Vec<String>, Vec<String>) {
    let mut told = Vec::new();
    let mut notices = |text: &str| told.push(text.to_owned());
    let tests = folder_results(root, &mut notices).unwrap();
    let line = |test: &TestResult| {
        let folder = test.folder.as_ref().unwrap();
        format!("{} {}", folder.display(), test.outcome.word())
    };
    (tests.iter().map(line).collect(), told)
}

const DONE: &str = r#"{"outcome": "succeeded"}"#;

#[test]
fn each_folder_with_a_marker_is_a_test() {
    let root = tree(&[
        ("b/.packhorse.json", r#"{"outcome": "failed", "detail": 1}"#),
        ("a/.packhorse.json", DONE),
        ("a/checkpoints/.packhorse.json", DONE),
        ("c/.packhorse.json", r#"{"outcome": "running"}"#),
        ("d/.packhorse.json", "{}"),
        ("e/.packhorse.json", r#"{"outcome": "vanished"}"#),
        ("readme.txt", ""),
        (".git/objects/", ""),
    ]);
    let wanted = ["a succeeded", "b failed", "c running", "d unknown", "e vanished"];
    assert_eq!(found(root.path()), (wanted.map(str::to_owned).to_vec(), vec![]));
    let (tests, _) = found(&root.path().join("a"));
    assert_eq!(tests, [format!("{} succeeded", root.path().join("a").display())]);
}

#[test]
fn folders_of_the_original_are_listed() {
    let root = tree(&[("lr-1,/worker.log", ""), ("lr-2,/deep/er/", ""), ("lr-3,/", "")]);
    let wanted = ["lr-1, unknown", "lr-2, unknown", "lr-3, unknown"];
    assert_eq!(found(root.path()).0, wanted);
}

#[test]
fn tests_may_be_some_levels_deep() {
    let root = tree(&[
        ("gan/one/.packhorse.json", DONE),
        ("gan/two/data/", ""),
        ("vae/x/y/.packhorse.json", DONE),
        ("old/", ""),
    ]);
    let wanted = ["gan/one succeeded", "gan/two unknown", "old unknown", "vae/x/y succeeded"];
    assert_eq!(found(root.path()).0, wanted);
}

#[test]
fn a_damaged_marker_is_a_row_and_a_notice() {
    let long = "[".repeat(100_000);
    let root = tree(&[
        ("a/.packhorse.json", ""),
        ("b/.packhorse.json", r#"{"outcome": "succ"#),
        ("c/.packhorse.json", "[1, 2]"),
        ("d/.packhorse.json", r#"{"outcome": 7}"#),
        ("e/.packhorse.json/", ""),
        ("f/.packhorse.json", &long),
        ("g/.packhorse.json", DONE),
    ]);
    let (tests, told) = found(root.path());
    let damaged = tests.iter().filter(|test| test.ends_with(" damaged"));
    assert_eq!(damaged.count(), 6, "{tests:?}");
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(told[0].contains("a/.packhorse.json"), "{told:?}");
}

#[test]
fn a_marker_that_cannot_be_read_is_a_notice_and_nothing_is_known() {
    let root = tree(&[("a/", ""), ("b/.packhorse.json", DONE), ("c/", "")]);
    let path = root.path();
    symlink(".packhorse.json", path.join("a/.packhorse.json")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.join("c/.packhorse.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let (tests, told) = found(path);
    assert_eq!(tests, ["a unknown", "b succeeded", "c damaged"]);
    assert!(told[0].contains("a/.packhorse.json` cannot be read"), "{told:?}");
    assert!(told[1].contains("is not a file"), "{told:?}");
}

#[test]
fn links_that_lead_back_end_somewhere() {
    let root = tree(&[("a/.packhorse.json", DONE), ("b/c/", "")]);
    let path = root.path();
    symlink(path, path.join("b/c/up")).unwrap();
    symlink(path.join("b"), path.join("b/c/again")).unwrap();
    symlink("a", path.join("0-latest")).unwrap();
    symlink("nowhere", path.join("lost")).unwrap();
    assert_eq!(found(path).0, ["a succeeded", "b unknown"]);
}

#[test]
fn a_folder_elsewhere_is_found_through_its_link() {
    let elsewhere = tree(&[("a/.packhorse.json", DONE)]);
    let root = tree(&[("b/", "")]);
    symlink(elsewhere.path().join("a"), root.path().join("a")).unwrap();
    assert_eq!(found(root.path()).0, ["a succeeded", "b unknown"]);
}

#[test]
fn what_is_no_folder_is_an_error() {
    let root = tree(&[("file", "")]);
    for (name, wanted) in [("file", "is not a folder"), ("none", "there is no folder")] {
        let error = folder_results(&root.path().join(name), &mut |_: &str| {}).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    assert!(found(root.path()).0.is_empty());
}

#[test]
fn the_words_that_say_what_is_better_are_in_the_book() {
    let page = include_str!("../../../../docs/metrics.md");
    for word in MORE.iter().chain(LESS) {
        let written = page.contains(&format!("`{word}`"));
        assert!(written, "docs/metrics.md does not list `{word}`");
    }
}

#[test]
fn a_name_says_whether_more_is_better() {
    for name in [
        "accuracy",
        "acc",
        "val_acc",
        "valAcc",
        "test/Accuracy",
        "acc@5",
        "F1",
        "macro-f1",
        "episode_reward",
        "mAP",
        "IoU",
        "R2",
        "eval_return",
        "ROC AUC",
    ] {
        assert!(is_more_better(name), "{name}");
    }
    for name in ["loss", "val_loss", "score_loss", "rmse", "epoch", "accuracy_error", "", "fid"] {
        assert!(!is_more_better(name), "{name}");
    }
}
