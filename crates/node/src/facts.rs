//! What Slurm tells a prolog or an epilog of its job.

use std::collections::BTreeMap;
use std::ffi::OsString;

use packhorse_trust::user_group;

/// A job, as Slurm describes it in the environment of the prolog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFacts {
    pub job: u32,
    /// Its user's number.
    pub uid: u32,
    /// Its group's number.
    pub gid: u32,
    /// Its user's name.
    pub user: String,
    pub account: Option<String>,
    pub partition: Option<String>,
    pub reservation: Option<String>,
    /// What Slurm calls this node.
    pub node: Option<String>,
    /// The percentage that Slurm has worked out from what the job asked for. `None`: it did
    /// not ask for `mps`.
    pub percent: Option<u64>,
    /// The GPUs that Slurm has chosen.
    pub gpus: Vec<u32>,
}

/// The variable that tells a job which asked for `mps` from the others.
pub const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The group of those who have none.
const NOGROUP: u32 = 65534;

/// The variables that are looked at.
const NAMES: [&str; 12] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_UID",
    "SLURM_UID",
    "SLURM_JOB_GID",
    "SLURM_JOB_USER",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESERVATION",
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
];

impl JobFacts {
    /// What these variables say. `None`: they are no job's.
    ///
    /// Users write some of them, such as the comment of a job, and need not write UTF-8.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Option<Self> {
        let ours = variables.into_iter().filter_map(|(name, value)| {
            let name = name.to_str()?;
            let is_ours = name == PERCENTAGE || NAMES.contains(&name);
            is_ours.then(|| (name.to_owned(), value.to_string_lossy().into_owned()))
        });
        let mut variables: BTreeMap<String, String> = ours.collect();
        let number = |name: &str| variables.get(name)?.parse().ok();
        let job = number("SLURM_JOB_ID").or_else(|| number("SLURM_JOBID"))?;
        let uid = number("SLURM_JOB_UID").or_else(|| number("SLURM_UID"))?;
        let gid = number("SLURM_JOB_GID");
        // Newer versions may write a fraction, and all end it without a percent sign.
        let percent = variables.get(PERCENTAGE).map(|text| {
            let whole = text.split(['.', '%']).next().unwrap_or_default();
            whole.trim().parse().unwrap_or(0)
        });
        // Nobody is looked up for jobs that are none of ours.
        let gid = gid.or_else(|| percent.and_then(|_| user_group(uid)));
        let gpus =
            ["SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"].iter().find_map(|name| variables.get(*name));
        let gpus = gpus.map_or_else(Vec::new, |text| {
            text.split(',').filter_map(|id| id.trim().parse().ok()).collect()
        });
        let mut text = |name: &str| variables.remove(name).filter(|value| !value.is_empty());
        Some(Self {
            job,
            uid,
            // One that nobody has any rights by.
            gid: gid.unwrap_or(NOGROUP),
            user: text("SLURM_JOB_USER").unwrap_or_else(|| uid.to_string()),
            account: text("SLURM_JOB_ACCOUNT"),
            partition: text("SLURM_JOB_PARTITION"),
            reservation: text("SLURM_JOB_RESERVATION"),
            node: text("SLURMD_NODENAME"),
            percent,
            gpus,
        })
    }
}
