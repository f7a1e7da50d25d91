//! What other processes of the same user ask of a run, such as `packhorse why`.
//!
//! A run listens on a datagram socket in its own folder: one datagram asks, one answers.
//! There is no connection that somebody could leave open, and nothing here ever waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::File;
use packhorse_engine::StopSignal;
use packhorse_model::{StopMode, TaskId};

/// The socket's name in the run's folder.
const NAME: &str = "ask";
/// No question is longer.
const LONGEST: usize = 256;
/// No answer is longer.
const LONGEST_ANSWER: usize = 64 * 1024;
/// How long an answer may take: a run answers between two events.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of a run.
pub(crate) enum ControlRequest {
    /// Why the task with this number is where it is.
    Why(u32),
    /// To stop, as if this signal had come.
    Stop(StopSignal),
}

impl ControlRequest {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "stop" => Some(Self::Stop(StopSignal::Terminate)),
            "stop now" => Some(Self::Stop(StopSignal::Quit)),
            _ => text.strip_prefix("why ")?.parse().ok().map(Self::Why),
        }
    }
}

/// Where a run is asked.
pub(crate) struct ControlSocket {
    socket: UnixDatagram,
    path: PathBuf,
    /// Who has asked and was not answered yet, by the number of the question.
    asking: Vec<(u64, SocketAddr)>,
    questions: u64,
}

impl ControlSocket {
    /// Listens in the folder of a run.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(NAME);
        // Left by a process that was killed; the run's lock is ours.
        let _ = fs_err::remove_file(&path);
        let socket = within(folder, |short| UnixDatagram::bind(short))?;
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, path, asking: Vec::new(), questions: 0 })
    }

    /// The next request that has arrived, and whom to answer.
    pub(crate) fn receive(&mut self) -> Option<(ControlRequest, u64)> {
        let mut buffer = [0; LONGEST];
        loop {
            let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
            let text = String::from_utf8_lossy(&buffer[..length]);
            if let Some(request) = ControlRequest::parse(&text) {
                self.questions += 1;
                self.asking.push((self.questions, from));
                return Some((request, self.questions));
            }
        }
    }

    pub(crate) fn answer(&mut self, question: u64, text: &str) {
        let mut asking = self.asking.iter();
        if let Some(place) = asking.position(|(number, _)| *number == question) {
            let (_, from) = self.asking.swap_remove(place);
            // Whoever asked may have gone.
            let _ = self.socket.send_to_addr(text.as_bytes(), &from);
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Does something with the path of the socket in `folder`. A socket's path must be shorter
/// than 108 bytes, so it goes by way of a descriptor.
fn within<T>(folder: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let folder = File::open(folder)?;
    let number = folder.file().as_raw_fd();
    act(Path::new(&format!("/proc/self/fd/{number}/{NAME}")))
}

/// Asks the run whose folder this is why a task is where it is. If it does not answer
/// soon, that is [`io::ErrorKind::TimedOut`].
pub fn ask_why(folder: &Path, task: TaskId) -> io::Result<String> {
    ask(folder, &format!("why {}", task.number))
}

/// Asks the run whose folder this is to stop: its tasks are terminated, or killed. If it
/// does not answer soon, that is [`io::ErrorKind::TimedOut`].
pub fn ask_to_stop(folder: &Path, how: StopMode) -> io::Result<()> {
    let request = match how {
        StopMode::Terminate => "stop",
        StopMode::Kill => "stop now",
    };
    ask(folder, request).map(drop)
}

fn ask(folder: &Path, request: &str) -> io::Result<String> {
    // A name of our own, for the answer to come to. It needs no file.
    let name = format!("packhorse-asks-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    // Questions that nobody took in wait in line, and the line may be full.
    socket.set_write_timeout(Some(PATIENCE))?;
    within(folder, |path| socket.send_to(request.as_bytes(), path)).map_err(in_time)?;
    let mut answer = vec![0; LONGEST_ANSWER];
    let length = socket.recv(&mut answer).map_err(in_time)?;
    answer.truncate(length);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The system calls it an error of a call that would wait.
fn in_time(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let message = format!("it did not answer in {} s", PATIENCE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, message)
}
