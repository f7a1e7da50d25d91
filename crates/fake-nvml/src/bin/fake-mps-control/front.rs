//! What a person starts.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use packhorse_fake_nvml::mps::{ask, control_socket, is_absent};

/// What the daemon and its servers say when they listen.
pub const READY: &str = "ready";

/// Starts the daemon in the background, and returns when it listens.
pub fn start(pipes: &Path) -> io::Result<ExitCode> {
    if ask(&control_socket(pipes), "say get_server_list").is_ok() {
        println!("An instance of this daemon is already running");
        return Ok(ExitCode::FAILURE);
    }
    if start_again("-f", Stdio::null())?.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("Cannot find MPS control daemon process");
    Ok(ExitCode::FAILURE)
}

/// Starts this program once more, and returns when it listens. `None`: it does not.
pub fn start_again(option: &str, stdin: Stdio) -> io::Result<Option<Child>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(option)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    Ok((line.trim_end() == READY).then_some(child))
}

/// Hands each line of the input to the daemon.
pub fn talk(pipes: &Path) -> io::Result<ExitCode> {
    for line in io::stdin().lock().lines() {
        match ask(&control_socket(pipes), &format!("say {}", line?)) {
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
