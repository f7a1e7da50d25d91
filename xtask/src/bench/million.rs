//! A million lines piped in while the first of them still runs: memory.

use std::io::{self, Write};
use std::iter;
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::ioctl_fionread;
use rustix::process::Signal;

use super::environment::BenchEnvironment;
use super::gate::TaskGate;
use super::process::{RunningProcess, pause};
use super::report::Section;
use super::statistics::megabytes;

const LINES: u64 = 1_000_000;
/// How many bytes to write at a time.
const BLOCK: usize = 1 << 14;
/// A reader that has not read for this long has decided to wait.
const STALLED: Duration = Duration::from_secs(3);
/// What the end of the input causes has happened after this time.
const SETTLED: Duration = Duration::from_secs(1);

/// How much had been read when the memory was measured.
enum LinesRead {
    All(Duration),
    /// This many bytes: the reader reads no more than it can use.
    Part(u64),
}

pub fn measure(bench: &BenchEnvironment) -> Result<Section> {
    let folder = bench.folder()?;
    let gate = TaskGate::close(folder.path())?;
    let mut command = bench.packhorse(&folder.path().join("home"))?;
    command.args(["run", "--slots", "1"]).stdin(Stdio::piped());

    let first = gate.line();
    let lines = || iter::once(first.clone()).chain((1..LINES).map(line));
    let total = lines().map(|line| line.len() as u64 + 1).sum();
    let written = AtomicU64::new(0);
    let (taken, peak) = thread::scope(|scope| {
        let mut packhorse = RunningProcess::start(&mut command)?;
        let stdin = packhorse.child().stdin.take().context("no stdin")?;
        let pipe = stdin.as_fd().try_clone_to_owned()?;
        // It fails when the reader ends before the lines do, which is no error.
        scope.spawn(|| write_lines(stdin, lines(), &written).ok());

        gate.wait_for(1, bench)?;
        let taken = wait_until_taken(&mut packhorse, &pipe, &written, total)?;
        // The reader sees the end of its input only now.
        drop(pipe);
        pause(SETTLED);
        let peak = packhorse.peak()?;

        packhorse.signal(Signal::TERM)?;
        drop(gate);
        packhorse.end(bench)?;
        anyhow::Ok((taken, peak))
    })?;

    let taken = match taken {
        LinesRead::All(time) => format!("all, in {:.2} s", time.as_secs_f64()),
        LinesRead::Part(bytes) => format!("{} of {}", megabytes(bytes), megabytes(total)),
    };
    let mut section = Section::new("million: lines piped in");
    section.part(
        "The first of a million lines runs on the only slot; the others wait, in the pipe if \
         they have not been read.",
        ["lines", "read", "peak memory"],
    );
    section.row([&LINES, &taken, &megabytes(peak)]);
    section.less_than("less than 24 MB resident", megabytes(peak), 24.0);
    Ok(section)
}

/// As long as real ones are, and harmless should one of them run.
fn line(number: u64) -> String {
    format!("/bin/true --lr 0.001 --seed {number}")
}

fn write_lines(
    mut pipe: ChildStdin,
    lines: impl Iterator<Item = String>,
    written: &AtomicU64,
) -> io::Result<()> {
    let mut text = Vec::new();
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        writeln!(text, "{line}")?;
        if text.len() >= BLOCK || lines.peek().is_none() {
            pipe.write_all(&text)?;
            written.fetch_add(text.len() as u64, Ordering::Relaxed);
            text.clear();
        }
    }
    Ok(())
}

/// Waits until the pipe is empty, or the reader has stopped reading.
fn wait_until_taken(
    packhorse: &mut RunningProcess,
    pipe: &OwnedFd,
    written: &AtomicU64,
    total: u64,
) -> Result<LinesRead> {
    let start = Instant::now();
    let (mut progress, mut last) = (Instant::now(), 0);
    loop {
        if !packhorse.is_running()? {
            bail!("it ended while its first task was running");
        }
        let written = written.load(Ordering::Relaxed);
        let taken = written.saturating_sub(ioctl_fionread(pipe)?);
        if taken > last {
            (progress, last) = (Instant::now(), taken);
        }
        if taken >= total {
            return Ok(LinesRead::All(start.elapsed()));
        }
        if progress.elapsed() > STALLED {
            return Ok(LinesRead::Part(taken));
        }
        pause(Duration::from_millis(5));
    }
}
