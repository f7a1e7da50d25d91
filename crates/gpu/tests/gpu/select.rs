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
    Ok(resolve(&Selection::parse(values)?, inventory, visible)?.units)
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
        visibility(units[0].vendor, &[&units[0], &units[1]], false),
        [("CUDA_VISIBLE_DEVICES", "0,1,3,2".to_owned())]
    );
}

#[test]
fn without_a_driver_every_id_is_taken_at_its_word() {
    let values = ["7", "GPU-5c2+MIG-9", "slot:x"];
    let units = choose(&values, &Inventory::NoDriver, Some("7")).unwrap();
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
fn what_a_person_names_is_among_what_the_environment_allows() {
    let parts = vec![FakeMig::new(4, 0), FakeMig::new(4, 1)];
    let mut devices: Vec<FakeDevice> = (0..4).map(FakeDevice::new).collect();
    devices.push(FakeDevice { mig: Mig::Enabled(parts.clone()), ..FakeDevice::new(4) });
    let machine = Machine::new(&devices);
    let inventory = machine.inventory();
    let (part, other) = (parts[0].uuid.as_str(), parts[1].uuid.as_str());
    let (both, third) = (format!("{part},{other}"), uuid(3));
    for (list, named) in
        [("2,3", "3"), ("2,3", third.as_str()), (&third, "3"), (&both, part), ("4", part)]
    {
        assert_eq!(told(&[named], &inventory, Some(list)).unwrap(), [named], "{list}");
    }
    for (list, named) in [("2,3", "0"), ("2,3", "3,1"), (&third, "2"), (part, other), (part, "4")] {
        let error = told(&[named], &inventory, Some(list)).unwrap_err();
        assert!(matches!(error, SelectError::NotVisible { .. }), "{list}: {error}");
    }
    let text = told(&["0,1"], &inventory, Some("2,3")).unwrap_err().to_string();
    assert_eq!(
        text,
        "GPU `0` is not among those that may be used here: --gpus names 0,1, and \
         CUDA_VISIBLE_DEVICES allows 2 and 3\n\
         hint: --gpus takes the driver's ids, not places in that list: write --gpus 2,3, or leave \
         --gpus out"
    );
    let text = told(&["0"], &inventory, Some("")).unwrap_err().to_string();
    assert!(text.ends_with("allows none\nhint: unset CUDA_VISIBLE_DEVICES"), "{text}");
    // Without a driver numbers can be compared, and with UUIDs nothing.
    let unknown = Inventory::NoDriver;
    assert!(told(&["0"], &unknown, Some("2,3")).is_err());
    for list in ["2,0", "GPU-5c2"] {
        assert_eq!(told(&["0"], &unknown, Some(list)).unwrap(), ["0"], "{list}");
    }
}

/// What `all` means, and what it leaves out and why.
fn all(inventory: &Inventory) -> (Vec<String>, Vec<(String, String)>) {
    let found = resolve(&Selection::All, inventory, None).unwrap();
    (found.units.into_iter().map(|unit| unit.label).collect(), found.left_out)
}

fn sized(index: u32, gibibytes: u64) -> FakeDevice {
    FakeDevice { memory_total: gibibytes << 30, ..FakeDevice::new(index) }
}

#[test]
fn all_leaves_out_small_cards_and_a_small_one_that_draws_a_desktop() {
    let drawing = |device| FakeDevice { display_active: Some(true), ..device };
    let only = |left_out: &[(String, String)]| {
        left_out.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    for (devices, wanted) in [
        (vec![sized(0, 4), sized(1, 24), sized(2, 24)], vec!["0"]),
        (vec![sized(0, 6), sized(1, 24)], vec![]),
        (vec![drawing(sized(0, 12)), sized(1, 24)], vec!["0"]),
        (vec![sized(0, 24), drawing(sized(1, 24))], vec![]),
        (vec![drawing(sized(0, 12)), sized(1, 12), sized(2, 24)], vec![]),
        (vec![drawing(sized(0, 4))], vec![]),
        (vec![sized(0, 4), sized(1, 5), sized(2, 80)], vec!["0", "1"]),
    ] {
        let machine = Machine::new(&devices);
        let (units, left_out) = all(&machine.inventory());
        assert_eq!(only(&left_out), wanted, "{left_out:?}");
        assert_eq!(units.len() + left_out.len(), devices.len());
        // Whoever names it, means it.
        let numbers: Vec<String> = devices.iter().map(|it| it.index.to_string()).collect();
        let list = numbers.join(",");
        assert_eq!(told(&[&list], &machine.inventory(), None).unwrap(), numbers);
        assert_eq!(told_all(&machine.inventory(), Some(&list)), numbers);
    }
    let machine = Machine::new(&[sized(0, 4), sized(1, 24)]);
    machine.state.lose(1);
    assert_eq!(all(&machine.inventory()).0, ["0"], "it is the largest that works");
}

#[test]
fn instances_are_compared_with_instances() {
    let part = |slot, memory_total| FakeMig { memory_total, ..FakeMig::new(0, slot) };
    let divided = |sizes: &[u64]| {
        let parts = sizes.iter().zip(0..).map(|(size, slot)| part(slot, size << 20));
        let mig = Mig::Enabled(parts.collect());
        Machine::new(&[FakeDevice { mig, ..sized(0, 40) }, sized(1, 80)])
    };
    // As an A100 shows 1g.5gb and 3g.20gb, and 7g.40gb.
    for (sizes, left) in [(&[4864, 20_096][..], 0), (&[4864, 40_192], 1), (&[4864, 4864], 0)] {
        let (units, left_out) = all(&divided(sizes).inventory());
        assert_eq!((units.len(), left_out.len()), (3 - left, left), "{left_out:?}");
    }
}

#[test]
fn what_no_program_may_compute_on_is_left_out_or_refused() {
    let prohibited = FakeDevice {
        compute_mode: packhorse_fake_nvml::FakeComputeMode::Prohibited,
        ..FakeDevice::new(1)
    };
    let machine = Machine::new(&[FakeDevice::new(0), prohibited]);
    let inventory = machine.inventory();
    let left_out = vec![("1".to_owned(), "it is in compute mode PROHIBITED".to_owned())];
    assert_eq!(all(&inventory), (vec!["0".to_owned()], left_out));
    assert_eq!(told_all(&inventory, Some("1,0")), ["0"]);
    for (values, visible) in [(["1"], None), (["0,1"], None), (["all"], Some("1"))] {
        let error = told(&values, &inventory, visible).unwrap_err();
        assert!(matches!(error, SelectError::Prohibited { .. }), "{error}");
    }
}

#[test]
fn instances_are_no_group() {
    let parts = vec![FakeMig::new(0, 0), FakeMig::new(0, 1)];
    let divided = FakeDevice { mig: Mig::Enabled(parts.clone()), ..FakeDevice::new(0) };
    let machine = Machine::new(&[divided, FakeDevice::new(1), FakeDevice::new(2)]);
    let inventory = machine.inventory();
    let (one, other) = (&parts[0].uuid, &parts[1].uuid);
    for group in [format!("{one}+{other}"), format!("1+{one}"), "0+1".to_owned()] {
        let error = told(&[group.as_str()], &inventory, None).unwrap_err();
        assert!(matches!(error, SelectError::MigInGroup { .. }), "{error}");
    }
    assert_eq!(told(&["1+2"], &inventory, None).unwrap(), ["1,2"]);
}

#[test]
fn one_that_counts_otherwise_is_told_uuids() {
    let machine = Machine::with(4);
    let units = choose(&["0+1", "3"], &machine.inventory(), None).unwrap();
    let units: Vec<&Unit> = units.iter().collect();
    let uuids = [uuid(0), uuid(1), uuid(3)].join(",");
    let told = |units: &[&Unit]| visibility(units[0].vendor, units, true)[0].1.clone();
    assert_eq!(told(&units), uuids);
    let unknown = choose(&["0+1"], &Inventory::NoDriver, None).unwrap();
    assert_eq!(told(&[&unknown[0]]), "0,1");
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
        visibility(unit.vendor, &[&unit], false),
        [("ROCR_VISIBLE_DEVICES", "2,5".to_owned()), ("HIP_VISIBLE_DEVICES", "0,1".to_owned()),]
    );
}
