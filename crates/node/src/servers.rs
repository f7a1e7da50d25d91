//! MPS servers: one for each user and GPU (or set of GPUs that one job has), never shared by
//! two users.
//!
//! NVIDIA's control daemon takes a while to start, and a prolog must not. So a process of
//! its own, [`serve`], starts and ends it: as long as it runs it holds the server's lock,
//! and before it lets go, it looks once more whether the state wants a server or not. Whoever
//! changes the state and finds the lock taken can therefore leave it at that.
//!
//! ```text
//! prolog, epilog ── change the state, then ── lock free? ── no: whoever has it will see
//!                                                └─ yes: packhorse node serve (root)
//!                                                          └ packhorse node daemon (the user)
//!                                                               └ nvidia-cuda-mps-control
//! ```
//!
//! The daemon runs as the job's user in a folder of that user's: root neither reads nor
//! connects to anything in it. It is in a cgroup of its own, in which it can open its job's
//! GPUs alone: its user can make of it whatever a user can make of the own processes. The user can fill that folder, so it is not where our state
//! is; and can stop the user's own part, so that is waited for only so long. Jobs wait in the
//! plugin until the lock is free.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use packhorse_gpu::GpuConfig;
use packhorse_gpu::mps::{Daemon, PIPE_VARIABLE, SERVICE_VARIABLE};
use packhorse_orders::{GpuPart, JobOrders, ServerCgroup, join};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_dumpable_behavior,
};

use crate::config::Config;
use crate::limited::{self, Heard, Limits};
use crate::prolog::device_rules;
use crate::state::{State, make_folder, now};

/// How long a process that was killed is waited for, and how often it is looked for others that
/// it may have started meanwhile.
const LAST_MOMENT: Duration = Duration::from_secs(1);
const MOST_ROUNDS: u32 = 10;

/// How much of what went wrong in the user's own part is told.
const MOST_REASON: usize = 4096;

/// What the user's own part of it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTask {
    /// Start the daemon, unless it runs.
    Start,
    End,
}

/// The name of a user's server on these GPUs.
pub fn server_name(gpus: &[GpuPart], uid: u32) -> String {
    let gpus: Vec<String> = gpus.iter().map(|part| part.gpu.to_string()).collect();
    format!("{}-{uid}", gpus.join("+"))
}

/// The user of a server.
pub fn user_of(name: &str) -> Option<u32> {
    parse_name(name).map(|(_, uid)| uid)
}

/// The GPUs and the user in the name of a server. `None`: it is none.
fn parse_name(name: &str) -> Option<(Vec<u32>, u32)> {
    let (gpus, uid) = name.split_once('-')?;
    let gpus: Result<Vec<u32>, _> = gpus.split('+').map(str::parse).collect();
    Some((gpus.ok()?, uid.parse().ok()?))
}

/// The names of all servers that have a folder here.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Whatever else somebody keeps there is not ours to end.
    let mut names: Vec<String> = names.filter(|name| parse_name(name).is_some()).collect();
    names.sort_unstable();
    names
}

/// Whether one of these jobs has this server.
pub fn is_used(jobs: &[JobOrders], name: &str) -> bool {
    jobs.iter().any(|job| job.server.as_deref() == Some(name))
}

/// Where clients find the server in this folder.
pub fn pipes(folder: &Path) -> PathBuf {
    folder.join("pipe")
}

/// Sees to it that servers run if a job wants them, and do not if none does. Does not wait
/// for them.
pub fn settle<'n>(
    state: &State,
    names: impl IntoIterator<Item = &'n String>,
    config: &Path,
    program: &Path,
) {
    for name in names {
        settle_one(state, name, config, program);
    }
}

fn settle_one(state: &State, name: &str, config: &Path, program: &Path) {
    let locked = match state.lock_server(name) {
        Ok(Some(locked)) => locked,
        Ok(None) => return,
        Err(error) => return state.log(now(), &format!("MPS server {name}: {error}")),
    };
    let (lock, ready) = locked;
    let started = Command::new(program)
        .args(["node", "serve", "--config"])
        .arg(config)
        .arg(name)
        // Both locks are its own from now on, until it ends in whatever way.
        .stdin(Stdio::from(lock))
        .stdout(Stdio::from(ready))
        .stderr(Stdio::null())
        // Slurm kills the group of a prolog that has ended.
        .process_group(0)
        .spawn();
    if let Err(error) = started {
        state.log(now(), &format!("MPS server {name}: {error}"));
    }
}

/// Makes a server as the state wants it. Its locks are standard input and output.
pub fn serve(file: &Path, name: &str, program: &Path) -> Result<(), crate::prolog::Trouble> {
    let config = Config::read(file)?;
    let state = State::open(&config.state)?;
    let server = Server { config: &config, name, program };
    let mut is = None;
    loop {
        let lock = state.lock()?;
        let (jobs, damaged) = state.jobs(None)?;
        // A job that nobody knows the orders of may be using it.
        let uid = user_of(name);
        let is_in_doubt = |job: &JobOrders| job.is_only_counted() && Some(job.uid) == uid;
        let is_in_doubt = !damaged.is_empty() || jobs.iter().any(is_in_doubt);
        let wanted = jobs.into_iter().find(|job| job.server.as_deref() == Some(name));
        if is == Some(wanted.is_some()) || wanted.is_none() && is_in_doubt {
            // While the state is locked: whoever changes it next finds this lock free.
            let _ = flock(rustix::stdio::stdin(), FlockOperation::Unlock);
            return Ok(());
        }
        drop(lock);
        is = Some(wanted.is_some());
        let result = match wanted {
            Some(job) => server.start(&job),
            None => server.end(),
        };
        if let Err(error) = result {
            state.log(now(), &format!("MPS server {name}: {error}"));
        }
    }
}

/// What the user's own process does.
pub fn run_as_user(
    task: ServerTask,
    control: &Path,
    patience: Duration,
    folder: &Path,
    devices: &str,
) -> Result<(), packhorse_gpu::mps::MpsError> {
    // The user's other processes have no business in it. Without this it is still theirs.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let config = GpuConfig {
        mps_control: control.to_owned(),
        mps_patience: patience,
        ..GpuConfig::default()
    };
    match task {
        ServerTask::Start => Daemon::start(&config, folder, devices).map(drop),
        // Its clients are gone: their job is over.
        ServerTask::End => Daemon::ours(&config, folder).quit(Duration::ZERO),
    }
}

struct Server<'a> {
    config: &'a Config,
    name: &'a str,
    program: &'a Path,
}

impl Server<'_> {
    /// The cgroup of its processes, apart from those of other nodes that have their state on
    /// this machine.
    fn group(&self) -> Option<ServerCgroup> {
        let state = fs_err::metadata(&self.config.state).ok()?;
        let name = Path::new(&format!("packhorse-{}", state.ino())).join(self.name);
        ServerCgroup::named(&name).ok().flatten()
    }

    /// Holds the processes of the server to its GPUs: they are the user's, and outside of the
    /// job's own cgroups.
    fn hold(&self) -> io::Result<Option<ServerCgroup>> {
        let Some(group) = self.group() else {
            return Ok(None);
        };
        let devices = self.config.device_numbers().map_err(io::Error::other)?;
        let (gpus, _) = parse_name(self.name).unwrap_or_default();
        let part = |gpu| GpuPart { gpu, units: 0 };
        let gpus: Vec<GpuPart> = gpus.into_iter().map(part).collect();
        group.make(&device_rules(&devices, &gpus))?;
        Ok(Some(group))
    }

    fn start(&self, job: &JobOrders) -> io::Result<()> {
        let folder = self.config.server_folder(self.name);
        make_folder(&self.config.mps.folder, 0o711).map_err(io::Error::other)?;
        if processes(&folder, job.uid).is_empty() {
            // Only root can make anything here, so this is left from a run that was killed,
            // or from an earlier boot.
            let _ = fs_err::remove_dir_all(&folder);
            fs_err::create_dir(&folder)?;
            fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
            std::os::unix::fs::chown(&folder, Some(job.uid), Some(job.gid))?;
        }
        if !self.config.has_all(&job.gpus) {
            let why = format!("the GPU of job {} is not in the configuration", job.job);
            return Err(io::Error::other(why));
        }
        let group = self.hold()?;
        let devices = match &group {
            Some(_) => self.config.visible_alone(&job.gpus),
            None => self.config.visible(&job.gpus),
        };
        let user = (job.uid, job.gid);
        self.as_user(user, ServerTask::Start, &folder, &devices, group.as_ref())
    }

    fn end(&self) -> io::Result<()> {
        let folder = self.config.server_folder(self.name);
        let found = match fs_err::symlink_metadata(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.end_group(),
            other => other?,
        };
        if !found.is_dir() || Some(found.uid()) != user_of(self.name) {
            let why = format!("{} is somebody else's: it is left alone", folder.display());
            return Err(io::Error::other(why));
        }
        let user = (found.uid(), found.gid());
        let held = self.hold();
        let told =
            held.and_then(|group| self.as_user(user, ServerTask::End, &folder, "", group.as_ref()));
        // Whatever did not end when it was told, and what its user has made of it.
        end_all(&processes(&folder, user.0));
        // If something is left, the folder stays: it is tried again.
        self.end_group()?;
        fs_err::remove_dir_all(&folder)?;
        told
    }

    /// Ends all that is in its cgroup, and removes that.
    fn end_group(&self) -> io::Result<()> {
        let Some(group) = self.group() else {
            return Ok(());
        };
        let open = |pid| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok();
        for _ in 0..MOST_ROUNDS {
            let left = group.processes();
            if left.is_empty() {
                group.remove();
                return Ok(());
            }
            // One by one, a process that goes on forking could get ahead.
            group.kill();
            let left: Vec<OwnedFd> = left.into_iter().filter_map(open).collect();
            end_all(&left);
        }
        let why = format!("processes in {} do not end", group.folder().display());
        Err(io::Error::other(why))
    }

    fn as_user(
        &self,
        (uid, gid): (u32, u32),
        task: ServerTask,
        folder: &Path,
        devices: &str,
        group: Option<&ServerCgroup>,
    ) -> io::Result<()> {
        let word = match task {
            ServerTask::Start => "start",
            ServerTask::End => "end",
        };
        let patience = self.config.patience();
        let mut command = Command::new(self.program);
        let (uid, gid) = (uid.to_string(), gid.to_string());
        command.args(["node", "enter", "--uid", &uid, "--gid", &gid]);
        if let Some(group) = group {
            command.arg("--cgroup").arg(group.folder());
        }
        command
            .arg("--")
            .arg(self.program)
            .args(["node", "daemon", word, "--control"])
            .arg(&self.config.mps.control)
            .arg("--patience")
            .arg(patience.as_secs().to_string())
            .arg(folder)
            .arg(devices)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/");
        let limits = Limits { patience: self.config.longest_start(), most: MOST_REASON };
        let (status, why) = limited::run(&mut command, Heard::Errors, limits)?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(why.trim().to_owned()))
    }
}

/// Joins a cgroup while it may, and then goes on as a user with another program: nothing of that
/// user's runs outside of the cgroup. Returns only if it cannot.
pub fn enter((uid, gid): (u32, u32), cgroup: Option<&Path>, words: &[OsString]) -> io::Error {
    if let Some(Err(error)) = cgroup.map(join) {
        return error;
    }
    let Some((program, words)) = words.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    Command::new(program).args(words).uid(uid).gid(gid).exec()
}

/// Kills processes, and waits a moment until they are gone.
fn end_all(processes: &[OwnedFd]) {
    for process in processes {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    let deadline = Instant::now() + LAST_MOMENT;
    for process in processes {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left));
    }
}

/// The processes of the server in this folder. What a user's process says of itself is
/// believed only of that user's processes.
pub fn processes(folder: &Path, uid: u32) -> Vec<OwnedFd> {
    let pipes = pipes(folder);
    let variable = format!("{PIPE_VARIABLE}={}", pipes.display());
    let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
    let find = |entry: fs_err::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        if entry.metadata().ok()?.uid() != uid {
            return None;
        }
        let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let environment = fs_err::read(entry.path().join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let service = format!("{SERVICE_VARIABLE}=");
        let is_service = variables.clone().any(|one| one.starts_with(service.as_bytes()));
        let is_here = variables.any(|one| one == variable.as_bytes());
        (is_service && is_here).then_some(process)
    };
    entries.filter_map(find).collect()
}
