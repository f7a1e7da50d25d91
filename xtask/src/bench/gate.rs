//! A gate that tasks stand before until it is opened: they take no time of the
//! processor, and none of them ends too early or too late.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(20);

/// Closed; opened when dropped.
pub struct Gate {
    arrivals: Fifo,
    closed: Fifo,
}

struct Fifo {
    path: PathBuf,
    file: File,
}

impl Fifo {
    fn make(path: PathBuf) -> Result<Self> {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Opened for both ways, a fifo's open does not wait for the other end.
        let file = fs_err::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)?
            .into_file();
        Ok(Self { path, file })
    }
}

impl Gate {
    pub fn close(folder: &Path) -> Result<Self> {
        Ok(Self {
            arrivals: Fifo::make(folder.join("arrivals"))?,
            closed: Fifo::make(folder.join("gate"))?,
        })
    }

    /// The command line of a task that arrives and then stands there.
    pub fn line(&self) -> String {
        // The shell opens both fifos before it says that it is there. What
        // `cat` reads is nothing but the end of the file, when we close ours.
        let (gate, arrivals) = (self.closed.path.display(), self.arrivals.path.display());
        format!("{{ echo; cat; }} <'{gate}' >'{arrivals}'")
    }

    /// Waits until so many tasks have arrived.
    pub fn wait_for(&self, tasks: usize, stage: &Stage) -> Result<()> {
        for arrived in 0..tasks {
            let mut fds = [PollFd::new(&self.arrivals.file, PollFlags::IN)];
            let patience = Timespec::try_from(PATIENCE)?;
            if poll(&mut fds, Some(&patience))? == 0 {
                let words = stage.last_words();
                bail!("only {arrived} of {tasks} tasks started within {PATIENCE:?}{words}");
            }
            let mut byte = [0];
            (&self.arrivals.file).read_exact(&mut byte)?;
        }
        Ok(())
    }
}
