//! Talking to MPS daemons from a thread of its own: every command to one is a process that
//! is waited for, and the loop waits for nobody.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use packhorse_engine::{DeviceInfo, MpsAction, MpsInput};
use packhorse_gpu::GpuConfig;
use packhorse_gpu::mps::{Daemon, DaemonFolder, MpsError, SharedDaemon, release_clients};
use packhorse_model::{DeviceId, TaskId};
use packhorse_proc::ancestry;
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};

/// How long clients have to leave when a daemon is ended.
const QUIT_TIME: Duration = Duration::from_secs(2);

/// The answer to a question: for the engine, and if a daemon runs because of it, that one
/// and its process.
type Answer = (MpsInput, Option<(Daemon, Option<u32>)>);

/// The thread that talks to daemons.
pub(crate) struct MpsThread {
    questions: Sender<MpsAction>,
    answers: Receiver<Answer>,
    bell: Arc<OwnedFd>,
    thread: JoinHandle<Vec<String>>,
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
        let thread = std::thread::Builder::new()
            .name("mps".to_owned())
            .spawn(move || service.serve(&asked))?;
        Ok(Self {
            questions,
            answers,
            bell,
            thread,
            daemons: FxHashMap::default(),
        })
    }

    /// Hands over what is to be done.
    pub(crate) fn ask(&self, action: MpsAction) {
        // The thread lives as long as this does.
        let _ = self.questions.send(action);
    }

    /// The next answer, if one has come, and the process of a daemon that is to be left
    /// alone.
    pub(crate) fn answer(&mut self) -> Option<(MpsInput, Option<u32>)> {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut counter);
        let (input, daemon) = self.answers.try_recv().ok()?;
        match (&input, daemon) {
            (MpsInput::Ready(device), Some((daemon, pid))) => {
                self.daemons.insert(*device, daemon);
                return Some((input, pid));
            }
            (MpsInput::Gone(device), _) => {
                self.daemons.remove(device);
            }
            _ => {}
        }
        Some((input, None))
    }

    /// The daemon of a device.
    pub(crate) fn daemon(&self, device: DeviceId) -> Option<&Daemon> {
        self.daemons.get(&device)
    }

    /// Ends the daemons that nobody else uses; what went wrong, in words.
    pub(crate) fn finish(self) -> Vec<String> {
        drop(self.questions);
        self.thread.join().unwrap_or_default()
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
    devices: Vec<DeviceInfo>,
    /// The one that somebody else runs.
    theirs: Option<Daemon>,
    ours: FxHashMap<DeviceId, SharedDaemon>,
    answers: Sender<Answer>,
    bell: Arc<OwnedFd>,
}

impl Service {
    fn serve(mut self, questions: &Receiver<MpsAction>) -> Vec<String> {
        self.theirs = Daemon::theirs(&self.config);
        for question in questions {
            let answer = match question {
                MpsAction::Start(device) => self.start(device),
                MpsAction::Check(device) => (self.check(device), None),
                MpsAction::Release { task, leader } => (self.release(task, leader), None),
            };
            // The loop may have ended.
            let _ = self.answers.send(answer);
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
        self.quit()
    }

    fn start(&mut self, device: DeviceId) -> Answer {
        match self.daemon(device) {
            Ok(daemon) => {
                let pid = daemon.pid();
                (MpsInput::Ready(device), Some((daemon, pid)))
            }
            Err(error) => {
                let reason = error.to_string();
                (MpsInput::Unavailable { device, reason }, None)
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
        release_clients(&daemons, leader, |client| {
            ancestry(client).any(|pid| pid == leader)
        });
        MpsInput::Released(task)
    }

    fn quit(self) -> Vec<String> {
        let mut trouble = Vec::new();
        for (device, shared) in self.ours {
            if let Err(error) = shared.quit_if_unused(QUIT_TIME) {
                let info = self.devices.get(device.0 as usize);
                let label = info.map_or("?", |info| &info.label);
                trouble.push(format!(
                    "the MPS daemon of GPU {label} is still there: {error}"
                ));
            }
        }
        trouble
    }
}
