//! AMD's devices, from a pretended sysfs.

use packhorse_fake_nvml::Code;
use packhorse_gpu::{Celsius, Driver, Health, Inventory, Milliwatts, Percent, Vendor};
use packhorse_model::{Bytes, CoreId};

use crate::machine::Machine;

/// Puts a card into the machine, in the kernel's slot `card` and at `bus`.
fn card(machine: &Machine, card: u32, bus: u32) {
    let file = |name: &str, text: &str| {
        machine.sysfs(&format!("class/drm/card{card}/device/{name}"), text);
    };
    file("vendor", "0x1002\n");
    file("device", "0x740f\n");
    let slot = format!("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{bus:02x}:00.0\n");
    file("uevent", &slot);
    file("mem_info_vram_total", "68702699520\n");
    file("mem_info_vram_used", "1073741824\n");
    file("gpu_busy_percent", "55\n");
    file("unique_id", &format!("18f1a2b3c4d5e6{bus:02x}\n"));
    file("local_cpulist", "0-1,8\n");
    file("hwmon/hwmon4/temp1_input", "47000\n");
    file("hwmon/hwmon4/power1_average", "89000000\n");
    file("hwmon/hwmon4/power1_cap", "300000000\n");
    machine.sysfs(&format!("class/drm/card{card}-DP-1/status"), "connected\n");
}

/// Lets the compute driver know the device at `bus` by the number `id`.
fn node(machine: &Machine, node: u32, bus: u32, id: u64) {
    let file = |name: &str, text: &str| {
        machine.sysfs(&format!("class/kfd/kfd/topology/nodes/{node}/{name}"), text);
    };
    file("gpu_id", &format!("{id}\n"));
    let location = bus << 8;
    let properties = format!("cpu_cores_count 0\nlocation_id {location}\ndomain 0\n");
    file("properties", &properties);
}

#[test]
fn cards_are_counted_by_their_pci_address() {
    let machine = Machine::with(0);
    card(&machine, 0, 0x83);
    card(&machine, 1, 0x03);
    let driver = machine.driver();
    assert!(matches!(driver, Driver::Amd(_)));
    assert_eq!(driver.vendor(), Some(Vendor::Amd));
    let devices = driver.devices().unwrap();
    assert_eq!(devices.len(), 2);
    let device = &devices[0];
    assert_eq!((device.index, device.vendor), (0, Vendor::Amd));
    assert_eq!(device.pci_bus_id.as_deref(), Some("0000:03:00.0"));
    assert_eq!(device.uuid.as_deref(), Some("GPU-18f1a2b3c4d5e603"));
    assert_eq!(device.name.as_deref(), Some("AMD GPU 0x740f"));
    let memory = device.memory.unwrap();
    assert_eq!(memory.total, Bytes(68_702_699_520));
    assert_eq!(memory.free, Bytes(68_702_699_520 - (1 << 30)));
    assert_eq!(device.utilisation, Some(Percent(55)));
    assert_eq!(device.temperature, Some(Celsius(47)));
    assert_eq!(device.power, Some(Milliwatts(89_000)));
    assert_eq!(device.power_limit, Some(Milliwatts(300_000)));
    assert_eq!(device.near_cores, [CoreId(0), CoreId(1), CoreId(8)]);
    assert_eq!(device.processes, None);
    assert_eq!(device.health, Health::Ok);
    assert_eq!(devices[1].pci_bus_id.as_deref(), Some("0000:83:00.0"));
}

#[test]
fn the_compute_driver_tells_who_is_on_a_card_and_which_cards_count() {
    let machine = Machine::with(0);
    card(&machine, 0, 0x03);
    card(&machine, 1, 0x43);
    card(&machine, 2, 0x83);
    machine.sysfs("class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    node(&machine, 1, 0x03, 4321);
    node(&machine, 2, 0x83, 8765);
    let pid = std::process::id();
    let file = |id: u64| format!("class/kfd/kfd/proc/{pid}/vram_{id}");
    machine.sysfs(&file(4321), "0\n");
    machine.sysfs(&file(8765), "536870912\n");

    let devices = machine.devices();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[0].processes, Some(vec![]));
    let on_it = devices[1].processes.as_ref().unwrap();
    assert_eq!(on_it.len(), 1);
    assert_eq!(on_it[0].pid, pid);
    assert_eq!(on_it[0].memory, Some(Bytes(512 << 20)));
    assert!(on_it[0].user.is_some());
    assert!(on_it[0].command.as_ref().unwrap().contains("gpu"));
}

#[test]
fn a_card_whose_memory_cannot_be_read_is_lost() {
    let machine = Machine::with(0);
    card(&machine, 0, 0x03);
    card(&machine, 1, 0x43);
    let used = machine.config().sysfs.join("class/drm/card0/device/mem_info_vram_used");
    // A folder in a file's place fails to be read, as a dead card's file does.
    fs_err::remove_file(&used).unwrap();
    fs_err::create_dir(&used).unwrap();
    let Inventory::Devices(devices) = machine.inventory() else {
        panic!("there is a driver");
    };
    assert!(!devices[0].is_healthy());
    assert!(devices[1].is_healthy());
}

#[test]
fn cards_of_others_are_left_out() {
    let machine = Machine::with(0);
    machine.sysfs("class/drm/card0/device/vendor", "0x8086\n");
    assert!(matches!(machine.driver(), Driver::Nvidia(_)));
    assert_eq!(machine.devices(), []);
}

#[test]
fn a_useless_nvidia_library_does_not_hide_amds_devices() {
    let machine = Machine::with(0);
    card(&machine, 0, 0x03);
    machine.state.change_driver(|driver| driver.init = Some(Code::DriverNotLoaded));
    assert_eq!(machine.driver().vendor(), Some(Vendor::Amd));
}

#[test]
fn nvidias_devices_count_where_there_are_both() {
    let machine = Machine::with(1);
    card(&machine, 0, 0x03);
    assert_eq!(machine.driver().vendor(), Some(Vendor::Nvidia));
}

#[test]
fn sparse_files_are_missing_readings_and_no_more() {
    let machine = Machine::with(0);
    machine.sysfs("class/drm/card0/device/vendor", "0x1002\n");
    machine.sysfs("class/drm/card0/device/uevent", "PCI_SLOT_NAME=0000:03:00.0\n");
    machine.sysfs("class/drm/card0/device/gpu_busy_percent", "lots\n");
    let device = &machine.devices()[0];
    assert_eq!(device.uuid, None);
    assert_eq!(device.name, None);
    assert_eq!(device.memory, None);
    assert_eq!(device.utilisation, None);
    assert_eq!(device.temperature, None);
    assert_eq!(device.health, Health::Ok);
}
