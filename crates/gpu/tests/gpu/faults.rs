//! A driver that does not work, or not quite.

use std::time::{Duration, Instant};

use packhorse_fake_nvml::{Code, FakeDevice, FakeDriver, FakeProcess, Growth, Lost};
use packhorse_gpu::{Driver, GpuConfig, GpuError, Health, Inventory, Vendor};
use packhorse_model::Bytes;

use crate::machine::Machine;

#[test]
fn a_lost_gpu_does_not_hide_the_others() {
    for lost in [Lost::Entirely, Lost::Readings] {
        let machine = Machine::with(3);
        machine.state.change(1, |device| device.faults.lost = Some(lost));
        let devices = machine.devices();
        assert_eq!(devices.len(), 3, "{lost:?}");
        assert!(devices[0].is_healthy() && devices[2].is_healthy());
        assert_eq!(devices[1].index, 1);
        assert_eq!(devices[1].memory, None);
        assert_eq!(devices[1].processes, None);
        let Health::Lost(reason) = &devices[1].health else {
            panic!("{lost:?}: it is lost");
        };
        assert!(reason.contains("fallen off the bus"), "{reason}");
        // Who it was is still told where the driver remembers it.
        assert_eq!(devices[1].uuid.is_some(), lost == Lost::Readings);
    }
}

#[test]
fn a_gpu_can_get_lost_while_we_look() {
    let machine = Machine::with(1);
    let driver = machine.driver();
    assert!(driver.devices().unwrap()[0].is_healthy());
    machine.state.change(0, |device| {
        let power = "nvmlDeviceGetPowerUsage".to_owned();
        device.faults.fail.insert(power, Code::GpuIsLost);
    });
    let device = &driver.devices().unwrap()[0];
    assert!(!device.is_healthy());
    assert!(device.temperature.is_some());
    assert_eq!(device.processes, None);
}

#[test]
fn an_old_driver_is_read_the_old_way() {
    let machine = Machine::with(1);
    machine.state.driver(&FakeDriver::old());
    let uuid = FakeDevice::new(0).uuid;
    machine.state.process(&uuid, &FakeProcess::pretended(3_999_999, 1 << 30));
    let device = &machine.devices()[0];
    let memory = device.memory.unwrap();
    assert_eq!(memory.total, Bytes(24 << 30));
    assert_eq!(memory.free, Bytes((23 << 30) - (512 << 20)));
    assert_eq!(memory.used, Bytes((1 << 30) + (512 << 20)));
    assert_eq!(memory.reserved, Bytes(0));
    assert_eq!(device.processes.as_ref().unwrap()[0].pid, 3_999_999);
}

#[test]
fn a_device_without_the_second_memory_call_is_read_by_the_first() {
    let machine = Machine::with(1);
    machine.state.change(0, |device| {
        let call = "nvmlDeviceGetMemoryInfo_v2".to_owned();
        device.faults.fail.insert(call, Code::NotSupported);
    });
    assert_eq!(machine.devices()[0].memory.unwrap().total, Bytes(24 << 30));
}

#[test]
fn a_process_list_that_grows_meanwhile_is_read_again() {
    let machine = Machine::with(1);
    let uuid = FakeDevice::new(0).uuid;
    machine.state.process(&uuid, &FakeProcess::pretended(3_999_999, 1 << 20)).change(0, |device| {
        device.faults.growth = Some(Growth { by: 40, times: 2 });
    });
    let processes = machine.devices()[0].processes.clone();
    assert_eq!(processes.unwrap().len(), 81);
}

#[test]
fn a_process_list_that_never_stops_growing_is_given_up() {
    let machine = Machine::with(1);
    let uuid = FakeDevice::new(0).uuid;
    machine.state.process(&uuid, &FakeProcess::pretended(3_999_999, 1 << 20)).change(0, |device| {
        let times = u32::MAX;
        device.faults.growth = Some(Growth { by: 6, times });
    });
    let device = &machine.devices()[0];
    assert_eq!(device.processes, None);
    assert!(device.is_healthy());
}

#[test]
fn processes_that_we_may_not_see_are_unknown_and_not_none() {
    let machine = Machine::with(1);
    machine.state.change_driver(|driver| {
        for call in
            ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"]
        {
            driver.fail.insert(call.to_owned(), Code::NoPermission);
        }
    });
    let device = &machine.devices()[0];
    assert_eq!(device.processes, None);
    assert!(device.memory.is_some());
}

#[test]
fn memory_that_lingers_after_a_death_stays_taken() {
    let machine = Machine::with(1);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let process = FakeProcess::real(child.id(), 2 << 30);
    child.wait().unwrap();
    machine
        .state
        .process(&FakeDevice::new(0).uuid, &process)
        .change(0, |device| device.faults.memory_lingers = true);
    let device = &machine.devices()[0];
    assert_eq!(device.memory.unwrap().used, Bytes(2 << 30));
    assert_eq!(device.processes, Some(vec![]));
}

#[test]
fn a_slow_driver_is_waited_for() {
    let machine = Machine::with(1);
    machine.state.change(0, |device| device.faults.slow_ms = 5);
    let before = Instant::now();
    assert!(machine.devices()[0].is_healthy());
    assert!(before.elapsed() >= Duration::from_millis(5));
}

#[test]
fn a_driver_that_does_not_start_is_broken_and_says_why() {
    let machine = Machine::with(1);
    for (code, wanted) in [
        (Code::DriverNotLoaded, "kernel module is not loaded"),
        (Code::LibRmVersionMismatch, "different versions"),
        (Code::NoPermission, "this user may not"),
        (Code::Unknown, "internal driver error"),
    ] {
        machine.state.change_driver(|driver| driver.init = Some(code));
        let driver = machine.driver();
        assert!(matches!(driver, Driver::Broken(_)), "{driver:?}");
        assert_eq!(driver.vendor(), Some(Vendor::Nvidia));
        assert!(matches!(driver.inventory(), Inventory::Broken(_)));
        let error = driver.devices().unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_driver_that_cannot_count_is_broken() {
    let machine = Machine::with(1);
    machine.state.change_driver(|driver| {
        let count = "nvmlDeviceGetCount_v2".to_owned();
        driver.fail.insert(count, Code::Unknown);
    });
    assert!(matches!(machine.inventory(), Inventory::Broken(_)));
    assert!(machine.driver().devices().is_err());
}

#[test]
fn a_library_that_was_named_and_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        GpuConfig { nvml_library: Some(folder.path().join("libnone.so")), ..GpuConfig::default() };
    let error = Driver::detect(&config).unwrap_err();
    assert!(matches!(error, GpuError::Library { .. }));
    let text = error.to_string();
    assert!(text.contains("libnone.so"), "{text}");
    assert!(text.contains("hint: correct or unset PACKHORSE_NVML_LIBRARY"));
}

#[test]
fn a_library_that_is_not_nvml_is_an_error() {
    let config = GpuConfig { nvml_library: Some("libc.so.6".into()), ..GpuConfig::default() };
    let error = Driver::detect(&config).unwrap_err();
    assert!(matches!(error, GpuError::Library { .. }), "{error}");
}
