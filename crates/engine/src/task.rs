//! What the engine knows of a task that it has admitted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use packhorse_core::Submission;
use packhorse_model::{
    Bytes, Command, DeviceId, GpuRequest, Milli, Models, Request, TaskId, TaskSpec, TimeLimit,
    Timestamp,
};

use crate::engine::DeviceInfo;
use crate::memory::{VramNeed, VramUse, models_named, models_together};

pub(crate) struct Task {
    pub(crate) command: Arc<Command>,
    /// What it asks for, laid over what the run says. Its `command` means nothing.
    pub(crate) spec: Arc<TaskSpec>,
    /// Attempts of earlier sessions.
    pub(crate) before: u32,
    /// The bytes it takes in the backlog, while it is one of the plain tasks that wait
    /// there.
    pub(crate) queued: Option<usize>,
    /// What its memory request is worked out from, if its memory is counted.
    pub(crate) need: Option<Box<VramNeed>>,
    /// The attempt that was started, or is about to be.
    pub(crate) attempt: Option<AttemptState>,
    /// When that, or the one that ended last, was started.
    pub(crate) started: Option<Timestamp>,
}

/// An attempt that was started, or is about to be.
pub(crate) struct AttemptState {
    /// Which one; 0 is a probe.
    pub(crate) number: u32,
    /// What it executes.
    pub(crate) command: Arc<Command>,
    pub(crate) devices: Vec<DeviceId>,
    /// Its devices as people call them.
    pub(crate) labels: Arc<[String]>,
    /// Why it is ended, if that is not because of itself.
    pub(crate) evicted: Option<Eviction>,
    /// It is over, and what to make of that is not known yet.
    pub(crate) ended: bool,
}

/// Why an attempt is ended that has done nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// Its device was taken out.
    DeviceLost,
    /// It came last to a device on which another one grew.
    Crowded {
        grown: TaskId,
        device: DeviceId,
        /// What that one holds.
        held: Bytes,
    },
}

impl Task {
    /// The devices of the attempt that runs.
    pub(crate) fn devices(&self) -> &[DeviceId] {
        let attempt = self.attempt.as_ref();
        attempt.map_or(&[], |attempt| &attempt.devices)
    }

    /// Whether an attempt of it runs, or is about to.
    pub(crate) fn is_alive(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| !attempt.ended)
    }

    pub(crate) fn vram(&self) -> VramUse {
        VramUse::of(&self.spec)
    }
}

/// What a task with these options asks for, but for memory.
pub(crate) fn request(spec: &TaskSpec, devices: &[DeviceInfo], slots: Option<u32>) -> Request {
    let gpus = match spec.gpus {
        Some(gpus) => gpus,
        None if slots.is_some() => GpuRequest::None,
        // Memory alone decides how many share a device.
        None if spec.vram.is_some() => GpuRequest::Share(Milli(0)),
        None => GpuRequest::default(),
    };
    let cores = spec.cores.unwrap_or(0);
    let models = match &spec.gpu_model {
        Some(names) => models_named(devices, names),
        None => Models::ANY,
    };
    Request {
        gpus,
        models: if gpus.devices() > 1 { models_together(devices, models) } else { models },
        cores: if gpus == GpuRequest::None && slots.is_none() {
            // With GPUs for a limit, nothing would limit tasks that need none.
            cores.max(1)
        } else {
            cores
        },
        cpu: spec.cpu.unwrap_or_default(),
        ram: spec.ram.unwrap_or_default(),
        ..Request::default()
    }
}

/// The most that a task with these options asks for at first.
pub fn first_request(spec: &TaskSpec, devices: &[DeviceInfo], slots: Option<u32>) -> Request {
    Request { memory: VramUse::of(spec).at_first(), ..request(spec, devices, slots) }
}

/// What the scheduler is told of a task with these options, but for memory.
pub(crate) fn submission(
    id: TaskId,
    spec: &TaskSpec,
    devices: &[DeviceInfo],
    slots: Option<u32>,
) -> Submission {
    Submission {
        priority: spec.priority.unwrap_or_default(),
        retries: spec.retries.unwrap_or(0),
        time_limit: spec.timeout.and_then(TimeLimit::get),
        ..Submission::new(id, request(spec, devices, slots))
    }
}

/// The log of an attempt in the run's folder of logs.
pub fn run_log(logs: &Path, id: TaskId, attempt: u32) -> PathBuf {
    logs.join(format!("{}.{attempt}.log", id.number))
}

/// Where a task wants its output, if it says so. The first attempt has the task's own path,
/// others get their number in it.
pub fn own_log(folder: &Path, spec: &TaskSpec, attempt: u32) -> Option<PathBuf> {
    let own = spec.log.as_ref()?;
    let base = spec.folder.as_deref().map_or(folder.to_owned(), |own| folder.join(own));
    let path = base.join(own);
    // What is thrown away needs no name of its own.
    if attempt == 1 || path == Path::new("/dev/null") {
        return Some(path);
    }
    Some(match path.extension() {
        Some(extension) => {
            let mut numbered = std::ffi::OsString::from(format!("{attempt}."));
            numbered.push(extension);
            path.with_extension(numbered)
        }
        None => path.with_extension(attempt.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;

    use super::*;

    #[test]
    fn every_attempt_has_a_log_of_its_own() {
        let id = TaskId::new(RunId(3), 7);
        let path = |log: Option<&str>, attempt| {
            let spec = TaskSpec {
                log: log.map(Into::into),
                folder: Some("sub".into()),
                ..TaskSpec::default()
            };
            let path = own_log(Path::new("/run"), &spec, attempt);
            let path = path.unwrap_or_else(|| run_log(Path::new("/logs"), id, attempt));
            path.to_string_lossy().into_owned()
        };
        assert_eq!(path(None, 2), "/logs/7.2.log");
        assert_eq!(path(Some("train.log"), 1), "/run/sub/train.log");
        assert_eq!(path(Some("train.log"), 2), "/run/sub/train.2.log");
        assert_eq!(path(Some("/x/train"), 0), "/x/train.0");
        assert_eq!(path(Some("/dev/null"), 2), "/dev/null");
    }
}
