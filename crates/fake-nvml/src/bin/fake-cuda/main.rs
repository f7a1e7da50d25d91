//! A program that behaves towards the pretended machine as a CUDA program does
//! towards a real one: it sees the devices it may see, takes memory on each of
//! them step by step, holds it, and dies with the text of an out-of-memory
//! error when it does not fit. When it ends, for whatever reason, its memory is
//! free again.
//!
//! ```text
//! fake-cuda --peak 9G --steps 10 --step-time 20ms --hold 500ms --exit 0
//! ```
//!
//! Tests that must not guess at times use `--hold-until-closed FIFO`: the
//! program opens the fifo when it has all its memory, which lets the test's own
//! opening return, and ends when the test closes it. Or `--hold-until-exists
//! FILE`; and `--step-gate PREFIX`, with which step N waits for `PREFIX.N`. With
//! `--step-looks N` and `--hold-looks N` it goes on when its devices have been
//! looked at N times since it took its last step: for tests of what is seen.
//!
//! With `CUDA_MPS_PIPE_DIRECTORY` set and a stand-in MPS daemon there, it
//! computes through the daemon's server: it obeys
//! `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`, and dies with its server.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that is watched by its output"
)]

mod hold;
mod oom;
mod options;
mod server;

use std::io;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::Parser;
use packhorse_fake_nvml::{
    DeviceFull, FakeComputeMode, FakeProcess, FakeState, FakeUnit, ProcessKind, visible_devices,
};

use hold::Looks;
use oom::Lack;
use options::CudaOptions;

fn main() -> ExitCode {
    let options = CudaOptions::parse();
    let result = if options.child { in_child() } else { run(&options) };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("fake-cuda: {error}");
            ExitCode::from(2)
        }
    }
}

/// Lets a child do it all, as launchers and data loaders do.
fn in_child() -> io::Result<u8> {
    let arguments = std::env::args_os().skip(1);
    let status = Command::new(std::env::current_exe()?)
        .args(arguments.filter(|argument| argument != options::CHILD))
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(1))
}

/// What the program has on the pretended machine.
struct CudaJob {
    state: FakeState,
    devices: Vec<FakeUnit>,
    kind: ProcessKind,
}

fn run(options: &CudaOptions) -> io::Result<u8> {
    let Some(state) = FakeState::from_env() else {
        return Err(io::Error::other("FAKE_NVML_STATE names no folder"));
    };
    let Ok(attached) = server::attach() else {
        eprintln!("{}", server::NO_SERVER);
        return Ok(1);
    };
    let mut machine = state.read_devices()?;
    let mut kind = ProcessKind::Compute;
    if let Some(attached) = &attached {
        server::keep_served(&mut machine, &attached.devices);
        kind = ProcessKind::Mps;
    }
    let devices = visible_devices(machine, |name| std::env::var(name).ok());
    if devices.is_empty() {
        eprintln!("RuntimeError: No CUDA GPUs are available");
        return Ok(1);
    }
    if !is_open(&state, &devices, kind)? {
        // Error 46, of which the CUDA Runtime API's manual says (cudaErrorDevicesUnavailable):
        // devices are often unavailable due to use of exclusive or prohibited compute mode.
        eprintln!("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable");
        return Ok(1);
    }
    for (ordinal, device) in devices.iter().enumerate() {
        println!("device {ordinal}: {}", device.uuid());
    }
    let job = Arc::new(CudaJob { state, devices, kind });
    if let Some(attached) = attached {
        let job = Arc::clone(&job);
        std::thread::spawn(move || {
            eprintln!("{}", server::last_words(attached.wait()));
            job.let_go();
            std::process::exit(1);
        });
    }
    job.work(options)
}

/// Whether the compute modes of the devices allow one more process.
fn is_open(state: &FakeState, devices: &[FakeUnit], kind: ProcessKind) -> io::Result<bool> {
    for unit in devices {
        let is_open = match unit.device.compute_mode {
            FakeComputeMode::Default => true,
            FakeComputeMode::Prohibited => false,
            // The server's clients are its own process' to the driver.
            FakeComputeMode::ExclusiveProcess if kind == ProcessKind::Mps => true,
            FakeComputeMode::ExclusiveProcess => {
                let processes = state.read_processes(unit.uuid())?;
                processes.iter().all(|process| process.kind == ProcessKind::Graphics)
            }
        };
        if !is_open {
            return Ok(false);
        }
    }
    Ok(true)
}

impl CudaJob {
    fn work(&self, options: &CudaOptions) -> io::Result<u8> {
        let mut looks = Looks::so_far(&self.state, &self.devices)?;
        let steps = options.steps.get();
        for step in 1..=steps {
            if let Some(gate) = &options.step_gate
                && step > 1
            {
                hold::until_exists(&gate.with_added_extension(step.to_string()))?;
            }
            looks = Looks::so_far(&self.state, &self.devices)?;
            let had = part(options.peak, step - 1, steps);
            let wanted = part(options.peak, step, steps);
            for ordinal in 0..self.devices.len() {
                if let Err(full) = self.take(ordinal, had, wanted, options.utilisation)? {
                    let unit = &self.devices[ordinal];
                    let lack = Lack {
                        ordinal,
                        total: unit.device.memory_of(unit.uuid()).0,
                        free: full.free,
                        had,
                        wanted,
                    };
                    if let Some(text) = options.oom.text(&lack) {
                        eprintln!("{text}");
                    }
                    return Ok(options.oom_exit);
                }
            }
            hold::pause(options.step_time);
            looks.wait_for(options.step_looks)?;
        }
        hold::hold(options, &looks)?;
        self.let_go();
        Ok(options.exit)
    }

    /// Takes memory on one device, within its limit under a server.
    fn take(
        &self,
        ordinal: usize,
        had: u64,
        wanted: u64,
        utilisation: u32,
    ) -> io::Result<Result<(), DeviceFull>> {
        if self.kind == ProcessKind::Mps
            && let Some(limit) = server::limit(ordinal)
            && wanted > limit
        {
            let free = limit.saturating_sub(had);
            return Ok(Err(DeviceFull { free }));
        }
        let process = FakeProcess {
            kind: self.kind,
            utilisation,
            ..FakeProcess::real(std::process::id(), wanted)
        };
        let device = &self.devices[ordinal];
        self.state.take(&device.device, device.uuid(), &process)
    }

    /// Gives the memory back, unless this driver keeps that of the dead. It
    /// would be free without this as well; but thousands of short programs
    /// would leave thousands of files to look through. One that runs out of memory
    /// does not get here: it is to be seen with what it had until it is gone.
    fn let_go(&self) {
        for device in &self.devices {
            let index = device.device.index;
            let now = self.state.read_device(index).ok().flatten();
            if now.is_some_and(|device| !device.faults.memory_lingers) {
                self.state.end_process(device.uuid(), std::process::id());
            }
        }
    }
}

fn part(peak: u64, step: u32, steps: u32) -> u64 {
    let share = u128::from(peak) * u128::from(step) / u128::from(steps);
    u64::try_from(share).unwrap_or(peak)
}
