//! How values of the model are kept in columns, and read back.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use packhorse_model::{Bytes, Command, Outcome, PeakOrigin, RunId, TaskId};
use serde::Serialize;

/// Outcomes as numbers. All take one byte in a row, so that a waiting task's
/// row is overwritten where it stands when the task ends (0 and 1 would take
/// none, and the row would have to move). What `resume` runs again comes
/// first.
pub(crate) mod code {
    pub(crate) const WAITING: i64 = 2;
    pub(crate) const INTERRUPTED: i64 = 3;
    pub(crate) const SUCCEEDED: i64 = 4;
    pub(crate) const FAILED: i64 = 5;
    /// The highest of those that are no success, as `FAILED` is the lowest.
    pub(crate) const LAST: i64 = 9;
}

/// The outcome's number; [`Outcome::detail`] goes into a column of its own.
pub(crate) const fn outcome_code(outcome: Outcome) -> i64 {
    match outcome {
        Outcome::Interrupted => code::INTERRUPTED,
        Outcome::Succeeded => code::SUCCEEDED,
        Outcome::Failed { .. } => code::FAILED,
        Outcome::Killed { .. } => 6,
        Outcome::TimedOut => 7,
        Outcome::NotStarted => 8,
        Outcome::Skipped => code::LAST,
    }
}

/// The inverse of [`outcome_code`]. `None` for a task that waits.
pub(crate) fn outcome(code: i64, detail: Option<i32>) -> Option<Outcome> {
    let detail = detail.unwrap_or_default();
    let mut outcomes = [
        Outcome::Interrupted,
        Outcome::Succeeded,
        Outcome::Failed { code: detail },
        Outcome::Killed { signal: detail },
        Outcome::TimedOut,
        Outcome::NotStarted,
        Outcome::Skipped,
    ]
    .into_iter();
    outcomes.find(|outcome| outcome_code(*outcome) == code)
}

/// A task's key: the run in the upper half, the number in the lower, so that
/// a run's tasks lie together and in order.
pub(crate) const fn task_key(task: TaskId) -> i64 {
    (task.run.0 as i64) << 32 | task.number as i64
}

/// The keys of a run's tasks, first and last.
pub(crate) const fn task_keys(run: RunId) -> (i64, i64) {
    (task_key(TaskId::new(run, 0)), task_key(TaskId::new(run, u32::MAX)))
}

/// The inverse of [`task_key`].
pub(crate) const fn task_id(key: i64) -> TaskId {
    let key = key.cast_unsigned();
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a key")]
    TaskId::new(RunId((key >> 32) as u32), key as u32)
}

/// The command's bytes, and whether they are words.
pub(crate) fn command_bytes(command: &Command) -> (bool, Cow<'_, [u8]>) {
    match command {
        Command::Line(line) => (false, Cow::Borrowed(line)),
        Command::Words(words) => (true, Cow::Owned(join(words.iter().map(Vec::as_slice)))),
    }
}

/// The inverse of [`command_bytes`].
pub(crate) fn command(words: bool, bytes: &[u8]) -> Command {
    if words {
        Command::Words(split(bytes).map(<[u8]>::to_vec).collect())
    } else {
        Command::Line(bytes.to_vec())
    }
}

/// The words of a command line in one column.
pub(crate) fn argv_bytes(argv: &[OsString]) -> Vec<u8> {
    join(argv.iter().map(|word| word.as_bytes()))
}

/// The inverse of [`argv_bytes`].
pub(crate) fn argv(bytes: &[u8]) -> Vec<OsString> {
    split(bytes).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// A path of any bytes.
pub(crate) fn path(bytes: Vec<u8>) -> std::path::PathBuf {
    OsString::from_vec(bytes).into()
}

/// Every word with a NUL after it (not between them: no word at all and one
/// empty word are different things).
fn join<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(word);
        bytes.push(0);
    }
    bytes
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|&byte| byte == 0).map(|word| word.strip_suffix(&[0]).unwrap_or(word))
}

/// An amount of memory. There is none that a column could not hold.
pub(crate) fn bytes_column(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

/// The inverse of [`bytes_column`].
pub(crate) fn bytes(column: i64) -> Bytes {
    Bytes(u64::try_from(column).unwrap_or(0))
}

/// A length of time in microseconds.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The inverse of [`micros`].
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Where a peak comes from, as a number.
pub(crate) const fn origin_code(origin: PeakOrigin) -> i64 {
    match origin {
        PeakOrigin::Run => 1,
        PeakOrigin::Probe => 2,
        PeakOrigin::OutOfMemory => 3,
        PeakOrigin::GrewLate => 4,
        PeakOrigin::Growing => 5,
    }
}

/// The inverse of [`origin_code`].
pub(crate) const fn origin(code: i64) -> PeakOrigin {
    match code {
        2 => PeakOrigin::Probe,
        3 => PeakOrigin::OutOfMemory,
        4 => PeakOrigin::GrewLate,
        5 => PeakOrigin::Growing,
        _ => PeakOrigin::Run,
    }
}

/// A specification as JSON.
pub(crate) fn json(spec: &impl Serialize) -> String {
    serde_json::to_string(spec).expect("all keys in it are text")
}

/// Task numbers in four bytes each; nothing for none.
pub(crate) fn after_bytes(after: &[u32]) -> Option<Vec<u8>> {
    let bytes = || after.iter().flat_map(|number| number.to_le_bytes());
    (!after.is_empty()).then(|| bytes().collect())
}

/// The inverse of [`after_bytes`].
pub(crate) fn after(bytes: &[u8]) -> Vec<u32> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().copied().map(u32::from_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_reads_back_and_takes_one_byte() {
        for value in [
            Outcome::Interrupted,
            Outcome::Succeeded,
            Outcome::Failed { code: 255 },
            Outcome::Killed { signal: 9 },
            Outcome::TimedOut,
            Outcome::NotStarted,
            Outcome::Skipped,
        ] {
            let code = outcome_code(value);
            assert!((code::INTERRUPTED..=code::LAST).contains(&code));
            assert_eq!(outcome(code, value.detail()), Some(value));
            assert_eq!(code <= code::INTERRUPTED, !value.is_final(), "{value:?}");
        }
        assert_eq!(outcome(code::WAITING, None), None);
    }

    #[test]
    fn commands_keep_every_byte_and_every_empty_word() {
        let words = |words: &[&[u8]]| Command::Words(words.iter().map(|w| w.to_vec()).collect());
        for value in [
            Command::Line(b"echo \xff\0\n'".to_vec()),
            Command::Line(vec![]),
            words(&[]),
            words(&[b""]),
            words(&[b"", b"a b", b"", b"\xfe\xff", b""]),
        ] {
            let (kind, bytes) = command_bytes(&value);
            assert_eq!(command(kind, &bytes), value);
        }
    }

    #[test]
    fn keys_sort_as_tasks_do() {
        let ids = [(1, 1), (1, u32::MAX), (2, 0), (i32::MAX.cast_unsigned(), 7)];
        let ids = ids.map(|(run, number)| TaskId::new(RunId(run), number));
        let keys = ids.map(task_key);
        assert!(keys.is_sorted());
        assert_eq!(keys.map(task_id), ids);
    }
}
