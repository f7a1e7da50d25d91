use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packhorse_trust::{Distrust, check_link, ensure_private_folder, is_ours};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, open, statat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::status::{percent, pids, server_state};
use super::{DaemonStatus, MpsError, MpsServer, PIPE_VARIABLE, SERVICE, SERVICE_VARIABLE};
use crate::GpuConfig;
use crate::short_command::{self, CommandError, CommandOutput};

/// The name of the folder of a daemon's logs.
const LOGS: &str = "log";

/// What a daemon makes in its pipe folder, and clients and we trust.
const FILES: [&str; 5] =
    ["control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid"];

/// How long to wait between two checks whether a daemon that was just started answers.
const BETWEEN_CHECKS: Duration = Duration::from_millis(20);

/// The longest path of a socket in the kernel, without the final zero.
const SOCKET_LIMIT: usize = 107;

/// The longest name of a daemon's socket, with the slash before it.
const LONGEST_SOCKET: usize = "/control_privileged".len();

/// Whose daemon it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It is in a folder of ours and may be stopped.
    Ours,
    /// Somebody else runs it: it is used but not stopped.
    Theirs,
}

/// A control daemon, running or not. Its methods block: call them from a thread
/// that may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    program: PathBuf,
    pipes: PathBuf,
    /// Where it logs, if it is ours.
    logs: Option<PathBuf>,
    /// How long a command may take.
    patience: Duration,
}

impl Daemon {
    fn new(config: &GpuConfig, pipes: PathBuf, logs: Option<PathBuf>) -> Self {
        Self { program: config.mps_control.clone(), pipes, logs, patience: config.mps_patience }
    }

    /// Our daemon in this folder; it need not be running.
    pub fn ours(config: &GpuConfig, folder: &Path) -> Self {
        Self::new(config, folder.join("pipe"), Some(folder.join(LOGS)))
    }

    /// The daemon that root or another program of ours runs where CUDA looks for one, if one
    /// answers. The error says that it is another user's: what is computed there is in that
    /// user's hands, so it is not even asked.
    pub fn theirs(config: &GpuConfig) -> Result<Option<Self>, MpsError> {
        let daemon = Self::new(config, config.mps_pipes.clone(), None);
        daemon.check_owners()?;
        Ok(daemon.is_running().unwrap_or(false).then_some(daemon))
    }

    /// Whether root or we own the pipe folder and what clients connect to in it.
    fn check_owners(&self) -> Result<(), MpsError> {
        let foreign = |what, owner| MpsError::Foreign { pipes: self.pipes.clone(), what, owner };
        if let Err(Distrust::LinkOf(owner)) = check_link(&self.pipes) {
            return Err(foreign("a link there", owner));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = open(&self.pipes, flags, Mode::empty()) else {
            // Nothing that can be looked at: it is no daemon, or its folder is closed to us.
            return Ok(());
        };
        let folder_owner = fstat(&folder).map_err(io::Error::from)?.st_uid;
        let files = FILES.iter().filter_map(|file| {
            let found = statat(&folder, *file, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((*file, found.st_uid))
        });
        let mut owners = std::iter::once(("its folder", folder_owner)).chain(files);
        match owners.find(|(_, owner)| !is_ours(*owner)) {
            Some((what, owner)) => Err(foreign(what, owner)),
            None => Ok(()),
        }
    }

    /// Starts a daemon of ours for one GPU, with its pipes and logs in this folder.
    /// One that already runs there is used instead.
    pub fn start(config: &GpuConfig, folder: &Path, uuid: &str) -> Result<Self, MpsError> {
        let daemon = Self::ours(config, folder);
        if daemon.pipes.as_os_str().len() + LONGEST_SOCKET > SOCKET_LIMIT {
            // MPS itself would only say that it cannot find the daemon.
            return Err(MpsError::PathTooLong { folder: daemon.pipes, limit: SOCKET_LIMIT });
        }
        // Whoever can write to the pipes can use the GPU in the user's name.
        ensure_private_folder(&daemon.pipes)?;
        ensure_private_folder(&folder.join(LOGS))?;
        let visible = [("CUDA_VISIBLE_DEVICES", OsStr::new(uuid))];
        // If one is running already, this is refused, and that one answers.
        let output = daemon.run(&["-d"], &visible, "", daemon.patience)?;
        daemon.wait_until_it_answers(&output)?;
        Ok(daemon)
    }

    /// Whose it is.
    pub const fn ownership(&self) -> Ownership {
        match self.logs {
            Some(_) => Ownership::Ours,
            None => Ownership::Theirs,
        }
    }

    /// Where its clients find it.
    pub fn pipes(&self) -> &Path {
        &self.pipes
    }

    /// Its process id, from its pid file.
    pub fn pid(&self) -> Option<u32> {
        let file = self.pipes.join("nvidia-cuda-mps-control.pid");
        fs_err::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// Whether it answers.
    pub fn is_running(&self) -> Result<bool, MpsError> {
        // Without the folder there is no daemon: no need to ask.
        if !self.pipes.exists() {
            return Ok(false);
        }
        match self.servers() {
            Ok(_) => Ok(true),
            Err(MpsError::NotRunning { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Its state. Takes two commands, and two more for each server.
    pub fn status(&self) -> Result<DaemonStatus, MpsError> {
        let mut servers = Vec::new();
        for pid in self.servers()? {
            servers.push(MpsServer {
                pid,
                state: server_state(&self.say(&format!("get_server_status {pid}"))?),
                clients: self.clients(pid)?,
            });
        }
        let threads = self.say("get_default_active_thread_percentage")?;
        Ok(DaemonStatus { pid: self.pid(), servers, threads: percent(&threads) })
    }

    /// Its servers' processes.
    pub fn servers(&self) -> Result<Vec<u32>, MpsError> {
        self.list("get_server_list")
    }

    /// The processes of a server's clients.
    pub fn clients(&self, server: u32) -> Result<Vec<u32>, MpsError> {
        self.list(&format!("get_client_list {server}"))
    }

    /// Takes a client off the GPU, so that killing it afterwards does no harm to the
    /// others. Its process goes on, and fails when it next uses the GPU.
    pub fn terminate_client(&self, server: u32, client: u32) -> Result<(), MpsError> {
        let command = format!("terminate_client {server} {client}");
        let answer = self.say(&command)?;
        // MPS has no message for success: it may say nothing at all.
        let lower = answer.to_ascii_lowercase();
        let complains = ["error", "fail", "invalid", "not found", "cannot", "unknown"];
        if complains.iter().any(|word| lower.contains(word)) {
            return Err(refused(&command, &answer));
        }
        Ok(())
    }

    /// Ends our daemon and its servers. Clients have until `patience` has passed to
    /// end by themselves; then they lose their servers.
    pub fn quit(&self, patience: Duration) -> Result<(), MpsError> {
        if self.ownership() == Ownership::Theirs {
            return Err(MpsError::NotOurs { pipes: self.pipes.clone() });
        }
        if !self.pipes.exists() {
            return Ok(());
        }
        let pid = self.pid();
        // Opened before it is told, so that its id cannot become another process's.
        let process = pid
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let command = format!("quit -t {}", patience.as_secs());
        match self.say_within(&command, patience + self.patience) {
            Err(MpsError::NotRunning { .. }) => return Ok(()),
            other => other?,
        };
        // It answers before it has ended.
        let has_ended = match process {
            Some(process) => short_command::wait(&process, self.patience),
            None => !self.is_running()?,
        };
        if has_ended {
            return Ok(());
        }
        Err(MpsError::StillRunning { pipes: self.pipes.clone(), pid })
    }

    /// A daemon detaches itself, and may do so before it listens. No event tells when
    /// a socket begins to listen, so this checks, at intervals and for a limited time.
    fn wait_until_it_answers(&self, started: &CommandOutput) -> Result<(), MpsError> {
        let deadline = Instant::now() + self.patience;
        loop {
            if self.is_running()? {
                return Ok(());
            }
            // If its status is lost, any output means failure: success is silent.
            let failed = match started.status {
                Some(status) => status != 0,
                None => !started.output.trim().is_empty(),
            };
            if failed || Instant::now() >= deadline {
                return Err(refused("nvidia-cuda-mps-control -d", &started.output));
            }
            std::thread::park_timeout(BETWEEN_CHECKS);
        }
    }

    fn list(&self, command: &str) -> Result<Vec<u32>, MpsError> {
        let answer = self.say(command)?;
        pids(&answer).ok_or_else(|| refused(command, &answer))
    }

    fn say(&self, command: &str) -> Result<String, MpsError> {
        self.say_within(command, self.patience)
    }

    fn say_within(&self, command: &str, limit: Duration) -> Result<String, MpsError> {
        let ended = self.run(&[], &[], &format!("{command}\n"), limit)?;
        if ended.output.contains("Cannot find MPS control daemon") {
            return Err(MpsError::NotRunning { pipes: self.pipes.clone() });
        }
        if ended.status.is_some_and(|status| status != 0) {
            return Err(refused(command, &ended.output));
        }
        Ok(ended.output)
    }

    fn run(
        &self,
        arguments: &[&str],
        variables: &[(&str, &OsStr)],
        input: &str,
        limit: Duration,
    ) -> Result<CommandOutput, MpsError> {
        let mut all =
            vec![(PIPE_VARIABLE, self.pipes.as_os_str()), (SERVICE_VARIABLE, OsStr::new(SERVICE))];
        if let Some(logs) = &self.logs {
            all.push(("CUDA_MPS_LOG_DIRECTORY", logs.as_os_str()));
        }
        all.extend(variables);
        let program = self.program.clone();
        let output = short_command::run(&program, arguments, &all, input, limit);
        output.map_err(|error| match error {
            CommandError::TimedOut => MpsError::TimedOut {
                command: match arguments {
                    [] => input.trim_end().to_owned(),
                    words => words.join(" "),
                },
                after: limit,
                logs: self.logs.clone().unwrap_or("/var/log/nvidia-mps".into()),
            },
            CommandError::Start(error) if error.kind() == io::ErrorKind::NotFound => {
                MpsError::NotInstalled { program }
            }
            CommandError::Start(source) => MpsError::Start { program, source },
        })
    }
}

fn refused(command: &str, answer: &str) -> MpsError {
    let answer = match answer.trim() {
        "" => "it gave no answer".to_owned(),
        words => words.to_owned(),
    };
    MpsError::Refused { command: command.to_owned(), answer }
}
