use super::ids::{FoundDevice, find, same_without_driver};
use super::suitable::{unsuitable, unsuitable_instance};
use super::{SelectError, Selection, Unit, UnitMember};
use crate::{ComputeMode, Inventory, cores};

/// A limit that the environment already sets, as Slurm does.
#[derive(Clone, Copy, Debug)]
pub struct VisibleDevices<'a> {
    /// `CUDA_VISIBLE_DEVICES`, or the vendor's own variable (see
    /// [`Vendor::visible_variables`](crate::Vendor::visible_variables)).
    pub variable: &'a str,
    /// Its value.
    pub list: &'a str,
}

/// What a selection means on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedSelection {
    pub units: Vec<Unit>,
    /// Devices that `all` leaves out though they work, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// What a selection means on this machine.
///
/// `visible` limits it: `all` is what it allows, and other ids are an error. Ids that
/// somebody wrote are used as written.
pub fn resolve(
    selection: &Selection,
    inventory: &Inventory,
    visible: Option<VisibleDevices<'_>>,
) -> Result<ResolvedSelection, SelectError> {
    let mut left_out = Vec::new();
    let units = match (selection, visible) {
        (Selection::Groups(groups), visible) => {
            let plain = |group: &Vec<String>| group.iter().map(|id| ChosenId::plain(id)).collect();
            let plain: Vec<Vec<ChosenId>> = groups.iter().map(plain).collect();
            let units = units(&plain, inventory)?;
            check_groups(groups, inventory)?;
            visible.map_or(Ok(()), |visible| check_visible(groups, visible, inventory))?;
            units
        }
        (Selection::All, Some(visible)) => {
            let mut units = listed(visible, inventory)?;
            let first = units.first().map(|unit| unit.label.clone());
            units.retain(|unit| {
                let is_prohibited = is_prohibited(unit, inventory);
                if is_prohibited {
                    left_out.push((unit.label.clone(), PROHIBITED.to_owned()));
                }
                !is_prohibited
            });
            match first.filter(|_| units.is_empty()) {
                Some(id) => return Err(SelectError::Prohibited { id }),
                None => units,
            }
        }
        (Selection::All, None) => units(&everything(inventory, &mut left_out)?, inventory)?,
        (Selection::None, _) => {
            return Err(SelectError::Nothing { reason: "--gpus none".to_owned() });
        }
    };
    Ok(ResolvedSelection { units, left_out })
}

/// Why a device is left out on which no program may compute.
pub(super) const PROHIBITED: &str = "it is in compute mode PROHIBITED";

/// Whether no program may compute on a device of the unit.
fn is_prohibited(unit: &Unit, inventory: &Inventory) -> bool {
    let mut devices = inventory.devices().into_iter().flatten();
    devices.any(|device| {
        device.compute_mode == Some(ComputeMode::Prohibited)
            && unit.members.iter().any(|member| member.index == Some(device.index))
    })
}

/// Whether programs could compute on the devices of each group, and use them together.
fn check_groups(groups: &[Vec<String>], inventory: &Inventory) -> Result<(), SelectError> {
    let Some(devices) = inventory.devices() else {
        return Ok(());
    };
    for group in groups {
        for id in group {
            let found = find(devices, id)?;
            if found.device.compute_mode == Some(ComputeMode::Prohibited) {
                return Err(SelectError::Prohibited { id: id.clone() });
            }
            // A divided device stands for its first instance.
            if group.len() > 1 && found.device.mig.is_some() {
                return Err(SelectError::MigInGroup { ids: group.join("+") });
            }
        }
    }
    Ok(())
}

/// Whether all that was named is among what the environment allows, as far as it can be told.
fn check_visible(
    groups: &[Vec<String>],
    visible: VisibleDevices<'_>,
    inventory: &Inventory,
) -> Result<(), SelectError> {
    let devices = inventory.devices();
    let is_known = |id: &&str| devices.is_none_or(|devices| find(devices, id).is_ok());
    let allowed: Vec<&str> = ids_of(visible.list).take_while(is_known).collect();
    let is_allowed = |id: &String| match devices {
        Some(devices) => allowed.iter().any(|allowed| {
            let (allowed, named) = (find(devices, allowed), find(devices, id));
            matches!((allowed, named), (Ok(allowed), Ok(named)) if allowed.includes(&named))
        }),
        None => allowed.iter().any(|allowed| {
            let is_number = |id: &str| id.parse::<u32>().is_ok();
            same_without_driver(allowed, id) || is_number(allowed) != is_number(id)
        }),
    };
    match groups.iter().flatten().find(|id| !is_allowed(id)) {
        None => Ok(()),
        Some(id) => Err(SelectError::NotVisible {
            id: id.clone(),
            named: groups.iter().map(|group| group.join("+")).collect::<Vec<_>>().join(","),
            variable: visible.variable.to_owned(),
            allowed: allowed.into_iter().map(str::to_owned).collect(),
        }),
    }
}

/// The ids of a list in the environment up to the first that is none, which is where CUDA
/// stops reading.
fn ids_of(list: &str) -> impl Iterator<Item = &str> {
    let ids = list.split(',').map(str::trim);
    ids.take_while(|id| !id.is_empty() && !id.starts_with('-') && *id != "NoDevFiles")
}

/// An id, and how it is written in a program's environment.
struct ChosenId {
    id: String,
    visible: String,
}

impl ChosenId {
    fn plain(id: &str) -> Self {
        Self { id: id.to_owned(), visible: id.to_owned() }
    }
}

/// The units that the environment's list means: its ids up to the first that is not
/// valid, which is where CUDA stops reading. If that is the first id of all, the list
/// is wrong.
fn listed(visible: VisibleDevices<'_>, inventory: &Inventory) -> Result<Vec<Unit>, SelectError> {
    let (variable, list) = (visible.variable.to_owned(), visible.list.to_owned());
    let devices = inventory.devices();
    let is_known = |id: &str| devices.is_none_or(|devices| find(devices, id).is_ok());
    let mut ids = ids_of(visible.list);
    let Some(first) = ids.next() else {
        return Err(SelectError::EmptyList { variable, list });
    };
    let rest = ids.take_while(|id| is_known(id));
    let groups: Vec<_> =
        std::iter::once(first).chain(rest).map(|id| vec![ChosenId::plain(id)]).collect();
    units(&groups, inventory).map_err(|error| SelectError::WrongList {
        variable,
        list,
        error: Box::new(error),
    })
}

/// What `all` means: every device that works, as a unit of its own; of one in MIG mode,
/// its instances.
fn everything(
    inventory: &Inventory,
    left_out: &mut Vec<(String, String)>,
) -> Result<Vec<Vec<ChosenId>>, SelectError> {
    let broken = match inventory {
        Inventory::Devices(devices) => Ok(devices),
        Inventory::Broken(broken) => Err(Some(broken.clone())),
        Inventory::NoDriver => Err(None),
    };
    let devices = broken.map_err(|broken| SelectError::NoGpus { broken })?;
    // CUDA does not count lost devices, so the numbers after one shift; and it
    // counts a device in MIG mode as its first instance.
    let numbers_hold = devices.iter().all(|d| d.is_healthy() && d.mig.is_none());
    let mut chosen = Vec::new();
    for device in devices.iter().filter(|device| device.is_healthy()) {
        if let Some(reason) = unsuitable(device, devices) {
            left_out.push((device.index.to_string(), reason));
            continue;
        }
        if device.mig.is_some() {
            for part in device.instances() {
                match unsuitable_instance(part, devices) {
                    Some(reason) => left_out.push((part.uuid.clone(), reason)),
                    None => chosen.push(vec![ChosenId::plain(&part.uuid)]),
                }
            }
            continue;
        }
        let id = device.index.to_string();
        let visible = match &device.uuid {
            Some(uuid) if !numbers_hold => uuid.clone(),
            _ => id.clone(),
        };
        chosen.push(vec![ChosenId { id, visible }]);
    }
    if chosen.is_empty() {
        let reason = match devices.len() {
            0 => return Err(SelectError::NoDevices),
            _ if !left_out.is_empty() => left_out[0].1.clone(),
            1 => "the only one does not work, or is in MIG mode without instances".to_owned(),
            count => format!("none of the {count} works"),
        };
        return Err(SelectError::Nothing { reason });
    }
    Ok(chosen)
}

/// Looks the ids up, if there is a driver to ask; in any case none may be named twice.
fn units(groups: &[Vec<ChosenId>], inventory: &Inventory) -> Result<Vec<Unit>, SelectError> {
    let devices = inventory.devices();
    let mut seen: Vec<(&str, Option<FoundDevice>)> = Vec::new();
    let mut units = Vec::new();
    for group in groups {
        let ids: Vec<&str> = group.iter().map(|chosen| chosen.id.as_str()).collect();
        let visible: Vec<&str> = group.iter().map(|id| id.visible.as_str()).collect();
        let mut unit = Unit {
            label: ids.join("+"),
            visible: visible.join(","),
            vendor: None,
            near_cores: Vec::new(),
            members: Vec::new(),
        };
        for id in ids {
            let found = devices.map(|devices| find(devices, id)).transpose()?;
            let same = seen.iter().find(|(other, known)| match (known, &found) {
                (Some(known), Some(found)) => known.overlaps(found),
                _ => same_without_driver(other, id),
            });
            if let Some((first, _)) = same {
                return Err(SelectError::Twice {
                    first: (*first).to_owned(),
                    second: id.to_owned(),
                });
            }
            seen.push((id, found));
            unit.members.push(UnitMember {
                id: id.to_owned(),
                index: found.map(|found| found.device.index),
                uuid: found.and_then(|found| found.uuid().map(str::to_owned)),
            });
            if let Some(found) = found {
                unit.vendor = Some(found.device.vendor);
                unit.near_cores.extend(&found.device.near_cores);
            }
        }
        unit.near_cores = cores::in_order(unit.near_cores);
        units.push(unit);
    }
    Ok(units)
}
