//! Whose processes are on the devices.

use std::path::Path;
use std::time::Instant;

use packhorse_engine::{DeviceView, Engine, MemberView, Owner, ProcessView};
use packhorse_gpu::{DeviceReading, DeviceSample, GpuProcess, Health, ProcessMemory, Unit};
use packhorse_leases::{Lease, read_leases};
use packhorse_model::TaskId;
use packhorse_proc::{ancestry, is_alive};
use rustc_hash::FxHashMap;

use crate::devices::DeviceLook;
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

    /// Who was on the devices when they were found. What other runs have left word of in the
    /// folder of `leases` is theirs.
    pub(crate) fn first_look(
        &mut self,
        look: &DeviceLook,
        units: &[Unit],
        leases: Option<&Path>,
    ) -> Vec<DeviceView> {
        if let Some(folder) = leases
            && look.processes().next().is_some()
        {
            let leases = read_leases(folder).unwrap_or_default();
            self.other_runs = leases.iter().flat_map(Lease::processes).collect();
        }
        let found = units.iter().enumerate();
        let found = found.filter_map(|(unit, found)| Some((unit, look.readings(found)?)));
        let views = found.map(|(unit, members)| {
            let mut view = self.first_view(DeviceSample { unit, at: look.at, members });
            let processes = view.members.iter_mut().flat_map(|member| &mut member.processes);
            for process in processes.flatten() {
                process.description =
                    look.process(process.pid).map_or_else(String::new, program_and_user);
            }
            view
        });
        views.collect()
    }

    fn member(
        &self,
        reading: DeviceReading,
        owner_of: &dyn Fn(u32) -> Option<TaskId>,
        owners: &mut FxHashMap<u32, Owner>,
    ) -> MemberView {
        let mut process = |held: ProcessMemory| {
            let owner = *owners.entry(held.pid).or_insert_with(|| self.owner(held.pid, owner_of));
            ProcessView {
                pid: held.pid,
                memory: held.memory,
                draws: held.draws,
                owner,
                description: String::new(),
            }
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
    let ProcessView { pid, memory, draws, .. } = *process;
    let found = GpuProcess::look_up(ProcessMemory { pid, memory, draws });
    match process.owner {
        Owner::Task(task) => format!("{} of task {task}", program(&found)),
        _ => program_and_user(&found),
    }
}

fn program(process: &GpuProcess) -> &str {
    process.program().unwrap_or("not to be seen from here")
}

fn program_and_user(process: &GpuProcess) -> String {
    let user = process.user.as_ref().map_or_else(String::new, |user| format!(" of {user}"));
    format!("{}{user}", program(process))
}
