//! The source code without its tests, for checks that no compiler makes. Relies on the layout
//! that rustfmt gives it.

use std::path::{Path, PathBuf};

use crate::folders::workspace;

/// A file of the code that is not tests.
pub struct SourceFile {
    /// The crate, by its folder.
    pub package: String,
    /// Its path in the workspace.
    pub path: PathBuf,
    /// What is in it, without its tests.
    pub text: String,
}

/// All code of the workspace, without its tests.
pub fn sources() -> Vec<SourceFile> {
    let root = workspace();
    let crates = fs_err::read_dir(root.join("crates")).unwrap();
    let mut packages: Vec<PathBuf> = crates.map(|folder| folder.unwrap().path()).collect();
    packages.push(root.join("xtask"));
    packages.sort();
    let mut files = Vec::new();
    for package in packages {
        let name = package.file_name().unwrap().to_str().unwrap();
        collect(&package.join("src"), name, &mut files);
    }
    files
}

fn collect(folder: &Path, package: &str, files: &mut Vec<SourceFile>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if name == "tests" || name == "tests.rs" {
            continue;
        }
        if path.is_dir() {
            collect(&path, package, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs_err::read_to_string(&path).unwrap();
            files.push(SourceFile {
                package: package.to_owned(),
                path: path.strip_prefix(workspace()).unwrap().to_owned(),
                text: without_tests(&text),
            });
        }
    }
}

/// Leaves out the module of the tests: from its head up to the brace below it.
fn without_tests(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut in_tests = false;
    for line in text.lines() {
        in_tests |= line == "mod tests {";
        if !in_tests {
            kept.extend([line, "\n"]);
        }
        in_tests &= line != "}";
    }
    kept
}
