//! One card's folder under `class/drm`.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use packhorse_model::Bytes;

use crate::{Celsius, Device, DeviceMemory, Health, Milliwatts, Percent, Vendor, cores};

/// AMD's PCI vendor id.
const AMD: &str = "0x1002";

/// A PCI address: domain, bus, device and function.
pub(super) type Address = (u32, u32, u32, u32);

/// An AMD card.
pub(super) struct Card {
    folder: PathBuf,
    bus_id: String,
    pub(super) address: Address,
}

/// All AMD cards, in no particular order.
pub(super) fn find(sysfs: &Path) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(sysfs.join("class/drm")) else {
        return Vec::new();
    };
    let folders = entries.flatten().filter(|entry| {
        // `card0` is a card, `card0-DP-1` one of its connectors.
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("card"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    folders.filter_map(|entry| Card::open(entry.path().join("device"))).collect()
}

impl Card {
    fn open(folder: PathBuf) -> Option<Self> {
        if text(&folder.join("vendor"))? != AMD {
            return None;
        }
        let events = text(&folder.join("uevent"))?;
        let bus_id =
            events.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?.to_owned();
        let address = address(&bus_id)?;
        Some(Self { folder, bus_id, address })
    }

    /// The device without the readings that change, except memory and health.
    pub(super) fn device(&self, index: u32) -> Device {
        let unique = self.text("unique_id").filter(|id| !id.is_empty());
        let product = self.text("product_name").filter(|name| !name.is_empty());
        Device {
            // As ROCm writes it.
            uuid: unique.map(|id| format!("GPU-{}", id.trim_start_matches("0x"))),
            name: product.or_else(|| Some(format!("AMD GPU {}", self.text("device")?))),
            pci_bus_id: Some(self.bus_id.clone()),
            near_cores: self
                .text("local_cpulist")
                .and_then(|list| cores::parse_list(&list))
                .unwrap_or_default(),
            memory: self.memory(),
            health: self.health(),
            ..Device::unknown(index, Vendor::Amd)
        }
    }

    /// Adds the readings that change.
    pub(super) fn read_readings(&self, device: &mut Device) {
        device.utilisation = self.utilisation();
        let Some(sensors) = self.sensors() else {
            return;
        };
        let sensor = |name: &str| -> Option<i64> { text(&sensors.join(name))?.parse().ok() };
        // The kernel counts in thousandths of a degree and millionths of a watt.
        device.temperature = sensor("temp1_input")
            .and_then(|thousandths| i32::try_from(thousandths / 1000).ok())
            .map(Celsius);
        let power = |name| {
            let millionths = u64::try_from(sensor(name)?).ok()?;
            Some(Milliwatts(millionths / 1000))
        };
        device.power = power("power1_average").or_else(|| power("power1_input"));
        device.power_limit = power("power1_cap");
    }

    pub(super) fn utilisation(&self) -> Option<Percent> {
        let busy = self.number("gpu_busy_percent")?;
        Some(Percent(u8::try_from(busy.min(100)).ok()?))
    }

    pub(super) fn memory(&self) -> Option<DeviceMemory> {
        let total = self.number("mem_info_vram_total")?;
        let used = self.number("mem_info_vram_used")?;
        Some(DeviceMemory {
            total: Bytes(total),
            used: Bytes(used),
            // The kernel gives only these two.
            free: Bytes(total.saturating_sub(used)),
            reserved: Bytes(0),
        })
    }

    /// A card that hangs or is gone still has its files, but they cannot be read.
    pub(super) fn health(&self) -> Health {
        match fs::read(self.folder.join("mem_info_vram_used")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Health::Lost(format!("its memory cannot be read: {error}"))
            }
            _ => Health::Ok,
        }
    }

    /// The folder of its sensors. Its number depends on the order in which drivers
    /// were loaded.
    fn sensors(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.folder.join("hwmon")).ok()?;
        entries.flatten().map(|entry| entry.path()).min()
    }

    fn text(&self, name: &str) -> Option<String> {
        text(&self.folder.join(name))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// A file's text without its line end.
pub(super) fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

/// Parses `0000:03:00.0`.
fn address(text: &str) -> Option<Address> {
    let number = |text| u32::from_str_radix(text, 16).ok();
    let (rest, function) = text.split_once('.')?;
    let mut parts = rest.splitn(3, ':').map(number);
    Some((parts.next()??, parts.next()??, parts.next()??, number(function)?))
}
