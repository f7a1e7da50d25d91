//! Tasks that share a device through MPS.
//!
//! Each device has a control daemon of its own, in a folder below our state
//! folder, so that a server that dies takes no more than one device's tasks with
//! it. It is started when the first task comes to the device. One that somebody
//! else runs is used as it is.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use fs_err::File;
use packhorse_gpu::mps::{CLIENT_VARIABLES, Client, Daemon, Ownership, is_collateral};
use packhorse_gpu::{Config, Percent};
use packhorse_hands::{self as hands, Ended, ancestry};
use packhorse_model::{DeviceId, Granted, Placement};
use packhorse_store::Home;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, flock};

use crate::Mps;
use crate::memory::tail;
use crate::run::Run;

/// How long clients have to leave when a daemon is ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// The folder of a device's daemon. Its name is short, because the sockets in it
/// must have names of less than 108 bytes, folder and all.
pub fn mps_folder(home: &Home, uuid: &str) -> PathBuf {
    let short: String = uuid.chars().take(12).collect();
    home.path().join("mps").join(short)
}

/// The file in the folder of a daemon that was started by hand: no run ends it.
pub const KEPT: &str = "kept";

/// The daemons of a run.
pub(crate) struct Service {
    config: Config,
    home: Home,
    threads: Option<u8>,
    /// The one that somebody else runs.
    theirs: Option<Daemon>,
    ours: FxHashMap<DeviceId, Shared>,
    /// Devices that are shared without, because no daemon could be started.
    without: Vec<DeviceId>,
}

/// A daemon of ours, which other runs of the same person may use as well.
struct Shared {
    daemon: Daemon,
    /// Locked by every run that uses it, for as long as it does: whoever can have
    /// it alone is the last one. The kernel lets go of it when a run dies.
    lock: File,
    /// It was started by hand.
    kept: bool,
}

impl Shared {
    fn start(service: &Service, uuid: &str) -> Result<Self, String> {
        let folder = mps_folder(&service.home, uuid);
        let kept = folder.join(KEPT).exists();
        let lock = fs_err::create_dir_all(&folder)
            .and_then(|()| File::create(folder.join("lock")))
            .map_err(|error| error.to_string())?;
        // Waits at most for one that is just being ended.
        flock(lock.file(), FlockOperation::LockShared).map_err(|error| error.to_string())?;
        let daemon = Daemon::start(&service.config, &folder, uuid);
        let daemon = daemon.map_err(|error| error.to_string())?;
        Ok(Self { daemon, lock, kept })
    }

    /// Whether nobody else uses it or wants it; from then on none can join it until this is
    /// dropped.
    fn is_ours_alone(&self) -> bool {
        !self.kept && flock(self.lock.file(), FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Service {
    fn new(mps: Mps, home: Home) -> Self {
        let config = Config::from_env();
        Self {
            theirs: Daemon::theirs(&config),
            config,
            home,
            threads: mps.threads,
            ours: FxHashMap::default(),
            without: Vec::new(),
        }
    }

    fn daemon(&self, device: DeviceId) -> Option<&Daemon> {
        let ours = self.ours.get(&device).map(|shared| &shared.daemon);
        ours.or(self.theirs.as_ref())
    }

    /// Takes every client that descends from `leader` off its device.
    fn release(&self, leader: u32) {
        let ours = self.ours.values().map(|shared| &shared.daemon);
        for daemon in ours.chain(&self.theirs) {
            for server in daemon.servers().unwrap_or_default() {
                for client in daemon.clients(server).unwrap_or_default() {
                    if ancestry(client).any(|pid| pid == leader) {
                        // If it cannot be, it is killed all the same.
                        let _ = daemon.terminate_client(server, client);
                    }
                }
            }
        }
    }

    /// The part of a device's threads that goes with what was granted.
    fn threads(&self, granted: Granted) -> Option<Percent> {
        let share = u8::try_from(granted.share.0 / 10).ok();
        let share = share.filter(|share| (1..100).contains(share));
        self.threads.or(share).map(Percent)
    }
}

impl Run<'_> {
    /// Prepares for MPS, if it is wanted.
    pub(crate) fn prepare_mps(&mut self) {
        let Some(mps) = self.settings.sharing.mps else {
            return;
        };
        let home = self.settings.home.clone();
        let service = Rc::new(RefCell::new(Service::new(mps, home)));
        let released = Rc::clone(&service);
        // A client that is killed while it computes takes its server with it.
        self.hands
            .before_ending(Box::new(move |leader| released.borrow().release(leader)));
        self.service = Some(service);
    }

    /// Lays into an attempt's environment what it needs to find its daemon,
    /// which is started if need be.
    pub(crate) fn serve(
        &mut self,
        placement: &Placement,
        variables: &mut Vec<(&'static str, String)>,
    ) {
        if self.service.is_none() {
            return;
        }
        let first = variables.len();
        self.serve_through_daemon(placement, variables);
        // What the person has set holds where nothing else is said.
        for name in CLIENT_VARIABLES {
            if let Ok(value) = std::env::var(name)
                && !variables[first..].iter().any(|(told, _)| *told == name)
            {
                variables.push((name, value));
            }
        }
    }

    fn serve_through_daemon(
        &mut self,
        placement: &Placement,
        variables: &mut Vec<(&'static str, String)>,
    ) {
        // A program can talk to one daemon only, so one on several devices goes
        // without.
        let [granted] = placement.devices[..] else {
            return;
        };
        let keys = self.devices.keys(granted.device.0 as usize);
        let [uuid] = &keys[..] else {
            return;
        };
        let Some(service) = self.service.clone() else {
            return;
        };
        self.start_daemon(&mut service.borrow_mut(), granted.device, uuid);
        let service = service.borrow();
        let Some(daemon) = service.daemon(granted.device) else {
            return;
        };
        let memory = match granted.memory.0 {
            0 => &[][..],
            _ => &[granted.memory],
        };
        let client = Client {
            pipes: daemon.pipes(),
            threads: service.threads(granted),
            memory,
        };
        if daemon.ownership() == Ownership::Ours {
            // It knows one device, by another number.
            for (name, value) in variables.iter_mut() {
                if *name == "CUDA_VISIBLE_DEVICES" {
                    value.clone_from(uuid);
                }
            }
        }
        let told = client.environment().into_iter();
        variables.extend(told.map(|(name, value)| (name, value.to_string_lossy().into_owned())));
    }

    fn start_daemon(&mut self, service: &mut Service, device: DeviceId, uuid: &str) {
        if service.daemon(device).is_some() || service.without.contains(&device) {
            return;
        }
        match Shared::start(service, uuid) {
            Ok(shared) => {
                if let Some(pid) = shared.daemon.pid() {
                    self.hands.spare(pid);
                }
                service.ours.insert(device, shared);
            }
            Err(error) => {
                service.without.push(device);
                let label = self.devices.label(device);
                self.warn(None, format!("{label} is shared without MPS: {error}"));
            }
        }
    }

    /// Ends the daemons that nobody else uses.
    pub(crate) fn end_mps(&mut self) {
        let Some(service) = self.service.take() else {
            return;
        };
        let daemons: Vec<(DeviceId, Shared)> = service.borrow_mut().ours.drain().collect();
        for (device, shared) in daemons {
            if !shared.is_ours_alone() {
                continue;
            }
            if let Err(error) = shared.daemon.quit(FAREWELL) {
                let label = self.devices.label(device);
                self.warn(
                    None,
                    format!("the MPS daemon of {label} is still there: {error}"),
                );
            }
        }
    }

    /// Whether the MPS server of one of these devices died under an attempt.
    pub(crate) fn server_died(&self, ended: &Ended) -> Option<String> {
        let service = self.service.as_ref()?;
        if self.settings.output == hands::Output::Inherit {
            return None;
        }
        let written = tail(&self.log_of(ended))?;
        if !is_collateral(&String::from_utf8_lossy(&written)) {
            return None;
        }
        // If the daemon went as well, the next task starts another.
        let gone = |shared: &Shared| !shared.daemon.is_running().unwrap_or(true);
        service.borrow_mut().ours.retain(|_, shared| !gone(shared));
        Some("its MPS server died under it".to_owned())
    }
}
