//! What can befall a machine, one line of a test each.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::event::{FakeEvent, XID};
use crate::{FakeProcess, FakeState, Lost, wait_until_exists, wait_until_gone};

/// The kernel gives no process a number this high.
const FIRST_STRANGER: u32 = 5_000_000;

/// What is noted of calls that hang: that there was any, and one for the memory.
const CALLED: &str = "called";
const LOOKED_AT: &str = "looked-at";
const MEMORY: &str = "nvmlDeviceGetMemoryInfo_v2";

impl FakeState {
    /// Somebody else holds so much on GPU `index`, besides what strangers hold
    /// already. Returns a process id that no real process has.
    pub fn stranger(&self, index: u32, bytes: u64) -> u32 {
        let uuid = self.existing(index).uuid;
        let there = self.read_processes(&uuid).expect("the state is readable");
        let last = there.iter().map(|process| process.pid).max();
        let pid = last.map_or(FIRST_STRANGER, |pid| FIRST_STRANGER.max(pid + 1));
        self.process(&uuid, &FakeProcess::pretended(pid, bytes));
        pid
    }

    /// The stranger leaves GPU `index`.
    pub fn stranger_leaves(&self, index: u32, pid: u32) -> &Self {
        self.end_process(&self.existing(index).uuid, pid)
    }

    /// GPU `index` falls off the bus.
    pub fn lose(&self, index: u32) -> &Self {
        self.change(index, |device| device.faults.lost = Some(Lost::Readings))
    }

    /// GPU `index` is back on the bus.
    pub fn find_again(&self, index: u32) -> &Self {
        self.change(index, |device| device.faults.lost = None)
    }

    /// The driver reports an Xid of GPU `index`.
    pub fn xid(&self, index: u32, code: u64) -> &Self {
        let event = FakeEvent { device: index, kind: XID, data: code };
        self.post(event).expect("the test's folder is writable");
        self
    }

    /// Calls for GPU `index` do not come back until [`FakeState::answer`].
    pub fn hang(&self, index: u32) -> &Self {
        for what in [CALLED, LOOKED_AT] {
            let _ = fs::remove_file(self.hung_file(index, what));
        }
        fs::write(self.hang_file(index), "").expect("the test's folder is writable");
        self
    }

    /// Waits until somebody has called for GPU `index`, which hangs, and does not
    /// get away.
    pub fn await_hung_call(&self, index: u32) -> &Self {
        self.await_hung(index, CALLED)
    }

    /// The same, for a call that asks for the memory, with which a look at a GPU
    /// begins.
    pub fn await_hung_look(&self, index: u32) -> &Self {
        self.await_hung(index, LOOKED_AT)
    }

    fn await_hung(&self, index: u32, what: &str) -> &Self {
        let deadline = Instant::now() + Duration::from_mins(1);
        let called = wait_until_exists(&self.hung_file(index, what), Some(deadline));
        assert!(called.expect("the state is readable"), "nobody calls");
        self
    }

    /// Calls for GPU `index` come back again.
    pub fn answer(&self, index: u32) -> &Self {
        fs::remove_file(self.hang_file(index)).expect("the device hangs");
        self
    }

    /// From now on the memory of processes that die on GPU `index` stays taken,
    /// until [`FakeState::release`].
    pub fn linger(&self, index: u32) -> &Self {
        self.change(index, |device| device.faults.memory_lingers = true)
    }

    /// The memory of processes that have died on GPU `index` is free.
    pub fn release(&self, index: u32) -> &Self {
        self.change(index, |device| device.faults.memory_lingers = false)
    }

    /// The MPS server that has GPU `index` dies.
    pub fn end_mps_server(&self, index: u32) -> &Self {
        fs::write(self.mps_file(&self.existing(index).uuid), "")
            .expect("the test's folder is writable");
        self
    }

    /// Where a server that has this device looks whether it must die.
    pub fn mps_file(&self, uuid: &str) -> PathBuf {
        self.path().join("mps").join(uuid)
    }

    /// Returns when calls for GPU `index` do, of which this is one.
    pub(crate) fn wait_while_hung(&self, index: u32, function: &str) -> io::Result<()> {
        let file = self.hang_file(index);
        if file.exists() {
            fs::write(self.hung_file(index, CALLED), "")?;
            if function == MEMORY {
                fs::write(self.hung_file(index, LOOKED_AT), "")?;
            }
            wait_until_gone(&file, None)?;
        }
        Ok(())
    }

    fn hang_file(&self, index: u32) -> PathBuf {
        self.path().join("hung").join(index.to_string())
    }

    fn hung_file(&self, index: u32, what: &str) -> PathBuf {
        self.hang_file(index).with_added_extension(what)
    }
}
