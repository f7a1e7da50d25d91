//! Looks ids up.

use super::SelectError;
use crate::{Device, Health, MigInstance};

/// A device, or an instance of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundDevice<'a> {
    pub(super) device: &'a Device,
    pub(super) instance: Option<&'a MigInstance>,
}

impl<'a> FoundDevice<'a> {
    /// The UUID of the instance, if it is one, else of the device.
    pub(super) fn uuid(&self) -> Option<&'a str> {
        match self.instance {
            Some(instance) => Some(&instance.uuid),
            None => self.device.uuid.as_deref(),
        }
    }

    /// Whether both use the same hardware. A device in MIG mode that is named as a
    /// whole overlaps each of its instances.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        if self.device.index != other.device.index {
            return false;
        }
        match (self.instance, other.instance) {
            (Some(a), Some(b)) => a.uuid == b.uuid,
            _ => true,
        }
    }
}

/// Looks an id up as CUDA does: a number is an index, a UUID may be abbreviated as
/// long as it is unambiguous, and a MIG instance's UUID is written in full.
pub(super) fn find<'a>(devices: &'a [Device], id: &str) -> Result<FoundDevice<'a>, SelectError> {
    let found = if let Ok(index) = id.parse::<u32>() {
        let device = devices.iter().find(|device| device.index == index);
        device.map(whole)
    } else if id.starts_with("MIG-") {
        devices.iter().find_map(|device| {
            let instance = device.instances().iter().find(|part| part.uuid == id)?;
            Some(FoundDevice {
                device,
                instance: Some(instance),
            })
        })
    } else if id.starts_with("GPU-") {
        by_uuid(devices, id)?.map(whole)
    } else {
        None
    };
    let found = found.ok_or_else(|| SelectError::Unknown {
        id: id.to_owned(),
        known: names(devices),
    })?;
    match &found.device.health {
        Health::Ok => Ok(found),
        Health::Lost(reason) => Err(SelectError::Lost {
            id: id.to_owned(),
            reason: reason.clone(),
        }),
    }
}

fn whole(device: &Device) -> FoundDevice<'_> {
    FoundDevice {
        device,
        instance: None,
    }
}

fn by_uuid<'a>(devices: &'a [Device], id: &str) -> Result<Option<&'a Device>, SelectError> {
    let uuid = |device: &'a Device| device.uuid.as_deref();
    let begins = |device: &&Device| device.uuid.as_ref().is_some_and(|u| u.starts_with(id));
    if let Some(exact) = devices.iter().find(|device| uuid(device) == Some(id)) {
        return Ok(Some(exact));
    }
    let matches: Vec<&Device> = devices.iter().filter(begins).collect();
    if matches.len() > 1 {
        return Err(SelectError::Ambiguous {
            id: id.to_owned(),
            matches: matches
                .into_iter()
                .filter_map(uuid)
                .map(str::to_owned)
                .collect(),
        });
    }
    Ok(matches.first().copied())
}

/// All ids that could have been written instead.
fn names(devices: &[Device]) -> Vec<String> {
    let mut names = Vec::new();
    for device in devices {
        match &device.uuid {
            Some(uuid) => names.push(format!("{} ({uuid})", device.index)),
            None => names.push(device.index.to_string()),
        }
        names.extend(device.instances().iter().map(|part| part.uuid.clone()));
    }
    names
}

/// Whether two ids certainly mean the same device, as far as can be told without a
/// driver: the same number, or a UUID that begins with the other.
pub(super) fn same_without_driver(a: &str, b: &str) -> bool {
    if let (Ok(a), Ok(b)) = (a.parse::<u32>(), b.parse::<u32>()) {
        return a == b;
    }
    let cut_short = |short: &str, long: &str| short.starts_with("GPU-") && long.starts_with(short);
    a == b || cut_short(a, b) || cut_short(b, a)
}
