//! What a person starts.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use packhorse_fake_nvml::mps::{ask, control_socket, is_absent};

use crate::Folders;

/// Starts the daemon in the background, and returns when it listens.
pub fn start(folders: &Folders) -> io::Result<ExitCode> {
    if ask(&control_socket(&folders.pipes), "say get_server_list").is_ok() {
        println!("An instance of this daemon is already running");
        return Ok(ExitCode::FAILURE);
    }
    let mut child = Command::new(std::env::current_exe()?)
        .arg("-f")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == daemon_is_ready() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("Cannot find MPS control daemon process");
    Ok(ExitCode::FAILURE)
}

/// What the daemon says when it listens.
pub const fn daemon_is_ready() -> &'static str {
    "ready"
}

/// Hands each line of the input to the daemon.
pub fn talk(folders: &Folders) -> io::Result<ExitCode> {
    for line in io::stdin().lock().lines() {
        match ask(&control_socket(&folders.pipes), &format!("say {}", line?)) {
            Ok(answer) => print!("{answer}"),
            Err(error) if is_absent(&error) => {
                println!("Cannot find MPS control daemon process");
                return Ok(ExitCode::FAILURE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ExitCode::SUCCESS)
}
