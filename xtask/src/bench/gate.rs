//! A gate at which tasks wait until it is opened: they use no CPU time, and none of them
//! ends too early or too late.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::environment::BenchEnvironment;

const PATIENCE: Duration = Duration::from_secs(20);

/// A closed gate, opened when dropped.
pub struct TaskGate {
    folder: PathBuf,
    arrivals: File,
    _gate: File,
}

const ARRIVALS: &str = "arrivals";
const GATE: &str = "gate";

fn make_fifo(path: &Path) -> Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let mut options = fs_err::OpenOptions::new();
    // Opening a fifo for reading and writing does not wait for the other end.
    Ok(options.read(true).write(true).open(path)?.into_file())
}

impl TaskGate {
    pub fn close(folder: &Path) -> Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            arrivals: make_fifo(&folder.join(ARRIVALS))?,
            _gate: make_fifo(&folder.join(GATE))?,
        })
    }

    /// The command line of a task that arrives at the gate and waits.
    pub fn line(&self) -> String {
        // The shell opens both fifos before it writes. `cat` reads only the end of the file,
        // when we close our end.
        let folder = self.folder.display();
        format!("{{ echo; cat; }} <'{folder}/{GATE}' >'{folder}/{ARRIVALS}'")
    }

    /// Waits until this many tasks have arrived.
    pub fn wait_for(&self, tasks: usize, bench: &BenchEnvironment) -> Result<()> {
        for arrived in 0..tasks {
            let mut fds = [PollFd::new(&self.arrivals, PollFlags::IN)];
            let patience = Timespec::try_from(PATIENCE)?;
            if poll(&mut fds, Some(&patience))? == 0 {
                let words = bench.last_stderr_lines();
                bail!("only {arrived} of {tasks} tasks started within {PATIENCE:?}{words}");
            }
            let mut byte = [0];
            (&self.arrivals).read_exact(&mut byte)?;
        }
        Ok(())
    }
}
