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
//! opening return, and ends when the test closes it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that is watched by its output"
)]

mod hold;
mod options;
mod visible;

use std::io;
use std::process::ExitCode;

use packhorse_fake_nvml::{FakeProcess, Full, State};

use hold::pause;
use options::Options;
use visible::Visible;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("fake-cuda: {message}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("fake-cuda: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> io::Result<u8> {
    let Some(state) = State::from_env() else {
        return Err(io::Error::other("FAKE_NVML_STATE names no folder"));
    };
    let devices = visible::devices(state.read_devices()?, |name| std::env::var(name).ok());
    if devices.is_empty() {
        eprintln!("RuntimeError: No CUDA GPUs are available");
        return Ok(1);
    }
    for (ordinal, device) in devices.iter().enumerate() {
        println!("device {ordinal}: {}", device.uuid());
    }
    for step in 1..=options.steps {
        for (ordinal, device) in devices.iter().enumerate() {
            let had = part(options.peak, step - 1, options.steps);
            let wanted = part(options.peak, step, options.steps);
            let process = FakeProcess {
                utilisation: options.utilisation,
                ..FakeProcess::real(std::process::id(), wanted)
            };
            if let Err(full) = state.take(&device.device, device.uuid(), &process)? {
                eprintln!("{}", out_of_memory(ordinal, device, had, wanted, full));
                return Ok(1);
            }
        }
        pause(options.step_time);
    }
    hold::hold(&options.hold)?;
    Ok(options.exit)
}

fn part(peak: u64, step: u32, steps: u32) -> u64 {
    let share = u128::from(peak) * u128::from(step) / u128::from(steps);
    u64::try_from(share).unwrap_or(peak)
}

/// The text by which people, and programs, know this death of a PyTorch
/// program.
fn out_of_memory(ordinal: usize, device: &Visible, had: u64, wanted: u64, full: Full) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. \
         GPU {ordinal} has a total capacity of {} of which {} is free. \
         Including non-PyTorch memory, this process has {} memory in use.",
        size(wanted - had),
        size(device.memory_total()),
        size(full.free),
        size(had),
    )
}

/// `2.00 GiB`, as PyTorch writes it.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes >= 1 << 30 {
        (1 << 30, "GiB")
    } else {
        (1 << 20, "MiB")
    };
    let hundredths = u128::from(bytes) * 100 / unit;
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}
