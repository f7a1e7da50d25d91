//! Before a job: what it is given.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use packhorse_orders::{DeviceRule, GpuPart, JobOrders};

use crate::choose::{NoRoom, choose};
use crate::config::{Config, ConfigError, Mode};
use crate::facts::{JobFacts, PERCENTAGE};
use crate::heal::{Urgency, exists, forget_the_gone};
use crate::rules::{Refusal, admit};
use crate::servers::{self, server_name};
use crate::share::Share;
use crate::slurm::Slurm;
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
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Slurm has chosen a GPU that nobody knows.
    #[error(
        "Slurm chose GPU {0}, which is not in the configuration\nhint: name every GPU of gres.conf there, in the same order"
    )]
    UnknownGpu(u32),
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
            // Where Slurm's commands usually are.
            let slurm = Slurm::new(Path::new("/usr/bin/scontrol"));
            slurm.send_back(facts.job, &error.to_string());
            return PrologResult::SentBack(error.into());
        }
    };
    let slurm = Slurm::new(&config.scontrol);
    let share = Share::of(percent, config.whole());
    let share = share.exact().unwrap_or_else(|| {
        let answer = slurm.show_job(facts.job);
        share.settle(answer.as_deref())
    });
    let node = PrologOfNode {
        config: &config,
        slurm: &slurm,
        facts,
        share,
    };
    if let Err(refusal) = admit(&config.allow, facts, share) {
        node.refuse(&refusal);
        return PrologResult::Refused(refusal);
    }
    let mut gone = Vec::new();
    let given = node.give(&mut gone);
    if let Ok(state) = State::open(&config.state) {
        let wanted = given
            .as_ref()
            .ok()
            .and_then(|orders| orders.server.as_ref());
        for server in gone
            .iter()
            .filter_map(|job| job.server.as_ref())
            .chain(wanted)
        {
            servers::settle(&state, server, file, program);
        }
    }
    match given {
        Ok(orders) => PrologResult::Given(Box::new(orders)),
        Err(trouble) => {
            if let Ok(state) = State::open(&config.state) {
                state.log(now(), &format!("job {}: {trouble}", facts.job));
            }
            slurm.send_back(facts.job, &trouble.to_string());
            PrologResult::SentBack(trouble)
        }
    }
}

struct PrologOfNode<'a> {
    config: &'a Config,
    slurm: &'a Slurm,
    facts: &'a JobFacts,
    share: u64,
}

impl PrologOfNode<'_> {
    /// Chooses and writes it down.
    /// Jobs that turn out to be `gone` are told.
    fn give(&self, gone: &mut Vec<JobOrders>) -> Result<JobOrders, Trouble> {
        let state = State::open(&self.config.state)?;
        let devices = self.devices()?;
        gone.extend(self.heal(&state, Urgency::Usual));
        match self.try_give(&state, &devices) {
            Err(Trouble::NoRoom(_)) => {
                // Slurm says there is room: something is left of a job that is gone.
                gone.extend(self.heal(&state, Urgency::Now));
                self.try_give(&state, &devices)
            }
            other => other,
        }
    }

    fn heal(&self, state: &State, urgency: Urgency) -> Vec<JobOrders> {
        let (node, job) = (self.facts.node.as_deref(), self.facts.job);
        forget_the_gone(state, self.slurm, node, Some(job), urgency)
    }

    fn try_give(&self, state: &State, devices: &[(u32, u32)]) -> Result<JobOrders, Trouble> {
        let facts = self.facts;
        let lock = state.lock()?;
        let (jobs, dropped) = state.jobs(Some(&lock))?;
        for file in dropped {
            state.log(now(), &format!("dropped {}: {}", file.name, file.why));
        }
        // The same job again: slurmd was restarted, or the job was requeued and its
        // epilog never ran. What it has it keeps, if it is the same that it asks for.
        let before = jobs.iter().find(|job| job.job == facts.job);
        let kept = before
            .filter(|job| job.uid == facts.uid && job.share == self.share && !job.gpus.is_empty());
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
        let orders = self.orders(state, parts, devices);
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

    /// The numbers of the GPUs' device files.
    fn devices(&self) -> Result<Vec<(u32, u32)>, Trouble> {
        let number = |gpu: &crate::GpuConfigEntry| {
            let file = &gpu.file;
            let trouble = |why: String| Trouble::Device {
                file: file.clone(),
                why,
            };
            let found = fs_err::metadata(file).map_err(|error| trouble(error.to_string()))?;
            if !found.file_type().is_char_device() {
                return Err(trouble("it is something else".to_owned()));
            }
            let device = found.rdev();
            Ok((rustix::fs::major(device), rustix::fs::minor(device)))
        };
        self.config.gpus.iter().map(number).collect()
    }

    fn orders(&self, state: &State, gpus: Vec<GpuPart>, devices: &[(u32, u32)]) -> JobOrders {
        let (config, facts) = (self.config, self.facts);
        let is_ours = |index: usize| gpus.iter().any(|part| part.gpu as usize == index);
        let rules = devices.iter().enumerate();
        let rules = rules.map(|(index, &(major, minor))| DeviceRule {
            major,
            minor,
            allowed: is_ours(index),
        });
        // In the other mode Slurm has done that.
        let rules = rules.filter(|_| config.mode == Mode::Choose).collect();
        let control = &config.mps.control;
        let has_control = config.mps.servers && exists(control);
        if config.mps.servers && !has_control {
            let text = format!(
                "job {} has no MPS server: no {}",
                facts.job,
                control.display()
            );
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
        orders.variables = self.variables(state, &orders, memory.as_deref());
        orders
    }

    fn variables(
        &self,
        state: &State,
        orders: &JobOrders,
        memory: Option<&[u64]>,
    ) -> Vec<(String, Option<String>)> {
        let mut variables = vec![
            ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID".to_owned())),
            (
                PERCENTAGE,
                orders.threads.map(|threads| threads.to_string()),
            ),
        ];
        if let Some(visible) = self.config.visible_in_job(&orders.gpus) {
            variables.push(("CUDA_VISIBLE_DEVICES", Some(visible)));
        }
        let limits = memory.map(|memory| {
            let limits = memory.iter().enumerate();
            let limits = limits.map(|(index, memory)| format!("{index}={memory}M"));
            limits.collect::<Vec<String>>().join(",")
        });
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limits));
        if let Some(server) = &orders.server {
            let pipes = servers::pipes(&state.server_folder(server));
            variables.push(("CUDA_MPS_PIPE_DIRECTORY", Some(pipes.display().to_string())));
        }
        if self.config.mode == Mode::Choose {
            // Slurm may have set these to the GPU that it counted on.
            for name in [
                "ROCR_VISIBLE_DEVICES",
                "GPU_DEVICE_ORDINAL",
                "ZE_AFFINITY_MASK",
            ] {
                variables.push((name, None));
            }
        }
        let owned = variables.into_iter();
        owned
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Ends a job that may not have what it asks for. If it starts before Slurm has heard of
    /// it, the plugin ends it: it has no GPU at all.
    fn refuse(&self, refusal: &Refusal) {
        if let Ok(state) = State::open(&self.config.state) {
            state.log(now(), &format!("job {} refused: {refusal}", self.facts.job));
            let devices = self.devices().unwrap_or_default();
            let mut orders = self.orders(&state, Vec::new(), &devices);
            orders.refused = Some(refusal.to_string());
            orders.variables.clear();
            orders.server = None;
            orders.wait = None;
            orders.devices = devices
                .iter()
                .map(|&(major, minor)| DeviceRule {
                    major,
                    minor,
                    allowed: false,
                })
                .collect();
            if let Ok(lock) = state.lock() {
                // If it cannot be written, the job is ended all the same.
                let _ = state.write_job(&lock, &orders);
            }
        }
        self.slurm.cancel(self.facts.job, &refusal.to_string());
    }
}

impl Config {
    /// How a job's GPUs are named to a program that can open all of the node's, as an MPS
    /// server can: by UUID where all are known.
    pub(crate) fn visible(&self, gpus: &[GpuPart]) -> String {
        let numbers = || gpus.iter().map(|part| part.gpu.to_string()).collect();
        let names: Vec<String> = self.uuids(gpus).unwrap_or_else(numbers);
        names.join(",")
    }

    /// How they are named to the job, which can open no others: without UUIDs by numbers from
    /// 0, since it counts what it can open. `None`: as Slurm has named them, which chose them.
    fn visible_in_job(&self, gpus: &[GpuPart]) -> Option<String> {
        let numbers = || (0..gpus.len()).map(|number| number.to_string()).collect();
        let names = match self.mode {
            Mode::Choose => self.uuids(gpus).unwrap_or_else(numbers),
            Mode::Native => self.uuids(gpus)?,
        };
        Some(names.join(","))
    }

    fn uuids(&self, gpus: &[GpuPart]) -> Option<Vec<String>> {
        let entries = gpus.iter().map(|part| &self.gpus[part.gpu as usize]);
        entries.map(|gpu| gpu.uuid.clone()).collect()
    }
}
