//! The stand-in for MPS, as people and programs use the real one.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use packhorse_fake_nvml::mps::PIPE_VARIABLE;
use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE, fake_mps_control_path, wait_for};

struct Machine {
    folder: tempfile::TempDir,
    state: FakeState,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = FakeState::new(folder.path().join("state"));
        state.device(&FakeDevice::new(0)).device(&FakeDevice::new(1));
        fs_err::create_dir(folder.path().join("pipe")).unwrap();
        Self { folder, state }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env(STATE_VARIABLE, self.state.path())
            .env(PIPE_VARIABLE, self.folder.path().join("pipe"))
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon for the second GPU.
    fn start(&self) -> Output {
        self.command(env!("CARGO_BIN_EXE_fake-mps-control"))
            .arg("-d")
            .env("CUDA_VISIBLE_DEVICES", FakeDevice::new(1).uuid)
            .output()
            .unwrap()
    }

    /// What the daemon answers.
    fn say(&self, line: &str) -> (bool, String) {
        let mut child = self
            .command(env!("CARGO_BIN_EXE_fake-mps-control"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), text)
    }

    fn answer(&self, line: &str) -> String {
        let (success, answer) = self.say(line);
        assert!(success, "{line}: {answer}");
        answer
    }

    /// A client that is attached, and ends when the gate is there.
    fn client(&self, gpu: &str) -> Child {
        let child = self.client_command(gpu).spawn().unwrap();
        let uuid = FakeDevice::new(1).uuid;
        let folder = self.state.path().join("processes").join(&uuid);
        fs_err::create_dir_all(&folder).unwrap();
        let look = || {
            let there = self.state.read_processes(&uuid)?;
            Ok(there.iter().any(|p| p.pid == child.id()).then_some(()))
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        wait_for(&folder, Some(deadline), look).unwrap().unwrap();
        child
    }

    fn client_command(&self, gpu: &str) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_fake-cuda"));
        command
            .args(["--peak", "1G", "--hold-until-exists"])
            .arg(self.folder.path().join("gate"))
            .env("CUDA_VISIBLE_DEVICES", gpu)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn open_gate(&self) {
        fs_err::write(self.folder.path().join("gate"), "").unwrap();
    }
}

fn pid(answer: &str) -> u32 {
    answer.trim().parse().unwrap()
}

#[test]
fn without_a_daemon_commands_fail_as_the_real_ones_do() {
    let machine = Machine::new();
    let (success, answer) = machine.say("get_server_list");
    assert!(!success);
    assert_eq!(answer, "Cannot find MPS control daemon process\n");
}

#[test]
fn a_second_daemon_is_refused() {
    let machine = Machine::new();
    assert!(machine.start().status.success());
    let output = machine.start();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("already running"), "{text}");
    machine.answer("quit");
}

#[test]
fn a_server_comes_with_its_first_client_and_is_shared() {
    let machine = Machine::new();
    machine.start();
    assert_eq!(machine.answer("get_server_list"), "");
    // A daemon for one GPU counts from that one.
    let mut first = machine.client("0");
    let server = pid(&machine.answer("get_server_list"));
    let mut second = machine.client(&FakeDevice::new(1).uuid);
    assert_eq!(pid(&machine.answer("get_server_list")), server);
    assert_eq!(machine.answer(&format!("get_server_status {server}")), "ACTIVE\n");
    let clients = machine.answer(&format!("get_client_list {server}"));
    assert_eq!(clients, format!("{}\n{}\n", first.id(), second.id()));
    assert_eq!(machine.answer("get_client_list 1"), "Server 1 not found\n");
    machine.open_gate();
    assert!(first.wait().unwrap().success());
    assert!(second.wait().unwrap().success());
    machine.answer("quit");
    assert!(!machine.say("get_server_list").0);
}

#[test]
fn a_number_that_the_daemon_does_not_count_is_no_gpu() {
    let machine = Machine::new();
    machine.start();
    let output = machine.client_command("1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("No CUDA GPUs are available"), "{text}");
    machine.answer("quit");
}

#[test]
fn a_server_that_dies_takes_its_clients_and_makes_place_for_another() {
    let machine = Machine::new();
    machine.start();
    let client = machine.client("0");
    let server = pid(&machine.answer("get_server_list"));
    machine.state.end_mps_server(1);
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("remote procedural call"), "{text}");

    let mut client = machine.client("0");
    assert_ne!(pid(&machine.answer("get_server_list")), server);
    machine.open_gate();
    assert!(client.wait().unwrap().success());
    machine.answer("quit");
}

#[test]
fn quitting_leaves_clients_their_server_until_they_end() {
    let machine = Machine::new();
    machine.start();
    let mut client = machine.client("0");
    std::thread::scope(|scope| {
        let quitting = scope.spawn(|| machine.answer("quit"));
        machine.open_gate();
        assert!(client.wait().unwrap().success());
        quitting.join().unwrap();
    });
    assert!(!machine.say("get_server_list").0);
}

#[test]
fn a_daemon_does_not_outlive_its_folder() {
    let machine = Machine::new();
    machine.start();
    let note = machine.folder.path().join("pipe/nvidia-cuda-mps-control.pid");
    let pid = pid(&fs_err::read_to_string(note).unwrap());
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    drop(machine);
    let minute = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut waiting = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut waiting, Some(&minute)), Ok(1));
}

#[test]
fn tests_of_other_crates_find_the_program() {
    let found = fs_err::canonicalize(fake_mps_control_path()).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_fake-mps-control"));
    assert_eq!(found, fs_err::canonicalize(built).unwrap());
}
