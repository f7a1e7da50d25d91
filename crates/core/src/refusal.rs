use packhorse_model::{GpuRequest, Milli, Request, TaskId};

use crate::ledger::{Ledger, NodeLedger, count};
use crate::words::Number;

/// Why a submitted task was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Its id is in use, or was.
    #[error("a task with this number was submitted before")]
    AlreadyKnown,
    /// It would wait for itself.
    #[error("it comes after itself, so it could never start")]
    AfterItself,
    /// It comes after a task that nobody submitted.
    #[error(
        "it comes after task {0}, which is not known\nhint: a task must be submitted before those that come after it"
    )]
    UnknownDependency(TaskId),
    /// A share of nothing, or of all; or no whole device.
    #[error(
        "{0} is not an amount of GPU that can be given\nhint: ask for a part of one GPU (0.001 to 0.999), or for at least one whole GPU, or for none"
    )]
    NotAnAmount(GpuRequest),
    /// No node has so many devices.
    #[error("it needs {}, but {}{}", Number(*wanted, "GPU"), most(*most_gpus, "GPU"), hint(*most_gpus))]
    TooManyGpus {
        /// How many it needs.
        wanted: u32,
        /// How many the best node has.
        most_gpus: u32,
    },
    /// No node has so many cores.
    #[error("it needs {} of its own, but {}", Number(*wanted, "core"), most(*most_cores, "core"))]
    TooManyCores {
        /// How many it needs.
        wanted: u32,
        /// How many the best node has.
        most_cores: u32,
    },
    /// Some node has the devices and some node has the cores, but not the same.
    #[error("it needs {} and {} on one machine, and none has both", Number(*devices, "GPU"), Number(*cores, "core"))]
    NoNodeHasBoth {
        /// How many devices it needs.
        devices: u32,
        /// How many cores it needs.
        cores: u32,
    },
}

fn most(most: u32, thing: &'static str) -> String {
    match most {
        0 => format!("there is no {thing} to give out"),
        _ => format!("one machine has no more than {}", Number(most, thing)),
    }
}

fn hint(most_gpus: u32) -> &'static str {
    if most_gpus == 0 {
        "\nhint: ask for 0 GPUs, or name the GPUs to use"
    } else {
        ""
    }
}

/// Why no node could ever satisfy `request`, even if it were empty.
pub(crate) fn impossible(ledger: &Ledger, request: &Request) -> Option<Refusal> {
    let sensible = match request.gpus {
        GpuRequest::None => true,
        GpuRequest::Share(share) => share > Milli(0) && share < Milli::ONE,
        GpuRequest::Whole(wanted) => wanted > 0,
    };
    if !sensible {
        return Some(Refusal::NotAnAmount(request.gpus));
    }
    let sizes = || {
        let size = |node: &NodeLedger| (count(node.devices.len()), count(node.cores.len()));
        ledger.nodes.iter().map(size)
    };
    let devices = request.gpus.devices();
    let cores = request.cores;
    if sizes().any(|(has_devices, has_cores)| has_devices >= devices && has_cores >= cores) {
        return None;
    }
    let most_gpus = sizes().map(|(devices, _)| devices).max().unwrap_or(0);
    let most_cores = sizes().map(|(_, cores)| cores).max().unwrap_or(0);
    Some(if devices > most_gpus {
        Refusal::TooManyGpus {
            wanted: devices,
            most_gpus,
        }
    } else if cores > most_cores {
        Refusal::TooManyCores {
            wanted: cores,
            most_cores,
        }
    } else {
        Refusal::NoNodeHasBoth { devices, cores }
    })
}
