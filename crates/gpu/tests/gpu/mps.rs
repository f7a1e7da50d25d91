//! Control of MPS, against the stand-in.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packhorse_fake_nvml::{FakeDevice, STATE_VARIABLE, fake_cuda_path, fake_mps_control_path};
use packhorse_gpu::mps::{
    Client, Daemon, MpsError, Ownership, SERVICE, SERVICE_VARIABLE, ServerState, is_collateral,
};
use packhorse_gpu::{Config, Percent};
use packhorse_model::Bytes;

use crate::machine::Machine;

const SOON: Duration = Duration::from_secs(5);

fn config(machine: &Machine) -> Config {
    Config {
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
    let told = Client {
        pipes: daemon.pipes(),
        threads: Some(Percent(50)),
        memory: &[Bytes(2 << 30)],
    };
    let child = Command::new(fake_cuda_path())
        .args(arguments)
        .arg("--hold-until-closed")
        .arg(&fifo)
        .envs(told.environment())
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

fn daemon_by(config: &Config, machine: &Machine, text: &str) -> Daemon {
    let config = Config {
        mps_control: script(machine, text),
        ..config.clone()
    };
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
    let mode = fs_err::metadata(daemon.pipes())
        .unwrap()
        .permissions()
        .mode();
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
    assert_eq!(server.state, ServerState::Active);
    assert_eq!(server.clients, [child.id()]);

    // Both are on the one GPU that the daemon was started for.
    let devices = machine.devices();
    assert_eq!(devices[0].processes, Some(vec![]));
    let mut on_it: Vec<u32> = devices[1]
        .processes
        .as_ref()
        .unwrap()
        .iter()
        .map(|process| process.pid)
        .collect();
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
    assert!(!is_collateral(&text));
    drop(writer);
    daemon.quit(SOON).unwrap();
}

#[test]
fn shares_of_threads_are_set() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    daemon
        .set_default_active_thread_percentage(Percent(30))
        .unwrap();
    assert_eq!(daemon.status().unwrap().threads, Some(Percent(30)));
    let (mut child, writer) = client(&machine, &daemon, &["--peak", "1G"]);
    let server = daemon.servers().unwrap()[0];
    daemon
        .set_active_thread_percentage(server, Percent(60))
        .unwrap();
    let nothing = daemon.set_active_thread_percentage(server, Percent(0));
    assert!(matches!(nothing, Err(MpsError::Refused { .. })));
    let nobody = daemon.set_active_thread_percentage(1, Percent(60));
    assert!(matches!(nobody, Err(MpsError::Refused { .. })));
    drop(writer);
    child.wait().unwrap();
    daemon.quit(SOON).unwrap();
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
    assert!(is_collateral(&text), "{text}");
    assert!(daemon.servers().unwrap().is_empty());
    daemon.quit(SOON).unwrap();
}

#[test]
fn a_client_does_not_get_more_than_it_was_promised() {
    let machine = Machine::with(2);
    let daemon = started(&machine);
    let told = Client {
        pipes: daemon.pipes(),
        threads: None,
        memory: &[Bytes(2 << 30)],
    };
    let run = |peak: &str| {
        Command::new(fake_cuda_path())
            .args(["--peak", peak])
            .envs(told.environment())
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
    assert!(is_collateral(&String::from_utf8_lossy(&output.stderr)));
}

#[test]
fn somebody_elses_daemon_is_used_and_not_stopped() {
    let machine = Machine::with(2);
    assert_eq!(Daemon::theirs(&config(&machine)), None);
    let other = started(&machine);
    let config = Config {
        mps_pipes: other.pipes().to_owned(),
        ..config(&machine)
    };
    let theirs = Daemon::theirs(&config).unwrap();
    assert_eq!(theirs.ownership(), Ownership::Theirs);
    assert_eq!(theirs.pipes(), other.pipes());
    let error = theirs.quit(SOON).unwrap_err();
    assert!(matches!(error, MpsError::NotOurs { .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    assert!(other.is_running().unwrap());
    other.quit(SOON).unwrap();
    // The folder is still there, but nobody in it.
    assert_eq!(Daemon::theirs(&config), None);
}

#[test]
fn a_machine_without_mps_says_what_is_missing() {
    let machine = Machine::with(1);
    let config = Config {
        mps_control: machine.folder().join("nothing"),
        ..config(&machine)
    };
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
    assert!(matches!(error, MpsError::TooDeep { .. }), "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_command_that_hangs_is_given_up_and_ended() {
    let machine = Machine::with(1);
    let fifo = machine.folder().join("never");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let note = machine.folder().join("pid");
    let text = format!(
        "echo $$ > {}\nread line < {}",
        note.display(),
        fifo.display()
    );
    let impatient = Config {
        mps_patience: Duration::from_millis(300),
        ..config(&machine)
    };
    let daemon = daemon_by(&impatient, &machine, &text);
    // Until it has come so far that it hangs.
    let pid = loop {
        let before = Instant::now();
        let error = daemon.servers().unwrap_err();
        assert!(before.elapsed() >= Duration::from_millis(300));
        let text = error.to_string();
        assert!(matches!(error, MpsError::TimedOut { .. }), "{text}");
        assert!(text.contains("`get_server_list` within 0.3 s"), "{text}");
        let written = fs_err::read_to_string(&note).unwrap_or_default();
        if let Some(pid) = written.strip_suffix('\n') {
            break pid.parse().unwrap();
        }
    };
    while is_alive(pid) {}
}

#[test]
fn what_mps_complains_about_is_passed_on_with_advice() {
    let machine = Machine::with(1);
    for (words, advice) in [
        ("Permission denied", "another user's daemon"),
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
    let config = Config {
        mps_control: script(&machine, daemon),
        ..config(&machine)
    };
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
    let folder = PathBuf::from(format!("/proc/{}", daemon.pid().unwrap()));
    // The C library blocks everything for a moment when it makes a thread.
    let status = || fs_err::read_to_string(folder.join("status")).unwrap();
    while !status().contains("SigBlk:\t0000000000000000") {}
    let environment = fs_err::read(folder.join("environ")).unwrap();
    let mark = format!("{SERVICE_VARIABLE}={SERVICE}");
    let mut variables = environment.split(|byte| *byte == 0);
    assert!(variables.any(|variable| variable == mark.as_bytes()));
    daemon.quit(SOON).unwrap();
}
