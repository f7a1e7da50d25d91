use packhorse_proc::ProcEntry;
use serde::{Deserialize, Serialize};

/// A process that holds memory on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FakeProcess {
    /// Its id.
    pub pid: u32,
    /// What it holds, in bytes.
    pub memory: u64,
    /// In which of NVML's lists it appears.
    pub kind: ProcessKind,
    /// Percent of the device that it keeps busy.
    pub utilisation: u32,
    /// When it was started, by the kernel's count. With it the process holds
    /// its memory as long as it lives, and not when another has got its id.
    /// Without it the process is a pretended one and holds it for ever.
    pub started: Option<u64>,
}

/// What a process uses the device for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// CUDA.
    Compute,
    /// A display.
    Graphics,
    /// CUDA and a display at once: it appears in both lists.
    Both,
    /// CUDA through an MPS server: it appears in the list of those alone.
    Mps,
}

impl FakeProcess {
    /// A pretended compute process, which never dies.
    pub fn pretended(pid: u32, memory: u64) -> Self {
        Self { pid, memory, kind: ProcessKind::Compute, utilisation: 0, started: None }
    }

    /// A real compute process, which holds the memory until it dies.
    pub fn real(pid: u32, memory: u64) -> Self {
        Self {
            // One that is gone already has no start; no process has this one.
            started: Some(start_of(pid).unwrap_or(u64::MAX)),
            ..Self::pretended(pid, memory)
        }
    }

    /// Whether it still holds its memory.
    pub fn is_alive(&self) -> bool {
        self.started.is_none_or(|started| start_of(self.pid) == Some(started))
    }
}

/// When a process was started, in the kernel's ticks. A zombie counts as gone:
/// drivers free memory when a process exits, not when its parent notices.
fn start_of(pid: u32) -> Option<u64> {
    let stat = ProcEntry::of(pid).stat().ok()?;
    (!stat.has_ended()).then_some(stat.start_time)
}
