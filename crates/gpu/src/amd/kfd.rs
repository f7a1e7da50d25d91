//! The compute driver's list of devices, and of the processes that hold memory on
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use packhorse_model::Bytes;

use super::card::{Address, text};
use crate::ProcessMemory;

/// What the compute driver knows.
pub(super) struct Kfd {
    folder: PathBuf,
    /// Its own number for each device.
    ids: BTreeMap<Address, u64>,
}

impl Kfd {
    /// Reads the topology, which is empty if there is no compute driver.
    pub(super) fn read(sysfs: &Path) -> Self {
        let folder = sysfs.join("class/kfd/kfd");
        let nodes = fs::read_dir(folder.join("topology/nodes"));
        let ids =
            nodes.into_iter().flatten().flatten().filter_map(|node| gpu(&node.path())).collect();
        Self { folder, ids }
    }

    /// Whether it knows any device.
    pub(super) fn has_devices(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Whether ROCm can use the device at this address.
    pub(super) fn knows(&self, address: Address) -> bool {
        self.ids.contains_key(&address)
    }

    /// The processes on the device at this address, by id, with the memory they
    /// hold. `None`: the kernel does not tell.
    pub(super) fn processes(&self, address: Address) -> Option<Vec<ProcessMemory>> {
        let file = format!("vram_{}", self.ids.get(&address)?);
        let entries = fs::read_dir(self.folder.join("proc")).ok()?;
        let mut held: Vec<ProcessMemory> = entries
            .flatten()
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok()?;
                let bytes = text(&entry.path().join(&file))?.parse().ok()?;
                // Every ROCm process has a file for every device.
                let memory = Some(Bytes(bytes));
                (bytes > 0).then_some(ProcessMemory { pid, memory, draws: false })
            })
            .collect();
        held.sort_unstable_by_key(|held| held.pid);
        Some(held)
    }
}

/// The address and number of a node that is a GPU: CPUs are nodes too.
fn gpu(node: &Path) -> Option<(Address, u64)> {
    let id: u64 = text(&node.join("gpu_id"))?.parse().ok()?;
    if id == 0 {
        return None;
    }
    let properties = text(&node.join("properties"))?;
    let property = |name: &str| -> Option<u32> {
        let lines = properties.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next()?.parse().ok()
    };
    // Bus, device and function, packed as in PCI.
    let location = property("location_id")?;
    let domain = property("domain").unwrap_or(0);
    let address = (domain, location >> 8, (location >> 3) & 0x1f, location & 0x7);
    Some((address, id))
}
