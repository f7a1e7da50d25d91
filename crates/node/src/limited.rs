//! Programs that are waited for only so long, and heard only so far.

use std::io::{self, Read as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// What of a program is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Its standard output.
    Output,
    /// Its standard error.
    Errors,
}

/// How far a program may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may take. Then it is killed.
    pub patience: Duration,
    /// How many bytes are heard.
    pub most: usize,
}

/// Runs a program to its end. What it has started may go on: only the program itself is
/// waited for, even if others have what it writes to open.
pub fn run(
    command: &mut Command,
    heard: Heard,
    limits: Limits,
) -> io::Result<(ExitStatus, String)> {
    let deadline = Instant::now() + limits.patience;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match heard {
        Heard::Output => command.stdout(Stdio::piped()),
        Heard::Errors => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn()?;
    let process = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => {
            child.kill()?;
            child.wait()?;
            return Err(error.into());
        }
    };
    let mut pipe: Option<Box<dyn Pipe>> = match heard {
        Heard::Output => child.stdout.take().map(|pipe| Box::new(pipe) as _),
        Heard::Errors => child.stderr.take().map(|pipe| Box::new(pipe) as _),
    };
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let mut waited = vec![PollFd::new(&process, PollFlags::IN)];
        waited.extend(pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut waited, Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(1..) => {}
            _ => {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                child.wait()?;
                let seconds = limits.patience.as_secs();
                let why = format!("it was killed after {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        let has_more = waited.get(1).is_some_and(|fd| !fd.revents().is_empty());
        let is_over = !waited[0].revents().is_empty();
        drop(waited);
        if let Some(open) = pipe.as_mut().filter(|_| has_more) {
            let count = open.read(&mut part).unwrap_or(0);
            text.extend_from_slice(&part[..count]);
            if count == 0 || text.len() >= limits.most {
                pipe = None;
            }
        } else if is_over {
            break;
        }
    }
    text.truncate(limits.most);
    Ok((child.wait()?, String::from_utf8_lossy(&text).into_owned()))
}

/// The end of a pipe.
trait Pipe: io::Read + std::os::fd::AsFd {}

impl<P: io::Read + std::os::fd::AsFd> Pipe for P {}
