//! Xids, as the driver reports them.

use std::time::Instant;

use nvml_wrapper::EventSet;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::Nvidia;
use super::reading::NvmlDevice;
use crate::Xid;
use crate::watch::Desk;

/// How long to sleep at most, in milliseconds: an hour. There is no way to say
/// for ever, and longer times might not fit into what the driver counts in.
const NAP: u32 = 3_600_000;

/// A device that is waited for, and the units that have a part of it.
struct Waited<'nvml> {
    index: u32,
    handle: NvmlDevice<'nvml>,
    units: Vec<usize>,
}

/// Reports every Xid of these devices, each given with its unit, until nobody
/// wants to know. Old and small devices have no events; and a driver that has
/// none at all is no reason for a run to fail.
pub(crate) fn watch_xids(driver: &Nvidia, devices: Vec<(u32, usize)>, desk: &Desk) {
    let mut waited: Vec<Waited> = Vec::new();
    for (index, unit) in devices {
        match waited.iter_mut().find(|device| device.index == index) {
            Some(device) => device.units.push(unit),
            None => {
                if let Ok(handle) = driver.nvml.device_by_index(index) {
                    waited.push(Waited {
                        index,
                        handle,
                        units: vec![unit],
                    });
                }
            }
        }
    }
    while let Some(set) = register(driver, &mut waited) {
        if let End::Nobody = report(&set, &waited, desk) {
            return;
        }
        // A device went. Samples tell of it; here it is left out from now on, as
        // waiting for it would fail again and again.
        desk.ask_all(Instant::now());
        let before = waited.len();
        waited.retain(|device| device.handle.memory_info().is_ok());
        if waited.len() == before {
            return;
        }
    }
}

/// Why waiting ended.
enum End {
    /// Nobody wants to know any more.
    Nobody,
    /// Waiting failed.
    Failed,
}

/// A set with all devices that have Xids. `None`: none has. The wrapper gives no
/// set back after a device that cannot be added: then all over without it.
fn register<'nvml>(
    driver: &'nvml Nvidia,
    waited: &mut Vec<Waited<'nvml>>,
) -> Option<EventSet<'nvml>> {
    waited.retain(|device| {
        let kinds = device.handle.supported_event_types();
        kinds.is_ok_and(|kinds| kinds.contains(EventTypes::CRITICAL_XID_ERROR))
    });
    'over: while !waited.is_empty() {
        let mut set = driver.nvml.create_event_set().ok()?;
        for place in 0..waited.len() {
            let kinds = EventTypes::CRITICAL_XID_ERROR;
            let Ok(fuller) = waited[place].handle.register_events(kinds, set) else {
                waited.remove(place);
                continue 'over;
            };
            set = fuller;
        }
        return Some(set);
    }
    None
}

fn report(set: &EventSet, waited: &[Waited], desk: &Desk) -> End {
    loop {
        let event = set.wait(NAP);
        if desk.is_closed() {
            return End::Nobody;
        }
        let event = match event {
            Ok(event) => event,
            Err(NvmlError::Timeout) => continue,
            Err(_) => return End::Failed,
        };
        let Some(error) = event.event_data else {
            continue;
        };
        let xid = match error {
            XidError::Value(code) => Xid(code),
            XidError::Unknown => Xid::UNKNOWN,
        };
        for device in waited.iter().filter(|d| is_same(&d.handle, &event.device)) {
            for &unit in &device.units {
                desk.report_xid(unit, xid);
            }
        }
    }
}

/// Compared by handle: a device that has just fallen off the bus may not be able
/// to say its name.
fn is_same(one: &NvmlDevice, other: &NvmlDevice) -> bool {
    // SAFETY: the handles are compared and not used.
    unsafe { one.handle() == other.handle() }
}
