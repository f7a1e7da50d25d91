//! The control daemon.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packhorse_fake_nvml::mps::{control_socket, server_socket};
use packhorse_fake_nvml::{FakeState, FakeUnit, visible_devices, wait_until_gone};

use crate::answer::answer;
use crate::{SERVER, front};

/// What the daemon knows.
pub struct FakeDaemon {
    pub pipes: PathBuf,
    state: Mutex<FakeDaemonState>,
}

/// What changes.
#[derive(Default)]
pub struct FakeDaemonState {
    /// With our end of its standard input, whose end tells it that we have gone.
    server: Option<Child>,
    /// It takes no clients any more.
    pub quits: bool,
}

/// Serves until the socket has gone.
pub fn run(pipes: &Path) -> io::Result<ExitCode> {
    let socket = control_socket(pipes);
    // Left by a daemon that was killed: who started us found nobody there.
    let _ = fs_err::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    // A daemon is in no terminal's session; of the foreground one this fails.
    let _ = rustix::process::setsid();
    fs_err::write(pipes.join("nvidia-cuda-mps-control.pid"), std::process::id().to_string())?;
    println!("{}", front::READY);

    let daemon = Arc::new(FakeDaemon { pipes: pipes.to_owned(), state: Mutex::default() });
    std::thread::spawn(move || {
        let _ = wait_until_gone(&socket, None);
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let (stream, daemon) = (stream?, Arc::clone(&daemon));
        std::thread::spawn(move || daemon.serve(stream));
    }
    Ok(ExitCode::SUCCESS)
}

impl FakeDaemon {
    /// The daemon's state, without a server that has died.
    pub fn state(&self) -> MutexGuard<'_, FakeDaemonState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_died = |server: &mut Child| !matches!(server.try_wait(), Ok(None));
        state.server.take_if(has_died);
        state
    }

    /// The server's process.
    pub fn server(&self) -> Option<u32> {
        self.state().server.as_ref().map(Child::id)
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
        if state.server.is_none() {
            state.server = front::start_again(SERVER, Stdio::piped())?;
        }
        let Some(server) = &state.server else {
            return Err(io::Error::other("the server did not start"));
        };
        let (_, devices) = devices()?;
        let devices: Vec<&str> = devices.iter().map(FakeUnit::uuid).collect();
        Ok(format!("server {} {}\n", server.id(), devices.join(",")))
    }

    /// Ends the server at once; its clients lose it.
    pub fn end_server(&self) {
        if let Some(mut server) = self.state().server.take() {
            // One that has died already is ended.
            let _ = server.kill();
            let _ = server.wait();
            let _ = fs_err::remove_file(server_socket(&self.pipes, server.id()));
        }
    }
}

/// The machine, and its devices that the daemon was started for.
pub fn devices() -> io::Result<(FakeState, Vec<FakeUnit>)> {
    let state =
        FakeState::from_env().ok_or_else(|| io::Error::other("there is no state folder"))?;
    let devices = visible_devices(state.read_devices()?, |name| std::env::var(name).ok());
    Ok((state, devices))
}
