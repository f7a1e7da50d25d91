//! What each repetition of an experiment gets, and how many fit at a time.
//!
//! The words of the SLURM document (`gpus_per_rep`, `cpus_per_rep`, `scheduler`) become what
//! every task of the run asks for. Options that were given win over them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use packhorse_intake::experiments::{ExperimentScheduler, Experiments, SlurmDocument};
use packhorse_model::{GpuRequest, Milli, RunSpec};

use crate::devices::Devices;
use crate::settings::Settings;
use crate::topology::our_cores;
use crate::{Notices, SessionError};

/// Fits the repetitions of experiments to what is here: without a GPU they run all the
/// same, as many at a time as `reps_in_parallel` says.
pub fn fit_here(
    spec: &mut RunSpec,
    experiments: &Experiments,
    settings: &Settings,
    notices: &mut Notices<'_>,
) -> Result<(), SessionError> {
    let nothing = SlurmDocument::default();
    let document = experiments.slurm().unwrap_or(&nothing);
    say_what_each_gets(spec, document);
    let config = settings.gpu_config();
    let cores = u32::try_from(our_cores(&config.sysfs).len()).unwrap_or(u32::MAX);
    if let Some(wanted) = spec.defaults.cores.filter(|wanted| *wanted > cores) {
        notices(&format!(
            "warning: cpus_per_rep asks for {wanted} cores, and there are {cores} here: each has \
             all of them"
        ));
        spec.defaults.cores = Some(cores);
    }
    if spec.pool.slots.is_none() && spec.pool.gpus.is_empty() {
        let has_none = spec.defaults.gpus == Some(GpuRequest::None);
        if has_none || is_without_gpus(spec, settings, notices)? {
            spec.defaults.gpus = None;
            let by_cores = spec.defaults.cores.filter(|_| has_none);
            let slots = by_cores.map(|each| cores / each);
            spec.pool.slots = slots.or(Some(most_at_a_time(experiments)));
        }
    }
    let devices = Devices::find(&spec.pool, &spec.defaults, &config, notices)?;
    let fit = devices.at_a_time(&spec.pool, &spec.defaults)?;
    if let Ok(fit) = u32::try_from(fit) {
        let is_cut_up = document.gpus_per_rep.is_some() || document.cpus_per_rep.is_some();
        warn_of_limits(experiments, fit, is_cut_up, SharedRoom::Machine, notices);
    }
    Ok(())
}

/// What the words of the document ask for, where nobody has asked for something else.
pub fn say_what_each_gets(spec: &mut RunSpec, document: &SlurmDocument) {
    let (task, pool) = (&mut spec.defaults, &mut spec.pool);
    if pool.slots.is_none() {
        // What was said of GPUs means nothing without them.
        let own = match document.scheduler {
            Some(ExperimentScheduler::CpuDistribute) => Some(GpuRequest::None),
            _ => document.gpus_per_rep,
        };
        task.gpus = task.gpus.or(own);
    }
    if task.cores.is_some() || pool.equal_cores == Some(true) {
        return;
    }
    let own = document.cpus_per_rep.map(NonZeroU32::get);
    match (document.scheduler, own) {
        (Some(ExperimentScheduler::Kluster), own) => {
            pool.thread_caps = pool.thread_caps.or(Some(true));
            let busy = own.and_then(|cores| cores.checked_mul(1000)).map(Milli);
            task.cpu = task.cpu.or(busy);
        }
        (_, Some(cores)) => task.cores = Some(cores),
        (Some(ExperimentScheduler::Horeka | ExperimentScheduler::CpuDistribute), None) => {
            pool.equal_cores = Some(true);
        }
        (Some(ExperimentScheduler::Mp) | None, None) => {}
    }
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
        Err(SessionError::Select(_)) if task.vram.is_none() => {
            if task.gpus.is_some() {
                notices("there is no GPU here: repetitions run without one");
            }
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
        SharedRoom::Machine if limits.values().any(Option::is_none) => None,
        SharedRoom::Machine => Some(numbers.fold(0, u32::saturating_add)),
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
