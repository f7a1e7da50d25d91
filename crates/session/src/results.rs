//! What came of tests: of the tasks of a run, or of the folders with their results.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::File;
use packhorse_model::{
    AttemptPlace, Bytes, Command, GitState, Marker, MetricSummary, Outcome, TaskId, TaskSpec,
    Timestamp,
};
use packhorse_store::{Home, ListedTask, Reader, RunState, StoredRun, TaskFilter};
use rustc_hash::FxHashSet;
use serde_json::Value;

use crate::{AttemptLog, Notices, SessionError, each_task};

/// How many levels of folders are looked into.
const DEEPEST: usize = 4;

/// No marker is so long.
pub(crate) const LONGEST_MARKER: u64 = 16 << 20;

/// One test: a task of a run, or a folder with results.
#[derive(Clone, Debug, Default)]
pub struct TestResult {
    /// The task, if it is known.
    pub task: Option<TaskId>,
    /// The folder with its results, if it has one. Below the folder that was looked into,
    /// if that was one of folders.
    pub folder: Option<PathBuf>,
    /// Its parameters.
    pub params: BTreeMap<String, Value>,
    /// What became of it.
    pub outcome: TestOutcome,
    /// Its command, if it is known.
    pub command: Option<Command>,
    /// How many attempts there were.
    pub attempts: Option<u32>,
    /// When the last one started.
    pub started: Option<Timestamp>,
    /// When that ended.
    pub ended: Option<Timestamp>,
    /// How long it took.
    pub took: Option<Duration>,
    /// The GPUs of the last attempt.
    pub gpus: Vec<String>,
    /// The most memory it was seen to hold on any one of its GPUs.
    pub peak: Option<Bytes>,
    /// What was checked out.
    pub git: Option<GitState>,
    /// The machine it ran on.
    pub host: Option<String>,
    /// What its last attempt printed.
    pub metrics: BTreeMap<String, MetricSummary>,
    /// What its last attempt wrote, as far as that is known.
    pub log: Option<AttemptLog>,
}

/// What became of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TestOutcome {
    Ended(Outcome),
    /// It waits for its turn.
    Waiting,
    /// It runs, as far as anybody knows.
    Running,
    /// Its run was killed while it ran.
    Died,
    /// Its folder says something that a later version may understand.
    Other(String),
    /// Its folder says nothing.
    #[default]
    Unknown,
    /// What its folder says cannot be understood.
    Damaged,
}

impl TestOutcome {
    pub fn word(&self) -> &str {
        match self {
            Self::Ended(outcome) => outcome.word(),
            Self::Waiting => "waiting",
            Self::Running => Marker::RUNNING,
            Self::Died => "died",
            Self::Other(word) => word,
            Self::Unknown => "unknown",
            Self::Damaged => "damaged",
        }
    }

    /// The number that belongs to the word: exit status or signal.
    pub fn detail(&self) -> Option<i32> {
        match self {
            Self::Ended(outcome) => outcome.detail(),
            _ => None,
        }
    }
}

/// The tests of a run, in the order of their numbers.
pub fn run_results(
    home: &Home,
    reader: &Reader,
    run: &StoredRun,
) -> Result<Vec<TestResult>, SessionError> {
    let defaults = defaults(reader, run);
    let mut tests = Vec::new();
    each_task(reader, run.id, TaskFilter::All, |listed| {
        tests.push(of_task(home, reader, run, &defaults, listed)?);
        Ok::<(), SessionError>(())
    })?;
    Ok(tests)
}

/// What came of one task of a run.
pub fn task_result(
    home: &Home,
    reader: &Reader,
    run: &StoredRun,
    listed: ListedTask,
) -> Result<TestResult, SessionError> {
    of_task(home, reader, run, &defaults(reader, run), listed)
}

/// The run's own settings for its tasks.
fn defaults(reader: &Reader, run: &StoredRun) -> TaskSpec {
    // A run of an earlier version may have settings that nobody reads any more.
    let spec = reader.run_spec(run.id).ok().flatten();
    spec.map(|spec| spec.defaults).unwrap_or_default()
}

fn of_task(
    home: &Home,
    reader: &Reader,
    run: &StoredRun,
    defaults: &TaskSpec,
    listed: ListedTask,
) -> Result<TestResult, SessionError> {
    let ListedTask { task, last } = listed;
    let is_running = last.as_ref().is_some_and(|last| last.outcome.is_none());
    let outcome = match task.outcome {
        Some(outcome) => TestOutcome::Ended(outcome),
        None if !is_running => TestOutcome::Waiting,
        None if matches!(run.state, RunState::Running | RunState::OnCluster) => {
            TestOutcome::Running
        }
        None => TestOutcome::Died,
    };
    // A probe is no attempt at the task.
    let last = last.filter(|last| last.attempt > 0);
    let metrics = match &last {
        Some(last) => reader.metrics(task.id, last.attempt)?,
        None => BTreeMap::new(),
    };
    let spec = task.spec.over(defaults);
    let log = (last.as_ref()).map(|last| AttemptLog::of(home, run, task.id, &spec, last.attempt));
    let folder = spec.results.map(|results| {
        let own = spec.folder.unwrap_or_default();
        run.cwd.join(own).join(results)
    });
    let last = last.as_ref();
    let (started, ended) = (last.and_then(|last| last.started), last.and_then(|last| last.ended));
    let device = last.and_then(|last| last.device.as_deref());
    let place = device.map(AttemptPlace::parse).unwrap_or_default();
    Ok(TestResult {
        task: Some(task.id),
        folder,
        params: spec.params,
        outcome,
        command: Some(spec.command),
        attempts: Some(task.attempts),
        started,
        ended,
        took: ended.zip(started).map(|(ended, started)| ended.since(started)),
        gpus: place.gpus,
        peak: last.and_then(|last| last.peak),
        git: None,
        host: Some(place.node.unwrap_or_else(|| run.host.clone())),
        metrics,
        log,
    })
}

/// The tests whose folders are in a folder, by their names; or the folder itself, if it is
/// that of a test.
///
/// A folder with a marker is that of a test, and not looked into. Beside it, or if there
/// is no marker anywhere, a folder without one is a test of which nothing is known.
pub fn folder_results(
    root: &Path,
    notices: &mut Notices<'_>,
) -> Result<Vec<TestResult>, SessionError> {
    let metadata = fs_err::metadata(root).map_err(|error| {
        let text = match error.kind() {
            io::ErrorKind::NotFound => format!(
                "there is no folder `{}`\nhint: a run is named by its number, as in `packhorse ls`",
                root.display()
            ),
            _ => error.to_string(),
        };
        SessionError::NotFound(text)
    })?;
    if !metadata.is_dir() {
        let text = format!("`{}` is not a folder", root.display());
        return Err(SessionError::NotFound(text));
    }
    let mut search = FolderSearch {
        root,
        seen: FxHashSet::from_iter([(metadata.dev(), metadata.ino())]),
        notices,
    };
    let folders = folders_in(root)?;
    if let Some(test) = search.marked(root) {
        return Ok(vec![test]);
    }
    let mut tests = Vec::new();
    for folder in folders {
        match search.search(&folder, 1) {
            Found::Tests(mut found) => tests.append(&mut found),
            Found::Unmarked => tests.push(search.unmarked(&folder)),
            Found::SeenBefore => {}
        }
    }
    tests.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(tests)
}

/// Looks for the folders of tests.
struct FolderSearch<'a, 'n> {
    root: &'a Path,
    /// Links may lead back to where we came from.
    seen: FxHashSet<(u64, u64)>,
    notices: &'a mut Notices<'n>,
}

enum Found {
    /// There is a marker in it or below it.
    Tests(Vec<TestResult>),
    /// There is none.
    Unmarked,
    SeenBefore,
}

impl FolderSearch<'_, '_> {
    fn search(&mut self, folder: &Path, depth: usize) -> Found {
        let seen = fs_err::metadata(folder).map(|it| self.seen.insert((it.dev(), it.ino())));
        if matches!(seen, Ok(false)) {
            return Found::SeenBefore;
        }
        if let Some(test) = self.marked(folder) {
            return Found::Tests(vec![test]);
        }
        if depth == DEEPEST {
            return Found::Unmarked;
        }
        let folders = folders_in(folder).unwrap_or_else(|error| {
            (self.notices)(&error.to_string());
            Vec::new()
        });
        let mut tests = Vec::new();
        let mut unmarked = Vec::new();
        for inner in folders {
            match self.search(&inner, depth + 1) {
                Found::Tests(mut found) => tests.append(&mut found),
                Found::Unmarked => unmarked.push(inner),
                Found::SeenBefore => {}
            }
        }
        if tests.is_empty() {
            return Found::Unmarked;
        }
        tests.extend(unmarked.iter().map(|inner| self.unmarked(inner)));
        Found::Tests(tests)
    }

    /// The test of a folder with a marker.
    fn marked(&mut self, folder: &Path) -> Option<TestResult> {
        let path = folder.join(Marker::FILE);
        let marker = match read_marker(&path) {
            Ok(marker) => marker?,
            Err(wrong) => {
                (self.notices)(&format!("`{}` {wrong}", path.display()));
                let outcome = match wrong {
                    WrongMarker::Unreadable(_) => TestOutcome::Unknown,
                    WrongMarker::NoFile | WrongMarker::TooLong | WrongMarker::NotOne(_) => {
                        TestOutcome::Damaged
                    }
                };
                return Some(TestResult { outcome, ..self.unmarked(folder) });
            }
        };
        let outcome = match (marker.ended_as(), &*marker.outcome) {
            (Some(outcome), _) => TestOutcome::Ended(outcome),
            (None, Marker::RUNNING) => TestOutcome::Running,
            (None, "") => TestOutcome::Unknown,
            (None, word) => TestOutcome::Other(word.to_owned()),
        };
        let seconds = marker.seconds;
        Some(TestResult {
            task: marker.task,
            outcome,
            params: marker.params,
            command: Some(marker.command).filter(|command| !command.is_empty()),
            attempts: Some(marker.attempts).filter(|attempts| *attempts > 0),
            started: marker.started,
            ended: marker.ended,
            took: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            gpus: marker.gpus,
            peak: marker.peak,
            git: marker.git,
            host: Some(marker.host).filter(|host| !host.is_empty()),
            metrics: marker.metrics,
            log: marker.log.map(|log| AttemptLog::at(log.as_os_str().into())),
            ..self.unmarked(folder)
        })
    }

    /// The test of a folder of which nothing is known.
    fn unmarked(&self, folder: &Path) -> TestResult {
        let below = folder.strip_prefix(self.root).ok();
        let below = below.filter(|below| !below.as_os_str().is_empty());
        TestResult { folder: Some(below.unwrap_or(folder).to_owned()), ..TestResult::default() }
    }
}

/// The folders in a folder, links to such last. Files may be many, and are not kept.
fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut folders, mut links) = (Vec::new(), Vec::new());
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            folders.push(entry.path());
        } else if kind.is_symlink() && entry.path().is_dir() {
            links.push(entry.path());
        }
    }
    folders.sort_unstable();
    links.sort_unstable();
    folders.append(&mut links);
    Ok(folders)
}

/// Why a marker says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WrongMarker {
    #[error("cannot be read: {}", .0.kind())]
    Unreadable(#[from] io::Error),
    #[error("is not a file")]
    NoFile,
    #[error("is too long to be a marker")]
    TooLong,
    #[error("is damaged: {0}")]
    NotOne(#[from] serde_json::Error),
}

/// Reads a marker, if there is one.
pub(crate) fn read_marker(path: &Path) -> Result<Option<Marker>, WrongMarker> {
    match try_read_marker(path) {
        Err(WrongMarker::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn try_read_marker(path: &Path) -> Result<Marker, WrongMarker> {
    // Whoever opened a pipe would wait for somebody to write.
    let metadata = fs_err::metadata(path)?;
    if !metadata.is_file() {
        return Err(WrongMarker::NoFile);
    }
    if metadata.len() > LONGEST_MARKER {
        return Err(WrongMarker::TooLong);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST_MARKER).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// What is better if there is less of it, whatever else is in the name.
const LESS: &[&str] = &["error", "err", "loss", "mae", "mse", "nll", "perplexity", "ppl", "rmse"];

/// What is better if there is more of it.
const MORE: &[&str] = &[
    "acc",
    "accuracy",
    "ap",
    "auc",
    "auroc",
    "bleu",
    "correct",
    "dice",
    "elbo",
    "f1",
    "fps",
    "hits",
    "iou",
    "likelihood",
    "map",
    "meteor",
    "miou",
    "mrr",
    "ndcg",
    "precision",
    "psnr",
    "r2",
    "recall",
    "return",
    "returns",
    "reward",
    "rewards",
    "rouge",
    "score",
    "scores",
    "ssim",
    "success",
    "throughput",
];

/// Whether of the values of this name the highest is the best. The words in a name are
/// told apart by anything that is no letter or digit, and by capitals.
pub fn is_more_better(name: &str) -> bool {
    let words = words(name);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    !has(LESS) && has(MORE)
}

/// `valAcc@5` has the words `val`, `acc`, `5`; and `valacc`, since there is also `mAP`.
fn words(name: &str) -> Vec<String> {
    let plain = name.split(|c: char| !c.is_alphanumeric());
    let mut words: Vec<String> = plain.map(str::to_lowercase).collect();
    words.push(String::new());
    let mut was_lower = false;
    for c in name.chars() {
        let begins = c.is_uppercase() && was_lower;
        if begins || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

#[cfg(test)]
mod tests;
