//! Xids, which the driver reports as events.

use nvml_wrapper::EventSet;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::Nvidia;
use super::device::{NvmlDevice, memory};
use crate::sampler::SamplerQueue;
use crate::{SamplerReport, Xid};

/// How long to wait for an event, in milliseconds: an hour. The driver has no
/// infinite wait, and longer times might overflow its counter.
const LONGEST_WAIT: u32 = 3_600_000;

/// A device whose events are watched for, and the units that have a part of it.
struct WatchedDevice<'nvml> {
    index: u32,
    handle: NvmlDevice<'nvml>,
    units: Vec<usize>,
}

/// Reports every Xid of these devices until the queue is closed. Each device comes
/// with its unit. Old and small devices have no events, and a driver that has none
/// at all is no reason for a run to fail.
pub(crate) fn watch_xids(driver: &Nvidia, devices: Vec<(u32, usize)>, queue: &SamplerQueue) {
    let mut watched: Vec<WatchedDevice> = Vec::new();
    for (index, unit) in devices {
        if let Some(device) = watched.iter_mut().find(|device| device.index == index) {
            device.units.push(unit);
        } else if let Ok(handle) = driver.nvml.device_by_index(index) {
            let units = vec![unit];
            watched.push(WatchedDevice { index, handle, units });
        }
    }
    while let Some(set) = register(driver, &mut watched) {
        report(&set, &watched, queue);
        if queue.is_closed() {
            return;
        }
        // A device is gone. A sample will show it; here it is left out, because
        // waiting for it would fail again and again.
        queue.request_all();
        let before = watched.len();
        watched.retain(|device| memory(driver, &device.handle).is_ok());
        if watched.len() == before {
            return;
        }
    }
}

/// An event set of all devices that have Xids. `None`: none has. The wrapper does
/// not return the set if a device cannot be added: then start over without it.
fn register<'nvml>(
    driver: &'nvml Nvidia,
    watched: &mut Vec<WatchedDevice<'nvml>>,
) -> Option<EventSet<'nvml>> {
    watched.retain(|device| {
        let kinds = device.handle.supported_event_types();
        kinds.is_ok_and(|kinds| kinds.contains(EventTypes::CRITICAL_XID_ERROR))
    });
    'retry: while !watched.is_empty() {
        let mut set = driver.nvml.create_event_set().ok()?;
        for place in 0..watched.len() {
            let kinds = EventTypes::CRITICAL_XID_ERROR;
            let Ok(fuller) = watched[place].handle.register_events(kinds, set) else {
                watched.remove(place);
                continue 'retry;
            };
            set = fuller;
        }
        return Some(set);
    }
    None
}

/// Reports until the queue is closed or waiting fails.
fn report(set: &EventSet, watched: &[WatchedDevice], queue: &SamplerQueue) {
    loop {
        let event = set.wait(LONGEST_WAIT);
        if queue.is_closed() {
            return;
        }
        let event = match event {
            Ok(event) => event,
            Err(NvmlError::Timeout) => continue,
            Err(_) => return,
        };
        let xid = match event.event_data {
            Some(XidError::Value(code)) => Xid(code),
            Some(XidError::Unknown) => Xid::UNKNOWN,
            None => continue,
        };
        for device in watched.iter().filter(|d| is_same(&d.handle, &event.device)) {
            for &unit in &device.units {
                queue.report(SamplerReport::Xid { unit, xid });
            }
        }
    }
}

/// Compares handles: a device that has just fallen off the bus may not be able to
/// tell its name.
fn is_same(one: &NvmlDevice, other: &NvmlDevice) -> bool {
    // SAFETY: the handles are only compared.
    unsafe { one.handle() == other.handle() }
}
