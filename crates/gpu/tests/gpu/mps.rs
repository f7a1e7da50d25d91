//! Control of MPS, against the stand-in.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packhorse_fake_nvml::{FakeDevice, STATE_VARIABLE, fake_cuda_path, fake_mps_control_path};
use packhorse_gpu::mps::{
    Daemon, DaemonFolder, DaemonLock, MpsError, Ownership, SERVICE, SERVICE_VARIABLE, SharedDaemon,
    client_environment, release_clients, reports_server_failure,
};
use packhorse_gpu::{GpuConfig, Percent};
use packhorse_model::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::machine::Machine;

/// Longer than anything takes.
const LONG: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
const SOON: Duration = Duration::from_secs(5);

fn config(machine: &Machine) -> GpuConfig {
    GpuConfig {
        mps_control: fake_mps_control_path(),
        mps_pipes: machine.folder().join("nobody"),
        ..machine.config()
    }
}

fn started(machine: &Machine) -> Daemon {
    let folder = machine.folder().join("mps");
    Daemon::start(&config(machine), &folder, &FakeDevice::new(1).uuid).unwrap()
}

/// A program that computes through the daemon until the fifo is closed.
fn client(machine: &Machine, daemon: &Daemon, arguments: &[&str]) -> (Child, fs_err::File) {
    let fifo = machine.folder().join("fifo");
    if !fifo.exists() {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    let told = client_environment(daemon.pipes(), Some(Percent(50)), Some(Bytes(2 << 30)));
    let child = Command::new(fake_cuda_path())
        .args(arguments)
        .arg("--hold-until-closed")
        .arg(&fifo)
        .envs(told)
        .env("CUDA_VISIBLE_DEVICES", FakeDevice::new(1).uuid)
        .env(STATE_VARIABLE, machine.state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let writer = fs_err::OpenOptions::new().write(true).open(&fifo).unwrap();
    (child, writer)
}

/// A program that is no MPS control.
fn script(machine: &Machine, text: &str) -> PathBuf {
    let file = machine.folder().join("control");
    fs_err::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs_err::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file
}

/// A daemon of ours in a folder that is there, behind a program of our own.
fn scripted(machine: &Machine, text: &str) -> Daemon {
    daemon_by(&config(machine), machine, text)
}

fn daemon_by(config: &GpuConfig, machine: &Machine, text: &str) -> Daemon {
    let config = GpuConfig { mps_control: script(machine, text), ..config.clone() };
    let folder = machine.folder().join("mps");
    fs_err::create_dir_all(folder.join("pipe")).unwrap();
    Daemon::ours(&config, &folder)
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn a_daemon_is_started_and_stopped() {
    let machine = Machine::with(2);
    let stopped = Daemon::ours(&config(&machine), &machine.folder().join("mps"));
    assert!(!stopped.is_running().unwrap());
    stopped.quit(SOON).unwrap();

    let daemon = started(&machine);
    assert_eq!(daemon, stopped);
    assert_eq!(daemon.ownership(), Ownership::Ours);
    assert!(daemon.is_running().unwrap());
    let status = daemon.status().unwrap();
    assert_eq!(status.servers, []);
    assert_eq!(status.threads, Some(Percent(100)));
    let pid = status.pid.unwrap();
    assert!(is_alive(pid));
    let mode = fs_err::metadata(daemon.pipes()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    daemon.quit(SOON).unwrap();
    assert!(!daemon.is_running().unwrap());
    assert!(matches!(daemon.status(), Err(MpsError::NotRunning { .. })));
    daemon.quit(SOON).unwrap();
}

#[test]
fn a_daemon_that_was_left_behind_is_taken_over() {
    let machine = Machine::with(2);
    let first = started(&machine);
    let pid = first.pid();
    let second = started(&machine);
    assert_eq!(second.pid(), pid);
    second.quit(SOON).unwrap();
}

#[test]
fn a_client_appears_with_its_server_and_can_be_terminated() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let (child, writer) = client(&machine, &daemon, &["--peak", "1G"]);
    let status = daemon.status().unwrap();
    assert_eq!(status.servers.len(), 1);
    let server = &status.servers[0];
    assert_eq!(server.state, "active");
    assert_eq!(server.clients, [child.id()]);

    // Both are on the one GPU that the daemon was started for.
    let devices = machine.devices();
    assert_eq!(devices[0].processes, Some(vec![]));
    let mut on_it: Vec<u32> =
        devices[1].processes.as_ref().unwrap().iter().map(|process| process.pid).collect();
    on_it.sort_unstable();
    let mut wanted = vec![server.pid, child.id()];
    wanted.sort_unstable();
    assert_eq!(on_it, wanted);

    let error = daemon.terminate_client(server.pid, 1).unwrap_err();
    assert!(matches!(error, MpsError::Refused { .. }), "{error}");
    daemon.terminate_client(server.pid, child.id()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("terminated by the server"), "{text}");
    // It was meant: nobody else's failure.
    assert!(!reports_server_failure(&text));
    drop(writer);
    daemon.quit(SOON).unwrap();
}

#[test]
fn only_the_clients_of_an_attempt_are_released() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let (ours, ours_fifo) = client(&machine, &daemon, &["--peak", "1G"]);
    let (mut other, writer) = client(&machine, &daemon, &["--peak", "1G"]);
    let elsewhere = Daemon::ours(&config(&machine), &machine.folder().join("elsewhere"));
    release_clients([&elsewhere], ours.id(), |_| true);
    release_clients([&daemon], ours.id(), |pid| pid == ours.id());
    let output = ours.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("terminated by the server"), "{text}");
    assert_eq!(daemon.status().unwrap().servers[0].clients, [other.id()]);
    drop((ours_fifo, writer));
    other.wait().unwrap();
    daemon.quit(SOON).unwrap();
}

#[test]
fn an_attempt_without_a_daemon_costs_no_command() {
    let machine = Machine::with(1);
    let note = machine.folder().join("called");
    let daemon = scripted(&machine, &format!("touch {}", note.display()));
    let mut leader = Command::new("cat")
        .env_clear()
        .env("PACKHORSE_TASK", "1.1")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    release_clients([&daemon], leader.id(), |_| true);
    assert!(!note.exists());
    drop(leader.stdin.take());
    leader.wait().unwrap();
}

#[test]
fn the_last_user_of_a_shared_daemon_ends_it() {
    let machine = Machine::with(2);
    let config = config(&machine);
    let uuid = FakeDevice::new(1).uuid;
    let folder = DaemonFolder::new(machine.folder(), &uuid);
    let start = || SharedDaemon::start(&config, folder.clone(), &uuid).unwrap();
    let is_running = || folder.daemon(&config).is_running().unwrap();
    let (first, second) = (start(), start());
    assert_eq!(first.daemon().pid(), second.daemon().pid());
    first.quit_if_unused(SOON).unwrap();
    assert!(is_running());
    second.quit_if_unused(SOON).unwrap();
    assert!(!is_running());

    let kept = start();
    folder.set_kept(true).unwrap();
    kept.quit_if_unused(SOON).unwrap();
    assert!(is_running());
    // If it dies all the same, the next one is like any other.
    folder.daemon(&config).quit(SOON).unwrap();
    start().quit_if_unused(SOON).unwrap();
    assert!(!is_running());
}

#[test]
fn mps_can_be_controlled_from_any_thread() {
    fn is_for_any_thread<T: Send + Sync>() {}
    is_for_any_thread::<Daemon>();
    is_for_any_thread::<SharedDaemon>();
    is_for_any_thread::<DaemonLock>();
    is_for_any_thread::<MpsError>();
}

#[test]
fn a_server_that_dies_is_collateral_to_its_clients() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let (child, _writer) = client(&machine, &daemon, &["--peak", "1G"]);
    machine.state.end_mps_server(1);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(reports_server_failure(&text), "{text}");
    assert!(daemon.servers().unwrap().is_empty());
    daemon.quit(SOON).unwrap();
}

#[test]
fn a_client_does_not_get_more_than_it_was_promised() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let told = client_environment(daemon.pipes(), None, Some(Bytes(2 << 30)));
    let run = |peak: &str| {
        Command::new(fake_cuda_path())
            .args(["--peak", peak])
            .envs(told.clone())
            .env("CUDA_VISIBLE_DEVICES", FakeDevice::new(1).uuid)
            .env(STATE_VARIABLE, machine.state.path())
            .output()
            .unwrap()
    };
    assert!(run("2G").status.success());
    let output = run("2049M");
    assert!(String::from_utf8_lossy(&output.stderr).contains("CUDA out of memory"));
    daemon.quit(SOON).unwrap();
}

#[test]
fn clients_that_do_not_end_hold_up_the_end_for_a_while_only() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let (child, _writer) = client(&machine, &daemon, &["--peak", "1G"]);
    daemon.quit(Duration::ZERO).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(reports_server_failure(&String::from_utf8_lossy(&output.stderr)));
}

#[test]
fn somebody_elses_daemon_is_used_and_not_stopped() {
    let machine = Machine::with(2);
    assert_eq!(Daemon::theirs(&config(&machine)).unwrap(), None);
    let other = started(&machine);
    let config = GpuConfig { mps_pipes: other.pipes().to_owned(), ..config(&machine) };
    let theirs = Daemon::theirs(&config).unwrap().unwrap();
    assert_eq!(theirs.ownership(), Ownership::Theirs);
    assert_eq!(theirs.pipes(), other.pipes());
    let error = theirs.quit(SOON).unwrap_err();
    assert!(matches!(error, MpsError::NotOurs { .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    assert!(other.is_running().unwrap());
    other.quit(SOON).unwrap();
    // The folder is still there, but nobody in it.
    assert_eq!(Daemon::theirs(&config).unwrap(), None);
}

#[test]
fn a_machine_without_mps_says_what_is_missing() {
    let machine = Machine::with(1);
    let config = GpuConfig { mps_control: machine.folder().join("nothing"), ..config(&machine) };
    let folder = machine.folder().join("mps");
    let error = Daemon::start(&config, &folder, "GPU-1").unwrap_err();
    assert!(matches!(error, MpsError::NotInstalled { .. }), "{error}");
    assert!(error.to_string().contains("PACKHORSE_MPS_CONTROL"));
}

#[test]
fn a_folder_that_is_too_deep_is_refused_before_anything_starts() {
    let machine = Machine::with(1);
    let folder = machine.folder().join("x".repeat(100));
    let error = Daemon::start(&config(&machine), &folder, "GPU-1").unwrap_err();
    assert!(matches!(error, MpsError::PathTooLong { .. }), "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_command_that_hangs_is_given_up_and_ended() {
    let machine = Machine::with(1);
    let [alive, never] = ["alive", "never"].map(|name| {
        let fifo = machine.folder().join(name);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fifo
    });
    let text = format!("exec 3> {}\nread line < {}", alive.display(), never.display());
    let impatient = GpuConfig { mps_patience: Duration::from_secs(1), ..config(&machine) };
    let daemon = daemon_by(&impatient, &machine, &text);
    // It has one side of the pipe open while it lives, as we have for now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = rustix::fs::open(&alive, flags, rustix::fs::Mode::empty()).unwrap();
    let writer = fs_err::OpenOptions::new().write(true).open(&alive).unwrap();
    let before = Instant::now();
    let error = daemon.servers().unwrap_err();
    assert!(before.elapsed() >= Duration::from_secs(1));
    drop(writer);
    let text = error.to_string();
    assert!(matches!(error, MpsError::TimedOut { .. }), "{text}");
    assert!(text.contains("`get_server_list` within 1 s"), "{text}");
    let ended = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&LONG));
    assert_eq!(ended, Ok(1), "it lives");
}

#[test]
fn what_mps_complains_about_is_passed_on_with_advice() {
    let machine = Machine::with(1);
    for (words, advice) in [
        ("Permission denied", "only the user who started it"),
        ("GPU is in exclusive mode", "nvidia-smi -c DEFAULT"),
    ] {
        let daemon = scripted(&machine, &format!("echo '{words}'; exit 1"));
        let text = daemon.servers().unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
        assert!(text.contains(advice), "{text}");
    }
}

#[test]
fn a_daemon_that_does_not_start_says_why() {
    let machine = Machine::with(1);
    let daemon = "if [ \"$1\" = -d ]; then echo 'no GPU here'; exit 1; fi\n\
                  echo 'Cannot find MPS control daemon process'; exit 1";
    let config = GpuConfig { mps_control: script(&machine, daemon), ..config(&machine) };
    let error = Daemon::start(&config, &machine.folder().join("mps"), "GPU-1").unwrap_err();
    assert!(error.to_string().contains("no GPU here"), "{error}");
}

#[test]
fn commands_are_marked_and_in_no_session_of_ours() {
    let machine = Machine::with(1);
    let text = format!("echo mark ${SERVICE_VARIABLE}\ncut -d' ' -f6 /proc/self/stat\necho $$");
    let MpsError::Refused { answer, .. } = scripted(&machine, &text).servers().unwrap_err() else {
        panic!("that is no list");
    };
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines[0], format!("mark {SERVICE}"));
    // The script leads its own session.
    assert_eq!(lines[1], lines[2]);
}

#[test]
fn a_daemon_does_not_inherit_what_a_run_blocks() {
    let machine = Machine::with(2);
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set, and the mask is this thread's
    // own, which ends with the test.
    let code = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    assert_eq!(code, 0);
    let daemon = started(&machine);
    let pid = daemon.pid().unwrap();
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let environment = fs_err::read(folder.join("environ")).unwrap();
    let mark = format!("{SERVICE_VARIABLE}={SERVICE}");
    let mut variables = environment.split(|byte| *byte == 0);
    assert!(variables.any(|variable| variable == mark.as_bytes()));
    // Blocked, the signal would do nothing.
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&LONG));
    assert_eq!(ended, Ok(1), "it has inherited that SIGTERM is blocked");
}
