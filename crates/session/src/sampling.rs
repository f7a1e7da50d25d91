//! Whose processes are on the devices.

use std::time::Instant;

use packhorse_engine::{DeviceView, Engine, MemberView, Owner, ProcessView};
use packhorse_gpu::{DeviceReading, DeviceSample, GpuProcess, Health, ProcessMemory};
use packhorse_proc::ancestry;
use rustc_hash::FxHashMap;

use crate::executor::Executor;
use crate::ignored_process::IgnoredProcess;

/// Works out who is on the devices.
pub(crate) struct Attributor {
    ignored: Vec<IgnoredProcess>,
    /// The processes of other runs.
    pub(crate) other_runs: Vec<u32>,
    origin: Instant,
}

impl Attributor {
    pub(crate) fn new(ignored: Vec<IgnoredProcess>, origin: Instant) -> Self {
        Self {
            ignored,
            other_runs: Vec::new(),
            origin,
        }
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
        let members = sample.members.into_iter();
        let members = members.map(|member| self.member(member, executor, &mut owners));
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

    fn member(
        &self,
        reading: DeviceReading,
        executor: &dyn Executor,
        owners: &mut FxHashMap<u32, Owner>,
    ) -> MemberView {
        let mut process = |held: ProcessMemory| {
            let owner = *owners
                .entry(held.pid)
                .or_insert_with(|| self.owner(held.pid, executor));
            ProcessView {
                pid: held.pid,
                memory: held.memory,
                owner,
                description: String::new(),
            }
        };
        MemberView {
            memory: reading.memory.map(|memory| (memory.used, memory.free)),
            processes: reading
                .processes
                .map(|list| list.into_iter().map(&mut process).collect()),
            utilisation: reading.utilisation.map(|percent| percent.0),
            lost: match reading.health {
                Health::Ok => None,
                Health::Lost(reason) => Some(reason),
            },
        }
    }

    fn owner(&self, pid: u32, executor: &dyn Executor) -> Owner {
        if let Some(task) = executor.owner_of(pid) {
            return Owner::Task(task);
        }
        if self.ignored.iter().any(|who| who.is(pid)) {
            return Owner::Ignored;
        }
        let run = ancestry(pid).find(|pid| self.other_runs.contains(pid));
        run.map_or(Owner::Stranger, Owner::OtherRun)
    }
}

/// A process as people know it.
fn describe(process: &ProcessView) -> String {
    let found = GpuProcess::look_up(ProcessMemory {
        pid: process.pid,
        memory: process.memory,
    });
    let program = found.program().unwrap_or("not to be seen from here");
    let whose = match process.owner {
        Owner::Task(task) => format!(" of task {task}"),
        _ => found
            .user
            .as_ref()
            .map_or_else(String::new, |user| format!(" of {user}")),
    };
    format!("{program}{whose}")
}
