//! Before a job: what it is given.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use packhorse_orders::{DeviceRule, GpuPart, JobOrders, VISIBLE};

use crate::choose::{NoRoom, choose};
use crate::config::{Config, ConfigError, Mode};
use crate::facts::{JobFacts, PERCENTAGE};
use crate::heal::{Healer, exists};
use crate::queue::AnswerNeed;
use crate::rules::{Refusal, admit};
use crate::servers::{self, server_name, settle};
use crate::share::Share;
use crate::slurm::{OrdersOf, Slurm};
use crate::state::{State, StateError, now};

/// What became of a job in its prolog.
#[derive(Debug)]
pub enum PrologResult {
    /// It did not ask for `mps`: nothing was done.
    NotOurs,
    /// It was given something.
    Given(Box<JobOrders>),
    /// It may not have what it asks for, and was ended.
    Refused(Refusal),
    /// It could not be served, and was sent back to the queue.
    SentBack(Trouble),
}

/// Why a job cannot be served now.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There is no configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Slurm has given more than there is, or nothing has so much left in one piece.
    #[error(
        "{0}\nhint: Slurm counts the node as a whole; shares of one size always fit, see docs/slurm-node.md"
    )]
    NoRoom(#[from] NoRoom),
    /// A GPU's file is not what it should be.
    #[error("{} is not a device file: {why}", .file.display())]
    Device {
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Slurm has chosen a GPU that nobody knows.
    #[error(
        "Slurm chose GPU {0}, which is not in the configuration\nhint: name every GPU of gres.conf there, in the same order"
    )]
    UnknownGpu(u32),
    /// A job whose file cannot be read may have any GPU, and Slurm does not say what it has.
    #[error(
        "the file of job {0} on this node cannot be read, and Slurm does not say whether it runs"
    )]
    Unread(String),
    /// Slurm has chosen no GPU.
    #[error("Slurm named no GPU\nhint: mode = \"native\" needs Flags=all_sharing in gres.conf")]
    NoGpu,
}

/// Does what a prolog has to do. `program` is Packhorse itself.
pub fn prolog(file: &Path, facts: &JobFacts, program: &Path) -> PrologResult {
    let Some(percent) = facts.percent else {
        return PrologResult::NotOurs;
    };
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => {
            give_up(file, facts, &error.to_string());
            return PrologResult::SentBack(error.into());
        }
    };
    let slurm = Slurm::new(&config.scontrol);
    let state = match State::open(&config.state) {
        Ok(state) => state,
        Err(error) => {
            slurm.send_back(facts.job, &error.to_string(), OrdersOf::Nobody);
            return PrologResult::SentBack(error.into());
        }
    };
    let healer = Healer {
        config: &config,
        state: &state,
        node: facts.node.as_deref(),
        except: Some(facts.job),
    };
    let mut servers = BTreeSet::new();
    let mut heal = |need| {
        let (queue, more) = healer.heal(need);
        servers.extend(more);
        queue
    };
    let mut share = Share::of(percent, config.whole());
    if share.exact().is_none() {
        let queue = heal(AnswerNeed::Job(facts.job, share));
        share = share.settled(queue.and_then(|queue| queue.job(facts.job)?.mps));
    }
    let node = PrologOfNode {
        config: &config,
        state: &state,
        facts,
        share: share.reserved(config.per_gpu()),
    };
    if let Err(refusal) = admit(&config.allow, facts, share.least) {
        let orders = node.refuse(&refusal.to_string());
        slurm.cancel(facts.job, &refusal.to_string(), orders);
        settle(&state, &servers, file, program);
        return PrologResult::Refused(refusal);
    }
    let given = node.give(&mut |need| heal(need).is_some());
    let orders = given.as_ref().ok();
    servers.extend(orders.and_then(|orders| orders.server.clone()));
    settle(&state, &servers, file, program);
    match given {
        Ok(orders) => PrologResult::Given(Box::new(orders)),
        Err(trouble) => {
            let orders = node.refuse(&trouble.to_string());
            slurm.send_back(facts.job, &trouble.to_string(), orders);
            PrologResult::SentBack(trouble)
        }
    }
}

/// Sends a job back that nothing else can be done for. Without a configuration, by Slurm's
/// commands in the usual places.
pub fn give_up(file: &Path, facts: &JobFacts, why: &str) {
    if facts.percent.is_none() {
        return;
    }
    let scontrol =
        Config::read(file).map_or_else(|_| Slurm::find(), |config| Some(config.scontrol));
    if let Some(scontrol) = scontrol {
        Slurm::new(&scontrol).send_back(facts.job, why, OrdersOf::Nobody);
    }
}

struct PrologOfNode<'a> {
    config: &'a Config,
    state: &'a State,
    facts: &'a JobFacts,
    share: u64,
}

/// What files are that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// Their jobs may have any GPU.
    InTheWay,
    /// Slurm has said what runs, that was counted, and they could not be removed.
    Left,
}

impl PrologOfNode<'_> {
    /// Chooses and writes it down.
    /// `heal` asks Slurm, and says whether it answered and the state was put right.
    fn give(&self, heal: &mut dyn FnMut(AnswerNeed) -> bool) -> Result<JobOrders, Trouble> {
        let devices = self.config.device_numbers()?;
        heal(AnswerNeed::Recent);
        match self.try_give(&devices, Unread::InTheWay) {
            // Slurm says there is room: something is left of a job that is gone.
            Err(Trouble::NoRoom(_) | Trouble::Unread(_)) => {
                let is_right = heal(AnswerNeed::Fresh);
                let unread = if is_right { Unread::Left } else { Unread::InTheWay };
                self.try_give(&devices, unread)
            }
            other => other,
        }
    }

    fn try_give(&self, devices: &[(u32, u32)], unread: Unread) -> Result<JobOrders, Trouble> {
        let (facts, state) = (self.facts, self.state);
        let lock = state.lock()?;
        let (jobs, damaged) = state.jobs(Some(&lock))?;
        // In the other mode Slurm counts.
        let is_in_the_way = unread == Unread::InTheWay && self.config.mode == Mode::Choose;
        if let Some(file) = damaged.first().filter(|_| is_in_the_way) {
            return Err(Trouble::Unread(file.name.clone()));
        }
        // The same job again: slurmd was restarted, or the job was requeued and its
        // epilog never ran. What it has it keeps, if it is the same that it asks for.
        let before = jobs.iter().find(|job| job.job == facts.job);
        // If it was only counted, since it had no orders, it has no variables.
        let kept = before.filter(|job| {
            job.uid == facts.uid
                && job.share == self.share
                && !job.gpus.is_empty()
                && self.config.has_all(&job.gpus)
                && !job.variables.is_empty()
        });
        let parts = match (self.config.mode, kept) {
            (Mode::Choose, Some(kept)) => kept.gpus.clone(),
            (Mode::Choose, None) => {
                let others = jobs.iter().filter(|job| job.job != facts.job);
                let taken = others.flat_map(|job| job.gpus.iter().copied());
                let gpus = u32::try_from(self.config.gpus.len()).unwrap_or(u32::MAX);
                let (per_gpu, placing) = (self.config.per_gpu(), self.config.placing);
                choose(gpus, per_gpu, placing, taken, self.share)?
            }
            (Mode::Native, _) => self.as_slurm_chose()?,
        };
        let orders = self.orders(parts, devices);
        state.write_job(&lock, &orders)?;
        Ok(orders)
    }

    /// What Slurm gives of the GPUs that it has chosen: each is filled before the next.
    fn as_slurm_chose(&self) -> Result<Vec<GpuPart>, Trouble> {
        let mut left = self.share;
        let mut parts = Vec::new();
        for &gpu in &self.facts.gpus {
            if gpu as usize >= self.config.gpus.len() {
                return Err(Trouble::UnknownGpu(gpu));
            }
            let units = left.min(self.config.per_gpu());
            left -= units;
            parts.push(GpuPart { gpu, units });
        }
        if parts.is_empty() {
            return Err(Trouble::NoGpu);
        }
        Ok(parts)
    }

    fn orders(&self, gpus: Vec<GpuPart>, devices: &[(u32, u32)]) -> JobOrders {
        let (config, facts, state) = (self.config, self.facts, self.state);
        let rules = match config.mode {
            Mode::Choose => device_rules(devices, &gpus),
            // Slurm has done that.
            Mode::Native => Vec::new(),
        };
        let control = &config.mps.control;
        let has_control = config.mps.servers && exists(control);
        if config.mps.servers && !has_control {
            let text = format!("job {} has no MPS server: no {}", facts.job, control.display());
            state.log(now(), &text);
        }
        let server = has_control.then(|| server_name(&gpus, facts.uid));
        let per_gpu = config.per_gpu();
        let percent = |part: &GpuPart| (part.units * 100 / per_gpu).clamp(1, 100);
        let threads = gpus.iter().map(percent).min();
        let threads = threads.filter(|_| config.mps.threads);
        let threads = threads.and_then(|threads| u32::try_from(threads).ok());
        let memory = |part: &GpuPart| {
            let memory = config.gpus[part.gpu as usize].memory?;
            let part = u128::from(memory.0) * u128::from(part.units) / u128::from(per_gpu);
            u64::try_from(part >> 20).ok()
        };
        let memory: Option<Vec<u64>> = gpus.iter().map(memory).collect();
        let memory = memory.filter(|_| config.mps.memory);
        let mut orders = JobOrders {
            job: facts.job,
            uid: facts.uid,
            gid: facts.gid,
            user: facts.user.clone(),
            boot: state.boot().to_owned(),
            since: now(),
            share: self.share,
            memory_mib: memory.iter().flatten().copied().min(),
            threads,
            wait: server.as_ref().map(|server| state.ready_lock(server)),
            refused: None,
            devices: rules,
            variables: Vec::new(),
            server,
            gpus,
        };
        orders.variables = self.variables(&orders, memory.as_deref());
        orders
    }

    fn variables(
        &self,
        orders: &JobOrders,
        memory: Option<&[u64]>,
    ) -> Vec<(String, Option<String>)> {
        let mut variables = vec![
            ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID".to_owned())),
            (PERCENTAGE, orders.threads.map(|threads| threads.to_string())),
        ];
        if let Some(visible) = self.config.visible_in_job(&orders.gpus) {
            variables.push((VISIBLE, Some(visible)));
        }
        let limits = memory.map(|memory| {
            let limits = memory.iter().enumerate();
            let limits = limits.map(|(index, memory)| format!("{index}={memory}M"));
            limits.collect::<Vec<String>>().join(",")
        });
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits));
        if let Some(server) = &orders.server {
            let pipes = servers::pipes(&self.config.server_folder(server));
            variables.push(("CUDA_MPS_PIPE_DIRECTORY", Some(pipes.display().to_string())));
        }
        if self.config.mode == Mode::Choose {
            // Slurm may have set these to the GPU that it counted on.
            for name in ["ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"] {
                variables.push((name, None));
            }
        }
        let owned = variables.into_iter();
        owned.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Orders for a job that must not run now. If it starts before Slurm has heard of it, or
    /// if Slurm hears nothing, the plugin ends it: it has no GPU at all.
    fn refuse(&self, why: &str) -> OrdersOf {
        let (facts, state) = (self.facts, self.state);
        state.log(now(), &format!("job {}: {why}", facts.job));
        let devices = self.config.device_numbers().unwrap_or_default();
        let mut orders = JobOrders {
            job: facts.job,
            uid: facts.uid,
            gid: facts.gid,
            user: facts.user.clone(),
            boot: state.boot().to_owned(),
            since: now(),
            share: self.share,
            refused: Some(why.to_owned()),
            devices: device_rules(&devices, &[]),
            ..JobOrders::default()
        };
        let written = state.lock().and_then(|lock| {
            // Its prolog may have run before: it has what it was given until it has ended.
            let before = state.job(facts.job);
            if let Some(before) = before.filter(|before| before.uid == facts.uid) {
                orders.share = before.share;
                orders.gpus = before.gpus;
                orders.server = before.server;
            }
            state.write_job(&lock, &orders)
        });
        written.map_or(OrdersOf::Nobody, |()| OrdersOf::Job)
    }
}

/// Allows these GPUs, and denies the others of the node.
pub(crate) fn device_rules(devices: &[(u32, u32)], gpus: &[GpuPart]) -> Vec<DeviceRule> {
    let rule = |(index, &(major, minor)): (u32, &(u32, u32))| DeviceRule {
        major,
        minor,
        allowed: gpus.iter().any(|part| part.gpu == index),
    };
    (0..).zip(devices).map(rule).collect()
}

impl Config {
    /// The numbers of the GPUs' device files.
    pub(crate) fn device_numbers(&self) -> Result<Vec<(u32, u32)>, Trouble> {
        let number = |gpu: &crate::GpuConfigEntry| {
            let file = &gpu.file;
            let trouble = |why: String| Trouble::Device { file: file.clone(), why };
            let found = fs_err::metadata(file).map_err(|error| trouble(error.to_string()))?;
            if !found.file_type().is_char_device() {
                return Err(trouble("it is something else".to_owned()));
            }
            let device = found.rdev();
            Ok((rustix::fs::major(device), rustix::fs::minor(device)))
        };
        self.gpus.iter().map(number).collect()
    }

    /// How a job's GPUs are named to a program that can open all of the node's: by UUID where
    /// all are known.
    pub(crate) fn visible(&self, gpus: &[GpuPart]) -> String {
        let numbers = || gpus.iter().map(|part| part.gpu.to_string());
        let uuids = self.uuids(gpus);
        uuids.unwrap_or_else(|| numbers().collect::<Vec<_>>().join(","))
    }

    /// How they are named to one that can open no others: without UUIDs by numbers from 0, since
    /// it counts what it can open.
    pub(crate) fn visible_alone(&self, gpus: &[GpuPart]) -> String {
        let numbers = || (0..gpus.len()).map(|number| number.to_string());
        let uuids = self.uuids(gpus);
        uuids.unwrap_or_else(|| numbers().collect::<Vec<_>>().join(","))
    }

    /// How they are named to the job. `None`: as Slurm has named them, which chose them.
    fn visible_in_job(&self, gpus: &[GpuPart]) -> Option<String> {
        match self.mode {
            Mode::Choose => Some(self.visible_alone(gpus)),
            Mode::Native => self.uuids(gpus),
        }
    }

    fn uuids(&self, gpus: &[GpuPart]) -> Option<String> {
        let entries = gpus.iter().map(|part| &self.gpus[part.gpu as usize]);
        let uuids: Option<Vec<&str>> = entries.map(|gpu| gpu.uuid.as_deref()).collect();
        uuids.map(|uuids| uuids.join(","))
    }
}
