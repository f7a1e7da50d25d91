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

impl Unit {
    /// What makes exactly its devices visible in whatever order programs count: as it was
    /// written, if UUIDs are not known.
    fn visible_in_any_order(&self) -> String {
        let uuids: Option<Vec<&str>> =
            self.members.iter().map(|member| member.uuid.as_deref()).collect();
        let uuids = uuids.filter(|uuids| !uuids.is_empty());
        uuids.map_or_else(|| self.visible.clone(), |uuids| uuids.join(","))
    }
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
/// no units, they tell it to use no device. A CUDA program that `counts_otherwise` than the
/// driver is told UUIDs.
///
/// ROCm applies its two variables one after the other: HIP numbers the devices that
/// ROCR lets through, so HIP's list counts from zero.
pub fn visibility(
    vendor: Option<Vendor>,
    units: &[&Unit],
    counts_otherwise: bool,
) -> Vec<(&'static str, String)> {
    let by_uuid = counts_otherwise && vendor != Some(Vendor::Amd);
    let visible = |unit: &&Unit| {
        if by_uuid { unit.visible_in_any_order() } else { unit.visible.clone() }
    };
    let ids: Vec<String> = units.iter().map(visible).collect();
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
