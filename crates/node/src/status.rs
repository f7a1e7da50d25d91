//! Who is where.

use std::path::Path;

use packhorse_model::{Bytes, Placing};
use packhorse_orders::{GpuPart, JobOrders};
use packhorse_trust::user_name;
use serde::Serialize;

use crate::config::{Config, Mode};
use crate::heal::{Healer, host_name};
use crate::prolog::Trouble;
use crate::queue::AnswerNeed;
use crate::servers::{self, processes};
use crate::state::{State, now};

/// How many of the log's lines are shown.
const LINES: usize = 10;

/// The node, as `packhorse node status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Who chooses.
    pub mode: &'static str,
    /// How, if we do.
    pub placing: &'static str,
    /// The `mps` of one GPU.
    pub per_gpu: u64,
    pub gpus: Vec<GpuStatus>,
    /// The MPS servers.
    pub servers: Vec<ServerStatus>,
    /// Jobs that were refused, and whose epilog has not run yet.
    pub refused: Vec<RefusedJob>,
    /// What went wrong lately, the latest last: seconds since the boot, and what.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GpuStatus {
    /// Its place in the configuration.
    pub index: u32,
    /// Its device file.
    pub file: String,
    pub uuid: Option<String>,
    pub memory: Option<Bytes>,
    /// How many `mps` are given out.
    pub used: u64,
    /// How many are left.
    pub free: u64,
    pub jobs: Vec<JobStatus>,
}

/// A job on a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct JobStatus {
    pub job: u32,
    /// Whose it is.
    pub user: String,
    /// The same as a number.
    pub uid: u32,
    /// What it asked for.
    pub share: u64,
    /// What it has of this GPU.
    pub units: u64,
    /// The percentage of the threads that it may use.
    pub threads: Option<u32>,
    /// The memory that it may use.
    pub memory_limit: Option<Bytes>,
    /// For how many seconds it has had it.
    pub seconds: u64,
    /// Its MPS server.
    pub server: Option<String>,
}

/// An MPS server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerStatus {
    /// Its GPUs and its user.
    pub name: String,
    /// Its user.
    pub uid: Option<u32>,
    /// How many processes it has; 0: it does not run.
    pub processes: usize,
    /// The jobs that use it.
    pub jobs: Vec<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RefusedJob {
    pub job: u32,
    /// Whose it is.
    pub user: String,
    /// Why.
    pub reason: String,
}

/// Looks, and puts right what it finds wrong.
pub fn status(file: &Path, node: Option<&str>, program: &Path) -> Result<NodeStatus, Trouble> {
    let config = Config::read(file)?;
    let state = State::open(&config.state)?;
    let healer = Healer { config: &config, state: &state, node, except: None };
    healer.heal(AnswerNeed::Fresh);
    let (jobs, damaged) = {
        let lock = state.lock()?;
        state.jobs(Some(&lock))?
    };
    let users = |name: &str| -> Vec<u32> {
        let uses = |job: &&JobOrders| job.server.as_deref() == Some(name);
        jobs.iter().filter(uses).map(|job| job.job).collect()
    };
    let mut names = servers::names(&config.mps.folder);
    let unused = names.iter().filter(|name| users(name).is_empty());
    servers::settle(&state, unused, file, program);
    names.extend(jobs.iter().filter_map(|job| job.server.clone()));
    names.sort_unstable();
    names.dedup();
    let server = |name: String| {
        let uid = servers::user_of(&name);
        let folder = config.server_folder(&name);
        ServerStatus {
            processes: uid.map_or(0, |uid| processes(&folder, uid).len()),
            jobs: users(&name),
            uid,
            name,
        }
    };
    let gpu = |(index, gpu): (u32, &crate::GpuConfigEntry)| {
        let here: Vec<JobStatus> = jobs.iter().filter_map(|job| job_on(job, index)).collect();
        let used = here.iter().map(|job| job.units).sum();
        GpuStatus {
            index,
            file: gpu.file.display().to_string(),
            uuid: gpu.uuid.clone(),
            memory: gpu.memory,
            used,
            free: config.per_gpu().saturating_sub(used),
            jobs: here,
        }
    };
    let refused = jobs.iter().filter_map(|job| {
        Some(RefusedJob { job: job.job, user: user_of(job), reason: job.refused.clone()? })
    });
    // Slurm does not answer, or they would have been dropped.
    let unread = damaged.iter().map(|file| {
        let (name, why) = (&file.name, &file.why);
        format!("{} cannot read {name}, and Slurm does not answer: {why}", now())
    });
    let problems = state.last_lines(LINES).into_iter().chain(unread);
    Ok(NodeStatus {
        node: node.map_or_else(host_name, str::to_owned),
        mode: match config.mode {
            Mode::Choose => "choose",
            Mode::Native => "native",
        },
        placing: match config.placing {
            Placing::Pack => "pack",
            Placing::Spread => "spread",
        },
        per_gpu: config.per_gpu(),
        gpus: (0..).zip(&config.gpus).map(gpu).collect(),
        servers: names.into_iter().map(server).collect(),
        refused: refused.collect(),
        problems: problems.collect(),
    })
}

fn job_on(job: &JobOrders, gpu: u32) -> Option<JobStatus> {
    let part: &GpuPart = job.gpus.iter().find(|part| part.gpu == gpu)?;
    Some(JobStatus {
        job: job.job,
        user: user_of(job),
        uid: job.uid,
        share: job.share,
        units: part.units,
        threads: job.threads,
        memory_limit: job.memory_mib.map(|mib| Bytes(mib << 20)),
        seconds: now().saturating_sub(job.since),
        server: job.server.clone(),
    })
}

/// Where a job was only counted, its user has just a number there.
fn user_of(job: &JobOrders) -> String {
    let number = job.uid.to_string();
    match user_name(job.uid).filter(|_| job.user == number) {
        Some(name) => name,
        None => job.user.clone(),
    }
}
