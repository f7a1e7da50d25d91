//! What is done in a step.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use packhorse_orders::{
    Confinement, DeviceRule, JOBS, JobOrders, SCONTROL, SERVER_SECONDS, STATE_FOLDER, asks_for_mps,
    confine, confine_step, is_confinable,
};
use packhorse_trust::read_trusted;

use crate::patience;
use crate::slurm::{self, Spank};

/// What this step is to us. Tasks are forked from the process that has found it out.
static STEP: OnceLock<StepOrders> = OnceLock::new();

/// The tasks of this step that were forked so far.
static TASKS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

enum StepOrders {
    /// Its job has orders, in this file.
    Given(Box<JobOrders>, PathBuf),
    /// Its job may not run, and why.
    Refused { job: u32, reason: String, devices: Vec<DeviceRule> },
}

/// What a task's exit status is if its job was refused.
const REFUSED: i32 = 1;

/// Slurm sets it in each step that has `mps`; a user may set it in any.
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// How often it is tried to hold tasks to their devices, and how long it is waited in between.
/// Meanwhile other steps of the job begin, and Slurm or this plugin change the same cgroups.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The number of NVIDIA's driver, which is the same everywhere; and no node has more GPUs.
const NVIDIA: u32 = 195;
const MOST_GPUS: u32 = 64;

/// Reads the orders of the step's job.
pub fn begin(spank: Spank, words: &[String]) {
    if !slurm::is_step(spank) {
        return;
    }
    let word = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let jobs = Path::new(word("state=").unwrap_or(STATE_FOLDER)).join(JOBS);
    let (Some(job), Some(uid)) = (slurm::job(spank), slurm::uid(spank)) else {
        return;
    };
    let file = jobs.join(job.to_string());
    let step = match read(&file, job, uid) {
        Ok(orders) => match orders.refused {
            Some(reason) => StepOrders::Refused {
                job,
                reason,
                // Maybe not even the files of the GPUs were there.
                devices: Some(orders.devices)
                    .filter(|devices| !devices.is_empty())
                    .unwrap_or_else(no_gpu),
            },
            None => StepOrders::Given(Box::new(orders), file),
        },
        // No prolog has ever given a share here: the node's `mps` is not ours.
        Err(_) if !jobs.is_dir() => return,
        Err(why) => {
            let scontrol = PathBuf::from(word("scontrol=").unwrap_or(SCONTROL));
            if !slurm::has_variable(spank, PERCENTAGE) || !has_mps(&scontrol, job) {
                return;
            }
            let reason = format!("this job cannot have its share of a GPU: {why}");
            StepOrders::Refused { job, reason, devices: no_gpu() }
        }
    };
    if let StepOrders::Given(orders, _) = &step
        && let Some(lock) = &orders.wait
    {
        let seconds = word("wait=").and_then(|seconds| seconds.parse().ok());
        if !patience::wait_for(lock, seconds.unwrap_or(SERVER_SECONDS)) {
            slurm::tell("the MPS server does not start: this step goes on without");
        }
    }
    // Nobody else sets it.
    let _ = STEP.set(step);
}

/// Holds the job's tasks to their devices, as soon as the step has all of them: none of them
/// goes on before, and Slurm is done with their cgroups.
pub fn confine_task(spank: Spank) {
    let (job, devices, file) = match STEP.get() {
        Some(StepOrders::Given(orders, file)) => (orders.job, &orders.devices, Some(file)),
        // Its tasks are ended, but Slurm runs the user's task epilog for them.
        Some(StepOrders::Refused { job, devices, .. }) => (*job, devices, None),
        None => return,
    };
    if devices.is_empty() {
        return;
    }
    let mut tasks = TASKS.lock().unwrap_or_else(PoisonError::into_inner);
    let task = slurm::task(spank);
    tasks.extend(task);
    let all = slurm::local_tasks(spank).and_then(|count| usize::try_from(count).ok());
    // The step that logins come into is said to have a task, and has none.
    if task.is_some() && tasks.len() < all.unwrap_or(0) {
        return;
    }
    match confine_beside_others(job, devices, file.map(PathBuf::as_path)) {
        Ok(Confinement::Version1(_) | Confinement::Version2(_)) => {}
        Ok(Confinement::None) => slurm::note(&format!(
            "job {job} is in no cgroup for devices, so nothing keeps it off the other GPUs: `packhorse node check` says what to do"
        )),
        Err(error) => {
            slurm::tell(&format!("this task cannot be held to its GPU: {error}"));
            tasks.iter().for_each(|task| end(*task));
            // Others may come into this step: they have none at all, if that is possible.
            let _ = confine_step(std::process::id(), job, &no_gpu());
        }
    }
}

/// Holds the job's tasks to their devices, while other steps of the job may do the same.
fn confine_beside_others(
    job: u32,
    devices: &[DeviceRule],
    orders: Option<&Path>,
) -> io::Result<Confinement> {
    let lock = orders.and_then(|file| OpenOptions::new().read(true).open(file).ok());
    let mut tries = 1..=TRIES;
    loop {
        let is_last = tries.next().is_none();
        let is_ours = lock.as_ref().is_none_or(|lock| lock.try_lock().is_ok());
        if is_ours || is_last {
            let confined = confine(std::process::id(), job, devices);
            if is_last || confined.is_ok() {
                return confined;
            }
        }
        #[expect(clippy::disallowed_methods, reason = "Slurm does not tell when it is done")]
        thread::sleep(BETWEEN_TRIES);
    }
}

/// Denies every GPU that a node can have.
fn no_gpu() -> Vec<DeviceRule> {
    let rule = |minor| DeviceRule { major: NVIDIA, minor, allowed: false };
    (0..MOST_GPUS).map(rule).collect()
}

/// Ends a task whose job was refused, before anything of its user's runs in it.
pub fn begin_task() {
    if let Some(StepOrders::Refused { reason, .. }) = STEP.get() {
        slurm::tell(reason);
        // SAFETY: this is the process that was to become the task. It shares the memory of
        // slurmstepd by copy only, whose exit handlers must not run here.
        unsafe { libc::_exit(REFUSED) };
    }
}

/// Sets up a task's environment.
pub fn prepare_task(spank: Spank) {
    let Some(StepOrders::Given(orders, _)) = STEP.get() else {
        return;
    };
    let is_held = orders.devices.is_empty() || is_confinable(std::process::id(), orders.job);
    let variables = if is_held { orders.variables.clone() } else { orders.variables_if_not_held() };
    for (name, value) in &variables {
        if !slurm::set_variable(spank, name, value.as_deref()) {
            slurm::tell(&format!("cannot set {name}"));
        }
    }
}

/// The orders of this job; or why there are none.
fn read(file: &Path, job: u32, uid: u32) -> Result<JobOrders, String> {
    let no_prolog = || "Slurm ran no prolog for it, or that failed".to_owned();
    let text = match read_trusted(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_prolog()),
        other => other.map_err(|error| format!("cannot read {}: {error}", file.display()))?,
    };
    let orders: JobOrders =
        text.parse().map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    if orders.uid != uid || orders.job != job {
        return Err(format!("{} is another job's", file.display()));
    }
    if Some(&orders.boot) != boot().as_ref() {
        return Err(format!("{} is from before a reboot", file.display()));
    }
    if orders.is_only_counted() {
        return Err(no_prolog());
    }
    Ok(orders)
}

/// Whether Slurm says that a job asked for `mps`. If it does not answer, it did not: whoever
/// has set the variable may have asked for something else, and is not to be stopped.
fn has_mps(scontrol: &Path, job: u32) -> bool {
    let answer = patience::ask(scontrol, &["-d", "show", "job", &job.to_string()]);
    let Some(answer) = answer else {
        slurm::tell(&format!("{} does not say whether this job has mps", scontrol.display()));
        return false;
    };
    asks_for_mps(&answer)
}

/// Ends a task of this step. It still waits for slurmstepd, and has no process of its own.
fn end(task: u32) {
    let Ok(task) = i32::try_from(task) else {
        return;
    };
    // SAFETY: it touches no memory. The process is a child of this one that nobody has waited
    // for, so its number is nobody else's.
    unsafe { libc::kill(task, libc::SIGKILL) };
}

/// Which boot of the machine this is.
fn boot() -> Option<String> {
    let file = OpenOptions::new().read(true).open("/proc/sys/kernel/random/boot_id");
    let text = file.and_then(io::read_to_string).ok()?;
    Some(text.trim().to_owned())
}
