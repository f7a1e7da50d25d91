//! A driver that works.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use packhorse_fake_nvml::{FakeDevice, FakeMig, FakeProcess, Mig, ProcessKind};
use packhorse_gpu::{
    Celsius, DeviceMemory, Driver, GpuProcess, Health, Inventory, Milliwatts, Percent, Vendor,
};
use packhorse_model::{Bytes, CoreId};

use crate::machine::Machine;

#[test]
fn every_reading_of_a_device_is_told() {
    let fake = FakeDevice {
        utilisation: Some(97),
        temperature: Some(71),
        power: Some(231_400),
        near_cores: vec![0, 3, 70],
        ..FakeDevice::new(0)
    };
    let machine = Machine::new(std::slice::from_ref(&fake));
    machine.state.process(&fake.uuid, &FakeProcess::pretended(3_999_999, 6 << 30));

    let driver = machine.driver();
    assert_eq!(driver.vendor(), Some(Vendor::Nvidia));
    let devices = driver.devices().unwrap();
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    assert_eq!(device.index, 0);
    assert_eq!(device.uuid.as_ref(), Some(&fake.uuid));
    assert_eq!(device.name.as_deref(), Some("NVIDIA Fake 24GB"));
    assert_eq!(device.pci_bus_id.as_deref(), Some("0000:01:00.0"));
    assert_eq!(device.near_cores, [CoreId(0), CoreId(3), CoreId(70)]);
    assert_eq!(device.utilisation, Some(Percent(97)));
    assert_eq!(device.temperature, Some(Celsius(71)));
    assert_eq!(device.power, Some(Milliwatts(231_400)));
    assert_eq!(device.power.unwrap().to_string(), "231 W");
    assert_eq!(device.power_limit, Some(Milliwatts(300_000)));
    assert_eq!(device.mig, None);
    assert_eq!(device.health, Health::Ok);
    assert_eq!(
        device.memory,
        Some(DeviceMemory {
            total: Bytes(24 << 30),
            used: Bytes(6 << 30),
            free: Bytes((18 << 30) - (512 << 20)),
            reserved: Bytes(512 << 20),
        })
    );
    assert_eq!(
        device.processes,
        Some(vec![GpuProcess {
            pid: 3_999_999,
            memory: Some(Bytes(6 << 30)),
            user: None,
            command: None,
            draws: false,
        }])
    );
}

#[test]
fn processes_have_their_user_and_command() {
    let machine = Machine::with(1);
    let uuid = FakeDevice::new(0).uuid;
    let mut child =
        Command::new("cat").arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // A process has no command line until the kernel has loaded its program.
    let mut answer = [0];
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    machine.state.process(&uuid, &FakeProcess::real(child.id(), 1 << 20));

    let on_it = machine.devices()[0].processes.clone().unwrap();
    assert_eq!(on_it.len(), 1);
    assert_eq!(on_it[0].pid, child.id());
    assert_eq!(on_it[0].command.as_deref(), Some("cat -"));
    let me = Command::new("id").arg("-un").output().unwrap().stdout;
    let me = String::from_utf8(me).unwrap();
    assert_eq!(on_it[0].user.as_deref(), Some(me.trim_end()));

    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(machine.devices()[0].processes, Some(vec![]));
    assert_eq!(machine.devices()[0].memory.unwrap().used, Bytes(0));
}

#[test]
fn a_process_in_both_lists_is_told_once() {
    let machine = Machine::with(1);
    let uuid = FakeDevice::new(0).uuid;
    let process = |pid, kind| FakeProcess { kind, ..FakeProcess::pretended(pid, 1 << 30) };
    machine
        .state
        .process(&uuid, &process(3_999_997, ProcessKind::Graphics))
        .process(&uuid, &process(3_999_998, ProcessKind::Both))
        .process(&uuid, &process(3_999_999, ProcessKind::Compute));
    let processes = machine.devices()[0].processes.clone().unwrap();
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [3_999_997, 3_999_998, 3_999_999]);
    assert_eq!(processes[1].memory, Some(Bytes(1 << 30)));
}

#[test]
fn what_a_device_does_not_have_is_nothing() {
    let machine = Machine::new(&[FakeDevice {
        utilisation: None,
        temperature: None,
        power: None,
        power_limit: None,
        ..FakeDevice::new(0)
    }]);
    let device = &machine.devices()[0];
    assert_eq!(device.utilisation, None);
    assert_eq!(device.temperature, None);
    assert_eq!(device.power, None);
    assert_eq!(device.power_limit, None);
    assert_eq!(device.near_cores, []);
    assert_eq!(device.health, Health::Ok);
}

#[test]
fn near_cores_come_from_sysfs_where_nvml_has_none() {
    let machine = Machine::with(1);
    machine.sysfs("bus/pci/devices/0000:01:00.0/local_cpulist", "4-5\n");
    assert_eq!(machine.devices()[0].near_cores, [CoreId(4), CoreId(5)]);
}

#[test]
fn near_cores_are_those_of_the_numa_node_where_nothing_else_is_told() {
    let machine = Machine::with(2);
    machine.sysfs("bus/pci/devices/0000:01:00.0/numa_node", "1\n");
    machine.sysfs("bus/pci/devices/0000:02:00.0/numa_node", "-1\n");
    machine.sysfs("devices/system/node/node1/cpulist", "2-3\n");
    let devices = machine.devices();
    assert_eq!(devices[0].near_cores, [CoreId(2), CoreId(3)]);
    assert_eq!(devices[1].near_cores, []);
}

#[test]
fn a_divided_device_has_its_instances() {
    let first = FakeMig::new(0, 0);
    let second = FakeMig {
        profile: "3g.20gb".to_owned(),
        memory_total: 20 << 30,
        // With an empty slot before it.
        ..FakeMig::new(0, 2)
    };
    let machine = Machine::new(&[
        FakeDevice { mig: Mig::Enabled(vec![first.clone(), second.clone()]), ..FakeDevice::new(0) },
        FakeDevice { mig: Mig::Disabled, ..FakeDevice::new(1) },
    ]);
    machine.state.process(&second.uuid, &FakeProcess::pretended(3_999_999, 4 << 30));

    let devices = machine.devices();
    let instances = devices[0].instances();
    assert_eq!(instances.len(), 2);
    assert_eq!(instances[0].uuid, first.uuid);
    assert_eq!(instances[0].processes, Some(vec![]));
    assert_eq!(instances[1].uuid, second.uuid);
    assert_eq!(instances[1].profile.as_deref(), Some("3g.20gb"));
    let memory = instances[1].memory.unwrap();
    assert_eq!(memory.free, Bytes(16 << 30));
    assert_eq!(instances[1].processes.as_ref().unwrap()[0].pid, 3_999_999);
    assert_eq!(devices[0].memory.unwrap().used, Bytes(4 << 30));
    assert_eq!(devices[0].processes.as_ref().unwrap()[0].pid, 3_999_999);
    assert_eq!(devices[0].utilisation, None);
    assert_eq!(devices[0].health, Health::Ok);
    assert_eq!(devices[1].mig, None);
}

#[test]
fn the_inventory_knows_who_but_not_how() {
    let machine = Machine::with(2);
    let Inventory::Devices(devices) = machine.inventory() else {
        panic!("there is a driver");
    };
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[1].uuid, Some(FakeDevice::new(1).uuid));
    assert!(devices[1].memory.is_some());
    assert_eq!(devices[1].utilisation, None);
    assert_eq!(devices[1].processes, None);
}

#[test]
fn a_change_is_seen_by_a_driver_that_is_already_loaded() {
    let machine = Machine::with(1);
    let driver = machine.driver();
    assert_eq!(driver.devices().unwrap()[0].utilisation, Some(Percent(0)));
    machine.state.change(0, |device| device.utilisation = Some(80));
    assert_eq!(driver.devices().unwrap()[0].utilisation, Some(Percent(80)));
    assert!(matches!(driver, Driver::Nvidia(_)));
}

#[test]
fn a_device_that_could_be_divided_but_is_not_is_whole() {
    let machine = Machine::new(&[FakeDevice { mig: Mig::Disabled, ..FakeDevice::new(0) }]);
    assert_eq!(machine.devices()[0].mig, None);
}
