//! Checks of the code that no compiler makes. They rely on the layout that rustfmt gives it.

use std::collections::BTreeMap;
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

/// The types that are declared in a text, those within functions too.
fn declared_types(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    // How far the `impl` or trait around is indented: what is directly within it is not a
    // type by itself.
    let mut owner = None;
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if owner == Some(indent) && code.starts_with('}') {
            owner = None;
        }
        let code = without_visibility(code);
        let code = code.strip_prefix("unsafe ").unwrap_or(code);
        let is_owner = ["impl ", "impl<", "trait "].iter();
        if is_owner.clone().any(|head| code.starts_with(head)) && !code.ends_with('}') {
            owner = Some(indent);
        }
        let declared = ["struct ", "enum ", "union ", "trait ", "type "]
            .into_iter()
            .find_map(|keyword| Some((keyword, code.strip_prefix(keyword)?)));
        let Some((keyword, rest)) = declared else {
            continue;
        };
        let is_associated = keyword == "type " && owner.is_some_and(|owner| indent == owner + 4);
        let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        if !is_associated && name.starts_with(char::is_uppercase) {
            types.push(name);
        }
    }
    types
}

/// A declaration without `pub` or `pub(…)`.
fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else {
        return code;
    };
    let rest = match rest.strip_prefix('(') {
        Some(inner) => inner.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(code)
}

#[test]
fn no_two_crates_have_types_of_one_name() {
    let files = sources();
    let mut by_name: BTreeMap<&str, BTreeMap<&str, &Path>> = BTreeMap::new();
    for file in &files {
        for name in declared_types(&file.text) {
            let crates = by_name.entry(name).or_default();
            crates.entry(&file.package).or_insert(&file.path);
        }
    }
    assert!(by_name.contains_key("SchedulerState"), "nothing was read");
    let shared = by_name.iter().filter(|(_, crates)| crates.len() > 1);
    let shared: Vec<String> = shared
        .map(|(name, crates)| format!("{name}: {:?}", crates.values().collect::<Vec<_>>()))
        .collect();
    assert!(
        shared.is_empty(),
        "types of one name in several crates; rename all but one of each:\n{}",
        shared.join("\n")
    );
}

#[test]
fn types_are_found_wherever_they_are_declared() {
    let text = "
pub struct A<'a>(u8);
pub(crate) enum B {
    Type(u8),
}
impl Iterator for B {
    type Item = u8;
    fn next(&mut self) -> Option<u8> {
        struct Within;
        type WithinToo = u8;
        None
    }
}
impl C for B {}
type D = (u8, u8);
unsafe trait E {
    type Associated;
}
mod inner {
    pub(super) type F = u8;
}
// type G = u8;
#[cfg(test)]
mod tests {
    struct H;
}
union I {
    a: u8,
}
";
    let text = without_tests(text);
    let expected = ["A", "B", "Within", "WithinToo", "D", "E", "F", "I"];
    assert_eq!(declared_types(&text), expected);
}
