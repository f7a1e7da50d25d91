use packhorse_model::CoreId;

use crate::Vendor;

/// What a task is given: one device, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What to call it on the screen: `0`, `0+1`.
    pub label: String,
    /// What the variable that limits a program's sight is to be: `0`, `0,1`.
    pub visible: String,
    /// Whose devices they are. `None`: there was no driver to say.
    pub vendor: Option<Vendor>,
    /// The cores near to any of its devices, in ascending order. Empty: not
    /// known.
    pub near_cores: Vec<CoreId>,
    /// Its devices.
    pub members: Vec<Member>,
}

/// A device or MIG instance of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id as it was written.
    pub id: String,
    /// The driver's number of the device, where there is a driver.
    pub index: Option<u32>,
    /// Its UUID, or the MIG instance's, where there is a driver.
    pub uuid: Option<String>,
}

/// The variables by which a program is told to use these units and no others; of
/// no units, to use nothing.
///
/// ROCm applies its two variables one after the other: what HIP counts are the
/// devices that ROCR has left. So HIP's list counts from zero.
pub fn visibility(vendor: Option<Vendor>, units: &[&Unit]) -> Vec<(&'static str, String)> {
    let ids: Vec<&str> = units.iter().map(|unit| unit.visible.as_str()).collect();
    let ids = ids.join(",");
    match vendor {
        None | Some(Vendor::Nvidia) => vec![("CUDA_VISIBLE_DEVICES", ids)],
        Some(Vendor::Amd) => {
            let count: usize = units.iter().map(|unit| unit.members.len()).sum();
            let ordinals: Vec<String> = (0..count).map(|ordinal| ordinal.to_string()).collect();
            vec![
                ("ROCR_VISIBLE_DEVICES", ids),
                ("HIP_VISIBLE_DEVICES", ordinals.join(",")),
            ]
        }
    }
}
