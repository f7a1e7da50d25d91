//! The control daemon.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packhorse_fake_nvml::mps::{control_socket, server_socket};
use packhorse_fake_nvml::{FakeState, visible_devices, wait_for};

use crate::answer::answer;
use crate::{Folders, SERVER, front};

/// What the daemon knows.
pub struct FakeDaemon {
    pub folders: Folders,
    pub state: Mutex<DaemonState>,
}

/// What changes.
pub struct DaemonState {
    pub servers: Vec<RunningServer>,
    /// For servers to come, in percent.
    pub threads: f32,
    /// It takes no clients any more.
    pub quits: bool,
}

/// A server.
pub struct RunningServer {
    pub pid: u32,
    /// For clients to come, in percent.
    pub threads: f32,
    child: Child,
    /// Its end tells the server that we have gone.
    _lifeline: Option<ChildStdin>,
}

/// Serves until the socket has gone.
pub fn run(folders: &Folders) -> io::Result<ExitCode> {
    fs_err::create_dir_all(&folders.logs)?;
    let socket = control_socket(&folders.pipes);
    // Left by a daemon that was killed: who started us found nobody there.
    let _ = fs_err::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    // A daemon is in no terminal's session; of the foreground one this fails.
    let _ = rustix::process::setsid();
    fs_err::write(
        folders.pipes.join("nvidia-cuda-mps-control.pid"),
        std::process::id().to_string(),
    )?;
    fs_err::write(
        folders.logs.join("control.log"),
        "Starting control daemon\n",
    )?;
    println!("{}", front::daemon_is_ready());

    let daemon = Arc::new(FakeDaemon {
        folders: folders.clone(),
        state: Mutex::new(DaemonState {
            servers: Vec::new(),
            threads: 100.0,
            quits: false,
        }),
    });
    let pipes = folders.pipes.clone();
    std::thread::spawn(move || {
        let look = || Ok((!socket.exists()).then_some(()));
        let _ = wait_for(&pipes, None, look);
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let (stream, daemon) = (stream?, Arc::clone(&daemon));
        std::thread::spawn(move || daemon.serve(stream));
    }
    Ok(ExitCode::SUCCESS)
}

impl FakeDaemon {
    /// The daemon's state, without the servers that have died.
    pub fn state(&self) -> MutexGuard<'_, DaemonState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |server: &mut RunningServer| matches!(server.child.try_wait(), Ok(None));
        state.servers.retain_mut(is_there);
        state
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut line = String::new();
        BufReader::new(stream.try_clone()?).read_line(&mut line)?;
        let text = match line.trim_end().split_once(' ') {
            Some(("say", command)) => answer(self, command),
            Some(("attach", _pid)) => self.attach()?,
            _ => "refused\n".to_owned(),
        };
        // Who asked may have been killed meanwhile.
        let _ = stream.write_all(text.as_bytes());
        Ok(())
    }

    /// The server for a client, started if there is none.
    fn attach(&self) -> io::Result<String> {
        let mut state = self.state();
        if state.quits {
            return Ok("refused\n".to_owned());
        }
        let server = match state.servers.first() {
            Some(server) => server.pid,
            None => start_server(&mut state)?,
        };
        Ok(format!("server {server} {}\n", devices()?.join(",")))
    }

    /// Ends a server at once; its clients lose it.
    pub fn end_server(&self, state: &mut DaemonState, pid: u32) {
        state.servers.retain_mut(|server| {
            if server.pid == pid {
                // One that has died already is ended.
                let _ = server.child.kill();
                let _ = server.child.wait();
                let _ = fs_err::remove_file(server_socket(&self.folders.pipes, pid));
            }
            server.pid != pid
        });
    }
}

/// Starts a server, and returns when it listens.
pub fn start_server(state: &mut DaemonState) -> io::Result<u32> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(SERVER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() != front::daemon_is_ready() {
        return Err(io::Error::other("the server did not start"));
    }
    let pid = child.id();
    state.servers.push(RunningServer {
        pid,
        threads: state.threads,
        _lifeline: child.stdin.take(),
        child,
    });
    Ok(pid)
}

/// The UUIDs of the devices that the daemon was started for.
pub fn devices() -> io::Result<Vec<String>> {
    let state =
        FakeState::from_env().ok_or_else(|| io::Error::other("there is no state folder"))?;
    let devices = visible_devices(state.read_devices()?, |name| std::env::var(name).ok());
    Ok(devices
        .iter()
        .map(|device| device.uuid().to_owned())
        .collect())
}
