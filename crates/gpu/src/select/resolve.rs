use super::ids::{FoundDevice, find, same_without_driver};
use super::{SelectError, Selection, Unit, UnitMember};
use crate::{Inventory, cores};

/// A limit that the environment already sets, as Slurm does.
#[derive(Clone, Copy, Debug)]
pub struct VisibleDevices<'a> {
    /// `CUDA_VISIBLE_DEVICES`, or the vendor's own variable (see
    /// [`Vendor::visible_variables`](crate::Vendor::visible_variables)).
    pub variable: &'a str,
    /// Its value.
    pub list: &'a str,
}

/// The units that a selection means on this machine.
///
/// `visible` limits what `all` means; ids that somebody wrote are used as written.
pub fn resolve(
    selection: &Selection,
    inventory: &Inventory,
    visible: Option<VisibleDevices<'_>>,
) -> Result<Vec<Unit>, SelectError> {
    match selection {
        Selection::Groups(groups) => {
            let plain = |group: &Vec<String>| group.iter().map(|id| ChosenId::plain(id)).collect();
            let groups: Vec<Vec<ChosenId>> = groups.iter().map(plain).collect();
            units(&groups, inventory)
        }
        Selection::All => match visible {
            Some(visible) => listed(visible, inventory),
            None => units(&everything(inventory)?, inventory),
        },
        Selection::None => Err(SelectError::Nothing { reason: "--gpus none".to_owned() }),
    }
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
    let ids = visible.list.split(',').map(str::trim);
    let mut ids =
        ids.take_while(|id| !id.is_empty() && !id.starts_with('-') && *id != "NoDevFiles");
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
fn everything(inventory: &Inventory) -> Result<Vec<Vec<ChosenId>>, SelectError> {
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
        if device.mig.is_some() {
            let parts = device.instances().iter();
            chosen.extend(parts.map(|part| vec![ChosenId::plain(&part.uuid)]));
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
