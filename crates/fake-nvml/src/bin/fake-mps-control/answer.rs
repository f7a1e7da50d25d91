//! The commands that Packhorse uses, and those that people know best.

use std::time::{Duration, Instant};

use packhorse_fake_nvml::mps::{ask, control_socket, server_socket};
use packhorse_fake_nvml::wait_until_gone;

use crate::daemon::FakeDaemon;

/// What the daemon answers to a line that somebody typed.
pub fn answer(daemon: &FakeDaemon, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["get_server_list"] => {
            let server = daemon.server();
            server.map_or_else(String::new, |pid| format!("{pid}\n"))
        }
        ["get_server_status", pid] => with_server(daemon, pid, |_| "ACTIVE\n".to_owned()),
        ["get_client_list", pid] => with_server(daemon, pid, |server| {
            ask(&server_socket(&daemon.pipes, server), "list").unwrap_or_default()
        }),
        ["terminate_client", server, client] => with_server(daemon, server, |server| {
            let socket = server_socket(&daemon.pipes, server);
            match ask(&socket, &format!("terminate {client}")).as_deref() {
                Ok("done\n") => String::new(),
                _ => format!("Client {client} not found\n"),
            }
        }),
        ["get_default_active_thread_percentage"] => "100.0\n".to_owned(),
        ["quit"] => quit(daemon, None),
        ["quit", "-t", seconds] => match seconds.parse() {
            Ok(seconds) => quit(daemon, Some(Duration::from_secs(seconds))),
            Err(_) => "Invalid timeout\n".to_owned(),
        },
        [] => String::new(),
        [unknown, ..] => format!("Unknown command {unknown}\n"),
    }
}

fn with_server(daemon: &FakeDaemon, pid: &str, act: impl FnOnce(u32) -> String) -> String {
    match pid.parse() {
        Ok(pid) if daemon.server() == Some(pid) => act(pid),
        _ => format!("Server {pid} not found\n"),
    }
}

/// Takes no new clients, waits for those there are, and ends; after some time
/// it does not wait any longer.
fn quit(daemon: &FakeDaemon, patience: Option<Duration>) -> String {
    daemon.state().quits = true;
    let deadline = patience.map(|patience| Instant::now() + patience);
    let pipes = &daemon.pipes;
    if let Some(server) = daemon.server() {
        // A server takes its socket away with its last client once it was told.
        let socket = server_socket(pipes, server);
        let _ = ask(&socket, "retire");
        let _ = wait_until_gone(&socket, deadline);
        daemon.end_server();
    }
    // The daemon ends as soon as it sees that its socket has gone. That may be
    // before the answer is sent; but the answer is empty anyway.
    let _ = fs_err::remove_file(pipes.join("nvidia-cuda-mps-control.pid"));
    let _ = fs_err::remove_file(control_socket(pipes));
    String::new()
}
