//! Tasks that share a device through MPS.
//!
//! Each device has a control daemon of its own, in a folder below our state
//! folder, so that a server that dies takes no more than one device's tasks with
//! it. It is started when the first task comes to the device. One that somebody
//! else runs is used as it is.

use std::cell::RefCell;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fs_err::File;
use packhorse_core::EndCause;
use packhorse_gpu::mps::{
    CLIENT_VARIABLES, Client, Daemon, Ownership, PIPE_VARIABLE, is_collateral,
};
use packhorse_gpu::{Config, Percent};
use packhorse_hands::{self as hands, Ended, ancestry};
use packhorse_model::{DeviceId, Granted, Placement, TaskId};
use packhorse_store::Home;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{FlockOperation, flock};

use crate::Mps;
use crate::memory::tail;
use crate::run::Run;

/// How long clients have to leave when a daemon is ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// How far apart the ends of those may be that a server took with it.
const TOGETHER: Duration = Duration::from_secs(1);

/// The folder of a device's daemon. Its name is short, because the sockets in it
/// must have names of less than 108 bytes, folder and all.
pub fn mps_folder(home: &Home, uuid: &str) -> PathBuf {
    home.path().join("mps").join(short_name(uuid))
}

fn short_name(uuid: &str) -> String {
    let first = |text: &str, count| text.chars().take(count).collect::<String>();
    // Drivers before R470 name an instance by its GPU and two numbers.
    let old = uuid.strip_prefix("MIG-GPU-");
    match old.and_then(|name| name.split_once('/')) {
        Some((gpu, instance)) => format!("{}-{}", first(gpu, 8), instance.replace('/', "-")),
        None => first(uuid, 12),
    }
}

/// The file in the folder of a daemon that was started by hand: no run ends it.
pub const KEPT: &str = "kept";

/// The file in a daemon's folder that every run which uses it holds locked.
const LOCK: &str = "lock";

/// The right to use the daemon in this folder: none ends it until this is dropped.
/// Waits at most for one that is just being ended.
pub fn mps_shared(folder: &Path) -> io::Result<File> {
    fs_err::create_dir_all(folder)?;
    let lock = File::create(folder.join(LOCK))?;
    flock(lock.file(), FlockOperation::LockShared)?;
    Ok(lock)
}

/// The right to end the daemon in this folder: until it is dropped no run can join.
/// Nothing, if one uses it.
pub fn mps_alone(folder: &Path) -> io::Result<Option<File>> {
    let lock = File::create(folder.join(LOCK))?;
    match flock(lock.file(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

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
    /// Whether it was said that tasks on several devices go without.
    told_of_several: bool,
    /// Tasks that were alone with a server when it died.
    suspects: FxHashSet<u32>,
    /// When a server was last seen to have died, and under whom.
    died: FxHashMap<DeviceId, (Instant, TaskId)>,
}

/// A daemon of ours, which other runs of the same person may use as well.
struct Shared {
    daemon: Daemon,
    /// Locked by every run that uses it, for as long as it does: whoever can have
    /// it alone is the last one. The kernel lets go of it when a run dies.
    lock: File,
    folder: PathBuf,
}

impl Shared {
    fn start(service: &Service, uuid: &str) -> Result<Self, String> {
        let folder = mps_folder(&service.home, uuid);
        let lock = mps_shared(&folder).map_err(|error| error.to_string())?;
        let ours = Daemon::ours(&service.config, &folder);
        if folder.join(KEPT).exists() && !ours.is_running().unwrap_or(true) {
            // The one that was started by hand is gone, by a reboot perhaps.
            let _ = fs_err::remove_file(folder.join(KEPT));
        }
        let daemon = Daemon::start(&service.config, &folder, uuid);
        let daemon = daemon.map_err(|error| error.to_string())?;
        Ok(Self {
            daemon,
            lock,
            folder,
        })
    }

    /// Whether nobody else uses it or wants it; from then on none can join it until this is
    /// dropped.
    fn is_ours_alone(&self) -> bool {
        flock(self.lock.file(), FlockOperation::NonBlockingLockExclusive).is_ok()
            && !self.folder.join(KEPT).exists()
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
            told_of_several: false,
            suspects: FxHashSet::default(),
            died: FxHashMap::default(),
        }
    }

    fn daemon(&self, device: DeviceId) -> Option<&Daemon> {
        let ours = self.ours.get(&device).map(|shared| &shared.daemon);
        ours.or(self.theirs.as_ref())
    }

    /// Takes every client that descends from `leader` off its device.
    fn release(&self, leader: u32) {
        let told = told(leader);
        let ours = self.ours.values().map(|shared| &shared.daemon);
        let daemons = ours.chain(&self.theirs);
        // Each question is a process of its own, and there may be many attempts to
        // end: one that was told of no daemon has no clients, and one that was told
        // of one has none elsewhere.
        for daemon in daemons.filter(|daemon| told.may_be_at(daemon)) {
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

/// What the leader of an attempt was told of daemons.
enum Told {
    /// The pipes of this one.
    Pipes(Vec<u8>),
    /// Nothing.
    Nothing,
    /// It has overwritten its environment, or put itself under another user.
    Unknown,
}

impl Told {
    fn may_be_at(&self, daemon: &Daemon) -> bool {
        match self {
            Self::Pipes(pipes) => daemon.pipes().as_os_str().as_bytes() == pipes,
            Self::Nothing => false,
            Self::Unknown => true,
        }
    }
}

/// What is in the environment with which an attempt's leader was started.
fn told(leader: u32) -> Told {
    let environment = fs_err::read(format!("/proc/{leader}/environ")).unwrap_or_default();
    let value = |name: &str| {
        let mut variables = environment.split(|&byte| byte == 0);
        variables.find_map(|variable| {
            let rest = variable.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=").map(<[u8]>::to_vec)
        })
    };
    match value(PIPE_VARIABLE) {
        Some(pipes) => Told::Pipes(pipes),
        // Every attempt is told who it is.
        None if value("PACKHORSE_TASK").is_some() => Told::Nothing,
        None => Told::Unknown,
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
        let Some(service) = self.service.clone() else {
            return;
        };
        let Some((granted, uuid)) = self.only_device(placement) else {
            if !placement.devices.is_empty() {
                self.tell_of_several(&mut service.borrow_mut());
            }
            return;
        };
        self.start_daemon(&mut service.borrow_mut(), granted.device, &uuid);
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
                    value.clone_from(&uuid);
                }
            }
        }
        let told = client.environment().into_iter();
        variables.extend(told.map(|(name, value)| (name, value.to_string_lossy().into_owned())));
    }

    /// What is granted, if it is of one device and no group of them.
    fn only_device(&self, placement: &Placement) -> Option<(Granted, String)> {
        let [granted] = placement.devices[..] else {
            return None;
        };
        let mut keys = self.devices.keys(granted.device.0 as usize).into_iter();
        let key = keys.next()?;
        keys.next().is_none().then_some((granted, key))
    }

    /// Says, once, that a program can talk to one daemon only, so that one on
    /// several devices goes without.
    fn tell_of_several(&mut self, service: &mut Service) {
        if !std::mem::replace(&mut service.told_of_several, true) {
            let message = "tasks on several GPUs go without MPS: \
                           a program can talk to one daemon only";
            self.warn(None, message.to_owned());
        }
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

    /// Whether the MPS server of one of these devices died under an attempt, and
    /// who is to blame. Whoever was alone with a server is innocent once: somebody
    /// may have ended it by hand.
    pub(crate) fn server_died(
        &self,
        ended: &Ended,
        devices: &[DeviceId],
    ) -> Option<(EndCause, String)> {
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
        let mut service = service.borrow_mut();
        service.ours.retain(|_, shared| !gone(shared));
        let mut alone = true;
        for &device in devices {
            // Those that died with it may have been judged already.
            let before = service.died.insert(device, (Instant::now(), ended.task));
            alone &= before.is_none_or(|(at, task)| task == ended.task || at.elapsed() > TOGETHER);
            alone &= !self.has_company(ended.task, device);
        }
        Some(if alone && !service.suspects.insert(ended.task.number) {
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
        let ours = self.state.running().into_iter().any(|running| {
            let mut places = running.placement.devices.iter();
            running.task != task && places.any(|place| place.device == device)
        });
        ours || self.neighbours.held(device.0 as usize).attempts > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_folder_of_its_own() {
        let gpu = "8f2c1a9d-77e0-4c1b-9a11-0123456789ab";
        let names = [
            format!("GPU-{gpu}"),
            format!("MIG-{gpu}"),
            format!("MIG-GPU-{gpu}/1/0"),
            format!("MIG-GPU-{gpu}/2/0"),
        ];
        let short = names.map(|name| short_name(&name));
        let expected = [
            "GPU-8f2c1a9d",
            "MIG-8f2c1a9d",
            "8f2c1a9d-1-0",
            "8f2c1a9d-2-0",
        ];
        assert_eq!(short, expected);
    }
}
