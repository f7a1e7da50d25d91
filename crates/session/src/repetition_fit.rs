//! What each repetition of an experiment gets, and how many fit at a time.
//!
//! The words of the SLURM document (`gpus_per_rep`, `cpus_per_rep`, `scheduler`) become what
//! every task of the run asks for. Options that were given win over them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use packhorse_intake::experiments::{ExperimentScheduler, Experiments, SlurmDocument};
use packhorse_model::{GpuRequest, Milli, PoolSpec, RunSpec};

use crate::devices::Devices;
use crate::settings::Settings;
use crate::topology::our_cores;
use crate::{Notices, SessionError};

/// Fits the repetitions of experiments to what is here: without a GPU they run all the
/// same, as many at a time as `cpus_per_rep` or `reps_in_parallel` says. `typed` is what the
/// arguments alone say.
pub fn fit_here(
    spec: &mut RunSpec,
    typed: &PoolSpec,
    experiments: &Experiments,
    settings: &Settings,
    notices: &mut Notices<'_>,
) -> Result<(), SessionError> {
    let nothing = SlurmDocument::default();
    let document = experiments.slurm().unwrap_or(&nothing);
    let asked = spec.defaults.cores;
    say_what_each_gets(spec, typed, document);
    let config = settings.gpu_config();
    let cores = u32::try_from(our_cores(&config.sysfs).len()).unwrap_or(u32::MAX);
    let cores = cores.max(1);
    // Who has asked for too many is refused, as everywhere.
    let own = spec.defaults.cores.filter(|_| asked.is_none());
    if let Some(wanted) = own.filter(|wanted| *wanted > cores) {
        notices(&format!(
            "warning: cpus_per_rep asks for {wanted} cores, and there are {cores} here: each has \
             all of them"
        ));
        spec.defaults.cores = Some(cores);
    }
    let wants_none = spec.defaults.gpus == Some(GpuRequest::None);
    let has_named = !spec.pool.gpus.is_empty();
    if spec.pool.slots.is_none()
        && (wants_none || (!has_named && is_without_gpus(spec, settings, notices)?))
    {
        spec.defaults.gpus = None;
        (spec.pool.gpus, spec.pool.as_written) = (Vec::new(), false);
        let each = cores_each(spec);
        let by_cores = (each > 0).then(|| (cores / each.max(1)).max(1));
        let most = most_at_a_time(experiments);
        if by_cores.is_none() && most > 1 {
            // What one experiment has asked for is not there for those that have not.
            let limit = &mut spec.defaults.group_limit;
            *limit = limit.or(Some(NonZeroU32::MIN));
        }
        spec.pool.slots = by_cores.or(Some(most));
    }
    let devices = Devices::find(&spec.pool, &spec.defaults, &config, notices)?;
    let fit = devices.at_a_time(&spec.pool, &spec.defaults)?;
    // If not a single one fits, the run is refused.
    if let Ok(fit @ 1..) = u32::try_from(fit) {
        // So that equal parts of the cores are those of as many as really run at a time.
        let together = all_together(experiments).filter(|together| *together < fit);
        spec.pool.at_most = spec.pool.at_most.or(together);
        let is_cut_up = document.gpus_per_rep.is_some() || document.cpus_per_rep.is_some();
        warn_of_limits(experiments, fit, is_cut_up, SharedRoom::Machine, notices);
    }
    Ok(())
}

/// What the words of the document ask for, where nobody has asked for something else.
/// `typed` is what the arguments alone say.
pub fn say_what_each_gets(spec: &mut RunSpec, typed: &PoolSpec, document: &SlurmDocument) {
    let (task, pool) = (&mut spec.defaults, &mut spec.pool);
    if pool.slots.is_none() {
        // What was said of GPUs means nothing without them.
        let own = match document.scheduler {
            Some(ExperimentScheduler::CpuDistribute) => Some(GpuRequest::None),
            _ => document.gpus_per_rep,
        };
        task.gpus = task.gpus.or(own);
    }
    if document.scheduler == Some(ExperimentScheduler::Kluster) {
        pool.thread_caps = typed.thread_caps.or(Some(true));
        // One that is run again computes with as many threads as at first.
        spec.full_machine_caps = true;
    }
    if task.cores.is_some() || pool.equal_cores == Some(true) {
        return;
    }
    let own = document.cpus_per_rep.map(NonZeroU32::get);
    match (document.scheduler, own) {
        (Some(ExperimentScheduler::Kluster), own) => {
            let busy = own.and_then(|cores| cores.checked_mul(1000)).map(Milli);
            task.cpu = task.cpu.or(busy);
        }
        (_, Some(cores)) => task.cores = Some(cores),
        (Some(ExperimentScheduler::Horeka | ExperimentScheduler::CpuDistribute), None) => {
            pool.equal_cores = Some(true);
        }
        // Whoever cuts up GPUs, and names nobody who would see to the cores.
        (None, None) => {
            spec.cores_apart = pool.slots.is_none() && document.gpus_per_rep.is_some();
        }
        (Some(ExperimentScheduler::Mp), None) => {}
    }
}

/// How many cores each repetition has or keeps busy, if anybody says.
fn cores_each(spec: &RunSpec) -> u32 {
    let busy = spec.defaults.cpu.map_or(0, |cpu| cpu.0.div_ceil(1000));
    spec.defaults.cores.unwrap_or(0).max(busy)
}

/// Whether there is no GPU here, and nobody has named one.
fn is_without_gpus(
    spec: &RunSpec,
    settings: &Settings,
    notices: &mut Notices<'_>,
) -> Result<bool, SessionError> {
    let (pool, task) = (&spec.pool, &spec.defaults);
    match Devices::find(pool, task, &settings.gpu_config(), notices) {
        Ok(_) => Ok(false),
        Err(SessionError::Select(error)) if error.is_absence() && task.vram.is_none() => {
            notices("there is no GPU here: repetitions run without one");
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// The most repetitions of one experiment that are to run at a time.
fn most_at_a_time(experiments: &Experiments) -> u32 {
    let limits = experiments.limits();
    let limits = limits.map(|(_, limit)| limit.map_or(1, NonZeroU32::get));
    limits.max().unwrap_or(1)
}

/// The most repetitions of all experiments that are to run at a time, if each says its own
/// number.
fn all_together(experiments: &Experiments) -> Option<u32> {
    let limits: BTreeMap<&str, Option<NonZeroU32>> = experiments.limits().collect();
    let mut limits = limits.into_values();
    limits.try_fold(0_u32, |all, limit| Some(all.saturating_add(limit?.get())))
}

/// What the repetitions of experiments share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRoom {
    /// One machine, by all of them.
    Machine,
    /// A job each, by those of one experiment.
    Job,
}

/// Says where `reps_in_parallel` and the number that fits do not go together. `is_cut_up`:
/// the file says what each repetition gets, and so should know.
pub fn warn_of_limits(
    experiments: &Experiments,
    fit: u32,
    is_cut_up: bool,
    room: SharedRoom,
    notices: &mut Notices<'_>,
) {
    let limits: BTreeMap<&str, Option<NonZeroU32>> = experiments.limits().collect();
    let too_many = limits.iter().filter_map(|(name, limit)| {
        let limit = limit.filter(|limit| limit.get() > fit)?;
        Some((*name, limit))
    });
    let too_many: Vec<(&str, NonZeroU32)> = too_many.collect();
    if let Some((name, limit)) = too_many.first() {
        let others = match too_many.len() {
            1 => String::new(),
            2 => " and another experiment".to_owned(),
            many => format!(" and {} other experiments", many - 1),
        };
        notices(&format!(
            "warning: reps_in_parallel of `{name}`{others} is {limit}, and {fit} fit: no more than \
             that run at a time"
        ));
    }
    let mut numbers = limits.values().flatten().map(|limit| limit.get());
    let wanted = match room {
        SharedRoom::Machine => all_together(experiments),
        SharedRoom::Job => numbers.find(|limit| *limit < fit),
    };
    let mut sizes = experiments.job_sizes();
    let small = sizes.find(|(_, size, all)| *size < fit && size < all);
    if let Some((name, size, _)) = small.filter(|_| is_cut_up && room == SharedRoom::Job) {
        notices(&format!(
            "warning: reps_per_job of `{name}` is {size}, and {fit} repetitions would fit into a job: \
             part of it is idle\n\
             hint: make it {fit}, or ask for smaller jobs"
        ));
        return;
    }
    if let Some(wanted) = wanted.filter(|wanted| is_cut_up && *wanted < fit) {
        notices(&format!(
            "warning: reps_in_parallel lets {wanted} run at a time, and {fit} would fit\n\
             hint: leave it out, and as many run as fit"
        ));
    }
}
