//! What an attempt is told of its devices and cores.

use std::ffi::OsString;
use std::sync::Arc;

use packhorse_core::{
    self as core, DeviceSpec, Effect, NodeSpec, Now, Pool, PoolError, RefusalReason, SchedulerState,
};
use packhorse_gpu::mps::CLIENT_VARIABLES;
use packhorse_gpu::{Member, Unit, Vendor, visibility};
use packhorse_model::{Bytes, DeviceId, Milli, Models, NodeId, Placement, Request, RunId, TaskId};
use rustc_hash::FxHashMap;

use crate::{About, Defaults, Mps, Places};

/// What libraries read to know how many threads to start.
const THREAD_CAPS: [&str; 4] = [
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
];

impl Places {
    /// A scheduler for them.
    pub(crate) fn scheduler(&self) -> Result<SchedulerState, PoolError> {
        SchedulerState::new(&self.pool(), self.rules())
    }

    /// How tasks are placed there.
    pub fn rules(&self) -> core::SchedulerSettings {
        core::SchedulerSettings {
            policy: self.policy,
            max_per_device: self.max_per_device,
            ageing: self.ageing,
        }
    }

    /// The same as the scheduler sees it.
    pub fn pool(&self) -> Pool {
        let devices = self.devices.iter().zip(0..);
        let models = models(&self.about);
        let model = |about: &About| models.iter().position(|model| *model == about.model);
        let node = NodeSpec {
            // One node, since this is one machine.
            id: NodeId(0),
            devices: devices
                .map(|(unit, number)| {
                    let about = self.about.get(number as usize);
                    DeviceSpec {
                        id: DeviceId(number),
                        near_cores: unit.near_cores.clone(),
                        memory: about.map_or(Bytes(0), |about| about.memory),
                        model: about
                            .and_then(model)
                            .and_then(|model| u8::try_from(model).ok())
                            .unwrap_or(0),
                    }
                })
                .collect(),
            cpu: u32::try_from(self.cores.len() * 1000).ok().map(Milli),
            ram: self.ram,
            cores: self.cores.clone(),
        };
        Pool {
            nodes: vec![node],
            slots: self.slots,
        }
    }
}

/// The different models among devices, in the order of the pool's numbers for
/// them.
pub fn models(about: &[About]) -> Vec<Arc<str>> {
    let mut models: Vec<Arc<str>> = Vec::new();
    for about in about {
        if !models.contains(&about.model) {
            models.push(Arc::clone(&about.model));
        }
    }
    models
}

/// The models whose names contain one of `names`, which are separated by commas.
pub fn models_named(about: &[About], names: &str) -> Models {
    let wanted: Vec<String> = names
        .split(',')
        .map(|name| name.trim().to_lowercase())
        .collect();
    let mut bits = 0;
    for (number, model) in models(about).iter().enumerate().take(64) {
        let model = model.to_lowercase();
        if wanted.iter().any(|name| model.contains(name.as_str())) {
            bits |= 1 << number;
        }
    }
    Models(bits)
}

/// Why no task with this request could ever run there, if none could.
pub fn refusal(places: &Places, request: &Request) -> Result<Option<RefusalReason>, PoolError> {
    let mut state = places.scheduler()?;
    let mut effects = Vec::new();
    let mut submission = Defaults::default().submission(TaskId::new(RunId(1), 1));
    submission.request = request.clone();
    core::step(
        &mut state,
        core::SchedulerEvent::Submit(submission),
        Now::default(),
        &mut effects,
    );
    Ok(effects.into_iter().find_map(|effect| match effect {
        Effect::Refused { reason, .. } => Some(reason),
        _ => None,
    }))
}

/// The core's id of a device by its place.
pub(crate) fn device_id(index: usize) -> DeviceId {
    DeviceId(u32::try_from(index).unwrap_or(u32::MAX))
}

/// The devices of a run by the core's ids.
pub(crate) struct Devices {
    units: Vec<Unit>,
    about: Vec<About>,
    /// What is told of devices that were given out before: the same few are, over
    /// and over.
    given: FxHashMap<Vec<DeviceId>, Arc<Given>>,
    /// The caps that the person has not set.
    caps: Vec<&'static str>,
    /// How many cores there are.
    cores: usize,
}

/// What an attempt, the store and the person are told of some devices.
#[derive(Default)]
pub(crate) struct Given {
    /// The names people know.
    pub(crate) labels: Arc<[String]>,
    /// The same in one word; none if there are no devices.
    pub(crate) joined: Option<Arc<str>>,
    /// For the attempt.
    variables: Vec<(&'static str, String)>,
}

impl Devices {
    pub(crate) fn new(places: &Places) -> Self {
        Self {
            units: places.devices.clone(),
            about: places.about.clone(),
            given: FxHashMap::default(),
            caps: THREAD_CAPS
                .into_iter()
                .filter(|name| std::env::var_os(name).is_none())
                .collect(),
            cores: places.cores.len(),
        }
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        self.units.iter().map(|unit| unit.label.clone()).collect()
    }

    /// What there is to tell of the devices of a placement.
    pub(crate) fn given(&mut self, placement: &Placement) -> Arc<Given> {
        let ids: Vec<DeviceId> = placement
            .devices
            .iter()
            .map(|granted| granted.device)
            .collect();
        if let Some(given) = self.given.get(&ids) {
            return Arc::clone(given);
        }
        let given = Arc::new(self.describe(&ids));
        self.given.insert(ids, Arc::clone(&given));
        given
    }

    fn describe(&self, ids: &[DeviceId]) -> Given {
        let Some(first) = self.units.first() else {
            return Given::default();
        };
        let units: Vec<&Unit> = ids
            .iter()
            .filter_map(|id| self.units.get(id.0 as usize))
            .collect();
        let labels: Arc<[String]> = units.iter().map(|unit| unit.label.clone()).collect();
        let joined = labels.join(",");
        let mut variables = vec![("PACKHORSE_GPUS", joined.clone())];
        variables.extend(visibility(first.vendor, &units));
        Given {
            joined: (!labels.is_empty()).then(|| joined.into()),
            labels,
            variables,
        }
    }

    /// What runs of any program know the members of a device by: the driver's
    /// UUID, or the id that was typed.
    pub(crate) fn keys(&self, index: usize) -> Vec<String> {
        let members = self.units.get(index).map(|unit| unit.members.as_slice());
        let key = |member: &Member| member.uuid.clone().unwrap_or_else(|| member.id.clone());
        members.unwrap_or_default().iter().map(key).collect()
    }

    /// The model of a device.
    pub(crate) fn model(&self, device: DeviceId) -> Arc<str> {
        let about = self.about.get(device.0 as usize);
        about.map_or_else(|| "unknown GPU".into(), |about| Arc::clone(&about.model))
    }

    /// One device by the name people know.
    pub(crate) fn label(&self, device: DeviceId) -> String {
        let unit = self.units.get(device.0 as usize);
        unit.map_or_else(String::new, |unit| format!("GPU {}", unit.label))
    }

    /// Variables that are the same for all attempts.
    pub(crate) fn fixed(&self) -> Vec<(OsString, OsString)> {
        let nvidia = self.units.iter().any(|unit| vendor(unit) == Vendor::Nvidia);
        // Without it CUDA's device 0 is the fastest card, not the first.
        if nvidia && std::env::var_os("CUDA_DEVICE_ORDER").is_none() {
            vec![("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into())]
        } else {
            Vec::new()
        }
    }

    /// Variables of our own environment that an attempt gets anew, or not at all.
    pub(crate) fn hidden(&self, mps: Option<Mps>) -> Vec<OsString> {
        let mut names: Vec<OsString> = ["PACKHORSE_CORES", "PACKHORSE_GPUS", "PACKHORSE_PARAMS"]
            .map(OsString::from)
            .into();
        if mps.is_some() {
            names.extend(CLIENT_VARIABLES.map(OsString::from));
        }
        for unit in &self.units {
            names.extend(vendor(unit).visible_variables().iter().map(OsString::from));
        }
        names
    }

    /// The variables of one attempt.
    pub(crate) fn variables(
        &self,
        given: &Given,
        placement: &Placement,
        variables: &mut Vec<(&'static str, String)>,
    ) {
        variables.extend_from_slice(&given.variables);
        if !placement.cores.is_empty() {
            let cores: Vec<String> = placement.cores.iter().map(ToString::to_string).collect();
            variables.push(("PACKHORSE_CORES", cores.join(",")));
            if placement.cores.len() < self.cores {
                let count = placement.cores.len().to_string();
                variables.extend(self.caps.iter().map(|&name| (name, count.clone())));
            }
        }
    }
}

/// Ids that no driver knows are NVIDIA's until somebody says otherwise.
fn vendor(unit: &Unit) -> Vendor {
    unit.vendor.unwrap_or(Vendor::Nvidia)
}
