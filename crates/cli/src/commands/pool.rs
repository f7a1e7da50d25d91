pub mod driver;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use packhorse_core::Policy;
use packhorse_gpu::{
    Config, Device, Driver, GpuError, Inventory, Member, Selection, Unit, Vendor, Visible, resolve,
};
use packhorse_intake::Vram;
use packhorse_intake::probe::Probe;
use packhorse_model::{Bytes, CoreId, GpuRequest, Milli, Models, Request};
use packhorse_runner::{About, Appetite, Defaults, Ignored, Measure, Mps, Places, Sharing, Signs};

use crate::args::{Ageing, Placing, PoolArgs, TaskArgs};
use crate::{complain, dropin, terminal};

/// How long a task waits to count one priority more urgent, if nobody says.
const AGEING: Duration = Duration::from_hours(1);

/// The meaning of the arguments.
pub struct Found {
    /// Where tasks run.
    pub places: Places,
    /// What each needs that says nothing itself.
    pub defaults: Defaults,
    /// How devices are shared.
    pub sharing: Sharing,
}

/// Where tasks run, and what each needs. Asks the driver if there is one.
pub fn find(pool: &PoolArgs, task: &TaskArgs) -> anyhow::Result<Found> {
    find_by(pool, task, &driver::config()?)
}

/// Whether there is a driver that knows GPUs. One that does not answer may: what is
/// wrong with it is told when the devices are asked for.
pub fn has_driver() -> bool {
    let Ok(config) = driver::config() else {
        return true;
    };
    let knows_gpus = |config: &Config| {
        let driver = Driver::detect(config);
        driver.is_ok_and(|driver| matches!(driver.inventory(), Inventory::Devices(_)))
    };
    driver::ask(&config, knows_gpus).unwrap_or(true)
}

/// The same on a machine without a driver.
pub fn find_imagined(pool: &PoolArgs, task: &TaskArgs) -> anyhow::Result<Found> {
    let nowhere = Config {
        nvml_library: Some("none".into()),
        sysfs: "/nonexistent".into(),
        ..Config::default()
    };
    find_by(pool, task, &nowhere)
}

/// Has tasks ask for this much memory.
pub fn ask_for_memory(task: &TaskArgs, defaults: &mut Defaults) {
    defaults.appetite = appetite(task);
    if task.vram.is_some() && task.gpus_per_task.is_none() {
        defaults.request.gpus = GpuRequest::Share(Milli(0));
    }
}

fn appetite(task: &TaskArgs) -> Appetite {
    match task.vram {
        None => Appetite::Uncounted,
        Some(Vram::Bytes(bytes)) if task.probe.is_some() => Appetite::Bounded(bytes),
        Some(Vram::Bytes(bytes)) => Appetite::Given(bytes),
        Some(Vram::Auto) => Appetite::Learned,
    }
}

/// Whether there is anything that would be asked for in vain.
fn check(pool: &PoolArgs, task: &TaskArgs) -> anyhow::Result<()> {
    if task.vram.is_some() && task.gpus_per_task == Some(GpuRequest::None) {
        bail!(
            "--vram is for tasks on GPUs, and -g 0 says that they use none\n\
             hint: leave out one of the two"
        );
    }
    if pool.thread_percentage.is_none() {
        return Ok(());
    }
    match pool.mps {
        Some(true) => {}
        // It was said, or there is none: what is meant for it does no harm.
        Some(false) => complain(
            "warning: --thread-percentage has no effect, since GPUs are shared without MPS",
        ),
        None => bail!(
            "--thread-percentage has no effect without MPS\n\
             hint: add --mps, or leave it out"
        ),
    }
    Ok(())
}

fn find_by(pool: &PoolArgs, task: &TaskArgs, config: &Config) -> anyhow::Result<Found> {
    check(pool, task)?;
    let chosen = match pool.slots {
        Some(_) => Chosen::default(),
        None if pool.as_written => Chosen::as_written(&pool.gpus),
        None if task.gpus_per_task == Some(GpuRequest::None) => {
            bail!(
                "tasks that need no GPU need another limit\n\
                 hint: say how many run at a time with --slots N"
            );
        }
        None => choose(&pool.gpus, without_driver(task), config)?,
    };
    let gpus = match (task.gpus_per_task, pool.slots) {
        // Memory alone decides how many share a device.
        (None, None) if task.vram.is_some() => GpuRequest::Share(Milli(0)),
        (None, None) => GpuRequest::default(),
        (None | Some(GpuRequest::None), _) => GpuRequest::None,
        (Some(gpus), None) => gpus,
        (Some(_), Some(_)) => {
            bail!("-g asks for GPUs, and --slots uses none\nhint: leave out one of the two")
        }
    };
    if task.vram.is_some() {
        chosen.check_memory()?;
    }
    let defaults = Defaults {
        request: Request {
            gpus,
            models: match &task.gpu_model {
                Some(names) => models(&chosen.about, names)?,
                None => Models::ANY,
            },
            cores: task.cores.unwrap_or(0),
            cpu: task.cpu.unwrap_or_default(),
            ram: task.ram.unwrap_or_default(),
            ..Request::default()
        },
        appetite: appetite(task),
        signature: task.signature.as_deref().map(Arc::from),
        probe: task
            .probe
            .as_deref()
            .map(|text| probe(text).map(Measure::Template))
            .transpose()?,
        retries: task.retries.unwrap_or(0),
        time_limit: task.timeout,
        ..Defaults::default()
    };
    let sharing = Sharing {
        driver: chosen.driver,
        ignored: pool.ignore_process.iter().map(|who| ignored(who)).collect(),
        signs: signs()?,
        leases: (!pool.no_leases && !pool.as_written && pool.slots.is_none())
            .then(packhorse_leases::folder),
        mps: (pool.mps == Some(true)).then_some(Mps {
            threads: pool.thread_percentage,
        }),
    };
    let places = Places {
        devices: chosen.units,
        about: chosen.about,
        ram: Some(main_memory()),
        ageing: match pool.ageing {
            None => Some(AGEING),
            Some(Ageing::After(time)) => Some(time),
            Some(Ageing::Off) => None,
        },
        cores: our_cores(),
        slots: pool.slots,
        max_per_device: pool.max_per_gpu,
        policy: match pool.place {
            Some(Placing::Spread) => Policy::Spread,
            Some(Placing::Pack) | None => Policy::Pack,
        },
    };
    Ok(Found {
        places,
        defaults,
        sharing,
    })
}

/// A template for probes, or what is wrong with it.
fn probe(text: &str) -> anyhow::Result<Probe> {
    Probe::parse(text)
        .map_err(|error| anyhow::anyhow!("{}", error.render("--probe", terminal::colour())))
}

#[derive(Default)]
struct Chosen {
    units: Vec<Unit>,
    about: Vec<About>,
    /// The driver that knows them, if one does.
    driver: Option<Driver>,
}

impl Chosen {
    /// Whatever these ids are: nobody is asked.
    fn as_written(ids: &[String]) -> Self {
        Self {
            units: ids.iter().map(|id| dropin::unit(id)).collect(),
            ..Self::default()
        }
    }

    fn check_memory(&self) -> anyhow::Result<()> {
        if self.driver.is_none() {
            bail!(
                "--vram needs to know the GPUs' memory, and there is no driver to ask\n\
                 hint: -g 0.5 gives each task a part of a GPU without looking"
            );
        }
        let unknown = self.units.iter().zip(&self.about);
        for (unit, about) in unknown {
            if about.memory == Bytes(0) {
                bail!(
                    "the driver does not tell the memory of GPU {}\n\
                     hint: leave it out with --gpus, or use -g instead of --vram",
                    unit.label
                );
            }
        }
        Ok(())
    }
}

/// Whether ids may be handed out although the driver does not answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithoutDriver {
    Possible,
    Impossible,
}

/// What tasks ask for that nobody but the driver knows.
fn without_driver(task: &TaskArgs) -> WithoutDriver {
    if task.vram.is_none() && task.gpu_model.is_none() {
        WithoutDriver::Possible
    } else {
        WithoutDriver::Impossible
    }
}

fn choose(
    wanted: &[String],
    without_driver: WithoutDriver,
    config: &Config,
) -> anyhow::Result<Chosen> {
    let selection = if wanted.is_empty() {
        Selection::parse(&["all".to_owned()])?
    } else {
        Selection::parse(wanted)?
    };
    let known = match driver::ask(config, know) {
        Err(silent @ GpuError::Silent { .. })
            if without_driver == WithoutDriver::Possible
                && matches!(selection, Selection::Groups(_)) =>
        {
            complain(&format!(
                "warning: the GPUs are used as they were named, without a look at them: {}",
                silent.to_string().lines().next().unwrap_or_default()
            ));
            Known::nothing()
        }
        answer => answer??,
    };
    let vendor = known.driver.vendor().unwrap_or(Vendor::Nvidia);
    let visible = vendor
        .visible_variables()
        .iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)));
    let visible = visible
        .as_ref()
        .map(|(variable, list)| Visible { variable, list });
    let units = resolve(&selection, &known.inventory, visible)?;
    let devices = known.devices.as_deref();
    let about = devices.map(|devices| units.iter().map(|unit| about(unit, devices)).collect());
    Ok(Chosen {
        about: about.unwrap_or_default(),
        units,
        driver: devices.is_some().then_some(known.driver),
    })
}

/// What the driver tells.
struct Known {
    driver: Driver,
    inventory: Inventory,
    /// If it knows devices, those with all that can be read of them.
    devices: Option<Vec<Device>>,
}

impl Known {
    /// As where there is no driver.
    fn nothing() -> Self {
        Self {
            driver: Driver::None,
            inventory: Inventory::NoDriver,
            devices: None,
        }
    }
}

/// Asks the driver all there is to know before a run.
fn know(config: &Config) -> Result<Known, GpuError> {
    let driver = Driver::detect(config)?;
    let inventory = driver.inventory();
    let devices = match inventory {
        Inventory::Devices(_) => Some(driver.devices()?),
        Inventory::Broken(_) | Inventory::NoDriver => None,
    };
    Ok(Known {
        driver,
        inventory,
        devices,
    })
}

/// What is known of a unit: the least of its members.
fn about(unit: &Unit, devices: &[Device]) -> About {
    let members = unit.members.iter().map(|member| of_member(member, devices));
    members
        .reduce(|one, other| About {
            memory: one.memory.min(other.memory),
            model: one.model,
        })
        .unwrap_or_default()
}

fn of_member(member: &Member, devices: &[Device]) -> About {
    let device = devices
        .iter()
        .find(|device| member.index == Some(device.index));
    let Some(device) = device else {
        return About::default();
    };
    let instance = device
        .instances()
        .iter()
        .find(|instance| Some(&instance.uuid) == member.uuid.as_ref());
    let memory = instance.map_or(device.memory, |instance| instance.memory);
    let name = device.name.as_deref().unwrap_or("unknown GPU");
    let profile = instance.and_then(|instance| instance.profile.as_deref());
    About {
        memory: memory.map_or(Bytes(0), |memory| {
            Bytes(memory.total.0.saturating_sub(memory.reserved.0))
        }),
        model: match profile {
            Some(profile) => format!("{name} MIG {profile}").into(),
            None => name.into(),
        },
    }
}

/// The models whose names contain one of these.
fn models(about: &[About], names: &str) -> anyhow::Result<Models> {
    let found = packhorse_runner::models_named(about, names);
    if found == Models(0) {
        bail!(unknown_model(about, names));
    }
    Ok(found)
}

/// That none of these models is here, and which are.
pub fn unknown_model(about: &[About], names: &str) -> String {
    let here = match packhorse_runner::models(about).as_slice() {
        [] => "is no driver to ask".to_owned(),
        [one] => format!("is {one}"),
        many => format!("are {}", many.join(", ")),
    };
    format!("no GPU here is called `{names}`\nhint: there {here}")
}

fn ignored(who: &str) -> Ignored {
    if let Some(Ok(uid)) = who.strip_prefix("uid:").map(str::parse) {
        return Ignored::User(uid);
    }
    match who.parse() {
        Ok(pid) => Ignored::Process(pid),
        Err(_) => Ignored::Program(who.to_owned()),
    }
}

/// The person's own signs of running out of memory.
fn signs() -> anyhow::Result<Signs> {
    let Some(path) = signs_file() else {
        return Ok(Signs::default());
    };
    let text = fs_err::read_to_string(&path)?;
    Ok(Signs::parse(&path, &text)?)
}

fn signs_file() -> Option<PathBuf> {
    let set = std::env::var_os("PACKHORSE_OOM_TEXTS").filter(|value| !value.is_empty());
    if let Some(path) = set {
        return Some(path.into());
    }
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let path = config.or_else(home)?.join("packhorse/oom-texts");
    path.exists().then_some(path)
}

fn main_memory() -> Bytes {
    let info = rustix::system::sysinfo();
    Bytes(info.totalram.saturating_mul(u64::from(info.mem_unit)))
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
