//! Whose processes are on the devices.

use std::time::Instant;

use packhorse_engine::{DeviceView, Engine, MemberView, Owner, ProcessView};
use packhorse_gpu::{DeviceReading, DeviceSample, GpuProcess, Health, ProcessMemory};
use packhorse_model::TaskId;
use packhorse_proc::{ancestry, is_alive};
use rustc_hash::FxHashMap;

use crate::executor::Executor;
use crate::ignored_process::IgnoredProcess;

/// Works out who is on the devices.
pub(crate) struct Attributor {
    ignored: Vec<IgnoredProcess>,
    /// The processes from which those of other runs descend, each with that which leads, or
    /// led, the run.
    pub(crate) other_runs: FxHashMap<u32, u32>,
    origin: Instant,
}

impl Attributor {
    pub(crate) fn new(ignored: Vec<IgnoredProcess>, origin: Instant) -> Self {
        Self { ignored, other_runs: FxHashMap::default(), origin }
    }

    /// What the driver showed of a device, with whose processes are whose.
    pub(crate) fn view(
        &self,
        sample: DeviceSample,
        engine: &Engine,
        executor: &dyn Executor,
    ) -> DeviceView {
        // Process ids are used again, so this holds for one sample.
        let mut owners = FxHashMap::default();
        let mut ended = engine.tracked_on(sample.unit);
        ended.retain(|&task| !executor.is_led(task));
        let owner = |pid| executor.owner_of(pid);
        let members = sample.members.into_iter();
        let members = members.map(|member| self.member(member, &owner, &mut owners));
        let mut members: Vec<MemberView> = members.collect();
        if engine.names_processes(sample.unit) {
            let members = members.iter_mut().flat_map(|member| &mut member.processes);
            for process in members.flatten() {
                process.description = describe(process);
            }
        }
        DeviceView {
            device: sample.unit,
            at: sample.at.saturating_duration_since(self.origin),
            members,
            ended,
        }
    }

    /// What the driver showed of a device before anything was started there.
    pub(crate) fn first_view(&self, sample: DeviceSample) -> DeviceView {
        let mut owners = FxHashMap::default();
        let members = sample.members.into_iter();
        let members = members.map(|member| self.member(member, &|_| None, &mut owners));
        DeviceView {
            device: sample.unit,
            at: sample.at.saturating_duration_since(self.origin),
            members: members.collect(),
            ended: Vec::new(),
        }
    }

    fn member(
        &self,
        reading: DeviceReading,
        owner_of: &dyn Fn(u32) -> Option<TaskId>,
        owners: &mut FxHashMap<u32, Owner>,
    ) -> MemberView {
        let mut process = |held: ProcessMemory| {
            let owner = *owners.entry(held.pid).or_insert_with(|| self.owner(held.pid, owner_of));
            ProcessView { pid: held.pid, memory: held.memory, owner, description: String::new() }
        };
        MemberView {
            memory: reading.memory.map(|memory| (memory.used, memory.free)),
            processes: reading.processes.map(|list| list.into_iter().map(&mut process).collect()),
            utilisation: reading.utilisation.map(|percent| percent.0),
            lost: match reading.health {
                Health::Ok => None,
                Health::Lost(reason) => Some(reason),
            },
        }
    }

    fn owner(&self, pid: u32, owner_of: &dyn Fn(u32) -> Option<TaskId>) -> Owner {
        if let Some(task) = owner_of(pid) {
            return Owner::Task(task);
        }
        if self.ignored.iter().any(|who| who.is(pid)) {
            return Owner::Ignored;
        }
        let run = ancestry(pid).find_map(|pid| self.other_runs.get(&pid).copied());
        match run {
            Some(run) => Owner::OtherRun(run),
            None if is_alive(pid) => Owner::Stranger,
            None => Owner::Unseen,
        }
    }
}

/// A process as people know it.
fn describe(process: &ProcessView) -> String {
    let found = GpuProcess::look_up(ProcessMemory { pid: process.pid, memory: process.memory });
    let program = found.program().unwrap_or("not to be seen from here");
    let whose = match process.owner {
        Owner::Task(task) => format!(" of task {task}"),
        _ => found.user.as_ref().map_or_else(String::new, |user| format!(" of {user}")),
    };
    format!("{program}{whose}")
}
