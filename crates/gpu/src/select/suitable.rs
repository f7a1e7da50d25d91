//! Which of the devices that work `all` leaves out: those on which tasks would only fail.

use packhorse_model::Bytes;

use super::resolve::PROHIBITED;
use crate::{ComputeMode, Device, MigInstance};

/// A device is left out if it has less than one part of so many of the memory of the largest.
const PARTS: u64 = 4;

/// Why `all` leaves out a device, if it does. A card that is there for the screen is not meant
/// when a task is to have a GPU, and what needs a large card runs out of memory there.
pub(super) fn unsuitable(device: &Device, devices: &[Device]) -> Option<String> {
    if device.compute_mode == Some(ComputeMode::Prohibited) {
        return Some(PROHIBITED.to_owned());
    }
    // Of one in MIG mode, what its instances have counts.
    if device.mig.is_some() {
        return None;
    }
    let own = total(device)?;
    let others = devices.iter().filter(|other| {
        let can_compute = other.compute_mode != Some(ComputeMode::Prohibited);
        other.index != device.index && other.is_healthy() && other.mig.is_none() && can_compute
    });
    let others: Vec<Bytes> = others.filter_map(total).collect();
    if others.iter().any(|other| is_much_less(own, *other)) {
        return Some(format!("it has only {own} of memory, less than a quarter of the largest"));
    }
    let is_smallest = !others.is_empty() && others.iter().all(|other| own < *other);
    (is_smallest && device.draws_desktop == Some(true))
        .then(|| format!("it draws a desktop, and has the least memory of all ({own})"))
}

/// The same of a MIG instance, among MIG instances.
pub(super) fn unsuitable_instance(instance: &MigInstance, devices: &[Device]) -> Option<String> {
    let own = instance.memory?.total;
    let healthy = devices.iter().filter(|device| device.is_healthy());
    let others = healthy.flat_map(Device::instances).filter_map(|other| other.memory);
    let largest = others.map(|memory| memory.total).max()?;
    is_much_less(own, largest).then(|| {
        format!("it has only {own} of memory, less than a quarter of the largest instance")
    })
}

fn total(device: &Device) -> Option<Bytes> {
    device.memory.map(|memory| memory.total)
}

/// Whether it is less than a quarter, even if the driver keeps a little of it for itself: a
/// 1g.5gb has a quarter of a 3g.20gb.
fn is_much_less(own: Bytes, largest: Bytes) -> bool {
    u128::from(own.0) * u128::from(PARTS) * 105 < u128::from(largest.0) * 100
}
