//! What one job has, as far as that can be told from what is asked of Slurm: GPUs and cores,
//! and so how many tasks fit into it at a time.

use packhorse_model::{GpuRequest, Milli, PoolSpec, SlurmSpec, TaskSpec};

use crate::SlurmError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobShape {
    pub gpus: u32,
    /// Its cores, if anybody says how many.
    pub cores: Option<u32>,
}

impl JobShape {
    /// What is asked for.
    pub fn of(spec: &SlurmSpec) -> Self {
        let mut ntasks = spec.ntasks.map(std::num::NonZero::get);
        let mut cores_each = spec.cpus_per_task.map(std::num::NonZero::get);
        let mut gpus = spec.gres.as_deref().map(gpus_of_gres);
        let mut gpus_each = None;
        for (key, value) in options(&spec.sbatch) {
            match key {
                "gres" => gpus = Some(gpus_of_gres(value)),
                "gpus" | "G" | "gpus-per-node" => gpus = Some(counts(value)),
                "gpus-per-task" => gpus_each = Some(counts(value)),
                "ntasks" | "n" | "ntasks-per-node" => ntasks = value.parse().ok(),
                "cpus-per-task" | "c" => cores_each = value.parse().ok(),
                _ => {}
            }
        }
        let gpus_each = gpus_each.map(|each| each.saturating_mul(ntasks.unwrap_or(1)));
        let cores = match (ntasks, cores_each) {
            (None, None) => None,
            (tasks, each) => Some(tasks.unwrap_or(1).saturating_mul(each.unwrap_or(1))),
        };
        Self { gpus: gpus.or(gpus_each).unwrap_or(0), cores }
    }

    /// The part of it that a task like this takes, in thousandths: 125 if eight fit at a
    /// time. An error if not a single one does.
    pub fn share_of(&self, task: &TaskSpec, pool: &PoolSpec) -> Result<Milli, SlurmError> {
        let fit = self.fit(task, pool)?;
        Ok(Milli((1000 / fit).max(1)))
    }

    /// How many tasks like this fit into it at a time. An error if not a single one does.
    pub fn fit(&self, task: &TaskSpec, pool: &PoolSpec) -> Result<u32, SlurmError> {
        let room = self.room(task, pool)?;
        Ok(pool.at_most.map_or(room, |most| room.min(most)).max(1))
    }

    fn room(&self, task: &TaskSpec, pool: &PoolSpec) -> Result<u32, SlurmError> {
        let cores = task.cores.unwrap_or(0).max(task.cpu.map_or(0, |cpu| cpu.0.div_ceil(1000)));
        if let Some(slots) = pool.slots {
            return Ok(slots);
        }
        let by_cores = match (self.cores, cores) {
            (Some(have), 1..) if cores > have => {
                return Err(SlurmError::Plan(format!(
                    "a task asks for {cores} cores, and a job has {have}\n\
                     hint: ask for more with --cpus-per-task"
                )));
            }
            (Some(have), 1..) => Some(have / cores),
            _ => None,
        };
        let wants = task.gpus.filter(|gpus| *gpus != GpuRequest::None);
        if self.gpus == 0 {
            if wants.is_some() || task.vram.is_some() {
                return Err(SlurmError::Plan(
                    "tasks ask for GPUs, and nothing asks Slurm for any\n\
                     hint: add --gres gpu:1, or leave out -g and --vram"
                        .to_owned(),
                ));
            }
            return Ok(by_cores.or(self.cores).unwrap_or(1));
        }
        let by_gpus = match task.gpus {
            Some(GpuRequest::None) => return Ok(by_cores.or(self.cores).unwrap_or(1)),
            Some(GpuRequest::Whole(count)) if count > self.gpus => {
                return Err(SlurmError::Plan(format!(
                    "a task asks for {count} GPUs, and a job has {}\n\
                     hint: ask Slurm for more with --gres gpu:{count}",
                    self.gpus
                )));
            }
            Some(GpuRequest::Whole(count)) => self.gpus / count.max(1),
            Some(GpuRequest::Share(Milli(0))) | None => self.gpus,
            Some(GpuRequest::Share(Milli(share))) => {
                let each = pool.max_per_gpu.map_or(1000 / share, |most| most.min(1000 / share));
                self.gpus.saturating_mul(each.max(1))
            }
        };
        Ok(by_cores.map_or(by_gpus, |cores| cores.min(by_gpus)))
    }
}

/// The options among arguments of sbatch, each with its value: `--gpus=2`, `--gpus 2`, `-G2`,
/// `-G 2`.
fn options(arguments: &[String]) -> impl Iterator<Item = (&str, &str)> {
    arguments.iter().filter_map(|argument| {
        let argument = argument.trim();
        let (key, value) = match argument.strip_prefix("--") {
            Some(long) => long.split_once(['=', ' '])?,
            None => argument.strip_prefix('-')?.split_at_checked(1)?,
        };
        Some((key, value.trim().trim_start_matches('=')))
    })
}

/// The GPUs of `gpu:4`, `gpu:a100:2,shard:3`, `gres/gpu:1`. A part of one counts as one.
fn gpus_of_gres(text: &str) -> u32 {
    let parts = text.split(',').map(|part| part.trim().trim_start_matches("gres/"));
    let counts = parts.map(|part| match part.split_once([':', '=']) {
        Some(("gpu", count)) => of_count(count),
        Some(("shard" | "mps", _)) => 1,
        None if part == "gpu" => 1,
        _ => 0,
    });
    counts.sum()
}

/// The GPUs of `4`, `a100:4`, `a100:2,v100:1`.
fn counts(text: &str) -> u32 {
    text.split(',').map(of_count).sum()
}

/// `4`, `a100:4`, `a100` and `a100:4(S:0)`.
fn of_count(text: &str) -> u32 {
    let text = text.split('(').next().unwrap_or_default();
    let last = text.rsplit([':', '=']).next().unwrap_or_default();
    last.trim().parse().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(gres: Option<&str>, sbatch: &[&str]) -> JobShape {
        JobShape::of(&SlurmSpec {
            gres: gres.map(str::to_owned),
            sbatch: sbatch.iter().map(|&it| it.to_owned()).collect(),
            ..SlurmSpec::default()
        })
    }

    #[test]
    fn gpus_are_counted_however_they_are_asked_for() {
        for (gres, sbatch, gpus) in [
            (Some("gpu:4"), &[][..], 4),
            (Some("gpu"), &[], 1),
            (Some("gpu:a100:2"), &[], 2),
            (Some("gpu:a100"), &[], 1),
            (Some("gpu:a100:2,gpu:v100:1,nvme:1"), &[], 3),
            (Some("shard:2"), &[], 1),
            (None, &["--gpus=a100:3"], 3),
            (None, &["--gpus-per-node 2"], 2),
            (None, &["-G4"], 4),
            (None, &["--ntasks=2", "--gpus-per-task=2"], 4),
            (None, &["--constraint=gpu"], 0),
            (None, &[], 0),
        ] {
            assert_eq!(shape(gres, sbatch).gpus, gpus, "{gres:?} {sbatch:?}");
        }
        assert_eq!(shape(None, &["-n 2", "-c4"]).cores, Some(8));
    }

    #[test]
    fn as_many_fit_as_the_scheduler_would_start() {
        let task =
            |gpus: &str| TaskSpec { gpus: Some(gpus.parse().unwrap()), ..TaskSpec::default() };
        let four = shape(Some("gpu:4"), &["-c 6"]);
        let pool = PoolSpec::default();
        for (gpus, share) in [("0.5", 125), ("1", 250), ("2", 500), ("4", 1000), ("1/3", 83)] {
            assert_eq!(four.share_of(&task(gpus), &pool).unwrap(), Milli(share), "{gpus}");
        }
        let cores = TaskSpec { cores: Some(3), ..task("0.5") };
        assert_eq!(four.share_of(&cores, &pool).unwrap(), Milli(500));
        let slots = PoolSpec { slots: Some(10), ..PoolSpec::default() };
        assert_eq!(four.share_of(&TaskSpec::default(), &slots).unwrap(), Milli(100));
    }

    #[test]
    fn what_could_never_run_is_refused() {
        let wrong = |shape: JobShape, gpus: &str| {
            let task = TaskSpec { gpus: Some(gpus.parse().unwrap()), ..TaskSpec::default() };
            let error = shape.share_of(&task, &PoolSpec::default()).unwrap_err();
            error.to_string()
        };
        assert!(wrong(shape(Some("gpu:2"), &[]), "4").starts_with("a task asks for 4 GPUs"));
        assert!(wrong(shape(None, &[]), "0.5").contains("hint: add --gres"));
    }
}
