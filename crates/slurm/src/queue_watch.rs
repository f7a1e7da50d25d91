//! Asking Slurm now and then how its queue is, from a thread of its own: it may take its
//! time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::SlurmError;
use crate::commands::squeue;
use crate::folder::SubmittedJob;
use crate::queue::QueuedElement;

/// After a change, the queue is asked again so soon. Two such pauses are as long as others need
/// to see what a node has written.
const SHORTEST: Duration = Duration::from_millis(1500);
/// It is asked no less often. All who follow runs ask the same controller.
const LONGEST: Duration = Duration::from_secs(30);

pub(crate) type QueueAnswer = Result<Vec<QueuedElement>, SlurmError>;

/// Readable when there is an answer.
pub(crate) struct QueueWatch {
    questions: Sender<Vec<SubmittedJob>>,
    answers: Receiver<QueueAnswer>,
    bell: Arc<OwnedFd>,
    /// When it is asked next. `None`: it is being asked.
    next: Option<Instant>,
    pause: Duration,
}

impl QueueWatch {
    /// Starts the thread. It is asked at once.
    pub(crate) fn start() -> Result<Self, SlurmError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(std::io::Error::from)?);
        let (questions, asked) = channel::<Vec<SubmittedJob>>();
        let (answer, answers) = channel();
        let ring = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("queue".to_owned());
        thread.spawn(move || {
            for jobs in asked {
                if answer.send(squeue(&jobs)).is_err() {
                    return;
                }
                let _ = rustix::io::write(&*ring, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Self { questions, answers, bell, next: Some(Instant::now()), pause: SHORTEST })
    }

    /// When it is to be asked, unless it is being asked.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Asks, if it is time.
    pub(crate) fn ask(&mut self, now: Instant, jobs: impl FnOnce() -> Vec<SubmittedJob>) {
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            // Without the thread nothing is ever answered, and so nothing changes.
            let _ = self.questions.send(jobs());
        }
    }

    /// Asks soon: something has happened.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.pause = SHORTEST;
        if let Some(next) = self.next {
            self.next = Some(next.min(now + SHORTEST));
        }
    }

    /// What was answered, if anything was.
    pub(crate) fn answer(&mut self, now: Instant) -> Option<QueueAnswer> {
        let _ = rustix::io::read(&*self.bell, &mut [0_u8; 8]);
        match self.answers.try_recv() {
            Ok(answer) => {
                self.next = Some(now + self.pause);
                self.pause = (self.pause * 2).min(LONGEST);
                Some(answer)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

impl AsFd for QueueWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
