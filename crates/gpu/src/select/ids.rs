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

    /// Whether one who may use this may use all of the other.
    pub(super) fn includes(&self, other: &Self) -> bool {
        self.overlaps(other) && (self.instance.is_none() || other.instance.is_some())
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
    let mut instance = None;
    let device = if let Ok(index) = id.parse::<u32>() {
        devices.iter().find(|device| device.index == index)
    } else if id.starts_with("MIG-") {
        devices.iter().find(|device| {
            instance = device.instances().iter().find(|part| part.uuid == id);
            instance.is_some()
        })
    } else if id.starts_with("GPU-") {
        by_uuid(devices, id)?
    } else {
        None
    };
    let device =
        device.ok_or_else(|| SelectError::Unknown { id: id.to_owned(), known: names(devices) })?;
    match &device.health {
        Health::Ok => Ok(FoundDevice { device, instance }),
        Health::Lost(reason) => {
            Err(SelectError::Lost { id: id.to_owned(), reason: reason.clone() })
        }
    }
}

fn by_uuid<'a>(devices: &'a [Device], id: &str) -> Result<Option<&'a Device>, SelectError> {
    let uuids = devices.iter().filter_map(|d| Some((d.uuid.as_deref()?, d)));
    let matches: Vec<_> = uuids.filter(|(uuid, _)| uuid.starts_with(id)).collect();
    let exact = matches.iter().find(|(uuid, _)| *uuid == id);
    match (exact, &matches[..]) {
        (Some((_, device)), _) | (None, [(_, device)]) => Ok(Some(device)),
        (None, []) => Ok(None),
        (None, _) => Err(SelectError::Ambiguous {
            id: id.to_owned(),
            matches: matches.iter().map(|(uuid, _)| (*uuid).to_owned()).collect(),
        }),
    }
}

/// All ids that could have been written instead.
fn names(devices: &[Device]) -> Vec<String> {
    let mut names = Vec::new();
    for device in devices {
        names.push(match &device.uuid {
            Some(uuid) => format!("{} ({uuid})", device.index),
            None => device.index.to_string(),
        });
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
