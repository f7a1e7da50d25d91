//! What is done in a step.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::OnceLock;

use packhorse_orders::{Confinement, JOBS, JobOrders, STATE_FOLDER, confine, read_trusted};

use crate::slurm::{self, Spank};

/// The orders of this step's job. Tasks are forked from the process that has read them.
static ORDERS: OnceLock<JobOrders> = OnceLock::new();

/// What a task's exit status is if its job was refused.
const REFUSED: i32 = 1;

/// Reads the orders of the step's job.
pub fn begin(spank: Spank, words: &[String]) {
    if !slurm::is_step(spank) {
        return;
    }
    let state = words.iter().find_map(|word| word.strip_prefix("state="));
    let state = Path::new(state.unwrap_or(STATE_FOLDER));
    let (Some(job), Some(uid)) = (slurm::job(spank), slurm::uid(spank)) else {
        return;
    };
    let file = state.join(JOBS).join(job.to_string());
    match read(&file) {
        Ok(orders) if orders.uid != uid || orders.job != job => {
            slurm::tell(&format!("{} is another job's", file.display()));
        }
        Ok(orders) if Some(&orders.boot) != boot().as_ref() => {}
        Ok(orders) => {
            if let Some(lock) = &orders.wait {
                wait_for(lock);
            }
            // Nobody else sets it.
            let _ = ORDERS.set(orders);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => slurm::tell(&format!("cannot read {}: {error}", file.display())),
    }
}

/// Holds the job's tasks to their devices.
pub fn confine_task(spank: Spank) {
    let Some(orders) = ORDERS.get() else { return };
    if orders.devices.is_empty() {
        return;
    }
    // The step for logins has no task; it is in a cgroup of the job itself.
    let process = slurm::task(spank).unwrap_or_else(std::process::id);
    match confine(process, orders.job, &orders.devices) {
        Ok(Confinement::Version1(_) | Confinement::Version2(_) | Confinement::None) => {}
        Err(error) => slurm::tell(&format!("cannot give this task its GPU: {error}")),
    }
}

/// Sets up a task's environment, or ends it.
pub fn prepare_task(spank: Spank) {
    let Some(orders) = ORDERS.get() else { return };
    if let Some(reason) = &orders.refused {
        slurm::tell(reason);
        // SAFETY: this is the process that was to become the task. It shares the memory of
        // slurmstepd by copy only, whose exit handlers must not run here.
        unsafe { libc::_exit(REFUSED) };
    }
    for (name, value) in &orders.variables {
        if !slurm::set_variable(spank, name, value.as_deref()) {
            slurm::tell(&format!("cannot set {name}"));
        }
    }
}

fn read(file: &Path) -> io::Result<JobOrders> {
    let text = read_trusted(file)?;
    text.parse().map_err(io::Error::other)
}

/// Which boot of the machine this is.
fn boot() -> Option<String> {
    let file = OpenOptions::new()
        .read(true)
        .open("/proc/sys/kernel/random/boot_id");
    let text = file.and_then(io::read_to_string).ok()?;
    Some(text.trim().to_owned())
}

/// Waits until whoever has locked the file is done. It is locked only while a server is
/// started or ended, which has time limits, and only root can open it.
fn wait_for(lock: &Path) {
    let Ok(lock) = OpenOptions::new().read(true).open(lock) else {
        return;
    };
    // SAFETY: the descriptor is open.
    while unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_SH) } != 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}
