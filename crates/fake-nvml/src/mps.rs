//! What the stand-ins for MPS say to each other.
//!
//! NVIDIA's own protocol is nobody's business; this one is lines of text over
//! two sockets in the pipe folder. The control daemon's takes one line a
//! connection and answers:
//!
//! - `say COMMAND …`: what a person typed; the answer is what he reads;
//! - `attach PID`: a program wants to compute; the answer is `server PID UUID,…`
//!   or `refused`.
//!
//! The server's takes `client PID`, and then the connection lasts as long as
//! both: whoever sees its end knows that the other has gone. The daemon asks it
//! `list` and `terminate PID`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The variable that names the folder of the sockets.
pub const PIPE_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The variable that limits a client's memory.
pub const LIMIT_VARIABLE: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// The daemon's socket in the pipe folder.
pub fn control_socket(pipes: &Path) -> PathBuf {
    pipes.join("control")
}

/// A server's socket in the pipe folder.
pub fn server_socket(pipes: &Path, pid: u32) -> PathBuf {
    pipes.join(format!("server-{pid}"))
}

/// Says one line, and hears the whole answer.
pub fn ask(socket: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A program's connection to a server.
#[derive(Debug)]
pub struct MpsConnection {
    /// The UUIDs of the devices that the server has; a program sees no others,
    /// and counts from the first of them.
    pub devices: Vec<String>,
    stream: BufReader<UnixStream>,
}

/// How a program lost its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    ServerDied,
    /// The server was told to terminate the program.
    Terminated,
}

impl MpsConnection {
    /// Attaches the process to the server behind this pipe folder. `None`:
    /// there is no daemon, and CUDA goes on without MPS.
    pub fn new(pipes: &Path, pid: u32) -> io::Result<Option<Self>> {
        let answer = match ask(&control_socket(pipes), &format!("attach {pid}")) {
            Err(error) if is_absent(&error) => return Ok(None),
            other => other?,
        };
        let mut words = answer.split_whitespace();
        let (Some("server"), Some(server), Some(devices)) =
            (words.next(), words.next(), words.next())
        else {
            return Err(io::Error::other(answer));
        };
        let server = server.parse().map_err(io::Error::other)?;
        let mut stream = UnixStream::connect(server_socket(pipes, server))?;
        writeln!(stream, "client {pid}")?;
        let mut attached = Self {
            devices: devices.split(',').map(str::to_owned).collect(),
            stream: BufReader::new(stream),
        };
        match attached.line()?.as_str() {
            "welcome" => Ok(Some(attached)),
            _ => Err(io::Error::other("the server went away")),
        }
    }

    /// Waits for the end of the connection.
    pub fn wait(mut self) -> Detached {
        match self.line().as_deref() {
            Ok("terminated") => Detached::Terminated,
            _ => Detached::ServerDied,
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// Whether nobody listens there.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
