use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Code;

/// The driver as a whole: its versions, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeDriver {
    /// The kernel module's version.
    pub driver_version: String,
    /// The library's version.
    pub nvml_version: String,
    /// CUDA's version: 13000 is 13.0.
    pub cuda_version: i32,
    /// What initialising the library fails with.
    pub init: Option<Code>,
    /// Functions that fail, by the name of their C symbol.
    pub fail: BTreeMap<String, Code>,
}

impl Default for FakeDriver {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".to_owned(),
            nvml_version: "13.580.95.05".to_owned(),
            cuda_version: 13_000,
            init: None,
            fail: BTreeMap::new(),
        }
    }
}

impl FakeDriver {
    /// A driver from before the memory call of version 2 and the process lists
    /// of version 3.
    pub fn old() -> Self {
        let missing = [
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
        ];
        Self {
            driver_version: "470.256.02".to_owned(),
            nvml_version: "11.470.256.02".to_owned(),
            cuda_version: 11_040,
            fail: missing
                .into_iter()
                .map(|name| (name.to_owned(), Code::FunctionNotFound))
                .collect(),
            ..Self::default()
        }
    }
}
