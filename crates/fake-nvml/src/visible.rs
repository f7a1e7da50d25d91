//! Which devices CUDA would show to this process, and in which order.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{FakeDevice, FakeUnit, Mig};

/// What is visible under these environment variables.
pub fn visible_devices(
    mut machine: Vec<FakeDevice>,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<FakeUnit> {
    machine.retain(|device| device.faults.lost.is_none());
    machine.sort_by(|a, b| a.pci_bus_id.cmp(&b.pci_bus_id));
    // Unless told otherwise, CUDA counts from the fastest.
    if variable("CUDA_DEVICE_ORDER").as_deref() != Some("PCI_BUS_ID") {
        machine.sort_by_key(|device| Reverse(device.speed));
    }
    let mut visible: Vec<FakeUnit> = match variable("CUDA_VISIBLE_DEVICES") {
        None => machine.into_iter().filter_map(first_of).collect(),
        // The first id that is none ends the list.
        Some(ids) => ids.split(',').map_while(|id| find(&machine, id.trim())).collect(),
    };
    // A device named twice makes the whole list void.
    let mut seen = BTreeSet::new();
    if !visible.iter().all(|unit| seen.insert(unit.uuid())) {
        return Vec::new();
    }
    // A CUDA program can use one MIG instance, and nothing beside it.
    if let Some(instance) = visible.iter().position(|v| v.instance.is_some()) {
        visible = vec![visible.swap_remove(instance)];
    }
    visible
}

fn find(machine: &[FakeDevice], id: &str) -> Option<FakeUnit> {
    if let Ok(index) = id.parse::<usize>() {
        return first_of(machine.get(index)?.clone());
    }
    if id.starts_with("MIG-") {
        return machine.iter().find_map(|device| {
            let instance = device.instances().iter().find(|i| i.uuid == id)?;
            Some(FakeUnit { device: device.clone(), instance: Some(instance.clone()) })
        });
    }
    if !id.starts_with("GPU-") {
        return None;
    }
    let mut matches = machine.iter().filter(|device| device.uuid.starts_with(id));
    match (matches.next(), matches.next()) {
        (Some(device), None) => first_of(device.clone()),
        _ => None,
    }
}

/// A divided device stands for its first instance.
fn first_of(device: FakeDevice) -> Option<FakeUnit> {
    let instance = match &device.mig {
        Mig::Unsupported | Mig::Disabled => None,
        Mig::Enabled(instances) => Some(instances.first()?.clone()),
    };
    Some(FakeUnit { device, instance })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FakeMig;

    fn uuids(machine: &[FakeDevice], variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        visible_devices(machine.to_vec(), variable)
            .iter()
            .map(|visible| visible.uuid().to_owned())
            .collect()
    }

    fn machine() -> Vec<FakeDevice> {
        (0..3).map(|index| FakeDevice { speed: index, ..FakeDevice::new(index) }).collect()
    }

    #[test]
    fn ids_count_from_the_fastest_unless_the_order_is_set() {
        let machine = machine();
        let by_pci = [("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "0")];
        assert_eq!(uuids(&machine, &by_pci), [machine[0].uuid.clone()]);
        assert_eq!(uuids(&machine, &by_pci[1..]), [machine[2].uuid.clone()]);
    }

    #[test]
    fn the_first_invalid_id_ends_the_list() {
        let machine = machine();
        let order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        let see = |ids| uuids(&machine, &[order, ("CUDA_VISIBLE_DEVICES", ids)]).len();
        assert_eq!(see("0,1,2"), 3);
        assert_eq!(see("0,7,1"), 1);
        assert_eq!(see("-1"), 0);
        assert_eq!(see(""), 0);
        assert_eq!(see("1,1"), 0);
        assert_eq!(see("GPU-00000001"), 1);
        assert_eq!(see("GPU-"), 0);
    }

    #[test]
    fn a_mig_instance_is_seen_alone() {
        let mut machine = machine();
        let instances = vec![FakeMig::new(1, 0), FakeMig::new(1, 3)];
        let second = instances[1].uuid.clone();
        machine[1].mig = Mig::Enabled(instances);
        let ids = format!("{second},0");
        assert_eq!(uuids(&machine, &[("CUDA_VISIBLE_DEVICES", &ids)]), [second]);
    }
}
