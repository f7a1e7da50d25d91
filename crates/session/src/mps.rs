//! Talking to MPS daemons from a thread of its own: every command to one is a process that
//! is waited for, and the loop waits for nobody.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use packhorse_engine::{DeviceInfo, MpsAction, MpsInput};
use packhorse_gpu::GpuConfig;
use packhorse_gpu::mps::{Daemon, DaemonFolder, MpsError, SharedDaemon, release_clients};
use packhorse_model::{DeviceId, TaskId};
use packhorse_proc::{ancestry, explain_start};
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};

/// How long clients have to leave when a daemon is ended.
const QUIT_TIME: Duration = Duration::from_secs(2);

/// What the thread says.
enum Answer {
    /// The answer to a question: for the engine, and if a daemon runs because of it, that
    /// one and its process.
    Input(MpsInput, Option<(Daemon, Option<u32>)>),
    /// A warning, which answers no question.
    Warning(String),
    /// The daemons that nobody else uses have been ended; what went wrong, in words.
    Over(Vec<String>),
}

/// What the thread says, to the loop.
pub(crate) enum MpsAnswer {
    /// For the engine; and the process of a daemon that is to be left alone.
    Input(MpsInput, Option<u32>),
    /// A warning for the user.
    Warning(String),
    /// It is over. What went wrong, in words.
    Over(Vec<String>),
}

/// The thread that talks to daemons.
pub(crate) struct MpsThread {
    /// `None`: there will be no more.
    questions: Option<Sender<MpsAction>>,
    answers: Receiver<Answer>,
    /// What has not been answered, in the order in which it will be.
    unanswered: VecDeque<MpsAction>,
    bell: Arc<OwnedFd>,
    /// The daemons that clients are told of.
    daemons: FxHashMap<DeviceId, Daemon>,
}

impl MpsThread {
    pub(crate) fn start(
        config: GpuConfig,
        state_folder: PathBuf,
        devices: Vec<DeviceInfo>,
    ) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(bell);
        let (questions, asked) = channel();
        let (answering, answers) = channel();
        let service = Service {
            config,
            state_folder,
            devices,
            theirs: None,
            ours: FxHashMap::default(),
            answers: answering,
            bell: Arc::clone(&bell),
        };
        let thread = std::thread::Builder::new().name("mps".to_owned());
        thread.spawn(move || service.serve(&asked)).map_err(explain_start)?;
        Ok(Self {
            questions: Some(questions),
            answers,
            unanswered: VecDeque::new(),
            bell,
            daemons: FxHashMap::default(),
        })
    }

    /// Hands over what is to be done.
    pub(crate) fn ask(&mut self, action: MpsAction) {
        if let Some(questions) = &self.questions {
            self.unanswered.push_back(action.clone());
            if questions.send(action).is_err() {
                // The thread has panicked, and the answer is ours.
                ring(&self.bell);
            }
        }
    }

    /// The next answer, if one has come.
    pub(crate) fn answer(&mut self) -> Option<MpsAnswer> {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut counter);
        let (input, daemon) = match self.answers.try_recv() {
            Ok(Answer::Input(input, daemon)) => {
                self.unanswered.pop_front();
                (input, daemon)
            }
            Ok(Answer::Warning(message)) => return Some(MpsAnswer::Warning(message)),
            Ok(Answer::Over(trouble)) => return Some(MpsAnswer::Over(trouble)),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => return self.answer_of_nobody(),
        };
        let mut pid = None;
        match (&input, daemon) {
            (MpsInput::Ready(device), Some((daemon, process))) => {
                self.daemons.insert(*device, daemon);
                pid = process;
            }
            (MpsInput::Gone(device), _) => {
                self.daemons.remove(device);
            }
            _ => {}
        }
        Some(MpsAnswer::Input(input, pid))
    }

    /// The thread has panicked: whoever waits for an answer gets one all the same.
    fn answer_of_nobody(&mut self) -> Option<MpsAnswer> {
        const REASON: &str = "the thread that talks to MPS has panicked";
        let Some(action) = self.unanswered.pop_front() else {
            let trouble = format!("{REASON}: its daemons may still be there");
            let is_over = self.questions.is_none();
            return is_over.then(|| MpsAnswer::Over(vec![trouble]));
        };
        let input = match action {
            MpsAction::Start(device) => MpsInput::Unavailable { device, reason: REASON.to_owned() },
            // It may still be there, and who uses it already can go on.
            MpsAction::Check(device) => MpsInput::Ready(device),
            MpsAction::Release { task, .. } => MpsInput::Released(task),
        };
        Some(MpsAnswer::Input(input, None))
    }

    pub(crate) fn daemon(&self, device: DeviceId) -> Option<&Daemon> {
        self.daemons.get(&device)
    }

    /// Asks for the end of the daemons that nobody else uses. The answer is the last.
    pub(crate) fn finish(&mut self) {
        self.questions = None;
        // A thread that has panicked does not.
        ring(&self.bell);
    }
}

impl AsFd for MpsThread {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Has the loop ask for answers.
fn ring(bell: &OwnedFd) {
    // It cannot be full: it is emptied whenever answers are asked for.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Whatever becomes of the thread, the loop hears of its end.
impl Drop for Service {
    fn drop(&mut self) {
        let (closed, _) = channel();
        // Before the bell: then there is nothing more to wait for.
        drop(std::mem::replace(&mut self.answers, closed));
        ring(&self.bell);
    }
}

/// What the thread has.
struct Service {
    config: GpuConfig,
    state_folder: PathBuf,
    devices: Vec<DeviceInfo>,
    /// The one that root runs, or that was started by other means.
    theirs: Option<Daemon>,
    ours: FxHashMap<DeviceId, SharedDaemon>,
    answers: Sender<Answer>,
    bell: Arc<OwnedFd>,
}

impl Service {
    fn serve(mut self, questions: &Receiver<MpsAction>) {
        self.theirs = Daemon::theirs(&self.config).unwrap_or_else(|foreign| {
            self.say(Answer::Warning(foreign.to_string()));
            None
        });
        for question in questions {
            let answer = match question {
                MpsAction::Start(device) => self.start(device),
                MpsAction::Check(device) => Answer::Input(self.check(device), None),
                MpsAction::Release { task, leader } => {
                    Answer::Input(self.release(task, leader), None)
                }
            };
            self.say(answer);
        }
        let trouble = self.quit();
        self.say(Answer::Over(trouble));
    }

    fn say(&self, answer: Answer) {
        // The loop may have ended.
        let _ = self.answers.send(answer);
        ring(&self.bell);
    }

    fn start(&mut self, device: DeviceId) -> Answer {
        match self.daemon(device) {
            Ok(daemon) => {
                let pid = daemon.pid();
                Answer::Input(MpsInput::Ready(device), Some((daemon, pid)))
            }
            Err(error) => {
                let reason = error.to_string();
                Answer::Input(MpsInput::Unavailable { device, reason }, None)
            }
        }
    }

    /// The daemon that serves a device, which is started if there is none.
    fn daemon(&mut self, device: DeviceId) -> Result<Daemon, MpsError> {
        if let Some(theirs) = &self.theirs {
            return Ok(theirs.clone());
        }
        let info = self.devices.get(device.0 as usize);
        let key = info.map_or_else(String::new, |info| info.keys.join("+"));
        let folder = DaemonFolder::new(&self.state_folder, &key);
        let shared = SharedDaemon::start(&self.config, folder, &key)?;
        let daemon = shared.daemon().clone();
        self.ours.insert(device, shared);
        Ok(daemon)
    }

    fn check(&mut self, device: DeviceId) -> MpsInput {
        let gone = |shared: &SharedDaemon| !shared.daemon().is_running().unwrap_or(true);
        if self.ours.get(&device).is_some_and(gone) {
            self.ours.remove(&device);
            MpsInput::Gone(device)
        } else {
            MpsInput::Ready(device)
        }
    }

    fn release(&self, task: TaskId, leader: u32) -> MpsInput {
        let ours = self.ours.values().map(SharedDaemon::daemon);
        let daemons: Vec<Daemon> = ours.chain(&self.theirs).cloned().collect();
        release_clients(&daemons, leader, |client| ancestry(client).any(|pid| pid == leader));
        MpsInput::Released(task)
    }

    fn quit(&mut self) -> Vec<String> {
        let mut trouble = Vec::new();
        for (device, shared) in std::mem::take(&mut self.ours) {
            if let Err(error) = shared.quit_if_unused(QUIT_TIME) {
                let info = self.devices.get(device.0 as usize);
                let label = info.map_or("?", |info| &info.label);
                trouble.push(format!("the MPS daemon of GPU {label} is still there: {error}"));
            }
        }
        trouble
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// The next answer, as the loop gets it.
    fn next(thread: &mut MpsThread) -> MpsAnswer {
        loop {
            poll(&mut [PollFd::new(thread, PollFlags::IN)], None).unwrap();
            if let Some(answer) = thread.answer() {
                // There may be more.
                ring(&thread.bell);
                return answer;
            }
        }
    }

    #[test]
    fn a_thread_that_panics_leaves_no_question_without_an_answer() {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let (questions, asked) = channel();
        let (answering, answers) = channel();
        let service = Service {
            config: GpuConfig::default(),
            state_folder: PathBuf::new(),
            devices: Vec::new(),
            theirs: None,
            ours: FxHashMap::default(),
            answers: answering,
            bell: Arc::clone(&bell),
        };
        let panics = std::thread::spawn(move || {
            let service = service;
            let first: Result<MpsAction, _> = asked.recv();
            service.say(Answer::Input(MpsInput::Gone(DeviceId(7)), None));
            let _second: Result<MpsAction, _> = asked.recv();
            panic!("on purpose, after {first:?}");
        });
        let mut thread = MpsThread {
            questions: Some(questions),
            answers,
            unanswered: VecDeque::new(),
            bell,
            daemons: FxHashMap::default(),
        };
        let task = TaskId::new(RunId(1), 1);
        thread.ask(MpsAction::Check(DeviceId(7)));
        thread.ask(MpsAction::Start(DeviceId(0)));
        assert!(matches!(next(&mut thread), MpsAnswer::Input(MpsInput::Gone(DeviceId(7)), None)));
        assert!(matches!(
            next(&mut thread),
            MpsAnswer::Input(MpsInput::Unavailable { device: DeviceId(0), .. }, None)
        ));
        assert!(panics.join().is_err());
        // Those that are asked later, too.
        assert!(thread.answer().is_none());
        thread.ask(MpsAction::Release { task, leader: 1 });
        assert!(matches!(
            next(&mut thread),
            MpsAnswer::Input(MpsInput::Released(released), None) if released == task
        ));
        assert!(thread.answer().is_none());
        thread.finish();
        let MpsAnswer::Over(trouble) = next(&mut thread) else {
            panic!("it is over");
        };
        assert!(trouble[0].contains("has panicked"), "{trouble:?}");
    }
}
