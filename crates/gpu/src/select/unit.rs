use packhorse_model::CoreId;

use crate::Vendor;

/// What a task is given: one device, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name on the screen: `0`, `0+1`.
    pub label: String,
    /// The value of the variable that limits which devices a program sees: `0`,
    /// `0,1`.
    pub visible: String,
    /// Who made its devices. `None`: there was no driver to tell.
    pub vendor: Option<Vendor>,
    /// The cores near any of its devices, in ascending order. Empty: not known.
    pub near_cores: Vec<CoreId>,
    /// Its devices.
    pub members: Vec<UnitMember>,
}

/// A device or MIG instance of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitMember {
    /// The id as it was written.
    pub id: String,
    /// The driver's number for the device, if there is a driver.
    pub index: Option<u32>,
    /// Its UUID, or the MIG instance's, if there is a driver.
    pub uuid: Option<String>,
}

/// The variables that tell a program to use these units and no others. If there are
/// no units, they tell it to use no device.
///
/// ROCm applies its two variables one after the other: HIP numbers the devices that
/// ROCR lets through, so HIP's list counts from zero.
pub fn visibility(vendor: Option<Vendor>, units: &[&Unit]) -> Vec<(&'static str, String)> {
    let ids: Vec<&str> = units.iter().map(|unit| unit.visible.as_str()).collect();
    let ids = ids.join(",");
    match vendor {
        None | Some(Vendor::Nvidia) => vec![("CUDA_VISIBLE_DEVICES", ids)],
        Some(Vendor::Amd) => {
            let count: usize = units.iter().map(|unit| unit.members.len()).sum();
            let ordinals: Vec<String> = (0..count).map(|ordinal| ordinal.to_string()).collect();
            vec![("ROCR_VISIBLE_DEVICES", ids), ("HIP_VISIBLE_DEVICES", ordinals.join(","))]
        }
    }
}
