//! What an element knows of its tasks, in the place of a store: the file of tasks, and what
//! its earlier lives have written. It writes nothing but what was learned.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use packhorse_engine::LearnedPeaks;
use packhorse_model::{Outcome, Record, RunId, StoredTask, TaskId};
use packhorse_session::{Journal, SessionError};
use rustc_hash::FxHashSet;
use rustix::event::{EventfdFlags, eventfd};

use crate::SlurmError;
use crate::earlier_lives::EarlierLives;
use crate::folder::{ElementSpec, SharedFolder};
use crate::outcome_file::OutcomeFile;
use crate::peaks::PeakBook;
use crate::task_file::{AfterNumbers, ElementTasks};

/// The tasks of an element. See the [module](self).
pub(crate) struct ElementJournal {
    run: RunId,
    folder: SharedFolder,
    element: ElementSpec,
    after: AfterNumbers,
    earlier: Rc<EarlierLives>,
    /// A task that was cut off more often is left.
    requeues: u32,
    /// Those, and tasks that come after them.
    given_up: FxHashSet<u32>,
    peaks: PeakBook,
    /// None: nothing is learned.
    outcomes: Option<Rc<RefCell<OutcomeFile>>>,
    /// Those that are read for the first time, and for the second.
    readers: [Option<TaskCursor>; 2],
    sent: u64,
    /// Never readable: what is sent is safe at once.
    bell: OwnedFd,
}

/// How far tasks have been read.
struct TaskCursor {
    tasks: ElementTasks,
    /// The number of the last that was read.
    last: u32,
}

/// Which of its tasks are read.
#[derive(Clone, Copy)]
enum Which {
    All,
    Plain,
}

impl ElementJournal {
    pub(crate) fn new(
        run: RunId,
        folder: &SharedFolder,
        element: &ElementSpec,
        earlier: &Rc<EarlierLives>,
        requeues: u32,
        outcomes: Option<&Rc<RefCell<OutcomeFile>>>,
    ) -> Result<Self, SlurmError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            run,
            folder: folder.clone(),
            element: element.clone(),
            after: crate::submit::read_after(folder)?,
            earlier: Rc::clone(earlier),
            requeues,
            given_up: FxHashSet::default(),
            peaks: PeakBook::read(folder)?,
            outcomes: outcomes.map(Rc::clone),
            readers: [None, None],
            sent: 0,
            bell: eventfd(0, flags).map_err(std::io::Error::from)?,
        })
    }

    /// The highest number of a task, and how many are left to run. Has to be called before
    /// tasks are read.
    pub(crate) fn look_through(&mut self) -> Result<(u32, u64), SlurmError> {
        let (mut last, mut left) = (0, 0);
        let mut tasks = ElementTasks::open(&self.folder, &self.element)?;
        while let Some(task) = tasks.next_task(&self.after)? {
            last = last.max(task.number);
            let mut before = task.after.iter();
            if self.is_given_up(task.number) || before.any(|before| self.given_up.contains(before))
            {
                self.given_up.insert(task.number);
            }
            left += u64::from(self.is_left(task.number));
        }
        Ok((last, left))
    }

    /// Whether a task was cut off too often.
    fn is_given_up(&self, number: u32) -> bool {
        let cut_off = self.earlier.cut_off.get(&number).copied().unwrap_or(0);
        cut_off > self.requeues && !self.earlier.settled.contains_key(&number)
    }

    /// Whether a task is to run.
    fn is_left(&self, number: u32) -> bool {
        !self.earlier.settled.contains_key(&number) && !self.given_up.contains(&number)
    }

    /// The next tasks with numbers above `after`.
    fn read(
        &mut self,
        which: Which,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, SlurmError> {
        let place = which as usize;
        let mut cursor = match self.readers[place].take() {
            Some(cursor) if cursor.last <= after => cursor,
            _ => TaskCursor { tasks: ElementTasks::open(&self.folder, &self.element)?, last: 0 },
        };
        let mut found = Vec::new();
        while (found.len() as u64) < u64::from(limit) {
            let Some(stored) = self.next_stored(&mut cursor)? else {
                break;
            };
            let number = stored.id.number;
            let is_plain = stored.after.is_empty() && stored.spec.is_plain();
            let is_wanted = matches!(which, Which::All) || is_plain;
            cursor.last = number;
            if number > after && is_wanted && self.is_left(number) {
                found.push(stored);
            }
        }
        self.readers[place] = Some(cursor);
        Ok(found)
    }

    fn next_stored(&self, cursor: &mut TaskCursor) -> Result<Option<StoredTask>, SlurmError> {
        let Some(mut task) = cursor.tasks.next_task(&self.after)? else {
            return Ok(None);
        };
        if let Some(&left) = self.earlier.retries.get(&task.number) {
            task.spec.retries = Some(left);
        }
        let attempts = self.earlier.attempts.get(&task.number);
        Ok(Some(StoredTask {
            id: TaskId::new(self.run, task.number),
            spec: task.spec,
            after: task.after,
            outcome: None,
            attempts: attempts.copied().unwrap_or(task.attempts),
        }))
    }
}

impl AsFd for ElementJournal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Journal for ElementJournal {
    fn send(&mut self, record: Record) -> u64 {
        if let (Record::Peak(peak), Some(outcomes)) = (&record, &self.outcomes) {
            outcomes.borrow_mut().add_peak(peak);
        }
        self.sent += 1;
        self.sent
    }

    fn committed(&self) -> u64 {
        self.sent
    }

    fn trouble(&self) -> Option<String> {
        self.outcomes.as_ref()?.borrow().trouble()
    }

    fn unwritten(&self) -> usize {
        0
    }

    fn heard(&self) {}

    fn fetch(
        &mut self,
        _run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Option<Vec<StoredTask>>, SessionError> {
        let tasks = self.read(Which::Plain, after, limit);
        Ok(tasks.map(Some)?)
    }

    fn unfinished(
        &mut self,
        _run: RunId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredTask>, SessionError> {
        Ok(self.read(Which::All, after, limit)?)
    }

    fn peaks(&mut self, signature: &str) -> Result<LearnedPeaks, SessionError> {
        Ok(self.peaks.of(signature))
    }

    fn outcome(&mut self, task: TaskId) -> Result<Option<Outcome>, SessionError> {
        Ok(self.earlier.settled.get(&task.number).copied())
    }

    fn ends_within(&self, _time: Duration) -> bool {
        true
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn give_up(&mut self) -> String {
        String::new()
    }
}
