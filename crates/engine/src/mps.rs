//! Tasks that share a device through MPS.
//!
//! Each device has a control daemon of its own, so that a server that dies takes no more
//! than one device's tasks with it. It is started when the first task comes to the device,
//! and that task waits for it; the others do not.

use std::time::Duration;

use packhorse_core::EndCause;
use packhorse_model::{DeviceId, Granted, Outcome, Placement, TaskId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::action::{Action, MpsAction, MpsShare, StartAttempt};
use crate::engine::{Engine, MpsSettings};
use crate::input::{AttemptEnd, MpsInput};

/// How far apart the ends may be of those that a server took with it.
const TOGETHER: Duration = Duration::from_secs(1);

/// What is known of daemons and servers.
#[derive(Debug)]
pub(crate) struct MpsState {
    threads: Option<u8>,
    daemons: FxHashMap<DeviceId, DaemonState>,
    /// Attempts that wait for their daemon.
    waiting: Vec<StartAttempt>,
    /// Whether it was said that tasks on several devices go without.
    told_of_several: bool,
    /// Tasks that were alone with a server when it died.
    suspects: FxHashSet<TaskId>,
    /// When a server was last seen to have died, and under whom.
    died: FxHashMap<DeviceId, (Duration, TaskId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonState {
    Starting,
    Ready,
    /// None could be started: the device is shared without.
    Unavailable,
}

impl MpsState {
    pub(crate) fn new(settings: MpsSettings) -> Self {
        Self {
            threads: settings.threads,
            daemons: FxHashMap::default(),
            waiting: Vec::new(),
            told_of_several: false,
            suspects: FxHashSet::default(),
            died: FxHashMap::default(),
        }
    }

    /// What an attempt with this part of a device is told.
    fn client(&self, granted: Granted) -> MpsShare {
        let share = u8::try_from(granted.share.0 / 10).ok();
        let share = share.filter(|share| (1..100).contains(share));
        MpsShare {
            device: granted.device,
            threads: self.threads.or(share),
            memory: granted.memory,
        }
    }
}

impl Engine {
    /// Starts an attempt, when its daemon is ready if it is to use one.
    pub(crate) fn start_with_mps(&mut self, mut start: StartAttempt) {
        let only = self.only_device(&start.placement);
        let Some(mps) = &mut self.mps else {
            return self.act(Action::Start(Box::new(start)));
        };
        let Some(granted) = only else {
            let several = !start.placement.devices.is_empty();
            if several && !std::mem::replace(&mut mps.told_of_several, true) {
                let message = "tasks on several GPUs go without MPS: \
                               a program can talk to one daemon only";
                self.warn(None, message.to_owned());
            }
            return self.act(Action::Start(Box::new(start)));
        };
        let device = granted.device;
        match mps.daemons.get(&device) {
            Some(DaemonState::Ready) => {
                start.mps = Some(mps.client(granted));
                self.act(Action::Start(Box::new(start)));
            }
            Some(DaemonState::Unavailable) => self.act(Action::Start(Box::new(start))),
            Some(DaemonState::Starting) => mps.waiting.push(start),
            None => {
                mps.daemons.insert(device, DaemonState::Starting);
                mps.waiting.push(start);
                self.act(Action::Mps(MpsAction::Start { device }));
            }
        }
    }

    /// What is granted, if it is of one device and not of a group.
    fn only_device(&self, placement: &Placement) -> Option<Granted> {
        let [granted] = placement.devices[..] else {
            return None;
        };
        let info = self.devices.get(granted.device.0 as usize)?;
        (info.keys.len() == 1).then_some(granted)
    }

    /// Takes back an attempt that still waits for its daemon; whether there was one.
    pub(crate) fn stop_before_start(&mut self, task: TaskId) -> bool {
        let Some(mps) = &mut self.mps else {
            return false;
        };
        let Some(place) = mps.waiting.iter().position(|start| start.task == task) else {
            return false;
        };
        let start = mps.waiting.remove(place);
        self.attempt_over(AttemptEnd {
            task,
            attempt: start.attempt,
            outcome: Outcome::Interrupted,
            message: None,
            took: Duration::ZERO,
        });
        true
    }

    /// A task is over.
    pub(crate) fn forget_suspect(&mut self, task: TaskId) {
        if let Some(mps) = &mut self.mps {
            mps.suspects.remove(&task);
        }
    }

    /// Whether an attempt still waits for its daemon.
    pub(crate) fn waits_for_daemon(&self) -> bool {
        let mps = self.mps.as_ref();
        mps.is_some_and(|mps| !mps.waiting.is_empty())
    }

    pub(crate) fn mps_event(&mut self, input: MpsInput) {
        match input {
            MpsInput::Ready { device } => self.daemon_settled(device, DaemonState::Ready),
            MpsInput::Unavailable { device, reason } => {
                let name = self.device_name(device);
                self.warn(None, format!("{name} is shared without MPS: {reason}"));
                self.daemon_settled(device, DaemonState::Unavailable);
            }
            MpsInput::Gone { device } => {
                if let Some(mps) = &mut self.mps
                    && mps.daemons.get(&device) == Some(&DaemonState::Ready)
                {
                    mps.daemons.remove(&device);
                }
            }
            MpsInput::Released { task } => self.act(Action::Proceed { task }),
        }
    }

    fn daemon_settled(&mut self, device: DeviceId, state: DaemonState) {
        let Some(mps) = &mut self.mps else {
            return;
        };
        mps.daemons.insert(device, state);
        let waiting = std::mem::take(&mut mps.waiting);
        for start in waiting {
            self.start_with_mps(start);
        }
    }

    /// An attempt waits to be ended: a client that is killed while it computes would take
    /// its server with it.
    pub(crate) fn attempt_ending(&mut self, task: TaskId, leader: u32) {
        self.act(Action::Mps(MpsAction::Release { task, leader }));
    }

    /// Whether attempts are asked before they are ended.
    pub fn holds_ends(&self) -> bool {
        self.mps.is_some()
    }

    /// The MPS server of one of these devices died under an attempt: who is to blame.
    /// Whoever was alone with a server is innocent once: somebody may have ended it by
    /// hand.
    pub(crate) fn server_died(
        &mut self,
        end: &AttemptEnd,
        devices: &[DeviceId],
    ) -> Option<(EndCause, String)> {
        let company: Vec<bool> = devices
            .iter()
            .map(|&device| self.has_company(end.task, device))
            .collect();
        let now = self.now.monotonic;
        for &device in devices {
            // If the daemon went as well, the next task starts another.
            self.act(Action::Mps(MpsAction::Check { device }));
        }
        let mps = self.mps.as_mut()?;
        let mut alone = true;
        for (&device, company) in devices.iter().zip(company) {
            // Those that died with it may have been judged already.
            let before = mps.died.insert(device, (now, end.task));
            alone &= before
                .is_none_or(|(at, task)| task == end.task || now.saturating_sub(at) > TOGETHER);
            alone &= !company;
        }
        Some(if alone && !mps.suspects.insert(end.task) {
            let note = "its MPS server died under it again, and it was alone there";
            (EndCause::Own, note.to_owned())
        } else {
            (
                EndCause::Collateral,
                "its MPS server died under it".to_owned(),
            )
        })
    }

    /// Whether anybody but this task is on a device.
    fn has_company(&self, task: TaskId, device: DeviceId) -> bool {
        let mut tasks = self.tasks.iter();
        let ours = tasks.any(|(&other, it)| other != task && it.devices().contains(&device));
        ours || self.other_runs.held(device.0 as usize).attempts > 0
    }
}
