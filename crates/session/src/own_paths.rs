//! The files and folders that tasks of a run have for themselves: `log=` and `results=`. Two
//! tasks with the same one would spoil each other's.
//!
//! Paths are compared as the file system sees them: links are followed as far as there is
//! something, and what is still to be made is taken as it is written. So the answer is the same
//! before and after a task has made its files. A task without such paths costs two comparisons.
//!
//! A task with retries also has the logs of its later attempts for itself: `train.2.log` beside
//! `train.log`.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use packhorse_model::{TaskSpec, printable};
use packhorse_supervisor::is_system_path;
use rustc_hash::FxHashMap;

/// Where a task was read: which of several sources, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    source: usize,
    line: u64,
}

/// How a path is not a task's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Another task has it.
    Same,
    /// This attempt of the other task has its log there.
    TheirAttempt(u32),
    /// This attempt of the task itself would have its log where the other task has its own.
    OwnAttempt(u32),
}

/// Two tasks with one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPath {
    how: Sharing,
    /// `log` or `results`.
    key: &'static str,
    path: PathBuf,
    /// Where the first is: its source, if that is another, and its line.
    source: Option<String>,
    line: u64,
}

impl fmt::Display for SharedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.to_string_lossy();
        let (key, path) = (self.key, printable(&path));
        let what = if key == "log" { "log" } else { "folder of results" };
        match self.how {
            Sharing::Same => write!(f, "`{key}={path}` is already the {what} of ")?,
            Sharing::TheirAttempt(attempt) => {
                write!(f, "`{key}={path}` is already the {what} of attempt {attempt} of ")?;
            }
            Sharing::OwnAttempt(attempt) => write!(
                f,
                "with `{key}={path}`, the {what} of attempt {attempt} is already the {what} of "
            )?,
        }
        write!(f, "the task at ")?;
        match &self.source {
            Some(source) => write!(f, "{}:{}", printable(source), self.line)?,
            None => write!(f, "line {}", self.line)?,
        }
        write!(f, "\nhint: give each task its own, or leave `{key}` out")
    }
}

/// The paths that tasks have taken.
#[derive(Default)]
pub struct OwnPaths {
    /// What holds for tasks that say nothing themselves.
    folder: Option<PathBuf>,
    results: Option<PathBuf>,
    retries: u32,
    sources: Vec<String>,
    logs: TakenPaths,
    results_folders: TakenPaths,
}

impl OwnPaths {
    /// For the tasks of a run with these defaults, in the current folder.
    pub fn new(defaults: &TaskSpec) -> Self {
        Self {
            folder: defaults.folder.clone(),
            results: defaults.results.clone(),
            retries: defaults.retries.unwrap_or(0),
            ..Self::default()
        }
    }

    /// Takes the paths of a task. The error tells which earlier task has one of them.
    pub fn take(&mut self, spec: &TaskSpec, source: &str, line: u64) -> Result<(), SharedPath> {
        let results = spec.results.as_ref().or(self.results.as_ref());
        if spec.log.is_none() && results.is_none() {
            return Ok(());
        }
        if self.sources.last().is_none_or(|last| last != source) {
            self.sources.push(source.to_owned());
        }
        let retries = spec.retries.unwrap_or(self.retries);
        let place = Place { source: self.sources.len() - 1, line };
        let folder = spec.folder.as_deref().or(self.folder.as_deref()).unwrap_or(Path::new(""));
        let shared = |key, path: &Path, (how, first): (Sharing, Place)| SharedPath {
            how,
            key,
            path: path.to_owned(),
            source: (first.source != place.source).then(|| self.sources[first.source].clone()),
            line: first.line,
        };
        if let Some(log) = &spec.log
            && let Some(first) = self.logs.take(&folder.join(log), retries, place)
        {
            return Err(shared("log", log, first));
        }
        if let Some(results) = results
            && let Some(first) = self.results_folders.take(&folder.join(results), 0, place)
        {
            return Err(shared("results", results, first));
        }
        Ok(())
    }
}

/// Two hashes of a path.
type PathKey = (u64, u64);

/// Paths of one kind. They are kept as hashes, so that a million take no more than a few MB.
#[derive(Default)]
struct TakenPaths {
    taken: FxHashMap<PathKey, Place>,
    /// Those of tasks with retries, with the last attempt.
    retried: FxHashMap<PathKey, (u32, Place)>,
    /// Names such as a later attempt has, by the name that the first would have.
    attempts: FxHashMap<PathKey, Vec<(u32, Place)>>,
    hashers: [RandomState; 2],
    /// The last folder that was looked up, and what the file system calls it: most tasks have
    /// their files in one folder.
    last_folder: Option<(PathBuf, PathBuf)>,
}

impl TakenPaths {
    /// Takes a path, and the names that so many retries have; or tells where it was taken.
    fn take(&mut self, path: &Path, retries: u32, place: Place) -> Option<(Sharing, Place)> {
        let path = self.real(path)?;
        let key = self.key(&path);
        if let Some(first) = self.taken.get(&key) {
            return Some((Sharing::Same, *first));
        }
        let last = retries.saturating_add(1);
        let is_attempt = |attempt: u32, last: u32| (2..=last).contains(&attempt);
        let attempt = attempt_of(&path).map(|(first, attempt)| (self.key(&first), attempt));
        if let Some((first, attempt)) = attempt
            && let Some((last, place)) = self.retried.get(&first)
            && is_attempt(attempt, *last)
        {
            return Some((Sharing::TheirAttempt(attempt), *place));
        }
        if retries > 0 {
            let mut attempts = self.attempts.get(&key).into_iter().flatten();
            if let Some((attempt, place)) = attempts.find(|(attempt, _)| is_attempt(*attempt, last))
            {
                return Some((Sharing::OwnAttempt(*attempt), *place));
            }
            self.retried.insert(key, (last, place));
        }
        if let Some((first, attempt)) = attempt {
            self.attempts.entry(first).or_default().push((attempt, place));
        }
        self.taken.insert(key, place);
        None
    }

    fn key(&self, path: &Path) -> PathKey {
        let [one, other] = &self.hashers;
        (one.hash_one(path), other.hash_one(path))
    }

    /// What the file system calls it. `None` for devices and pipes, which many can write to.
    fn real(&mut self, path: &Path) -> Option<PathBuf> {
        if is_system_path(path) {
            return None;
        }
        let found = fs_err::symlink_metadata(path);
        let is_link = found.as_ref().is_ok_and(std::fs::Metadata::is_symlink);
        let found = if is_link { fs_err::metadata(path) } else { found };
        if let Ok(found) = &found {
            let kind = found.file_type();
            if !kind.is_file() && !kind.is_dir() || kind.is_socket() {
                return None;
            }
        }
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if !is_link => {
                let known = self.last_folder.as_ref().filter(|(last, _)| last == folder);
                if known.is_none() {
                    self.last_folder = Some((folder.to_owned(), real_path(folder)));
                }
                let (_, real) = self.last_folder.as_ref()?;
                Some(real.join(name))
            }
            // A link, or a path that ends in `..`.
            _ => Some(real_path(path)),
        }
    }
}

/// The path that the first attempt has where a later one has this, and which one: the other way
/// of [`packhorse_engine::own_log`].
fn attempt_of(path: &Path) -> Option<(PathBuf, u32)> {
    let stem = Path::new(path.file_stem()?);
    let extension = path.extension()?;
    let (name, number) = match stem.extension() {
        Some(number) => (Path::new(stem.file_stem()?).with_added_extension(extension), number),
        None => (stem.to_owned(), extension),
    };
    let number = number.to_str()?;
    let attempt = number.parse().ok().filter(|attempt: &u32| attempt.to_string() == number)?;
    Some((path.with_file_name(name), attempt))
}

/// The path without links, as far as it is there; behind that as it is written.
fn real_path(path: &Path) -> PathBuf {
    // The path of no letters is the current folder, too.
    let path = Path::new(".").join(path);
    let path = std::path::absolute(&path).unwrap_or(path);
    for ancestor in path.ancestors() {
        if let Ok(mut real) = fs_err::canonicalize(ancestor) {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            for part in rest.components() {
                match part {
                    Component::ParentDir => {
                        real.pop();
                    }
                    Component::Normal(name) => real.push(name),
                    Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
                }
            }
            return real;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn task(folder: Option<&Path>, log: &str) -> TaskSpec {
        TaskSpec {
            folder: folder.map(Path::to_owned),
            log: Some(log.into()),
            ..TaskSpec::default()
        }
    }

    #[test]
    fn paths_are_compared_as_the_file_system_sees_them() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        fs_err::create_dir_all(base.join("a/deep")).unwrap();
        symlink("a", base.join("link")).unwrap();
        symlink("new.log", base.join("a/to-new")).unwrap();
        for (one, other) in [
            ("a/x", "a/x"),
            ("a/x", "./a/x"),
            ("a/x", "a/deep/../x"),
            ("a/x", "link/x"),
            ("a//x", "a/x"),
            ("new/x", "new/./x"),
            ("new/x", "new/sub/../x"),
            ("a/x", "link/deep/../x"),
        ] {
            let mut paths = OwnPaths::default();
            assert_eq!(paths.take(&task(Some(base), one), "f", 1), Ok(()));
            let shared = paths.take(&task(Some(base), other), "f", 2).unwrap_err();
            assert_eq!((shared.line, &shared.source), (1, &None), "{one} {other}");
            assert!(
                shared.to_string().starts_with(&format!("`log={other}` is already the log of"))
            );
        }
        let mut paths = OwnPaths::default();
        for path in ["a", "./a"] {
            let shared = paths.take(&task(None, path), "f", 1);
            assert_eq!(shared.is_err(), path == "./a");
        }
        for (line, path) in [(1, "a/x"), (2, "a/y"), (3, "x"), (4, "a/deep/x")] {
            assert_eq!(paths.take(&task(Some(base), path), "f", line), Ok(()), "{path}");
        }
        // The same name in another folder, by either way to say it.
        assert_eq!(paths.take(&task(Some(&base.join("a/deep")), "y"), "f", 5), Ok(()));
        let shared = paths.take(&task(Some(&base.join("link")), "deep/y"), "g", 1).unwrap_err();
        assert_eq!((shared.line, shared.source.as_deref()), (5, Some("f")));
    }

    #[test]
    fn a_path_stays_the_same_when_its_file_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = OwnPaths::default();
        let task = task(Some(folder.path()), "new/deep/x");
        assert_eq!(paths.take(&task, "f", 1), Ok(()));
        fs_err::create_dir_all(folder.path().join("new/deep")).unwrap();
        fs_err::write(folder.path().join("new/deep/x"), "text").unwrap();
        assert!(paths.take(&task, "f", 2).is_err());
    }

    #[test]
    fn names_of_later_attempts_lead_to_the_first() {
        for name in ["t.log", "t", ".t", "a.b.log", ".t.log", "7.log", "t.7"] {
            let spec = task(None, name);
            let folder = Path::new("/run");
            let first = packhorse_engine::own_log(folder, &spec, 1).unwrap();
            for attempt in [2, 3, 10] {
                let later = packhorse_engine::own_log(folder, &spec, attempt).unwrap();
                assert_eq!(attempt_of(&later), Some((first.clone(), attempt)), "{name}");
            }
        }
        for name in ["/t.log", "/t", "/t.02.log", "/t.x.log", "/.2"] {
            assert_eq!(attempt_of(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn devices_and_pipes_are_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        symlink("/dev/null", folder.path().join("null")).unwrap();
        let mut paths = OwnPaths::default();
        for path in ["/dev/null", "pipe", "null", "/dev/stdout"] {
            for line in 1..=2 {
                let task = task(Some(folder.path()), path);
                assert_eq!(paths.take(&task, "f", line), Ok(()), "{path}");
            }
        }
    }

    #[test]
    fn results_of_all_tasks_are_in_the_folder_of_each() {
        let defaults = TaskSpec { results: Some("out".into()), ..TaskSpec::default() };
        let mut paths = OwnPaths::new(&defaults);
        let inside = |folder: &str| TaskSpec {
            folder: Some(format!("/nonexistent/{folder}").into()),
            ..TaskSpec::default()
        };
        assert_eq!(paths.take(&inside("a"), "f", 1), Ok(()));
        assert_eq!(paths.take(&inside("b"), "f", 2), Ok(()));
        let shared = paths.take(&inside("a/."), "f", 3).unwrap_err();
        assert!(shared.to_string().contains("the folder of results of the task at line 1"));
    }
}
