use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Code;

/// What is wrong with the driver as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeDriver {
    /// What initialising the library fails with.
    pub init: Option<Code>,
    /// Functions that fail, by the name of their C symbol.
    pub fail: BTreeMap<String, Code>,
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
        let fail = missing.map(|name| (name.to_owned(), Code::FunctionNotFound));
        Self { fail: fail.into(), ..Self::default() }
    }
}
