use packhorse_model::{Bytes, DeviceId, GpuRequest, MemoryRequest, Milli, NodeId, Request, TaskId};

use crate::device::{DeviceLedger, memory_of};
use crate::ledger::{Amounts, Ledger, NodeLedger, count, small};
use crate::prose::Number;

/// Why a submitted task was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefusalReason {
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
    /// It is said to run on a node that is not there.
    #[error("it runs on node {}, which is not in the pool", .0.0)]
    UnknownNode(NodeId),
    /// It is said to run on a device that is not there, or not on its node.
    #[error("it runs on device {}, which is not on its node", .0.0)]
    UnknownDevice(DeviceId),
    /// There is no node.
    #[error("there is no machine to run it on")]
    NoMachine,
    /// It asks for a share of 0 or 1, or for 0 whole devices.
    #[error(
        "{0} is not an amount of GPU that can be given\nhint: ask for a part of one GPU (0.001 to 0.999), or for at least one whole GPU, or for none, or for GPU memory alone"
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
    /// It needs several devices, and there are too few that one program can have together.
    #[error(
        "it needs {}, but a program sees a single MIG instance, and nothing beside it\nhint: ask for one with `-g 1`, or for GPUs that are not divided", Number(*wanted, "GPU")
    )]
    NothingBesideMig {
        /// How many it needs.
        wanted: u32,
    },
    /// No device is of a model that it may use.
    #[error("no GPU is of a model that it may use")]
    NoSuchModel,
    /// It is to share a device, and no device that it may use can be shared.
    #[error(
        "it shares a GPU, and those that it may use take one process at a time (compute mode EXCLUSIVE_PROCESS)\nhint: `-g 1` gives it a GPU to itself, and `--mps` lets tasks share one; `nvidia-smi -c DEFAULT`, as root, allows several processes"
    )]
    OneProcessEach,
    /// No device that it may use has so much memory.
    #[error("it needs {wanted} of GPU memory, but {}", largest(*most))]
    TooMuchMemory {
        /// How much it needs of each of its devices.
        wanted: Bytes,
        /// How much the largest has; 0 if nobody knows.
        most: Bytes,
    },
    /// No node has so many devices that suit it.
    #[error("it needs {} that suit it on one machine, but {}", Number(*wanted, "GPU"), most(*most_gpus, "such GPU"))]
    TooFewSuitableGpus {
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
    /// No node's cores may be kept so busy.
    #[error(
        "it keeps {wanted} cores busy, but those of one machine may be kept busy up to {most} at most"
    )]
    TooMuchCpu {
        /// How busy it keeps them.
        wanted: Milli,
        /// What the best node allows.
        most: Milli,
    },
    /// No node has so much main memory.
    #[error("it needs {wanted} of main memory, but one machine has no more than {most}")]
    TooMuchRam {
        /// How much it needs.
        wanted: Bytes,
        /// How much the best node has.
        most: Bytes,
    },
    /// Some node has the devices and some node has the cores, but not the same.
    #[error("it needs {} and {} on one machine, and none has both", Number(*devices, "GPU"), Number(*cores, "core"))]
    NoNodeHasBoth {
        /// How many devices it needs.
        devices: u32,
        /// How many cores it needs.
        cores: u32,
    },
    /// For each thing that it needs there is a node that has enough, but none
    /// that has enough of all.
    #[error("no machine has all that it needs, though each thing is there on some")]
    NoNodeHasAll,
}

fn most(most: u32, thing: &'static str) -> String {
    match most {
        0 => format!("there is no {thing} to give out"),
        _ => format!("one machine has no more than {}", Number(most, thing)),
    }
}

fn largest(most: Bytes) -> String {
    match most {
        Bytes(0) => "how much the GPUs have is not known, so none can be promised".to_owned(),
        _ => format!("the largest GPU that it may use has {most}"),
    }
}

fn hint(most_gpus: u32) -> &'static str {
    if most_gpus == 0 { "\nhint: ask for 0 GPUs, or name the GPUs to use" } else { "" }
}

/// Whether it asks for an amount of GPU that can be given.
pub(crate) fn is_sensible(request: &Request) -> bool {
    match request.gpus {
        GpuRequest::None => true,
        // Without a share, memory has to say how many fit.
        GpuRequest::Share(Milli(0)) => {
            memory_of(request) > Bytes(0) || request.memory == MemoryRequest::Whole
        }
        GpuRequest::Share(share) => share < Milli::ONE,
        GpuRequest::Whole(wanted) => wanted > 0,
    }
}

/// Why no node could ever satisfy `request`, even if nobody used it.
pub(crate) fn impossible(ledger: &Ledger, request: &Request) -> Option<RefusalReason> {
    if !is_sensible(request) {
        return Some(RefusalReason::NotAnAmount(request.gpus));
    }
    let suits = |device: &&DeviceLedger| !device.leaving && device.suits(request);
    let suitable = |node: &NodeLedger| {
        let devices = &ledger.devices[node.devices.clone()];
        count(devices.iter().filter(suits).count())
    };
    let wanted = request.gpus.devices();
    let fits = |node: &NodeLedger| {
        node.needs(request).is_within(node.size) && (wanted == 0 || suitable(node) >= wanted)
    };
    let nodes = || ledger.nodes.iter().filter(|node| !node.leaving);
    if nodes().any(fits) {
        return None;
    }
    if nodes().next().is_none() {
        return Some(RefusalReason::NoMachine);
    }
    let staying = |node: &NodeLedger| {
        let devices = ledger.devices[node.devices.clone()].iter();
        devices.filter(|device| !device.leaving).count() as u64
    };
    let gpus = nodes().map(staying).max().unwrap_or(0);
    let best = nodes().map(suitable).max().unwrap_or(0);
    let needs = Amounts::of(request);
    let sizes = nodes().map(|node| node.size);
    let sizes = sizes.fold(Amounts::default(), |most, size| most.zip(size, u64::max));
    let lacking = needs.beyond(sizes);
    Some(if u64::from(wanted) > gpus {
        RefusalReason::TooManyGpus { wanted, most_gpus: small(gpus) }
    } else if wanted > 0 && best == 0 {
        unsuitable(ledger, request)
    } else if wanted > best {
        RefusalReason::TooFewSuitableGpus { wanted, most_gpus: best }
    } else if lacking.cores > 0 {
        RefusalReason::TooManyCores { wanted: request.cores, most_cores: small(sizes.cores) }
    } else if lacking.cpu > 0 {
        RefusalReason::TooMuchCpu { wanted: needs.busy(), most: sizes.busy() }
    } else if lacking.ram > 0 {
        RefusalReason::TooMuchRam { wanted: request.ram, most: Bytes(sizes.ram) }
    } else if request.cpu == Milli(0) && request.ram == Bytes(0) {
        RefusalReason::NoNodeHasBoth { devices: wanted, cores: request.cores }
    } else {
        RefusalReason::NoNodeHasAll
    })
}

/// Why no device will do.
fn unsuitable(ledger: &Ledger, request: &Request) -> RefusalReason {
    let models = ledger.devices.iter().filter(|device| !device.leaving);
    let models = models.filter(|device| request.models.contains(device.model));
    let mut models = models.peekable();
    let shares = matches!(request.gpus, GpuRequest::Share(_));
    if shares && models.peek().is_some() && models.clone().all(|device| device.one_process) {
        return RefusalReason::OneProcessEach;
    }
    let largest = models.map(|device| device.capacity).max();
    largest.map_or(RefusalReason::NoSuchModel, |most| RefusalReason::TooMuchMemory {
        wanted: memory_of(request).max(request.device_memory),
        most,
    })
}
