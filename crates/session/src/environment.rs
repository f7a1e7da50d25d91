//! What an attempt finds in its environment.

use std::ffi::OsString;
use std::sync::Arc;

use packhorse_engine::StartAttempt;
use packhorse_gpu::mps::{CLIENT_VARIABLES, Daemon, Ownership, client_environment};
use packhorse_gpu::{Percent, Unit, Vendor, visibility};
use packhorse_intake::experiments::LONGEST_CONFIG;
use packhorse_model::{DeviceId, Placement};
use packhorse_store::RunSeed;
use rustc_hash::FxHashMap;

use crate::core_parts::ThreadCaps;
use crate::repetition_config::RepetitionConfig;

/// What an attempt finds the cores under that it has for itself.
const CORES: [&str; 2] = ["PACKHORSE_CPU_CORES", "PACKHORSE_CORES"];

/// What says in which order CUDA counts GPUs.
const ORDER: &str = "CUDA_DEVICE_ORDER";
/// The driver's own.
const OUR_ORDER: &str = "PCI_BUS_ID";

/// Variables, to be laid over those that all attempts have.
pub type Variables = Vec<(OsString, OsString)>;

/// Makes the environment of attempts.
pub(crate) struct AttemptEnvironment {
    units: Vec<Unit>,
    /// What is told of devices that were given out before: the same few are, over and
    /// over.
    told: FxHashMap<(Vec<DeviceId>, bool), Arc<Variables>>,
    /// Whether programs count GPUs in another order than the driver, because the person has
    /// set that.
    counts_otherwise: bool,
    caps: ThreadCaps,
    seed: RunSeed,
    /// With MPS, what the person has set of what its clients are told.
    mps: Option<Variables>,
}

impl AttemptEnvironment {
    pub(crate) fn new(units: Vec<Unit>, caps: ThreadCaps, mps: bool, seed: RunSeed) -> Self {
        let set = |name: &str| Some((name.into(), std::env::var_os(name)?));
        Self {
            units,
            told: FxHashMap::default(),
            counts_otherwise: std::env::var_os(ORDER).is_some_and(|order| order != OUR_ORDER),
            caps,
            seed,
            mps: mps.then(|| CLIENT_VARIABLES.into_iter().filter_map(set).collect()),
        }
    }

    /// Variables that are the same for all attempts.
    pub(crate) fn fixed(&self) -> Variables {
        let mut variables = self.caps.usual();
        let nvidia = self.units.iter().any(|unit| vendor(unit) == Vendor::Nvidia);
        // Without it CUDA's device 0 is the fastest card, not the first.
        if nvidia && std::env::var_os(ORDER).is_none() {
            variables.push((ORDER.into(), OUR_ORDER.into()));
        }
        variables
    }

    /// Variables of our own environment that an attempt gets anew, or not at all.
    pub(crate) fn hidden(&self) -> Vec<OsString> {
        let ours = [
            "PACKHORSE_RUN",
            "PACKHORSE_SEED",
            "PACKHORSE_GPUS",
            "PACKHORSE_PARAMS",
            "PACKHORSE_RESULTS",
            "PACKHORSE_EXPERIMENT",
            "PACKHORSE_CONFIG",
        ];
        let mut names: Vec<OsString> = ours.map(OsString::from).into();
        names.extend(CORES.map(OsString::from));
        if self.mps.is_some() {
            names.extend(CLIENT_VARIABLES.map(OsString::from));
        }
        for unit in &self.units {
            names.extend(vendor(unit).visible_variables().iter().map(OsString::from));
        }
        names
    }

    /// The variables of one attempt. What the task's own specification says wins.
    pub(crate) fn variables(&mut self, start: &StartAttempt, daemon: Option<&Daemon>) -> Variables {
        let own_order = start.spec.env.get(ORDER).map(|order| order.as_os_str() != OUR_ORDER);
        let devices = self.devices(&start.placement, own_order.unwrap_or(self.counts_otherwise));
        let mut variables = Vec::with_capacity(devices.len() + 9);
        variables.push(("PACKHORSE_RUN".into(), start.task.run.to_string().into()));
        let seed = self.seed.of_task(start.task.number);
        variables.push(("PACKHORSE_SEED".into(), seed.to_string().into()));
        variables.extend_from_slice(&devices);
        let cores = &start.placement.cores;
        if !cores.is_empty() {
            let list: Vec<String> = cores.iter().map(ToString::to_string).collect();
            let list = OsString::from(list.join(","));
            variables.extend(CORES.map(|name| (name.into(), list.clone())));
        }
        self.caps.add(start, &mut variables);
        // What is too long for a variable is in the file.
        let env = &start.spec.env;
        let is_in_file = env.contains_key("PACKHORSE_CONFIG")
            && env
                .get("PACKHORSE_EXPERIMENT")
                .is_some_and(|config| config.0.len() > LONGEST_CONFIG);
        if !start.spec.params.is_empty()
            && !is_in_file
            && let Ok(params) = serde_json::to_string(&start.spec.params)
        {
            variables.push(("PACKHORSE_PARAMS".into(), params.into()));
        }
        if let Some(results) = &start.spec.results {
            variables.push(("PACKHORSE_RESULTS".into(), results.into()));
        }
        variables.extend(self.mps.iter().flatten().cloned());
        self.add_mps(start, daemon, &mut variables);
        // A person may have set one that is no JSON.
        let config = (!cores.is_empty() && !is_in_file)
            .then(|| RepetitionConfig::of(start).ok().flatten())
            .flatten();
        for (name, value) in env {
            let value = match (name.as_str(), &config) {
                ("PACKHORSE_EXPERIMENT", _) if is_in_file => "{}".into(),
                ("PACKHORSE_EXPERIMENT", Some(config)) => config.to_line().into(),
                _ => value.as_os_str().to_owned(),
            };
            variables.push((name.into(), value));
        }
        variables
    }

    /// What there is to tell of the devices of a placement.
    fn devices(&mut self, placement: &Placement, counts_otherwise: bool) -> Arc<Variables> {
        let devices = placement.devices.iter();
        let key = (devices.map(|granted| granted.device).collect(), counts_otherwise);
        if let Some(told) = self.told.get(&key) {
            return Arc::clone(told);
        }
        let told = Arc::new(self.describe(&key.0, counts_otherwise));
        self.told.insert(key, Arc::clone(&told));
        told
    }

    fn describe(&self, ids: &[DeviceId], counts_otherwise: bool) -> Variables {
        let Some(first) = self.units.first() else {
            return Vec::new();
        };
        let units = ids.iter().filter_map(|id| self.units.get(id.0 as usize));
        let units: Vec<&Unit> = units.collect();
        let labels: Vec<&str> = units.iter().map(|unit| unit.label.as_str()).collect();
        let mut variables = vec![("PACKHORSE_GPUS".into(), labels.join(",").into())];
        let visible = visibility(first.vendor, &units, counts_otherwise).into_iter();
        variables.extend(visible.map(|(name, value)| (name.into(), value.into())));
        variables
    }

    /// Adds what an attempt needs to find its MPS daemon.
    fn add_mps(&self, start: &StartAttempt, daemon: Option<&Daemon>, variables: &mut Variables) {
        let (Some(client), Some(daemon)) = (start.mps, daemon) else {
            return;
        };
        let unit = self.units.get(client.device.0 as usize);
        if daemon.ownership() == Ownership::Ours
            && let Some(member) = unit.and_then(|unit| unit.members.first())
        {
            // The daemon knows one device, by another number.
            let uuid = member.uuid.as_ref().unwrap_or(&member.id);
            variables.push(("CUDA_VISIBLE_DEVICES".into(), uuid.into()));
        }
        let memory = Some(client.memory).filter(|memory| memory.0 > 0);
        let told = client_environment(daemon.pipes(), client.threads.map(Percent), memory);
        variables.extend(told.into_iter().map(|(name, value)| (name.into(), value)));
    }
}

/// Ids that no driver knows are NVIDIA's until somebody says otherwise.
fn vendor(unit: &Unit) -> Vendor {
    unit.vendor.unwrap_or(Vendor::Nvidia)
}
