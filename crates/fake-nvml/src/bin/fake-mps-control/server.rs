//! A server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packhorse_fake_nvml::mps::server_socket;
use packhorse_fake_nvml::{FakeProcess, FakeState, visible_devices, wait_for};

use crate::daemon::devices;
use crate::{Folders, front};

/// What a server holds of each of its devices for itself, in bytes.
const CONTEXT: u64 = 30 << 20;

#[derive(Default)]
struct Clients {
    there: Vec<(u32, UnixStream)>,
    /// The server ends with its last client.
    retires: bool,
}

struct Server {
    folders: Folders,
    clients: Mutex<Clients>,
}

/// Serves until the daemon ends, or the state folder says so.
pub fn run(folders: &Folders) -> io::Result<ExitCode> {
    take_context()?;
    let listener = UnixListener::bind(server_socket(&folders.pipes, std::process::id()))?;
    println!("{}", front::daemon_is_ready());
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    for uuid in devices()? {
        std::thread::spawn(move || die_when_told(&uuid));
    }
    let server = Arc::new(Server {
        folders: folders.clone(),
        clients: Mutex::default(),
    });
    for stream in listener.incoming() {
        let (stream, server) = (stream?, Arc::clone(&server));
        std::thread::spawn(move || server.serve(stream));
    }
    Ok(ExitCode::SUCCESS)
}

fn take_context() -> io::Result<()> {
    let state =
        FakeState::from_env().ok_or_else(|| io::Error::other("there is no state folder"))?;
    for visible in visible_devices(state.read_devices()?, |name| std::env::var(name).ok()) {
        let process = FakeProcess::real(std::process::id(), CONTEXT);
        if state
            .take(&visible.device, visible.uuid(), &process)?
            .is_err()
        {
            return Err(io::Error::other("out of memory"));
        }
    }
    Ok(())
}

/// The fault of a server that takes its clients with it.
fn die_when_told(uuid: &str) -> io::Result<()> {
    let Some(state) = FakeState::from_env() else {
        return Ok(());
    };
    let file = state.mps_file(uuid);
    let look = || Ok(file.exists().then_some(()));
    if wait_for(&state.mps_folder(), None, look)?.is_some() {
        // It is for one server, not for the next one as well.
        fs_err::remove_file(&file)?;
        std::process::exit(1);
    }
    Ok(())
}

impl Server {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone()?);
        reader.read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["client", pid] => {
                let pid = pid.parse().map_err(io::Error::other)?;
                self.clients().there.push((pid, stream.try_clone()?));
                writeln!(stream, "welcome")?;
                // Returns when the client has gone, however it went.
                let _ = reader.read_line(&mut line);
                self.clients().there.retain(|(other, _)| *other != pid);
                self.end_if_done();
            }
            ["list"] => {
                for (pid, _) in &self.clients().there {
                    writeln!(stream, "{pid}")?;
                }
            }
            ["terminate", pid] => {
                let clients = self.clients();
                let found = clients
                    .there
                    .iter()
                    .find(|(there, _)| there.to_string() == pid);
                match found {
                    Some((_, client)) => {
                        let mut client: &UnixStream = client;
                        writeln!(client, "terminated")?;
                        writeln!(stream, "done")?;
                    }
                    None => writeln!(stream, "unknown")?,
                }
            }
            ["retire"] => {
                self.clients().retires = true;
                self.end_if_done();
            }
            _ => {}
        }
        Ok(())
    }

    fn end_if_done(&self) {
        let clients = self.clients();
        if clients.retires && clients.there.is_empty() {
            let socket = server_socket(&self.folders.pipes, std::process::id());
            let _ = fs_err::remove_file(socket);
            std::process::exit(0);
        }
    }
}
