//! Talking to MPS daemons from a thread of its own: every command to one is a process that
//! is waited for, and the loop waits for nobody.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use packhorse_engine::{MpsAction, MpsInput};
use packhorse_gpu::GpuConfig;
use packhorse_gpu::mps::{Daemon, DaemonFolder, SharedDaemon, release_clients};
use packhorse_model::{DeviceId, TaskId};
use packhorse_supervisor::ancestry;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};

/// How long clients have to leave when a daemon is ended.
const QUIT_TIME: Duration = Duration::from_secs(2);

/// What the thread is asked.
enum Question {
    Start { device: DeviceId, key: String },
    Check { device: DeviceId },
    Release { task: TaskId, leader: u32 },
}

/// What it answers.
pub(crate) enum MpsAnswer {
    /// For the engine.
    Input(MpsInput),
    /// A daemon runs: its process is to be left alone, and clients are told its pipes.
    Daemon {
        device: DeviceId,
        daemon: Box<Daemon>,
        pid: Option<u32>,
    },
}

/// The thread that talks to daemons.
pub(crate) struct MpsThread {
    questions: Option<Sender<Question>>,
    answers: Receiver<MpsAnswer>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<Vec<String>>>,
    /// What the driver calls each device.
    keys: Vec<String>,
    /// The daemons that clients are told of.
    daemons: FxHashMap<DeviceId, Daemon>,
}

impl MpsThread {
    /// `keys` are what the driver calls the devices, `labels` what people do.
    pub(crate) fn start(
        config: GpuConfig,
        state_folder: PathBuf,
        keys: Vec<String>,
        labels: Vec<String>,
    ) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(bell);
        let (questions, asked) = channel();
        let (answering, answers) = channel();
        let service = Service {
            config,
            state_folder,
            labels,
            theirs: None,
            ours: FxHashMap::default(),
            answers: answering,
            bell: Arc::clone(&bell),
        };
        let thread = std::thread::Builder::new()
            .name("mps".to_owned())
            .spawn(move || service.serve(&asked))?;
        Ok(Self {
            questions: Some(questions),
            answers,
            bell,
            thread: Some(thread),
            keys,
            daemons: FxHashMap::default(),
        })
    }

    /// Hands over what is to be done.
    pub(crate) fn ask(&self, action: &MpsAction) {
        let question = match *action {
            MpsAction::Start(device) => Question::Start {
                device,
                key: self
                    .keys
                    .get(device.0 as usize)
                    .cloned()
                    .unwrap_or_default(),
            },
            MpsAction::Check(device) => Question::Check { device },
            MpsAction::Release { task, leader } => Question::Release { task, leader },
        };
        if let Some(questions) = &self.questions {
            // The thread lives as long as this does.
            let _ = questions.send(question);
        }
    }

    /// The next answer, if one has come.
    pub(crate) fn answer(&mut self) -> Option<MpsAnswer> {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut counter);
        let answer = self.answers.try_recv().ok()?;
        match &answer {
            MpsAnswer::Daemon { device, daemon, .. } => {
                self.daemons.insert(*device, (**daemon).clone());
            }
            MpsAnswer::Input(MpsInput::Gone(device)) => {
                self.daemons.remove(device);
            }
            MpsAnswer::Input(_) => {}
        }
        Some(answer)
    }

    /// The daemon of a device.
    pub(crate) fn daemon(&self, device: DeviceId) -> Option<&Daemon> {
        self.daemons.get(&device)
    }

    /// Ends the daemons that nobody else uses; what went wrong, in words.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.questions = None;
        let thread = self.thread.take();
        thread.map_or_else(Vec::new, |thread| thread.join().unwrap_or_default())
    }
}

impl AsFd for MpsThread {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// What the thread has.
struct Service {
    config: GpuConfig,
    state_folder: PathBuf,
    labels: Vec<String>,
    /// The one that somebody else runs.
    theirs: Option<Daemon>,
    ours: FxHashMap<DeviceId, SharedDaemon>,
    answers: Sender<MpsAnswer>,
    bell: Arc<OwnedFd>,
}

impl Service {
    fn serve(mut self, questions: &Receiver<Question>) -> Vec<String> {
        self.theirs = Daemon::theirs(&self.config);
        for question in questions {
            match question {
                Question::Start { device, key } => self.start(device, &key),
                Question::Check { device } => self.check(device),
                Question::Release { task, leader } => self.release(task, leader),
            }
        }
        self.quit()
    }

    fn tell(&self, answer: MpsAnswer) {
        // The loop may have ended.
        let _ = self.answers.send(answer);
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    fn start(&mut self, device: DeviceId, key: &str) {
        let daemon = if let Some(theirs) = &self.theirs {
            Ok(theirs.clone())
        } else {
            let folder = DaemonFolder::new(&self.state_folder, key);
            let started = SharedDaemon::start(&self.config, folder, key);
            started.map(|shared| {
                let daemon = shared.daemon().clone();
                self.ours.insert(device, shared);
                daemon
            })
        };
        match daemon {
            Ok(daemon) => {
                let pid = daemon.pid();
                let daemon = Box::new(daemon);
                self.tell(MpsAnswer::Daemon {
                    device,
                    daemon,
                    pid,
                });
                self.tell(MpsAnswer::Input(MpsInput::Ready(device)));
            }
            Err(error) => {
                let reason = error.to_string();
                self.tell(MpsAnswer::Input(MpsInput::Unavailable { device, reason }));
            }
        }
    }

    fn check(&mut self, device: DeviceId) {
        let gone = |shared: &SharedDaemon| !shared.daemon().is_running().unwrap_or(true);
        let input = if self.ours.get(&device).is_some_and(gone) {
            self.ours.remove(&device);
            MpsInput::Gone(device)
        } else {
            MpsInput::Ready(device)
        };
        self.tell(MpsAnswer::Input(input));
    }

    fn release(&self, task: TaskId, leader: u32) {
        let ours = self.ours.values().map(SharedDaemon::daemon);
        let daemons: Vec<Daemon> = ours.chain(&self.theirs).cloned().collect();
        release_clients(&daemons, leader, |client| {
            ancestry(client).any(|pid| pid == leader)
        });
        self.tell(MpsAnswer::Input(MpsInput::Released(task)));
    }

    fn quit(self) -> Vec<String> {
        let mut trouble = Vec::new();
        for (device, shared) in self.ours {
            if let Err(error) = shared.quit_if_unused(QUIT_TIME) {
                let label = self.labels.get(device.0 as usize);
                let label = label.map_or("?", String::as_str);
                trouble.push(format!(
                    "the MPS daemon of GPU {label} is still there: {error}"
                ));
            }
        }
        trouble
    }
}
