//! What earlier lives of an element have written: those that a dead node, a preemption or the
//! end of its time cut off.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use fs_err::File;
use packhorse_model::{Command, Event, EventKind, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::SlurmError;
use crate::folder::SharedFolder;

/// So many times are remembered: more would tell no more.
const TIMES: usize = 1000;
/// Shorter ones do not matter.
const SHORT: Duration = Duration::from_secs(1);

/// What became of an element's tasks so far.
#[derive(Debug, Default)]
pub(crate) struct EarlierLives {
    /// How many there were.
    pub(crate) lives: u32,
    /// How many of the last ones in a row have told nothing of any task: a task that takes its
    /// node with it at once is never seen to start.
    pub(crate) silent: u32,
    /// Tasks that are over, and how they came out.
    pub(crate) settled: FxHashMap<u32, Outcome>,
    /// The last attempt of each task that has had one.
    pub(crate) attempts: FxHashMap<u32, u32>,
    /// How many retries a task has left that has failed.
    pub(crate) retries: FxHashMap<u32, u32>,
    /// How often a task was cut off.
    pub(crate) cut_off: FxHashMap<u32, u32>,
    /// How long tasks took.
    pub(crate) times: Vec<(Arc<Command>, Duration)>,
    /// Whether the last life has ended a task, or had begun one when it was cut off.
    pub(crate) came_on: bool,
    running: FxHashSet<u32>,
}

impl EarlierLives {
    /// Reads what the earlier lives of an element have written.
    pub(crate) fn read(folder: &SharedFolder, element: u32) -> Result<Self, SlurmError> {
        let mut earlier = Self::default();
        loop {
            let before = earlier.steps();
            let path = folder.outcome_file(element, earlier.lives + 1);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(earlier),
                Err(error) => return Err(error.into()),
            };
            let (mut file, mut line) = (BufReader::new(file), Vec::new());
            earlier.silent += 1;
            loop {
                line.clear();
                file.read_until(b'\n', &mut line)?;
                // A torn last line is a line that was not written.
                if line.last() != Some(&b'\n') {
                    break;
                }
                // What cannot be read did not happen.
                let events = whole_lines(&line).map(serde_json::from_slice::<Event>);
                events.flatten().for_each(|event| earlier.note(event));
            }
            earlier.end_life();
            earlier.came_on = earlier.steps() > before;
        }
    }

    /// Grows with every task that is over, and with every attempt that was cut off.
    fn steps(&self) -> u64 {
        let cut_off = self.cut_off.values().copied().map(u64::from);
        self.settled.len() as u64 + cut_off.sum::<u64>()
    }

    fn note(&mut self, event: Event) {
        let is_of_task = matches!(
            event.kind,
            EventKind::Started { .. } | EventKind::Retrying { .. } | EventKind::Finished(_)
        );
        if is_of_task {
            self.silent = 0;
        }
        match event.kind {
            EventKind::Started { task, attempt, .. } => {
                self.running.insert(task.number);
                let last = self.attempts.entry(task.number).or_default();
                *last = attempt.max(*last);
            }
            EventKind::Retrying { task, left, .. } => {
                self.running.remove(&task.number);
                self.retries.insert(task.number, left);
            }
            EventKind::Finished(result) => {
                let number = result.task.number;
                if result.outcome.is_final() {
                    self.running.remove(&number);
                    self.settled.insert(number, result.outcome);
                } else if self.running.remove(&number) {
                    *self.cut_off.entry(number).or_default() += 1;
                }
                if result.outcome.is_success() && result.took >= SHORT && self.times.len() < TIMES {
                    self.times.push((result.command, result.took));
                }
            }
            _ => {}
        }
    }

    /// What still ran was cut off without a word.
    fn end_life(&mut self) {
        self.lives += 1;
        for number in self.running.drain() {
            *self.cut_off.entry(number).or_default() += 1;
        }
    }
}

/// The whole lines of a text. A torn last line is a line that was not written. Where a node
/// that died has not written, a network file system shows zeros: what is behind them is a line
/// of its own.
pub(crate) fn whole_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = text.iter().rposition(|&byte| byte == b'\n');
    let lines = text[..end.map_or(0, |end| end + 1)].split(|byte| matches!(byte, b'\n' | 0));
    lines.filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    fn event(json: &str) -> String {
        format!("{{\"time\":1.0,{json}}}\n")
    }

    fn started(task: u32, attempt: u32) -> String {
        event(&format!(
            r#""event":"started","task":"3.{task}","attempt":{attempt},"command":"a","gpus":[]"#
        ))
    }

    fn finished(task: u32, outcome: &str) -> String {
        event(&format!(
            r#""event":"finished","task":"3.{task}","attempts":1,"outcome":"{outcome}","detail":null,
            "command":"a","message":null,"seconds":5.0,"log":null"#
        ))
        .replace('\n', "")
            + "\n"
    }

    #[test]
    fn a_later_life_knows_what_is_done_and_what_was_cut_off() {
        let parent = tempfile::tempdir().unwrap();
        let folder = SharedFolder::create(parent.path()).unwrap();
        let retrying = event(
            r#""event":"retrying","task":"3.2","attempt":1,"outcome":"failed","detail":1,"note":null,"left":4"#,
        );
        let torn = finished(4, "succeeded");
        let first = [
            started(1, 1),
            finished(1, "succeeded"),
            started(2, 1),
            retrying,
            started(2, 2),
            started(3, 1),
            finished(3, "interrupted"),
            // What was written between is lost.
            started(5, 1)[..9].to_owned() + &"\0".repeat(100) + &finished(5, "succeeded"),
            started(4, 1),
            torn[..torn.len() - 5].to_owned(),
        ];
        fs::write(folder.outcome_file(7, 1), first.concat()).unwrap();
        fs::write(folder.outcome_file(7, 2), started(3, 2)).unwrap();
        let earlier = EarlierLives::read(&folder, 7).unwrap();
        assert_eq!((earlier.lives, earlier.silent), (2, 0));
        assert_eq!(
            earlier.settled,
            FxHashMap::from_iter([(1, Outcome::Succeeded), (5, Outcome::Succeeded)])
        );
        assert_eq!(earlier.cut_off, FxHashMap::from_iter([(2, 1), (3, 2), (4, 1)]));
        assert_eq!(earlier.retries, FxHashMap::from_iter([(2, 4)]));
        assert_eq!(earlier.attempts[&2], 2);
        assert_eq!(earlier.times.len(), 2);
        assert!(earlier.came_on);
        assert_eq!(EarlierLives::read(&folder, 8).unwrap().lives, 0);
        let warning = event(r#""event":"warning","task":null,"message":"slow""#);
        fs::write(folder.outcome_file(7, 3), "").unwrap();
        fs::write(folder.outcome_file(7, 4), warning).unwrap();
        // Lives that have begun nothing lead nowhere.
        let earlier = EarlierLives::read(&folder, 7).unwrap();
        assert_eq!((earlier.lives, earlier.silent), (4, 2));
        assert!(!earlier.came_on);
    }
}
