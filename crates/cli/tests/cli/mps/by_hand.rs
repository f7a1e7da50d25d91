//! Daemons that a person starts and stops: `packhorse mps`.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::Shared;
use crate::machine::{holding, taking};
use crate::support::{Running, finish, is_alive};

#[test]
fn daemons_are_started_shown_and_stopped_by_hand() {
    let shared = Shared::new(2);
    let done = shared.packhorse(&["mps", "start", "--gpus", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("GPU 1: process "), "{done:?}");
    assert!(!done.stderr.contains("GPU 0"), "{done:?}");
    let status = shared.status();
    let daemons = status.as_array().unwrap();
    assert_eq!(daemons.len(), 1, "{status}");
    let daemon = &daemons[0];
    assert_eq!(daemon["gpu"], "1", "{status}");
    assert_eq!(daemon["owner"], "packhorse", "{status}");
    assert_eq!(daemon["thread_percentage"], 100, "{status}");
    assert_eq!(daemon["servers"], serde_json::json!([]), "{status}");
    let pid = daemon["pid"].to_string();
    assert!(is_alive(&pid), "{status}");
    let pipes = daemon["pipes"].as_str().unwrap();
    assert!(pipes.contains("GPU-00000001"), "{status}");

    let table = shared.packhorse(&["mps", "status"]).stdout;
    let row = table.lines().nth(1).unwrap();
    assert!(row.starts_with('1'), "{table}");
    assert!(row.contains("packhorse"), "{table}");
    assert!(row.contains("none yet"), "{table}");

    // Once more is no mistake, and starts the one that is missing.
    let done = shared.packhorse(&["mps", "start"]);
    assert_eq!(done.code, 0, "{done:?}");
    let status = shared.status();
    assert_eq!(status.as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status[1]["pid"].to_string(), pid, "{status}");

    let done = shared.packhorse(&["mps", "stop", "--gpus", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("GPU 1: ended"), "{done:?}");
    assert!(!is_alive(&pid));
    assert_eq!(shared.status()[0]["gpu"], "0");
    let done = shared.packhorse(&["mps", "stop"]);
    assert!(done.stderr.contains("GPU 0: ended"), "{done:?}");
    assert_eq!(shared.status(), serde_json::json!([]));
    let done = shared.packhorse(&["mps", "stop"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn what_cannot_be_done_by_hand_is_said() {
    let shared = Shared::new(1);
    let done = shared.packhorse(&["mps", "start", "--gpus", "7"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("there is no GPU 7"), "{done:?}");
    assert!(done.stderr.contains("hint: "), "{done:?}");
    let missing = shared.machine.world.work().join("missing");
    let mut command = shared.command(&["mps", "start"]);
    command.env("PACKHORSE_MPS_CONTROL", &missing);
    let done = finish(command);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("missing"), "{done:?}");
}

#[test]
fn a_daemon_that_a_run_uses_is_not_ended_unless_by_force() {
    let shared = Shared::new(2);
    let done = shared.packhorse(&["mps", "start"]);
    assert_eq!(done.code, 0, "{done:?}");
    shared.write("tasks", holding("1G", "gate"));
    let words = ["run", "--mps", "--vram", "2G", "--gpus", "0", "tasks"];
    let running = shared.start(&words);
    let status = shared.await_clients(1);
    let client = status[0]["servers"][0]["clients"][0].to_string();
    let done = shared.packhorse(&["mps", "stop"]);
    assert_eq!(done.code, 2, "{done:?}");
    let word = format!("the daemon of GPU 0 is in use by a run (process {client})");
    assert!(done.stderr.contains(&word), "{done:?}");
    assert!(done.stderr.contains("--force"), "{done:?}");
    // Neither that one nor the other.
    assert_eq!(shared.status(), status);
    let done = shared.packhorse(&["mps", "stop", "--gpus", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    shared.write("gate", "");
    assert_eq!(running.finish().code, 0);
    // It still counts as started by hand, so the run has left it.
    assert_eq!(shared.status()[0]["pid"], status[0]["pid"]);
    let done = shared.packhorse(&["mps", "stop"]);
    assert!(done.stderr.contains("GPU 0: ended"), "{done:?}");
}

#[test]
fn a_daemon_is_in_use_while_its_run_has_no_task() {
    let shared = Shared::new(1);
    let mut running = shared.start(&["run", "--mps", "--vram", "2G"]);
    running.send(format!("{}\n", taking("--peak 1G")));
    running.wait_for("1.1 succeeded");
    let done = shared.packhorse(&["mps", "stop"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("is in use by a run"), "{done:?}");
    let done = shared.packhorse(&["mps", "stop", "--force"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("GPU 0: ended"), "{done:?}");
    assert_eq!(shared.status(), serde_json::json!([]));
    assert_eq!(running.finish().code, 0);
}

#[test]
fn tasks_that_lose_their_daemon_by_force_run_again() {
    let shared = Shared::new(1);
    shared.write("tasks", holding("1G", "gate"));
    let mut running = shared.start(&["run", "--mps", "--vram", "2G", "tasks"]);
    shared.await_clients(1);
    let done = shared.packhorse(&["mps", "stop", "--force"]);
    assert_eq!(done.code, 0, "{done:?}");
    running.wait_for("no retry is used up");
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(shared.status(), serde_json::json!([]));
}

#[test]
fn a_daemon_that_programs_use_by_hand_is_not_ended_unless_by_force() {
    let shared = Shared::new(1);
    assert_eq!(shared.packhorse(&["mps", "start"]).code, 0);
    let pipes = shared.status()[0]["pipes"].as_str().unwrap().to_owned();
    let machine = &shared.machine;
    let line = format!("exec {}", holding("1G", "gate"));
    let mut program = machine.world.program("sh", ["-c", &line]);
    program.env("FAKE_NVML_STATE", machine.state.path()).env("CUDA_MPS_PIPE_DIRECTORY", pipes);
    let running = Running::start(program);
    shared.await_clients(1);
    let done = shared.packhorse(&["mps", "stop"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("is in use by process "), "{done:?}");
    let done = shared.packhorse(&["mps", "stop", "--force"]);
    assert_eq!(done.code, 0, "{done:?}");
    shared.write("gate", "");
    running.finish();
}

#[test]
fn a_daemon_that_is_wanted_by_hand_while_a_run_uses_it_stays() {
    let shared = Shared::new(1);
    shared.write("tasks", holding("1G", "gate"));
    let running = shared.start(&["run", "--mps", "--vram", "2G", "tasks"]);
    let before = shared.await_clients(1);
    assert_eq!(shared.packhorse(&["mps", "start"]).code, 0);
    shared.write("gate", "");
    assert_eq!(running.finish().code, 0);
    assert_eq!(shared.status()[0]["pid"], before[0]["pid"]);
    // Should it go by itself, the next run starts one of its own and ends it.
    let pid = before[0]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let daemon = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // While it dies it can be asked, and does not answer.
    poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None).unwrap();
    let done = shared.packhorse(&["run", "--mps", "--vram", "2G", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(shared.status()[0]["pid"].is_null(), "{}", shared.status());
}
