//! What `--gpus` comes to.

use packhorse_fake_nvml::{Code, FakeDevice, FakeMig, Lost, Mig};
use packhorse_gpu::{
    Inventory, SelectError, Selection, Unit, Vendor, VisibleDevices, resolve, visibility,
};
use packhorse_model::CoreId;

use crate::machine::Machine;

fn choose(
    values: &[&str],
    inventory: &Inventory,
    visible: Option<&str>,
) -> Result<Vec<Unit>, SelectError> {
    let variable = "CUDA_VISIBLE_DEVICES";
    let visible = visible.map(|list| VisibleDevices { variable, list });
    resolve(&Selection::parse(values)?, inventory, visible)
}

/// What each unit's tasks would be told.
fn told(
    values: &[&str],
    inventory: &Inventory,
    visible: Option<&str>,
) -> Result<Vec<String>, SelectError> {
    let units = choose(values, inventory, visible)?;
    Ok(units.into_iter().map(|unit| unit.visible).collect())
}

fn told_all(inventory: &Inventory, visible: Option<&str>) -> Vec<String> {
    told(&["all"], inventory, visible).unwrap()
}

fn uuid(index: u32) -> String {
    FakeDevice::new(index).uuid
}

#[test]
fn groups_are_told_as_they_were_written() {
    let mut devices: Vec<FakeDevice> = (0..4).map(FakeDevice::new).collect();
    devices[0].near_cores = vec![0, 1];
    devices[1].near_cores = vec![1, 2];
    let machine = Machine::new(&devices);
    let units = choose(&["0+1", "3+2"], &machine.inventory(), None).unwrap();
    assert_eq!(units.len(), 2);
    assert_eq!(units[0].label, "0+1");
    assert_eq!(units[0].visible, "0,1");
    assert_eq!(units[0].vendor, Some(Vendor::Nvidia));
    assert_eq!(units[0].near_cores, [CoreId(0), CoreId(1), CoreId(2)]);
    assert_eq!(units[0].members[1].id, "1");
    assert_eq!(units[0].members[1].index, Some(1));
    assert_eq!(units[0].members[1].uuid, Some(uuid(1)));
    assert_eq!(units[1].visible, "3,2");
    assert_eq!(
        visibility(units[0].vendor, &[&units[0], &units[1]]),
        [("CUDA_VISIBLE_DEVICES", "0,1,3,2".to_owned())]
    );
}

#[test]
fn without_a_driver_every_id_is_taken_at_its_word() {
    let values = ["7", "GPU-5c2+MIG-9", "slot:x"];
    let units = choose(&values, &Inventory::NoDriver, Some("0")).unwrap();
    assert_eq!(units[1].label, "GPU-5c2+MIG-9");
    assert_eq!(units[1].visible, "GPU-5c2,MIG-9");
    assert_eq!(units[1].vendor, None);
    assert_eq!(units[1].members[0].index, None);
    assert_eq!(units[2].visible, "slot:x");
}

#[test]
fn with_a_broken_driver_every_id_is_taken_at_its_word() {
    let machine = Machine::with(1);
    machine.state.change_driver(|driver| driver.init = Some(Code::LibRmVersionMismatch));
    assert_eq!(told(&["7"], &machine.inventory(), None).unwrap(), ["7"]);
}

#[test]
fn an_id_that_the_driver_does_not_know_is_an_error_that_lists_the_known_ones() {
    let machine = Machine::with(2);
    for id in ["2", "GPU-ffff", "MIG-1", "gpu0"] {
        let error = told(&["0", id], &machine.inventory(), None).unwrap_err();
        let text = error.to_string();
        let wanted = format!("there is no GPU `{id}`\nhint: known GPUs: 0 ({}) and 1", uuid(0));
        assert!(text.starts_with(&wanted), "{text}");
    }
}

#[test]
fn a_uuid_may_be_cut_short_as_long_as_it_is_clear() {
    let machine = Machine::with(2);
    let inventory = machine.inventory();
    let short = "GPU-00000001";
    let units = choose(&[short], &inventory, None).unwrap();
    assert_eq!(units[0].visible, short);
    assert_eq!(units[0].members[0].index, Some(1));
    let error = told(&["GPU-0000"], &inventory, None).unwrap_err();
    assert!(matches!(error, SelectError::Ambiguous { .. }), "{error}");
}

#[test]
fn a_device_named_twice_is_an_error_however_it_is_named() {
    let machine = Machine::with(3);
    let inventory = machine.inventory();
    let (whole, short) = (uuid(1), "GPU-00000001");
    for values in
        [["1", "1"], ["1", "01"], ["1", &whole], [short, &whole], ["0+1", "1+2"], ["0", "2+2"]]
    {
        let error = told(&values, &inventory, None).unwrap_err();
        assert!(matches!(error, SelectError::Twice { .. }), "{error}");
    }
    for values in [["1", "1"], ["1", "01"], [short, &whole], ["0+1", "1+2"]] {
        let error = told(&values, &Inventory::NoDriver, None).unwrap_err();
        assert!(matches!(error, SelectError::Twice { .. }), "{error}");
    }
    let other = ["1", &whole];
    assert_eq!(told(&other, &Inventory::NoDriver, None).unwrap(), other);
}

#[test]
fn all_is_every_device_that_works() {
    let machine = Machine::with(3);
    assert_eq!(told_all(&machine.inventory(), None), ["0", "1", "2"]);

    // CUDA does not count the lost one, so its numbers are no longer ours.
    let lost = Some(Lost::Entirely);
    machine.state.change(1, |device| device.faults.lost = lost);
    let inventory = machine.inventory();
    let units = choose(&["all"], &inventory, None).unwrap();
    assert_eq!(units.len(), 2);
    assert_eq!(units[1].label, "2");
    assert_eq!(units[1].visible, uuid(2));

    let error = told(&["1"], &inventory, None).unwrap_err();
    assert!(matches!(error, SelectError::Lost { .. }), "{error}");
}

#[test]
fn all_is_the_instances_of_a_divided_device() {
    let parts = vec![FakeMig::new(0, 0), FakeMig::new(0, 4)];
    let machine = Machine::new(&[
        FakeDevice { mig: Mig::Enabled(parts.clone()), ..FakeDevice::new(0) },
        FakeDevice { mig: Mig::Enabled(vec![]), ..FakeDevice::new(1) },
        FakeDevice::new(2),
    ]);
    let inventory = machine.inventory();
    let wanted = [parts[0].uuid.clone(), parts[1].uuid.clone(), uuid(2)];
    assert_eq!(told_all(&inventory, None), wanted);

    let both = [parts[0].uuid.as_str(), parts[1].uuid.as_str()];
    assert_eq!(told(&both, &inventory, None).unwrap(), both);
    let units = choose(&both, &inventory, None).unwrap();
    assert_eq!(units[1].members[0].uuid.as_ref(), Some(&parts[1].uuid));
    assert_eq!(units[1].members[0].index, Some(0));

    let whole_and_part = ["0", both[0]];
    let error = told(&whole_and_part, &inventory, None).unwrap_err();
    assert!(matches!(error, SelectError::Twice { .. }), "{error}");
}

#[test]
fn all_is_what_the_environment_allows_as_it_is_written_there() {
    let machine = Machine::with(4);
    let inventory = machine.inventory();
    let short = "GPU-00000003";
    for (list, wanted) in [
        ("2,0", vec!["2", "0"]),
        ("GPU-00000003, 1", vec![short, "1"]),
        // CUDA stops reading at the first id that is none.
        ("1,9,2", vec!["1"]),
        ("1,-1,2", vec!["1"]),
    ] {
        assert_eq!(told_all(&inventory, Some(list)), wanted, "{list}");
    }
    let unknown = Inventory::NoDriver;
    assert_eq!(told_all(&unknown, Some("9,GPU-x,-1,0")), ["9", "GPU-x"]);
    for list in ["", "-1", "NoDevFiles", " "] {
        for inventory in [&inventory, &unknown] {
            let error = told(&["all"], inventory, Some(list)).unwrap_err();
            assert!(matches!(error, SelectError::EmptyList { .. }), "{error}");
        }
    }
    for (list, wanted) in [("1,1", "`1` is the same GPU as `1`"), ("9,1", "there is no GPU `9`")] {
        let error = told(&["all"], &inventory, Some(list)).unwrap_err();
        let wanted = format!("CUDA_VISIBLE_DEVICES is set to `{list}`: {wanted}");
        assert!(error.to_string().starts_with(&wanted), "{error}");
    }
}

#[test]
fn what_a_person_names_is_not_limited_by_the_environment() {
    let machine = Machine::with(4);
    let inventory = machine.inventory();
    assert_eq!(told(&["3"], &inventory, Some("0,1")).unwrap(), ["3"]);
}

#[test]
fn no_gpus_says_what_to_do() {
    let hint = "hint: name them with --gpus 0,1, or run N tasks at a time without GPUs \
                with --slots N";
    let text = told(&["all"], &Inventory::NoDriver, None).unwrap_err().to_string();
    assert!(text.starts_with("no GPUs found: this machine has neither"), "{text}");
    assert!(text.ends_with(hint), "{text}");

    let machine = Machine::with(0);
    let text = told(&["all"], &machine.inventory(), None).unwrap_err().to_string();
    assert!(text.starts_with("no GPUs to use: the driver has none"), "{text}");
    assert!(text.ends_with(hint), "{text}");

    let text = told(&["none"], &machine.inventory(), None).unwrap_err().to_string();
    assert!(text.ends_with(hint), "{text}");

    machine.state.change_driver(|driver| driver.init = Some(Code::DriverNotLoaded));
    let text = told(&["all"], &machine.inventory(), None).unwrap_err().to_string();
    assert!(text.contains("kernel module is not loaded"), "{text}");
    assert!(text.ends_with(hint), "{text}");
}

#[test]
fn rocm_counts_twice() {
    let unit = Unit {
        vendor: Some(Vendor::Amd),
        ..choose(&["2+5"], &Inventory::NoDriver, None).unwrap().remove(0)
    };
    assert_eq!(
        visibility(unit.vendor, &[&unit]),
        [("ROCR_VISIBLE_DEVICES", "2,5".to_owned()), ("HIP_VISIBLE_DEVICES", "0,1".to_owned()),]
    );
}
