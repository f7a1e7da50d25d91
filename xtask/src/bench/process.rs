//! Runs processes and measures their time and memory, and what `/proc` says about them.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{mem, thread};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::environment::BenchEnvironment;

/// A process that has ended.
pub struct FinishedProcess {
    pub status: ExitStatus,
    pub wall: Duration,
    /// Its peak resident memory, in bytes. The kernel counts from before the exec, so this is
    /// never less than what xtask itself has.
    pub peak: u64,
    /// Its processor time, and that of all its descendants that were waited for.
    pub cpu: Duration,
}

/// The peak of several runs of a program.
pub fn peak(runs: &[FinishedProcess]) -> u64 {
    runs.iter().map(|run| run.peak).max().unwrap_or(0)
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Result<FinishedProcess> {
    let start = Instant::now();
    let pid = spawn(command)?.id().cast_signed();
    let mut status = 0;
    // SAFETY: all zeros is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both pointers are to live locals. The child is reaped here and nowhere else:
    // `Child` does not wait when it is dropped.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if reaped != pid {
        return Err(io::Error::last_os_error()).context("cannot wait for a child");
    }
    Ok(FinishedProcess {
        status: ExitStatus::from_raw(status),
        wall: start.elapsed(),
        peak: usage.ru_maxrss.cast_unsigned() * 1024,
        cpu: time_of(usage.ru_utime) + time_of(usage.ru_stime),
    })
}

fn spawn(command: &mut Command) -> Result<Child> {
    let child = command.spawn();
    child.with_context(|| command.get_program().display().to_string())
}

fn time_of(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// A process that is observed while it runs, and killed when dropped.
pub struct RunningProcess(Child);

impl RunningProcess {
    pub fn start(command: &mut Command) -> Result<Self> {
        spawn(command).map(Self)
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.0), signal).context("cannot send a signal")
    }

    /// Its peak resident memory so far, in bytes.
    pub fn peak(&self) -> Result<u64> {
        peak_of(&self.0.id().to_string())
    }

    /// The number of context switches of all its threads.
    pub fn switches(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in fs_err::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = fs_err::read_to_string(thread?.path().join("status"))?;
            for name in ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"] {
                let count = field(&text, name);
                sum += count.with_context(|| format!("no {name} in /proc"))?;
            }
        }
        Ok(sum)
    }

    /// Waits for its end.
    pub fn end(mut self, bench: &BenchEnvironment) -> Result<ExitStatus> {
        for _ in 0..600 {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            pause(Duration::from_millis(100));
        }
        bail!("it did not end within a minute{}", bench.last_stderr_lines())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // If even this fails, there is nothing left to do.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// The peak resident memory of xtask itself so far, in bytes.
pub fn own_peak() -> Result<u64> {
    peak_of("self")
}

fn peak_of(process: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let kilobytes = field(&fs_err::read_to_string(&path)?, "VmHWM");
    Ok(kilobytes.with_context(|| format!("{path} has no VmHWM"))? * 1024)
}

/// The number after `NAME:` in a file of `/proc`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line?.strip_prefix(':')?.split_whitespace().next()?;
    value.parse().ok()
}

/// Lets time pass.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is observed through /proc, which has no events"
)]
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// How many lines a file has. Counted by another process: what we read ourselves would count
/// as memory of the programs that we start afterwards.
pub fn count_lines(path: &Path) -> Result<u64> {
    let output = Command::new("wc").arg("-l").arg(path).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_by_its_whole_name() {
        let text = "VmHWM:\t  1234 kB\nvoluntary_ctxt_switches:\t5\n\
                    nonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(field(text, "VmHWM"), Some(1234));
        assert_eq!(field(text, "voluntary_ctxt_switches"), Some(5));
        assert_eq!(field(text, "nonvoluntary_ctxt_switches"), Some(7));
        assert_eq!(field(text, "Vm"), None);
    }

    #[test]
    fn run_tells_how_it_ended_and_what_it_took() {
        let mut command = Command::new("/bin/sh");
        let run = run(command.args(["-c", "exit 3"])).unwrap();
        assert_eq!(run.status.code(), Some(3));
        assert!(run.peak > 0);
    }
}
