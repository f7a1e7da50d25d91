use anyhow::bail;
use packhorse_core::Policy;
use packhorse_gpu::{Config, Driver, Selection, Unit, Vendor, resolve};
use packhorse_model::{CoreId, GpuRequest, Request};
use packhorse_runner::{Defaults, Places};

use crate::args::{Placing, PoolArgs, TaskArgs};

/// Where tasks run, and what each needs: the meaning of the arguments. Asks the
/// driver if there is one.
pub fn find(pool: &PoolArgs, task: &TaskArgs) -> anyhow::Result<(Places, Defaults)> {
    let devices = match pool.slots {
        Some(_) => Vec::new(),
        None if task.gpus_per_task == Some(GpuRequest::None) => {
            bail!(
                "tasks that need no GPU need another limit\n\
                 hint: say how many run at a time with --slots N"
            );
        }
        None => devices(&pool.gpus)?,
    };
    let gpus = match (task.gpus_per_task, pool.slots) {
        (None, None) => GpuRequest::default(),
        (None | Some(GpuRequest::None), _) => GpuRequest::None,
        (Some(gpus), None) => gpus,
        (Some(_), Some(_)) => {
            bail!("-g asks for GPUs, and --slots uses none\nhint: leave out one of the two")
        }
    };
    let defaults = Defaults {
        request: Request {
            gpus,
            cores: task.cores.unwrap_or(0),
        },
        retries: task.retries.unwrap_or(0),
        time_limit: task.timeout,
        ..Defaults::default()
    };
    let places = Places {
        devices,
        cores: our_cores(),
        slots: pool.slots,
        max_per_device: pool.max_per_gpu,
        policy: match pool.place {
            Some(Placing::Spread) => Policy::Spread,
            Some(Placing::Pack) | None => Policy::Pack,
        },
    };
    Ok((places, defaults))
}

fn devices(wanted: &[String]) -> anyhow::Result<Vec<Unit>> {
    let selection = if wanted.is_empty() {
        Selection::parse(&["all".to_owned()])?
    } else {
        Selection::parse(wanted)?
    };
    let driver = Driver::detect(&Config::from_env())?;
    let vendor = driver.vendor().unwrap_or(Vendor::Nvidia);
    let visible = vendor
        .visible_variables()
        .iter()
        .find_map(|name| std::env::var(name).ok());
    Ok(resolve(
        &selection,
        &driver.inventory(),
        visible.as_deref(),
    )?)
}

/// The cores that we may use ourselves.
fn our_cores() -> Vec<CoreId> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .filter_map(|core| u32::try_from(core).ok().map(CoreId))
        .collect()
}
