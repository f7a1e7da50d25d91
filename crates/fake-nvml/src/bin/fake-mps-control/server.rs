//! A server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packhorse_fake_nvml::mps::server_socket;
use packhorse_fake_nvml::{FakeProcess, wait_until_exists};

use crate::daemon::devices;
use crate::front;

/// What a server holds of each of its devices for itself, in bytes.
const CONTEXT: u64 = 30 << 20;

#[derive(Default)]
struct Clients {
    there: Vec<(u32, UnixStream)>,
    /// The server ends with its last client.
    retires: bool,
}

struct FakeServer {
    pipes: PathBuf,
    clients: Mutex<Clients>,
}

/// Serves until the daemon ends, or the state folder says so.
pub fn run(pipes: &Path) -> io::Result<ExitCode> {
    let (state, devices) = devices()?;
    for unit in &devices {
        let process = FakeProcess::real(std::process::id(), CONTEXT);
        let taken = state.take(&unit.device, unit.uuid(), &process)?;
        taken.map_err(|_| io::Error::other("out of memory"))?;
    }
    let listener = UnixListener::bind(server_socket(pipes, std::process::id()))?;
    println!("{}", front::READY);
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    for unit in &devices {
        let file = state.mps_file(unit.uuid());
        std::thread::spawn(move || die_when_told(&file));
    }
    let server = Arc::new(FakeServer { pipes: pipes.to_owned(), clients: Mutex::default() });
    for stream in listener.incoming() {
        let (stream, server) = (stream?, Arc::clone(&server));
        std::thread::spawn(move || server.serve(stream));
    }
    Ok(ExitCode::SUCCESS)
}

/// The fault of a server that takes its clients with it.
fn die_when_told(file: &Path) -> io::Result<()> {
    if wait_until_exists(file, None)? {
        // It is for one server, not for the next one as well.
        fs_err::remove_file(file)?;
        std::process::exit(1);
    }
    Ok(())
}

impl FakeServer {
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
                let mut clients = self.clients();
                let mut there = clients.there.iter_mut();
                if let Some((_, client)) = there.find(|(there, _)| there.to_string() == pid) {
                    writeln!(client, "terminated")?;
                    writeln!(stream, "done")?;
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
            let socket = server_socket(&self.pipes, std::process::id());
            let _ = fs_err::remove_file(socket);
            std::process::exit(0);
        }
    }
}
