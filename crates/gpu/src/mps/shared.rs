//! Daemons that several runs of one user share.
//!
//! Each device has a daemon of its own, in a folder below the state folder, so that a
//! server that dies takes only one device's tasks with it. Every run that uses a daemon
//! holds a shared lock on a file in its folder; the last one can get the lock
//! exclusively, and ends the daemon. The kernel releases the lock of a run that dies.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::File;
use packhorse_proc::lock_error;
use packhorse_trust::{create_private, ensure_private_folder, write_private};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Daemon, MpsError};
use crate::GpuConfig;

/// The file in a daemon's folder that its users hold locked.
const LOCK: &str = "lock";

/// The file in the folder of a daemon that was started by hand: no run ends that one.
const KEPT: &str = "kept";

/// The folder of one device's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonFolder(PathBuf);

impl DaemonFolder {
    /// The folder for this device below the state folder. Its name is short: the paths of
    /// the sockets in it must have less than 108 bytes.
    pub fn new(state_folder: &Path, uuid: &str) -> Self {
        Self(state_folder.join("mps").join(short_name(uuid)))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The daemon in it, which need not be running.
    pub fn daemon(&self, config: &GpuConfig) -> Daemon {
        Daemon::ours(config, &self.0)
    }

    /// Says whether the daemon stays when no run uses it.
    pub fn set_kept(&self, kept: bool) -> io::Result<()> {
        if kept {
            return write_private(&self.0.join(KEPT), "");
        }
        match fs_err::remove_file(self.0.join(KEPT)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn is_kept(&self) -> bool {
        self.0.join(KEPT).exists()
    }

    /// The right to end the daemon: until it is dropped, no run can start to use it.
    /// `None`: a run uses it.
    pub fn try_lock(&self) -> io::Result<Option<DaemonLock>> {
        let lock = DaemonLock(self.open_lock()?);
        Ok(lock.try_exclusive()?.then_some(lock))
    }

    /// The right to use the daemon: until it is dropped, nobody ends it. Waits at most for
    /// one that is just being ended.
    fn lock_shared(&self) -> io::Result<DaemonLock> {
        ensure_private_folder(&self.0)?;
        let lock = self.open_lock()?;
        flock(lock.file(), FlockOperation::LockShared)
            .map_err(|errno| lock_error(lock.path(), errno))?;
        Ok(DaemonLock(lock))
    }

    fn open_lock(&self) -> io::Result<File> {
        let path = self.0.join(LOCK);
        Ok(File::from_parts(create_private(&path)?, path))
    }
}

/// A lock on a daemon's folder, released when dropped.
#[derive(Debug)]
pub struct DaemonLock(File);

impl DaemonLock {
    fn try_exclusive(&self) -> io::Result<bool> {
        match flock(self.0.file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(lock_error(self.0.path(), errno)),
        }
    }
}

/// A running daemon of ours, which other runs of the same user may use as well. Nobody
/// ends it until this is dropped.
#[derive(Debug)]
pub struct SharedDaemon {
    daemon: Daemon,
    folder: DaemonFolder,
    lock: DaemonLock,
}

impl SharedDaemon {
    /// Starts the daemon of a device, unless it is running already.
    pub fn start(config: &GpuConfig, folder: DaemonFolder, uuid: &str) -> Result<Self, MpsError> {
        let lock = folder.lock_shared()?;
        if folder.is_kept() && !folder.daemon(config).is_running().unwrap_or(true) {
            // The one that was started by hand is gone, for example after a reboot.
            folder.set_kept(false)?;
        }
        Ok(Self { daemon: Daemon::start(config, folder.path(), uuid)?, folder, lock })
    }

    /// The daemon itself.
    pub const fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Ends the daemon, unless somebody else uses it or it is kept.
    pub fn quit_if_unused(self, patience: Duration) -> Result<(), MpsError> {
        if self.lock.try_exclusive()? && !self.folder.is_kept() {
            self.daemon.quit(patience)?;
        }
        Ok(())
    }
}

fn short_name(uuid: &str) -> String {
    let first = |text: &str, count| text.chars().take(count).collect::<String>();
    // Drivers before R470 name an instance by its GPU and two numbers.
    let old = uuid.strip_prefix("MIG-GPU-");
    match old.and_then(|name| name.split_once('/')) {
        Some((gpu, instance)) => format!("{}-{}", first(gpu, 8), instance.replace('/', "-")),
        None => first(uuid, 12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_folder_of_its_own() {
        let gpu = "8f2c1a9d-77e0-4c1b-9a11-0123456789ab";
        let names = [
            format!("GPU-{gpu}"),
            format!("MIG-{gpu}"),
            format!("MIG-GPU-{gpu}/1/0"),
            format!("MIG-GPU-{gpu}/2/0"),
        ];
        let short = names.map(|name| short_name(&name));
        let expected = ["GPU-8f2c1a9d", "MIG-8f2c1a9d", "8f2c1a9d-1-0", "8f2c1a9d-2-0"];
        assert_eq!(short, expected);
    }

    #[test]
    fn a_daemon_in_use_cannot_be_locked() {
        let state = tempfile::tempdir().unwrap();
        let folder = DaemonFolder::new(state.path(), "GPU-1");
        let used = folder.lock_shared().unwrap();
        let also = folder.lock_shared().unwrap();
        assert!(folder.try_lock().unwrap().is_none());
        assert!(!used.try_exclusive().unwrap());
        drop(also);
        assert!(used.try_exclusive().unwrap(), "it is the last user");
        drop(used);
        assert!(folder.try_lock().unwrap().is_some());
    }
}
