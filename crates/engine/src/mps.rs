//! Tasks that share a device through MPS.
//!
//! Each device has a control daemon of its own, so that a server that dies takes no more
//! than one device's tasks with it. It is started when the first task comes to the device,
//! and that task waits for it; the others do not.

use std::time::Duration;

use packhorse_core::EndCause;
use packhorse_model::{AttemptEnd, DeviceId, Granted, Outcome, Placement, TaskId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::action::{Action, MpsAction, MpsShare, StartAttempt};
use crate::engine::{Engine, MpsSettings};
use crate::input::MpsInput;

/// How far apart the ends may be of those that a server took with it.
const TOGETHER: Duration = Duration::from_secs(1);

/// What is known of daemons and servers.
#[derive(Debug, Default)]
pub(crate) struct MpsState {
    /// How devices are shared through MPS, if they are.
    settings: Option<MpsSettings>,
    daemons: FxHashMap<DeviceId, DaemonState>,
    /// Attempts that wait for their daemon.
    pub(crate) waiting: Vec<StartAttempt>,
    /// Whether it was said that tasks on several devices go without.
    told_of_several: bool,
    /// Tasks that were alone with a server when it died.
    pub(crate) suspects: FxHashSet<TaskId>,
    /// When a server was last seen to have died, and under whom.
    died: FxHashMap<DeviceId, (Duration, TaskId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonState {
    Starting,
    Ready,
    /// Its server died, and whether it still runs is looked up.
    Unsure,
    /// None could be started: the device is shared without.
    Unavailable,
}

impl MpsState {
    pub(crate) fn new(settings: Option<MpsSettings>) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether devices are shared through MPS.
    pub(crate) fn is_used(&self) -> bool {
        self.settings.is_some()
    }
}

impl MpsSettings {
    /// What an attempt with this part of a device is told.
    fn client(self, granted: Granted) -> MpsShare {
        let share = u8::try_from(granted.share.0 / 10).ok();
        let share = share.filter(|share| (1..100).contains(share));
        MpsShare { device: granted.device, threads: self.threads.or(share), memory: granted.memory }
    }
}

impl Engine {
    /// Starts an attempt, when its daemon is ready if it is to use one.
    pub(crate) fn start_with_mps(&mut self, mut start: StartAttempt) {
        let Some(settings) = self.mps.settings else {
            return self.act(Action::Start(Box::new(start)));
        };
        if let Some(granted) = self.only_device(&start.placement) {
            let device = granted.device;
            match self.mps.daemons.get(&device) {
                Some(DaemonState::Ready) => start.mps = Some(settings.client(granted)),
                Some(DaemonState::Unavailable) => {}
                Some(DaemonState::Starting | DaemonState::Unsure) => {
                    return self.mps.waiting.push(start);
                }
                None => {
                    self.mps.daemons.insert(device, DaemonState::Starting);
                    self.mps.waiting.push(start);
                    return self.act(Action::Mps(MpsAction::Start(device)));
                }
            }
        } else if !start.placement.devices.is_empty()
            && !std::mem::replace(&mut self.mps.told_of_several, true)
        {
            let message = "tasks on several GPUs go without MPS: \
                           a program can talk to one daemon only";
            self.warn(None, message.to_owned());
        }
        self.act(Action::Start(Box::new(start)));
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
        let waiting = &mut self.mps.waiting;
        let Some(place) = waiting.iter().position(|start| start.task == task) else {
            return false;
        };
        let start = waiting.remove(place);
        self.attempt_over(AttemptEnd {
            task,
            attempt: start.attempt,
            outcome: Outcome::Interrupted,
            message: None,
            took: Duration::ZERO,
        });
        true
    }

    pub(crate) fn mps_event(&mut self, input: MpsInput) {
        match input {
            MpsInput::Ready(device) => {
                self.mps.daemons.insert(device, DaemonState::Ready);
            }
            MpsInput::Unavailable { device, reason } => {
                let name = self.device_name(device);
                self.warn(None, format!("{name} is shared without MPS: {reason}"));
                self.mps.daemons.insert(device, DaemonState::Unavailable);
            }
            MpsInput::Gone(device) => {
                self.mps.daemons.remove(&device);
            }
            MpsInput::Released(task) => return self.act(Action::Proceed(task)),
        }
        // Attempts that wait for their daemons.
        for start in std::mem::take(&mut self.mps.waiting) {
            self.start_with_mps(start);
        }
    }

    /// The MPS server of one of these devices died under an attempt: who is to blame.
    /// Whoever was alone with a server is innocent once: somebody may have ended it by
    /// hand.
    pub(crate) fn server_died(
        &mut self,
        end: &AttemptEnd,
        devices: &[DeviceId],
    ) -> Option<(EndCause, String)> {
        self.mps.settings?;
        let now = self.now.monotonic;
        let mut alone = true;
        for &device in devices {
            // If the daemon went as well, the next task starts another; it waits until that
            // is known.
            if let Some(state) = self.mps.daemons.get_mut(&device)
                && *state == DaemonState::Ready
            {
                *state = DaemonState::Unsure;
                self.act(Action::Mps(MpsAction::Check(device)));
            }
            // Those that died with it may have been judged already.
            let before = self.mps.died.insert(device, (now, end.task));
            alone &= before
                .is_none_or(|(at, task)| task == end.task || now.saturating_sub(at) > TOGETHER);
            alone &= !self.is_shared_with_others(end.task, device);
        }
        Some(if alone && !self.mps.suspects.insert(end.task) {
            let note = "its MPS server died under it again, and it was alone there";
            (EndCause::Own, note.to_owned())
        } else {
            let note = "its MPS server died under it";
            (EndCause::Collateral, note.to_owned())
        })
    }

    /// Whether anybody but this task is on a device.
    fn is_shared_with_others(&self, task: TaskId, device: DeviceId) -> bool {
        let mut tasks = self.tasks.iter();
        let ours = tasks.any(|(&other, it)| other != task && it.devices().contains(&device));
        ours || self.has_others_on(device)
    }
}
