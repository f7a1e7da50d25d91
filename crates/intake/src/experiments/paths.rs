//! Paths as Python puts them together.

use std::path::{Component, Path, PathBuf};

/// `os.path.join`
pub(super) fn join(first: &str, second: &str) -> String {
    if second.starts_with('/') || first.is_empty() {
        second.to_owned()
    } else if first.ends_with('/') {
        format!("{first}{second}")
    } else {
        format!("{first}/{second}")
    }
}

/// A path that stands in a file, without `.` and `..` where that is possible.
pub(super) fn beside(file: &Path, path: &str) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut normal = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(normal.components().next_back(), Some(Component::Normal(_))) =>
            {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_python_joins_them() {
        for (first, second, joined) in [
            ("a", "b", "a/b"),
            ("a/", "b", "a/b"),
            ("", "b", "b"),
            ("a", "", "a/"),
            ("a", "/b", "/b"),
            ("./.", "b", "././b"),
        ] {
            assert_eq!(join(first, second), joined);
        }
    }

    #[test]
    fn an_import_is_beside_the_file_that_it_stands_in() {
        let at = |path| beside(Path::new("configs/a.yml"), path);
        assert_eq!(at("b.yml"), Path::new("configs/b.yml"));
        assert_eq!(at("./../x/b.yml"), Path::new("x/b.yml"));
        assert_eq!(at("../../b.yml"), Path::new("../b.yml"));
        assert_eq!(at("/etc/b.yml"), Path::new("/etc/b.yml"));
    }
}
