use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{FakeDevice, FakeDriver, FakeProcess};

/// The environment variable that names the state folder.
pub const STATE_VARIABLE: &str = "FAKE_NVML_STATE";

/// The folder that holds the pretended machine.
#[derive(Clone, Debug)]
pub struct FakeState {
    root: PathBuf,
}

/// Memory that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFull {
    /// What was still free, in bytes, besides what the asker already had.
    pub free: u64,
}

impl FakeState {
    /// Furnishes `root` as a machine with a driver and no devices.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let state = Self { root: root.into() };
        for folder in ["devices", "events", "hung", "mps", "looks"] {
            let made = fs::create_dir_all(state.root.join(folder));
            made.expect("the test's folder is writable");
        }
        state.driver(&FakeDriver::default());
        state
    }

    /// A folder that was furnished before.
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder that the environment names, by itself or by a link.
    pub fn from_env() -> Option<Self> {
        let named = PathBuf::from(std::env::var_os(STATE_VARIABLE)?);
        let target = fs::read_link(&named);
        Some(Self::open(target.unwrap_or(named)))
    }

    /// Where it is: the value for [`STATE_VARIABLE`].
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Sets the driver.
    pub fn driver(&self, driver: &FakeDriver) -> &Self {
        self.must_replace(&self.root.join("driver.json"), driver)
    }

    /// Adds a device, or replaces the one with the same index.
    pub fn device(&self, device: &FakeDevice) -> &Self {
        self.must_replace(&self.device_file(device.index), device)
    }

    /// Changes the driver.
    pub fn change_driver(&self, change: impl FnOnce(&mut FakeDriver)) -> &Self {
        let mut driver = self.read_driver().expect("the state is readable");
        change(&mut driver);
        self.driver(&driver)
    }

    /// Changes the device `index`, which must be there.
    pub fn change(&self, index: u32, change: impl FnOnce(&mut FakeDevice)) -> &Self {
        let mut device = self.existing(index);
        change(&mut device);
        self.device(&device)
    }

    /// Lets a process hold memory on the device or MIG instance with this
    /// UUID, whether it fits or not.
    pub fn process(&self, uuid: &str, process: &FakeProcess) -> &Self {
        self.must_replace(&self.process_file(uuid, process.pid), process)
    }

    /// Takes a process off a device or MIG instance.
    pub fn end_process(&self, uuid: &str, pid: u32) -> &Self {
        if_there(fs::remove_file(self.process_file(uuid, pid)))
            .expect("the test's folder is writable");
        self
    }

    pub fn read_driver(&self) -> io::Result<FakeDriver> {
        let driver = if_there(read(&self.root.join("driver.json")))?;
        Ok(driver.unwrap_or_default())
    }

    /// All devices, by index.
    pub fn read_devices(&self) -> io::Result<Vec<FakeDevice>> {
        let mut devices: Vec<FakeDevice> = read_all(&self.root.join("devices"))?;
        devices.sort_by_key(|device| device.index);
        Ok(devices)
    }

    /// One device, if it is there.
    pub fn read_device(&self, index: u32) -> io::Result<Option<FakeDevice>> {
        if_there(read(&self.device_file(index)))
    }

    /// One device, which must be there.
    pub(crate) fn existing(&self, index: u32) -> FakeDevice {
        let device = self.read_device(index).expect("the state is readable");
        device.expect("a device with this index is there")
    }

    /// The living processes on the device or MIG instance with this UUID, by
    /// id.
    pub fn read_processes(&self, uuid: &str) -> io::Result<Vec<FakeProcess>> {
        let mut processes = self.read_remains(uuid)?;
        processes.retain(FakeProcess::is_alive);
        Ok(processes)
    }

    /// Living and dead processes.
    fn read_remains(&self, uuid: &str) -> io::Result<Vec<FakeProcess>> {
        let mut processes: Vec<FakeProcess> = read_all(&self.process_folder(uuid))?;
        processes.sort_by_key(|process| process.pid);
        Ok(processes)
    }

    /// Counts a look at who is on the device or MIG instance with this UUID.
    pub fn count_look(&self, uuid: &str) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).append(true);
        // A byte for each: appending needs no lock.
        let mut file = options.open(self.look_folder().join(uuid))?;
        file.write_all(b".")
    }

    /// How often anybody has looked who is on the device or MIG instance with this
    /// UUID.
    pub fn looks(&self, uuid: &str) -> io::Result<u64> {
        let file = if_there(fs::metadata(self.look_folder().join(uuid)))?;
        Ok(file.map_or(0, |file| file.len()))
    }

    /// Where looks are counted: a file for each device, which changes with each.
    pub fn look_folder(&self) -> PathBuf {
        self.root.join("looks")
    }

    /// What is taken on `device`, or on the instance of it with this UUID, in
    /// bytes.
    pub fn used(&self, device: &FakeDevice, uuid: &str) -> io::Result<u64> {
        let mut takers = self.takers(device, uuid)?;
        takers.retain(|taker| device.faults.memory_lingers || taker.is_alive());
        Ok(takers.iter().map(|taker| taker.memory).sum())
    }

    /// Lets a process have so much memory in all on `device`, or on the
    /// instance of it with this UUID, if that fits. Takers wait for each
    /// other, so two never get the same bytes.
    pub fn take(
        &self,
        device: &FakeDevice,
        uuid: &str,
        process: &FakeProcess,
    ) -> io::Result<Result<(), DeviceFull>> {
        let _lock = self.lock()?;
        let mut own = 0;
        let mut others = 0;
        for taker in self.takers(device, uuid)? {
            if taker.pid == process.pid && taker.is_alive() {
                own += taker.memory;
            } else if device.faults.memory_lingers || taker.is_alive() {
                others += taker.memory;
            } else {
                // Forgotten, so that the folder does not grow for ever.
                self.end_process(uuid, taker.pid);
            }
        }
        let (total, reserved) = device.memory_of(uuid);
        let left = total.saturating_sub(reserved).saturating_sub(others);
        if process.memory > left {
            return Ok(Err(DeviceFull { free: left.saturating_sub(own) }));
        }
        self.replace(&self.process_file(uuid, process.pid), process)?;
        Ok(Ok(()))
    }

    /// Everybody who is or was on `device`, or on the instance of it with this
    /// UUID.
    fn takers(&self, device: &FakeDevice, uuid: &str) -> io::Result<Vec<FakeProcess>> {
        let mut takers = self.read_remains(uuid)?;
        if uuid == device.uuid {
            for instance in device.instances() {
                takers.extend(self.read_remains(&instance.uuid)?);
            }
        }
        Ok(takers)
    }

    /// Held while somebody takes memory, or counts.
    pub(crate) fn lock(&self) -> io::Result<fs::File> {
        let lock = fs::File::create(self.root.join("lock"))?;
        lock.file().lock()?;
        Ok(lock)
    }

    fn device_file(&self, index: u32) -> PathBuf {
        self.root.join("devices").join(format!("{index}.json"))
    }

    fn process_folder(&self, uuid: &str) -> PathBuf {
        self.root.join("processes").join(uuid)
    }

    fn process_file(&self, uuid: &str, pid: u32) -> PathBuf {
        self.process_folder(uuid).join(format!("{pid}.json"))
    }

    pub(crate) fn must_replace(&self, file: &Path, value: &impl Serialize) -> &Self {
        self.replace(file, value).expect("the test's folder is writable");
        self
    }

    pub(crate) fn replace(&self, file: &Path, value: &impl Serialize) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let draft = self.root.join(format!(".draft-{}-{number}", std::process::id()));
        fs::write(&draft, serde_json::to_vec_pretty(value)?)?;
        fs::rename(&draft, file)
    }
}

/// What was found, if anything was there.
pub(crate) fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// What is in a folder's files. A folder that is not there is empty, and a file
/// that went while we were looking is not there.
fn read_all<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<T>> {
    let mut values = Vec::new();
    for entry in if_there(fs::read_dir(folder))?.into_iter().flatten() {
        values.extend(if_there(read(&entry?.path()))?);
    }
    Ok(values)
}
