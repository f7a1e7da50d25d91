//! The example that `docs/development.md` is about.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn a_door_an_executor_and_an_observer_of_ones_own_make_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(example())
        .current_dir(folder.path())
        .env("PACKHORSE_HOME", folder.path().join("state"))
        .env("XDG_CONFIG_HOME", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "run 1: 1000 tasks started, 1000 succeeded\n");
    assert!(output.status.success());
}

/// Where cargo has built it.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows itself");
    let built = test.ancestors().nth(2).expect("it is in target/debug/deps");
    built.join("examples/three_parts")
}

#[test]
fn the_page_for_developers_shows_code_that_compiles() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let example = fs_err::read_to_string(root.join("examples/three_parts.rs")).unwrap();
    let page = fs_err::read_to_string(root.join("../../docs/development.md")).unwrap();
    // Other sections show other code.
    let parts = page.split("## Adding a part").nth(1).unwrap();
    let parts = parts.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = parts
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert!(blocks.len() >= 4, "door, executor, observer, and all together");
    for block in blocks {
        assert!(
            example.contains(block),
            "not as in crates/session/examples/three_parts.rs:\n{block}"
        );
    }
}
