//! Finding the devices that a run may use, by asking the driver if there is one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use packhorse_core::{CoreSpec, DeviceSpec, NodeSpec, Pool, SchedulerSettings};
use packhorse_engine::{DeviceInfo, UseLimit, models, models_named};
use packhorse_gpu::{
    ComputeMode, Device, DeviceReading, Driver, GpuConfig, GpuError, GpuProcess, Inventory,
    ResolvedSelection, Selection, Unit, UnitMember, Vendor, VisibleDevices, call_driver, resolve,
};
use packhorse_model::{
    Ageing, Bytes, DeviceId, GpuRequest, Milli, Models, NodeId, PoolSpec, TaskSpec,
};

use crate::topology::our_cores;
use crate::{Notices, SessionError};

/// What tasks may run on.
pub struct Devices {
    /// The devices to use, in order.
    pub units: Vec<Unit>,
    /// The same as the engine sees them.
    pub info: Vec<DeviceInfo>,
    /// The driver that knows them, if one does.
    pub driver: Option<Driver>,
    /// The cores that can be given out.
    pub cores: Vec<CoreSpec>,
    /// Main memory that can be given out.
    ram: Bytes,
    /// At most so many attempts at once.
    pub slots: Option<u32>,
    /// How the devices were when they were found.
    pub(crate) look: Option<DeviceLook>,
    /// What other runs know those devices by that the environment limits us to.
    pub(crate) given: Vec<String>,
}

/// How the driver's devices were at a moment.
pub(crate) struct DeviceLook {
    pub(crate) at: Instant,
    devices: Vec<Device>,
}

impl DeviceLook {
    /// How the members of a unit were, if the driver knows them all.
    pub(crate) fn readings(&self, unit: &Unit) -> Option<Vec<DeviceReading>> {
        let reading = |member: &UnitMember| {
            let mut devices = self.devices.iter();
            let device = devices.find(|device| Some(device.index) == member.index)?;
            Some(DeviceReading::of(device, member.uuid.as_deref()))
        };
        let readings: Option<Vec<DeviceReading>> = unit.members.iter().map(reading).collect();
        readings.filter(|readings| !readings.is_empty())
    }

    /// A process that was on a device.
    pub(crate) fn process(&self, pid: u32) -> Option<&GpuProcess> {
        self.processes().find(|process| process.pid == pid)
    }

    /// All that were on any device.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &GpuProcess> {
        let whole = self.devices.iter().map(|device| &device.processes);
        let instances = self.devices.iter().flat_map(Device::instances);
        whole.chain(instances.map(|instance| &instance.processes)).flatten().flatten()
    }
}

impl Devices {
    /// Finds what a run asks for whose tasks need this.
    pub fn find(
        pool: &PoolSpec,
        task: &TaskSpec,
        config: &GpuConfig,
        notices: &mut Notices<'_>,
    ) -> Result<Self, SessionError> {
        check(pool, task, notices)?;
        let mut devices = match pool.slots {
            Some(_) => Self::new(Vec::new(), &[], None, pool.slots, config),
            None if pool.as_written => Self::as_written(&pool.gpus, config),
            None if task.gpus == Some(GpuRequest::None) => return Err(SessionError::NoLimit),
            None => choose(pool, task, config, notices)?,
        };
        // To the driver, a server of MPS is one process.
        if pool.mps == Some(true) {
            let limits = devices.info.iter_mut().map(|info| &mut info.use_limit);
            limits
                .filter(|limit| **limit == UseLimit::OneProcess)
                .for_each(|limit| *limit = UseLimit::None);
        }
        if pool.slots.is_some() && !matches!(task.gpus, None | Some(GpuRequest::None)) {
            return Err(SessionError::GpusInSlots);
        }
        if task.vram.is_some() {
            devices.check_memory()?;
        }
        if let Some(names) = &task.gpu_model {
            devices.check_model(names)?;
        }
        Ok(devices)
    }

    fn new(
        units: Vec<Unit>,
        known: &[Device],
        driver: Option<Driver>,
        slots: Option<u32>,
        config: &GpuConfig,
    ) -> Self {
        Self {
            info: units.iter().map(|unit| info(unit, known)).collect(),
            units,
            driver,
            cores: our_cores(&config.sysfs),
            ram: main_memory(),
            slots,
            look: None,
            given: Vec::new(),
        }
    }

    /// Whatever these ids are: nobody is asked, and each is handed out exactly as it was
    /// written.
    fn as_written(ids: &[String], config: &GpuConfig) -> Self {
        let units = ids.iter().map(|id| Unit {
            label: id.clone(),
            visible: id.clone(),
            vendor: None,
            near_cores: Vec::new(),
            members: Vec::new(),
        });
        Self::new(units.collect(), &[], None, None, config)
    }

    fn check_memory(&self) -> Result<(), SessionError> {
        if self.driver.is_none() {
            return Err(SessionError::NoMemoryToAsk);
        }
        let unknown = self.info.iter().find(|info| info.memory == Bytes(0));
        unknown.map_or(Ok(()), |info| Err(SessionError::UnknownMemory(info.label.clone())))
    }

    /// Whether GPUs with one of these names are there.
    pub(crate) fn check_model(&self, names: &str) -> Result<(), SessionError> {
        if models_named(&self.info, names) == Models(0) {
            let names = names.to_owned();
            let here = match models(&self.info).as_slice() {
                models if self.driver.is_none() || models.is_empty() => {
                    "is no driver to ask".to_owned()
                }
                [one] => format!("is {one}"),
                many => format!("are {}", many.join(", ")),
            };
            return Err(SessionError::UnknownModel { names, here });
        }
        Ok(())
    }

    /// The same as the scheduler sees it.
    pub fn pool(&self) -> Pool {
        let models = models(&self.info);
        let model = |info: &DeviceInfo| models.iter().position(|model| *model == info.model);
        let devices = self.units.iter().zip(&self.info).zip(0..);
        let devices = devices.map(|((unit, info), number)| DeviceSpec {
            id: DeviceId(number),
            near_cores: unit.near_cores.clone(),
            memory: info.memory,
            model: model(info).and_then(|model| u8::try_from(model).ok()).unwrap_or(0),
            one_process: info.use_limit == UseLimit::OneProcess,
        });
        let node = NodeSpec {
            // One node, since this is one machine.
            id: NodeId(0),
            devices: devices.collect(),
            cpu: u32::try_from(self.cores.len() * 1000).ok().map(Milli),
            ram: Some(self.ram),
            cores: self.cores.clone(),
        };
        Pool { nodes: vec![node], slots: self.slots }
    }

    /// Uses only the devices that `keep` says are to be used.
    pub fn retain(&mut self, keep: impl Fn(DeviceId) -> bool) {
        let keep: Vec<bool> = (0..self.units.len())
            .map(|place| keep(DeviceId(u32::try_from(place).unwrap_or(u32::MAX))))
            .collect();
        let mut kept = keep.iter();
        self.units.retain(|_| kept.next() == Some(&true));
        let mut kept = keep.iter();
        self.info.retain(|_| kept.next() == Some(&true));
    }

    /// Makes it so many devices: those that are here, and more like the first of them.
    pub fn resize(&mut self, count: usize) {
        while self.units.len() < count
            && let (Some(mut unit), Some(mut info)) =
                (self.units.first().cloned(), self.info.first().cloned())
        {
            let is_free = |label: &String| self.units.iter().all(|unit| unit.label != *label);
            let mut labels = (self.units.len()..).map(|number| number.to_string());
            unit.label = labels.find(is_free).unwrap_or_default();
            // Nobody uses what is only imagined.
            unit.members.clear();
            info.keys.clear();
            info.label.clone_from(&unit.label);
            self.units.push(unit);
            self.info.push(info);
        }
        self.units.truncate(count);
        self.info.truncate(count);
    }
}

/// How tasks are placed.
pub fn scheduler_settings(pool: &PoolSpec) -> SchedulerSettings {
    SchedulerSettings {
        policy: pool.place.unwrap_or_default(),
        max_per_device: pool.max_per_gpu,
        // What decides that is whether there is a driver.
        look_lasts: None,
        ageing: match pool.ageing.unwrap_or_default() {
            Ageing::After(time) => Some(time),
            Ageing::Off => None,
        },
    }
}

/// Whether there is anything that would be asked for in vain.
fn check(pool: &PoolSpec, task: &TaskSpec, notices: &mut Notices<'_>) -> Result<(), SessionError> {
    if task.vram.is_some() && task.gpus == Some(GpuRequest::None) {
        return Err(SessionError::VramWithoutGpu);
    }
    if pool.thread_percentage.is_some() {
        match pool.mps {
            Some(true) => {}
            // It was said, or there is none: what is meant for it does no harm.
            Some(false) => notices(
                "warning: --thread-percentage has no effect, since GPUs are shared without MPS",
            ),
            None => return Err(SessionError::ThreadsWithoutMps),
        }
    }
    Ok(())
}

fn choose(
    pool: &PoolSpec,
    task: &TaskSpec,
    config: &GpuConfig,
    notices: &mut Notices<'_>,
) -> Result<Devices, SessionError> {
    let selection = if pool.gpus.is_empty() {
        Selection::parse(&["all".to_owned()])?
    } else {
        Selection::parse(&pool.gpus)?
    };
    let at = Instant::now();
    // Ids may be handed out although the driver does not answer, unless tasks ask for what
    // nobody else knows.
    let needs_driver = task.vram.is_some() || task.gpu_model.is_some();
    let (driver, inventory, known) = match ask_driver(config, notices, read_driver) {
        Err(silent @ GpuError::Silent { .. })
            if !needs_driver && matches!(selection, Selection::Groups(_)) =>
        {
            notices(&format!(
                "warning: the GPUs are used as they were named, without a look at them: {}",
                silent.to_string().lines().next().unwrap_or_default()
            ));
            (Driver::None, Inventory::NoDriver, Vec::new())
        }
        answer => answer??,
    };
    let vendor = driver.vendor().unwrap_or(Vendor::Nvidia);
    let visible =
        vendor.visible_variables().iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let visible = visible.as_ref().map(|(variable, list)| VisibleDevices { variable, list });
    // Inside a task, what it was given is a default: other GPUs are shared with the run around
    // it as between any two runs. What Slurm has given is a limit.
    let is_inside_task = is_set("PACKHORSE_TASK") && !is_set("SLURM_JOB_ID");
    let names_others = is_inside_task && matches!(selection, Selection::Groups(_));
    let limit = visible.filter(|_| !names_others);
    let ResolvedSelection { units, left_out } = resolve(&selection, &inventory, limit)?;
    let told_before = LEFT_OUT_TOLD.swap(!left_out.is_empty(), Ordering::Relaxed);
    for (id, reason) in left_out.iter().filter(|_| !told_before) {
        notices(&format!("note: GPU {id} is left out: {reason}; name the GPUs to use with --gpus"));
    }
    // A list that makes no sense gives us nothing.
    let given = visible.and_then(|_| resolve(&Selection::All, &inventory, visible).ok());
    let given = given.iter().flat_map(|given| &given.units).flat_map(keys).collect();
    let driver = matches!(inventory, Inventory::Devices(_)).then_some(driver);
    let devices = Devices::new(units, &known, driver, None, config);
    let look = devices.driver.is_some().then_some(DeviceLook { at, devices: known });
    Ok(Devices { look, given, ..devices })
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// What the driver tells before a run: itself, its inventory, and if that has devices, those
/// with all that can be read of them.
fn read_driver(config: &GpuConfig) -> Result<(Driver, Inventory, Vec<Device>), GpuError> {
    let driver = Driver::detect(config)?;
    let (inventory, devices) = match driver.devices() {
        _ if matches!(driver, Driver::None) => (Inventory::NoDriver, Vec::new()),
        Ok(devices) => (Inventory::Devices(devices.clone()), devices),
        Err(GpuError::Broken(broken)) => (Inventory::Broken(broken), Vec::new()),
        Err(error) => return Err(error),
    };
    Ok((driver, inventory, devices))
}

/// Whether it was told which GPUs are left out: the same are found again.
static LEFT_OUT_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether the driver was waited for in vain: once is enough.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Asks the driver. Whoever has to wait for it is told.
pub fn ask_driver<T: Send + 'static>(
    config: &GpuConfig,
    notices: &mut Notices<'_>,
    question: impl FnOnce(&GpuConfig) -> T + Send + 'static,
) -> Result<T, GpuError> {
    let after = config.driver_patience;
    if SILENT.load(Ordering::Relaxed) {
        return Err(GpuError::Silent { after });
    }
    let slow = || {
        notices(&format!("the GPU driver does not answer yet; it is given up after {after:?}"));
    };
    let answer = call_driver(config, slow, question);
    let silent = matches!(answer, Err(GpuError::Silent { .. }));
    SILENT.store(silent, Ordering::Relaxed);
    answer
}

/// Whether there is a driver that knows GPUs. One that does not answer may: what is wrong
/// with it is told when the devices are asked for.
pub fn has_driver(config: &GpuConfig, notices: &mut Notices<'_>) -> bool {
    let knows_gpus = |config: &GpuConfig| {
        let driver = Driver::detect(config);
        driver.is_ok_and(|driver| matches!(driver.inventory(), Inventory::Devices(_)))
    };
    ask_driver(config, notices, knows_gpus).unwrap_or(true)
}

/// What other runs know the devices of a unit by.
fn keys(unit: &Unit) -> Vec<String> {
    let key = |member: &UnitMember| member.uuid.clone().unwrap_or_else(|| member.id.clone());
    unit.members.iter().map(key).collect()
}

/// What is known of a unit: the least of its members.
fn info(unit: &Unit, devices: &[Device]) -> DeviceInfo {
    let members = unit.members.iter();
    let members = members.map(|member| of_member(member, devices));
    let least = members.reduce(|one, other| (one.0.min(other.0), one.1));
    let (memory, model) = least.unwrap_or((Bytes(0), "unknown GPU".to_owned()));
    let use_limit = use_limit(unit, devices);
    DeviceInfo {
        label: unit.label.clone(),
        keys: keys(unit),
        memory,
        model: model.into(),
        use_limit,
    }
}

/// What programs can do with a unit at most.
fn use_limit(unit: &Unit, devices: &[Device]) -> UseLimit {
    let device = |member: &UnitMember| {
        let mut known = devices.iter();
        known.find(|device| member.index == Some(device.index))
    };
    let is_mig = |member: &UnitMember| {
        let id = member.uuid.as_ref().unwrap_or(&member.id);
        id.starts_with("MIG-") || device(member).is_some_and(|device| device.mig.is_some())
    };
    let is_exclusive = |member: &UnitMember| {
        let mode = device(member).and_then(|device| device.compute_mode);
        mode == Some(ComputeMode::ExclusiveProcess)
    };
    if unit.members.iter().any(is_mig) {
        UseLimit::NothingBeside
    } else if unit.members.iter().any(is_exclusive) {
        UseLimit::OneProcess
    } else {
        UseLimit::None
    }
}

/// The memory that programs can have of a device, and its model.
fn of_member(member: &UnitMember, devices: &[Device]) -> (Bytes, String) {
    let mut known = devices.iter();
    let Some(device) = known.find(|device| member.index == Some(device.index)) else {
        return (Bytes(0), "unknown GPU".to_owned());
    };
    let mut instances = device.instances().iter();
    let instance = instances.find(|instance| Some(&instance.uuid) == member.uuid.as_ref());
    let memory = instance.map_or(device.memory, |instance| instance.memory);
    let memory =
        memory.map_or(Bytes(0), |memory| Bytes(memory.total.0.saturating_sub(memory.reserved.0)));
    let name = device.name.as_deref().unwrap_or("unknown GPU");
    let profile = instance.and_then(|instance| instance.profile.as_deref());
    let model = match profile {
        Some(profile) => format!("{name} MIG {profile}"),
        None => name.to_owned(),
    };
    (memory, model)
}

fn main_memory() -> Bytes {
    let info = rustix::system::sysinfo();
    Bytes(info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

/// Whether a program of this name can be found on the `PATH`.
pub fn is_on_path(name: &Path) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// Whether MPS could be used here.
pub fn has_mps(config: &GpuConfig) -> bool {
    let program = &config.mps_control;
    if program.components().count() > 1 {
        return program.exists();
    }
    is_on_path(program)
}
