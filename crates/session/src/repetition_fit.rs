//! What each repetition of an experiment gets, and how many fit at a time.
//!
//! The words of the SLURM document (`gpus_per_rep`, `cpus_per_rep`, `scheduler`) become what
//! every task of the run asks for. Options that were given win over them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use packhorse_intake::experiments::{ExperimentScheduler, Experiments, SlurmDocument};
use packhorse_model::{ByteString, GpuRequest, Milli, RunSpec, TaskSpec};

use crate::devices::Devices;
use crate::environment::THREAD_CAPS;
use crate::settings::Settings;
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
    let no_gpus = spec.defaults.gpus.is_none() && document.scheduler_without_gpus()
        || gpus_of(spec, document) == Some(GpuRequest::None);
    let mut task = spec.defaults.clone();
    let mut pool = spec.pool.clone();
    let mut devices = None;
    if pool.slots.is_none() && !(no_gpus && pool.gpus.is_empty()) {
        task.gpus = gpus_of(spec, document);
        match Devices::find(&pool, &task, &settings.gpu_config(), notices) {
            Ok(found) => devices = Some(found),
            // There is no GPU here, and nobody has named one.
            Err(SessionError::Select(_)) if pool.gpus.is_empty() && task.vram.is_none() => {
                if task.gpus.is_some() {
                    notices("there is no GPU here: repetitions run without one");
                }
            }
            Err(error) => return Err(error),
        }
    }
    let cores = devices.as_ref().map(|found| found.cores.len());
    let cores = u32::try_from(cores.unwrap_or_else(|| crate::devices::our_cores().len()));
    let cores = cores.unwrap_or(u32::MAX);
    let slots = if let Some(devices) = &devices {
        let units = u32::try_from(devices.units.len()).unwrap_or(u32::MAX);
        slots_on(units, &task, pool.max_per_gpu)
    } else {
        // What was said of GPUs means nothing without them.
        task.gpus = None;
        let each = document.cpus_per_rep;
        let by_cores = each.filter(|_| document.scheduler_without_gpus());
        let slots = pool.slots.unwrap_or_else(|| match by_cores {
            Some(each) => cores / each,
            None => most_at_a_time(experiments),
        });
        pool.slots = Some(slots.max(1));
        pool.slots
    };
    share_cores(&mut task, document, slots, cores, notices);
    spec.defaults = task;
    spec.pool = pool;
    if let Some(slots) = slots {
        warn_of_limits(experiments, document, slots, notices);
    }
    Ok(())
}

fn gpus_of(spec: &RunSpec, document: &SlurmDocument) -> Option<GpuRequest> {
    spec.defaults.gpus.or(document.gpus_per_rep)
}

/// The most repetitions of one experiment that are to run at a time.
fn most_at_a_time(experiments: &Experiments) -> u32 {
    let limits = experiments.limits();
    let limits = limits.map(|(_, limit)| limit.map_or(1, NonZeroU32::get));
    limits.max().unwrap_or(1)
}

/// How many tasks fit on so many GPUs. None if that depends on memory.
fn slots_on(units: u32, task: &TaskSpec, max_per_gpu: Option<u32>) -> Option<u32> {
    let each = match task.gpus.unwrap_or_default() {
        _ if task.vram.is_some() => return None,
        GpuRequest::Whole(count) => return Some(units / count.max(1)),
        GpuRequest::Share(Milli(share)) if share > 0 => 1000 / share,
        GpuRequest::Share(_) | GpuRequest::None => return None,
    };
    let each = max_per_gpu.map_or(each, |most| each.min(most));
    Some(units.saturating_mul(each))
}

/// Shares so many cores among as many repetitions as run at a time.
fn share_cores(
    task: &mut TaskSpec,
    document: &SlurmDocument,
    slots: Option<u32>,
    cores: u32,
    notices: &mut Notices<'_>,
) {
    let own = document.cpus_per_rep.map(NonZeroU32::get);
    let share = own.or_else(|| Some(cores / slots?.max(1)));
    match document.scheduler {
        Some(ExperimentScheduler::Kluster) => {
            let Some(share) = share.map(|share| share.max(1)) else {
                return;
            };
            for name in THREAD_CAPS {
                if std::env::var_os(name).is_none() && !task.env.contains_key(name) {
                    let count = ByteString::from(share.to_string().as_str());
                    task.env.insert(name.to_owned(), count);
                }
            }
        }
        Some(ExperimentScheduler::Horeka) if task.cores.is_none() => match share {
            Some(0) => notices(&format!(
                "warning: {cores} cores are not enough for {} repetitions: none has cores of its own",
                slots.unwrap_or(0)
            )),
            share => task.cores = share,
        },
        _ if task.cores.is_none() && task.cpu.is_none() => task.cores = own,
        _ => {}
    }
}

/// Says where `reps_in_parallel` and what there is do not go together.
fn warn_of_limits(
    experiments: &Experiments,
    document: &SlurmDocument,
    slots: u32,
    notices: &mut Notices<'_>,
) {
    let limits: BTreeMap<&str, Option<NonZeroU32>> = experiments.limits().collect();
    let too_many = limits.iter().filter_map(|(name, limit)| {
        let limit = limit.filter(|limit| limit.get() > slots)?;
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
            "warning: reps_in_parallel of `{name}`{others} is {limit}, and {slots} fit: no more than \
             that run at a time"
        ));
    }
    let is_distributed = document.gpus_per_rep.is_some() || document.cpus_per_rep.is_some();
    let wanted = limits.values().try_fold(0_u32, |sum, limit| {
        Some(sum.saturating_add(limit.as_ref()?.get()))
    });
    if let Some(wanted) = wanted.filter(|wanted| is_distributed && *wanted < slots) {
        notices(&format!(
            "warning: reps_in_parallel lets {wanted} run at a time, and {slots} would fit\n\
             hint: leave it out, and as many run as fit"
        ));
    }
}
