//! What to wait for: time, or a test.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use packhorse_fake_nvml::{FakeState, FakeUnit, wait_for, wait_until_exists};

use crate::options::CudaOptions;

/// Holds the memory as long as it is told to.
pub fn hold(options: &CudaOptions, looks: &Looks<'_>) -> io::Result<()> {
    pause(options.hold);
    looks.wait_for(options.hold_looks)?;
    if let Some(fifo) = &options.hold_until_closed {
        let mut fifo = fs_err::File::open(fifo)?;
        while fifo.read(&mut [0; 4096])? > 0 {}
    }
    options.hold_until_exists.as_deref().map_or(Ok(()), until_exists)
}

/// Work that takes time.
#[expect(clippy::disallowed_methods, reason = "a program that takes a while is what is pretended")]
pub fn pause(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// How often devices had been looked at, at some moment.
pub struct Looks<'a> {
    state: &'a FakeState,
    then: Vec<(&'a str, u64)>,
}

impl<'a> Looks<'a> {
    /// By now.
    pub fn so_far(state: &'a FakeState, devices: &'a [FakeUnit]) -> io::Result<Self> {
        let count = |device: &'a FakeUnit| Ok((device.uuid(), state.looks(device.uuid())?));
        let then = devices.iter().map(count).collect::<io::Result<_>>()?;
        Ok(Self { state, then })
    }

    /// Waits until each device has been looked at so often since. The first look
    /// may have begun before, and what the last one shows may not have been taken
    /// in yet: four are enough for one that counts.
    pub fn wait_for(&self, number: u64) -> io::Result<()> {
        if number == 0 {
            return Ok(());
        }
        for &(uuid, then) in &self.then {
            let look = || Ok((self.state.looks(uuid)? >= then + number).then_some(()));
            wait_for(&self.state.look_folder(), None, look)?;
        }
        Ok(())
    }
}

/// Waits until the file is there.
pub fn until_exists(file: &Path) -> io::Result<()> {
    if wait_until_exists(file, None)? {
        return Ok(());
    }
    let file = file.display();
    Err(io::Error::other(format!("the folder of {file} is gone")))
}
