//! The commands that people know.

use std::time::{Duration, Instant};

use packhorse_fake_nvml::mps::{ask, control_socket, server_socket};
use packhorse_fake_nvml::wait_for;
use packhorse_proc::ProcEntry;

use crate::daemon::{FakeDaemon, devices, start_server};

/// What the daemon answers to a line that somebody typed.
pub fn answer(daemon: &FakeDaemon, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["get_server_list"] => lines(&servers(daemon)),
        ["start_server", "-uid", _] => {
            let mut state = daemon.state();
            match start_server(&mut state) {
                Ok(_) => String::new(),
                Err(error) => format!("{error}\n"),
            }
        }
        ["get_server_status", pid] => with_server(daemon, pid, |_| "ACTIVE\n".to_owned()),
        ["get_client_list", pid] => with_server(daemon, pid, |pid| lines(&clients(daemon, pid))),
        ["get_device_client_list" | "ps"] => table(daemon, &servers(daemon)),
        ["get_device_client_list", pid] | ["ps", "-p", pid] => {
            with_server(daemon, pid, |pid| table(daemon, &[pid]))
        }
        ["terminate_client", server, client] => with_server(daemon, server, |server| {
            let socket = server_socket(&daemon.folders.pipes, server);
            match ask(&socket, &format!("terminate {client}")).as_deref() {
                Ok("done\n") => String::new(),
                _ => format!("Client {client} not found\n"),
            }
        }),
        ["shutdown_server", pid, ..] => with_server(daemon, pid, |pid| {
            daemon.end_server(&mut daemon.state(), pid);
            String::new()
        }),
        ["get_default_active_thread_percentage"] => format!("{:.1}\n", daemon.state().threads),
        ["set_default_active_thread_percentage", value] => match percentage(value) {
            Some(value) => {
                daemon.state().threads = value;
                format!("{value:.1}\n")
            }
            None => "Invalid percentage\n".to_owned(),
        },
        ["get_active_thread_percentage", pid] => threads(daemon, pid, None),
        ["set_active_thread_percentage", pid, value] => match percentage(value) {
            Some(value) => threads(daemon, pid, Some(value)),
            None => "Invalid percentage\n".to_owned(),
        },
        ["quit"] => quit(daemon, None),
        ["quit", "-t", seconds] => match seconds.parse() {
            Ok(seconds) => quit(daemon, Some(Duration::from_secs(seconds))),
            Err(_) => "Invalid timeout\n".to_owned(),
        },
        [] => String::new(),
        [unknown, ..] => format!("Unknown command {unknown}\n"),
    }
}

fn servers(daemon: &FakeDaemon) -> Vec<u32> {
    daemon
        .state()
        .servers
        .iter()
        .map(|server| server.pid)
        .collect()
}

fn clients(daemon: &FakeDaemon, server: u32) -> Vec<u32> {
    let answer = ask(&server_socket(&daemon.folders.pipes, server), "list");
    let answer = answer.unwrap_or_default();
    answer
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

fn with_server(daemon: &FakeDaemon, pid: &str, act: impl FnOnce(u32) -> String) -> String {
    match pid.parse() {
        Ok(pid) if servers(daemon).contains(&pid) => act(pid),
        _ => format!("Server {pid} not found\n"),
    }
}

fn threads(daemon: &FakeDaemon, pid: &str, value: Option<f32>) -> String {
    let mut state = daemon.state();
    match state
        .servers
        .iter_mut()
        .find(|server| server.pid.to_string() == pid)
    {
        Some(server) => {
            server.threads = value.unwrap_or(server.threads);
            format!("{:.1}\n", server.threads)
        }
        None => format!("Server {pid} not found\n"),
    }
}

fn percentage(text: &str) -> Option<f32> {
    let value: f32 = text.parse().ok()?;
    (value > 0.0 && value <= 100.0).then_some(value)
}

fn lines(pids: &[u32]) -> String {
    let mut text = String::new();
    for pid in pids {
        text += &format!("{pid}\n");
    }
    text
}

fn table(daemon: &FakeDaemon, servers: &[u32]) -> String {
    let device = devices().unwrap_or_default().join(",");
    let mut text = "PID       ID    SERVER    DEVICE             NAMESPACE COMMAND\n".to_owned();
    for &server in servers {
        for (id, pid) in clients(daemon, server).into_iter().enumerate() {
            let command = ProcEntry::of(pid).command_name().unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            let device = device.get(..12).unwrap_or(&device);
            text += &format!("{pid:<9} {id:<5} {server:<9} {device:<18} {pid:<9} {command}\n");
        }
    }
    text
}

/// Takes no new clients, waits for those there are, and ends; after some time
/// it does not wait any longer.
fn quit(daemon: &FakeDaemon, patience: Option<Duration>) -> String {
    daemon.state().quits = true;
    let deadline = patience.map(|patience| Instant::now() + patience);
    let pipes = &daemon.folders.pipes;
    for server in servers(daemon) {
        // A server takes its socket away with its last client once it was told.
        let _ = ask(&server_socket(pipes, server), "retire");
        let socket = server_socket(pipes, server);
        let look = || Ok((!socket.exists()).then_some(()));
        let _ = wait_for(pipes, deadline, look);
        daemon.end_server(&mut daemon.state(), server);
    }
    // The daemon ends as soon as it sees that its socket has gone. That may be
    // before the answer is sent; but the answer is empty anyway.
    let _ = fs_err::remove_file(pipes.join("nvidia-cuda-mps-control.pid"));
    let _ = fs_err::remove_file(control_socket(pipes));
    String::new()
}
