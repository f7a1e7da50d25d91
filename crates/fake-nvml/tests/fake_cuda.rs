//! The pretended CUDA program, as other tests use it.

#![expect(clippy::unwrap_used, reason = "a test without its set-up has failed")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use packhorse_fake_nvml::mps::{LIMIT_VARIABLE, PIPE_VARIABLE};
use packhorse_fake_nvml::{
    FakeDevice, FakeProcess, FakeState, STATE_VARIABLE, fake_cuda_path, wait_for,
};

fn fake_cuda(state: &FakeState, gpu: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-cuda"));
    command
        .args(arguments)
        .env(STATE_VARIABLE, state.path())
        .env("CUDA_VISIBLE_DEVICES", gpu)
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        .stdin(Stdio::null());
    command
}

fn machine(folder: &Path) -> (FakeState, FakeDevice) {
    let state = FakeState::new(folder.join("state"));
    let device = FakeDevice { memory_total: 10 << 30, memory_reserved: 0, ..FakeDevice::new(0) };
    state.device(&device).device(&FakeDevice::new(1));
    (state, device)
}

fn fifo(folder: &Path) -> PathBuf {
    let fifo = folder.join("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fifo
}

/// A program that has its memory and waits for the returned fifo to be closed.
fn holding(state: &FakeState, folder: &Path, peak: &str) -> (Child, fs_err::File) {
    let fifo = fifo(folder);
    let path = fifo.to_str().unwrap();
    let child =
        fake_cuda(state, "0", &["--peak", peak, "--steps", "3", "--hold-until-closed", path])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
    let writer = fs_err::OpenOptions::new().write(true).open(&fifo).unwrap();
    (child, writer)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn memory_is_held_until_the_program_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let (mut child, writer) = holding(&state, folder.path(), "6G");

    assert_eq!(state.used(&device, &device.uuid).unwrap(), 6 << 30);
    let processes = state.read_processes(&device.uuid).unwrap();
    assert_eq!(processes[0].pid, child.id());

    drop(writer);
    assert!(child.wait().unwrap().success());
    assert_eq!(state.used(&device, &device.uuid).unwrap(), 0);
}

#[test]
fn a_killed_program_frees_its_memory_even_before_it_is_reaped() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let (mut child, _writer) = holding(&state, folder.path(), "6G");

    child.kill().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
    assert_eq!(state.used(&device, &device.uuid).unwrap(), 0);

    state.change(0, |device| device.faults.memory_lingers = true);
    let device = &state.read_devices().unwrap()[0];
    assert_eq!(state.used(device, &device.uuid).unwrap(), 6 << 30);
    assert_eq!(state.read_processes(&device.uuid).unwrap(), []);
    child.wait().unwrap();
}

#[test]
fn too_little_memory_is_cudas_own_error() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    state.process(&device.uuid, &FakeProcess::pretended(1, 3 << 30));

    let output = fake_cuda(&state, "0", &["--peak", "8G", "--steps", "4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output);
    assert!(
        text.contains(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \
             GPU 0 has a total capacity of 10.00 GiB of which 1.00 GiB is free."
        ),
        "{text}"
    );
}

#[test]
fn every_framework_dies_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = machine(folder.path());
    for (style, words) in [
        ("pytorch", "torch.OutOfMemoryError: CUDA out of memory."),
        ("tensorflow", "ResourceExhaustedError: OOM when allocating tensor"),
        ("jax", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"),
        ("cublas", "CUBLAS_STATUS_ALLOC_FAILED"),
        ("cuda", "CUDA error: out of memory"),
        ("silent", ""),
    ] {
        let arguments = ["--peak=11G", "--oom", style, "--oom-exit=9"];
        let output = fake_cuda(&state, "0", &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(9), "{style}");
        let text = text(&output);
        assert!(text.contains(words), "{style}: {text}");
        assert_eq!(text.is_empty(), style == "silent");
    }
}

#[test]
fn a_child_may_hold_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let fifo = fifo(folder.path());
    let path = fifo.to_str().unwrap();
    let arguments = ["--child", "--peak=2G", "--exit=5", "--hold-until-closed", path];
    let mut parent = fake_cuda(&state, "0", &arguments).stdout(Stdio::null()).spawn().unwrap();
    let writer = fs_err::OpenOptions::new().write(true).open(&fifo).unwrap();
    let processes = state.read_processes(&device.uuid).unwrap();
    assert_eq!(processes.len(), 1);
    assert_ne!(processes[0].pid, parent.id());
    let stat = fs_err::read_to_string(format!("/proc/{}/stat", processes[0].pid)).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let its_parent = after_name.split_whitespace().nth(1).unwrap();
    assert_eq!(its_parent, parent.id().to_string());
    drop(writer);
    assert_eq!(parent.wait().unwrap().code(), Some(5));
}

#[test]
fn growth_waits_for_the_test() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let gate = folder.path().join("gate");
    let path = gate.to_str().unwrap();
    let arguments = ["--peak=6G", "--steps=3", "--step-gate", path];
    let mut child = fake_cuda(&state, "0", &arguments).stdout(Stdio::null()).spawn().unwrap();
    let taken = |bytes: u64| {
        let look = || Ok((state.used(&device, &device.uuid)? == bytes).then_some(()));
        let processes = state.path().join("processes").join(&device.uuid);
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        wait_for(&processes, Some(deadline), look).unwrap().unwrap();
    };
    fs_err::create_dir_all(state.path().join("processes").join(&device.uuid)).unwrap();
    taken(2 << 30);
    fs_err::write(folder.path().join("gate.2"), "").unwrap();
    taken(4 << 30);
    fs_err::write(folder.path().join("gate.3"), "").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(state.used(&device, &device.uuid).unwrap(), 0);
}

#[test]
fn a_limit_of_mps_is_nothing_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = machine(folder.path());
    let output = fake_cuda(&state, "0", &["--peak=6G"])
        .env(PIPE_VARIABLE, folder.path())
        .env(LIMIT_VARIABLE, "0=1G")
        .output()
        .unwrap();
    assert!(output.status.success());
}

#[test]
fn programs_that_start_together_never_get_the_same_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let gate = folder.path().join("gate");
    let path = gate.to_str().unwrap();
    let (ended, endings) = std::sync::mpsc::channel();
    for _ in 0..12 {
        let mut child = fake_cuda(&state, "0", &["--peak", "2G", "--hold-until-exists", path])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(child.wait().unwrap().code()));
    }
    // Ten GiB are enough for five; the others die at once, and only they.
    let next = || endings.recv_timeout(Duration::from_mins(1));
    for _ in 0..7 {
        assert_eq!(next(), Ok(Some(1)));
    }
    assert_eq!(state.used(&device, &device.uuid).unwrap(), 10 << 30);

    fs_err::write(&gate, "").unwrap();
    for _ in 0..5 {
        assert_eq!(next(), Ok(Some(0)));
    }
}

#[test]
fn takers_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let together = std::sync::Barrier::new(4);
    for round in 0..100 {
        // Each wants more than half: only one can have it.
        let taken = std::thread::scope(|scope| {
            let takers: Vec<_> = (1..=4)
                .map(|pid| {
                    let (state, device, together) = (&state, &device, &together);
                    scope.spawn(move || {
                        let process = FakeProcess::pretended(pid, 6 << 30);
                        together.wait();
                        state.take(device, &device.uuid, &process).unwrap()
                    })
                })
                .collect();
            let answers = takers.into_iter().map(|taker| taker.join().unwrap());
            answers.flatten().count()
        });
        assert_eq!(taken, 1, "in round {round}");
        for pid in 1..=4 {
            state.end_process(&device.uuid, pid);
        }
    }
}

#[test]
fn every_visible_device_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let other = state.read_devices().unwrap().remove(1);
    let output = fake_cuda(&state, "1,0", &["--peak=1G", "--exit=7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("device 0: {}\ndevice 1: {}\n", other.uuid, device.uuid)
    );
}

#[test]
fn without_a_visible_device_there_is_no_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let (state, _) = machine(folder.path());
    let output = fake_cuda(&state, "", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("No CUDA GPUs are available"));
}

#[test]
fn tests_of_other_crates_find_the_program() {
    let found = fs_err::canonicalize(fake_cuda_path()).unwrap();
    let built = fs_err::canonicalize(env!("CARGO_BIN_EXE_fake-cuda")).unwrap();
    assert_eq!(found, built);
}

#[test]
fn a_program_can_wait_until_it_was_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (state, device) = machine(folder.path());
    let options = ["--peak", "6G", "--steps", "2", "--step-looks", "1"];
    let mut child = fake_cuda(&state, "0", &options)
        .args(["--hold-looks", "3"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let processes = state.path().join("processes").join(&device.uuid);
    fs_err::create_dir_all(&processes).unwrap();
    let has = |gibibytes: u64| {
        let used = || state.used(&device, &device.uuid).map(|used| used >> 30);
        wait_for(&processes, None, || Ok((used()? == gibibytes).then_some(()))).unwrap();
    };
    has(3);
    state.count_look(&device.uuid).unwrap();
    has(6);
    for _ in 0..3 {
        assert_eq!(child.try_wait().unwrap(), None, "before the third look");
        state.count_look(&device.uuid).unwrap();
    }
    assert!(child.wait().unwrap().success());
}
