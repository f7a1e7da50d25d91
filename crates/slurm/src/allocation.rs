//! What a job was given: devices, cores, and time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packhorse_model::{GpuRequest, PoolSpec, RunSpec};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::SlurmError;
use crate::commands::{given_cores, time_left};
use crate::job_shape::JobShape;
use crate::status::pause;

/// When Slurm is asked again that did not answer.
const ASK_AGAIN: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(9)];

/// The job that we are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// What Slurm's commands call it: `12_3`. An array's last element has the number of the
    /// whole array, so its number alone would mean all of them.
    pub(crate) name: String,
    /// The number of its array.
    pub(crate) array: String,
    /// Its index in its array.
    pub(crate) index: u32,
    /// The node's name.
    pub(crate) node: String,
    /// How many cores it has.
    pub(crate) cores: Option<u32>,
    /// Its GPUs, as Slurm names them where no driver reads the usual variables.
    gpus: Option<String>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Allocation {
    /// What the environment says.
    pub(crate) fn find() -> Result<Self, SlurmError> {
        let index = variable("SLURM_ARRAY_TASK_ID");
        let index: u32 = index
            .and_then(|index| index.parse().ok())
            .ok_or(SlurmError::NoJob("SLURM_ARRAY_TASK_ID"))?;
        let array = variable("SLURM_ARRAY_JOB_ID");
        let array = array.ok_or(SlurmError::NoJob("SLURM_ARRAY_JOB_ID"))?;
        let host = || {
            let names = rustix::system::uname();
            names.nodename().to_string_lossy().into_owned()
        };
        Ok(Self {
            name: format!("{array}_{index}"),
            array,
            index,
            node: variable("SLURMD_NODENAME").unwrap_or_else(host),
            cores: variable("SLURM_CPUS_ON_NODE").and_then(|count| count.parse().ok()),
            gpus: variable("SLURM_JOB_GPUS").or_else(|| variable("SLURM_STEP_GPUS")),
        })
    }

    /// Keeps to the cores that the job was given, if Slurm does not see to that itself.
    /// What we may use, our tasks may.
    pub(crate) fn keep_to_cores(&self) {
        let (Some(count), Ok(allowed)) = (self.cores, sched_getaffinity(None)) else {
            return;
        };
        let count = count as usize;
        if (allowed.count() as usize) <= count {
            return;
        }
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        // Others on the node have other numbers.
        let given = given_cores(&self.name);
        let given = given.filter(|cores| cores.iter().all(|core| all.contains(core)));
        let cores = given.unwrap_or_else(|| all[..count].to_vec());
        let mut set = CpuSet::new();
        for core in cores {
            set.set(core);
        }
        // If that is refused, tasks have more cores than they should.
        let _ = sched_setaffinity(None, &set);
    }

    /// What tasks may run on: the GPUs of the job, or else its cores.
    pub(crate) fn pool(&self, spec: &RunSpec, parallel: Option<u32>) -> PoolSpec {
        let mut pool = PoolSpec {
            // Slurm sees to it that nobody else has them.
            leases: Some(false),
            // A grid file or the settings name those of some machine. Here they may be
            // somebody else's.
            gpus: Vec::new(),
            as_written: false,
            at_most: parallel.or(spec.pool.at_most),
            ..spec.pool.clone()
        };
        if pool.slots.is_some() {
            return pool;
        }
        let visible = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
        let visible = visible.iter().find_map(|name| variable(name));
        let has_none = |list: &String| matches!(list.as_str(), "NoDevFiles" | "-1" | "none");
        let visible = visible.filter(|list| !has_none(list));
        // A job that has no GPUs still has the variables of the shell that submitted it.
        let slurm = spec.slurm.as_ref();
        let asks = slurm.is_some_and(|slurm| JobShape::of(slurm).gpus > 0);
        let visible = visible.filter(|_| asks || self.gpus.is_some());
        let wants_none = spec.defaults.gpus == Some(GpuRequest::None);
        match (visible, &self.gpus) {
            _ if wants_none => pool.slots = Some(self.slots(spec)),
            (Some(_), _) => {}
            (None, Some(gpus)) => pool.gpus = vec![gpus.clone()],
            (None, None) => pool.slots = Some(self.slots(spec)),
        }
        pool
    }

    /// How many tasks its cores can take.
    fn slots(&self, spec: &RunSpec) -> u32 {
        let ours = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let ours = || u32::try_from(ours()).unwrap_or(u32::MAX);
        let cores = self.cores.unwrap_or_else(ours).max(1);
        let task = &spec.defaults;
        let busy = task.cpu.map_or(0, |cpu| cpu.0.div_ceil(1000));
        let each = task.cores.unwrap_or(0).max(busy).max(1);
        (cores / each).max(1)
    }

    /// When the job ends, if it does.
    pub(crate) fn ends(&self) -> Result<Option<Instant>, SlurmError> {
        let at = variable("SLURM_JOB_END_TIME").and_then(|at| at.parse().ok());
        let at = at.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let left = match at {
            Some(at) => Some(at.duration_since(SystemTime::now()).unwrap_or_default()),
            // Before version 22.05 nobody says; later only some do.
            None => self.ask_time_left()?,
        };
        Ok(left.map(|left| Instant::now() + left))
    }

    /// Whoever does not know when the job ends is killed without a word, so a controller that
    /// is busy is asked again.
    fn ask_time_left(&self) -> Result<Option<Duration>, SlurmError> {
        let mut answer = time_left(&self.name);
        for pause_before in ASK_AGAIN {
            if answer.is_ok() {
                break;
            }
            pause(pause_before);
            answer = time_left(&self.name);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Milli, TaskSpec};

    use super::*;

    #[test]
    fn tasks_without_gpus_share_the_cores() {
        let allocation = Allocation {
            name: "1_0".to_owned(),
            array: "1".to_owned(),
            index: 0,
            node: "n1".to_owned(),
            cores: Some(8),
            gpus: None,
        };
        let slots = |task: TaskSpec| {
            let spec = RunSpec { defaults: task, ..RunSpec::default() };
            allocation.slots(&spec)
        };
        assert_eq!(slots(TaskSpec::default()), 8);
        let cores = TaskSpec { cores: Some(3), ..TaskSpec::default() };
        assert_eq!(slots(cores), 2);
        let busy = TaskSpec { cpu: Some(Milli(1500)), ..TaskSpec::default() };
        assert_eq!(slots(busy), 4);
    }
}
