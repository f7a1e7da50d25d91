//! Stands in for `nvidia-cuda-mps-control`: the same options, the same commands
//! on its standard input, a daemon and servers of its own.
//!
//! ```text
//!  fake-mps-control -d ──▶ daemon, listens at PIPES/control ──▶ server, appears
//!  fake-mps-control ──────▶ say get_server_list                 with the first
//!  fake-cuda ─────────────▶ attach, then to the server itself   client
//! ```
//!
//! The daemon ends when its socket has gone, so that no test leaves one behind,
//! and a server ends with its daemon. A server holds some memory of each of its
//! devices itself, as a real one does, and dies when the state folder says so.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that is talked to")]

mod answer;
mod daemon;
mod front;
mod server;

use std::path::Path;
use std::process::ExitCode;

use packhorse_fake_nvml::mps::PIPE_VARIABLE;

/// The option with which the daemon starts the program as a server.
const SERVER: &str = "--as-server";

fn main() -> ExitCode {
    let Some(pipes) = std::env::var_os(PIPE_VARIABLE) else {
        // The real one has defaults, which all of a machine's tests would share.
        eprintln!("{PIPE_VARIABLE} is not set");
        return ExitCode::FAILURE;
    };
    let pipes = Path::new(&pipes);
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        None => front::talk(pipes),
        Some("-d") => front::start(pipes),
        Some("-f") => daemon::run(pipes),
        Some(SERVER) => server::run(pipes),
        Some(other) => {
            eprintln!("Unknown option {other}");
            Ok(ExitCode::FAILURE)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
