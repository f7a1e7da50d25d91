//! Every environment variable that packhorse reads. `docs/environment.md` is made of this
//! list.

/// A variable that packhorse reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadVariable {
    /// Its name, or several.
    pub name: &'static str,
    /// The setting it is another way to give, if it is one.
    pub setting: Option<Setting>,
    /// What it means, in Markdown.
    pub meaning: &'static str,
}

/// A setting that can also stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, as in `packhorse config`.
    pub key: &'static str,
    /// How its text is taken.
    pub kind: SettingKind,
}

/// How the text of a variable is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    Text,
    /// As a whole number.
    Whole,
    /// As true or false.
    Truth,
}

const fn plain(name: &'static str, meaning: &'static str) -> ReadVariable {
    ReadVariable { name, setting: None, meaning }
}

const fn set(
    name: &'static str,
    key: &'static str,
    kind: SettingKind,
    meaning: &'static str,
) -> ReadVariable {
    ReadVariable { setting: Some(Setting { key, kind }), ..plain(name, meaning) }
}

const fn text(name: &'static str, key: &'static str, meaning: &'static str) -> ReadVariable {
    set(name, key, SettingKind::Text, meaning)
}

const fn whole(name: &'static str, key: &'static str, meaning: &'static str) -> ReadVariable {
    set(name, key, SettingKind::Whole, meaning)
}

const fn truth(name: &'static str, key: &'static str, meaning: &'static str) -> ReadVariable {
    set(name, key, SettingKind::Truth, meaning)
}

/// What packhorse reads.
pub const READ: &[ReadVariable] = &[
    plain("PACKHORSE_HOME", "the [state folder](results.md#what-is-kept-where)"),
    plain(
        "XDG_STATE_HOME, HOME",
        "where the state folder is otherwise: `$XDG_STATE_HOME/packhorse`, else `~/.local/state/packhorse`",
    ),
    plain(
        "XDG_CONFIG_HOME",
        "where your [settings](settings.md) are: `$XDG_CONFIG_HOME/packhorse`, else `~/.config/packhorse`",
    ),
    plain(
        "PACKHORSE_SETTINGS",
        "a file of [settings](settings.md#which-files-count), as `--config`",
    ),
    plain(
        "CUDA_VISIBLE_DEVICES",
        "which GPUs `--gpus all`, the default, means; [others](gpus.md#which-are-used) cannot be named. With AMD's driver, `ROCR_VISIBLE_DEVICES`, else `HIP_VISIBLE_DEVICES`",
    ),
    whole("PACKHORSE_SLOTS", "pool.slots", "as `--slots`"),
    whole("PACKHORSE_MAX_PER_GPU", "pool.max_per_gpu", "as `--max-per-gpu`"),
    text("PACKHORSE_PLACE", "pool.place", "as `--place`"),
    text("PACKHORSE_AGEING", "pool.ageing", "as `--ageing`"),
    text("PACKHORSE_REST", "pool.rest", "as `--rest`"),
    text(
        "PACKHORSE_IGNORE_PROCESS",
        "pool.ignore_process",
        "as `--ignore-process`, for one process",
    ),
    truth("PACKHORSE_USE_LEASES", "pool.leases", "`false` is the same as `--no-leases`"),
    truth(
        "PACKHORSE_EQUAL_CORES",
        "pool.equal_cores",
        "`true` is the same as [`--cores auto`](cores.md)",
    ),
    truth(
        "PACKHORSE_THREAD_CAPS",
        "pool.thread_caps",
        "`false` is the same as [`--no-thread-caps`](cores.md#threads)",
    ),
    truth("PACKHORSE_MPS", "pool.mps", "as `--mps`: `true` or `false`"),
    text("PACKHORSE_VRAM", "task.vram", "as `--vram`"),
    text("PACKHORSE_GPU_MODEL", "task.gpu_model", "as `--gpu-model`"),
    text("PACKHORSE_RAM", "task.ram", "as `--ram`"),
    text("PACKHORSE_CPU", "task.cpu", "as `--cpu`"),
    whole("PACKHORSE_RETRIES", "task.retries", "as `--retries`"),
    text("PACKHORSE_TIMEOUT", "task.timeout", "as `--timeout`"),
    text("PACKHORSE_GRACE", "task.grace", "as `--grace`"),
    text("PACKHORSE_OUTPUT", "output", "as `--output`"),
    text(
        "PACKHORSE_DRIVER_PATIENCE",
        "driver_patience",
        "how long to wait for a [driver that does not answer](gpus.md#a-driver-that-does-not-answer), by default `20s`. During a run, a GPU that is silent for longer is [taken out](sharing.md#gpus-that-break)",
    ),
    text(
        "PACKHORSE_STORE_PATIENCE",
        "store_patience",
        "how long an event may wait until it is [stored](results.md#what-is-kept-where), by default `1s`; on a disk that takes longer it is shown before",
    ),
    text(
        "PACKHORSE_LEASES",
        "lease_folder",
        "the folder in which runs [tell each other](sharing.md#how-it-works) what they hold, instead of `/dev/shm/packhorse`",
    ),
    text(
        "PACKHORSE_OOM_TEXTS",
        "oom_texts",
        "a file with [more signs](memory.md#words-of-your-own) of running out of GPU memory, instead of `oom-texts` beside your settings",
    ),
    text(
        "PACKHORSE_NVML_LIBRARY",
        "nvml_library",
        "the NVML library to load, instead of the system's `libnvidia-ml.so.1`; with `none`, no NVIDIA driver is looked for",
    ),
    text(
        "PACKHORSE_SYSFS",
        "sysfs",
        "the folder to read instead of `/sys`, where AMD cards are found, and which [cores](cores.md) belong together",
    ),
    text(
        "PACKHORSE_MPS_CONTROL",
        "mps_control",
        "the program that controls [MPS](sharing.md#mps), instead of `nvidia-cuda-mps-control` on the `PATH`",
    ),
    plain(
        "CUDA_MPS_PIPE_DIRECTORY",
        "where to look for somebody else's MPS daemon, instead of `/tmp/nvidia-mps`",
    ),
    plain(
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "tasks get it unchanged, except those that share a GPU through [`--mps`](sharing.md#mps)",
    ),
    plain(
        "CUDA_DEVICE_ORDER",
        "if it is set, tasks get it unchanged instead of `PCI_BUS_ID`; and if it says otherwise, UUIDs in `CUDA_VISIBLE_DEVICES`",
    ),
    plain(
        "OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS, NUMEXPR_NUM_THREADS",
        "if it is set, tasks get it unchanged; with `OMP_NUM_THREADS`, none of the others is [set for them](cores.md#threads) either",
    ),
    plain("USER, LOGNAME", "the name that other runs see"),
    plain("PATH", "where to find commands"),
    plain("LD_LIBRARY_PATH", "where the system's loader finds libraries, NVML's among them"),
    plain(
        "PYTHONPATH",
        "where Python finds modules. If it has relative folders, a [preloaded](preload.md) Python serves only tasks that run in one folder. Where [experiments on Slurm](experiments.md#on-slurm) use a copy of the code, tasks find the copy's folders in it",
    ),
    plain(
        "TMPDIR",
        "where jobs of [`run --slurm`](slurm.md) keep a state folder on their node while they run, instead of `/tmp`",
    ),
    plain(
        "SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID, SLURMD_NODENAME, SLURM_CPUS_ON_NODE, SLURM_JOB_GPUS, SLURM_STEP_GPUS, SLURM_JOB_END_TIME",
        "set by Slurm: what a job of [`run --slurm`](slurm.md) has, where it is, and when it ends",
    ),
    plain(
        "SLURM_JOB_ID, SLURM_JOBID, SLURM_JOB_UID, SLURM_UID, SLURM_JOB_GID, SLURM_JOB_USER, SLURM_JOB_ACCOUNT, SLURM_JOB_PARTITION, SLURM_JOB_RESERVATION",
        "set by Slurm for `packhorse node prolog` and `epilog` on a [shared node](slurm-node.md): whose job it is. From `SLURM_JOB_GPUS`, `CUDA_VISIBLE_DEVICES` and `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` they know what it was given",
    ),
    plain(
        "SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, SBATCH_JOB_NAME, SBATCH_OUTPUT, SBATCH_ERROR, SBATCH_QOS, SBATCH_CONSTRAINT, SBATCH_GPUS, SBATCH_GPUS_PER_NODE, SBATCH_MEM_PER_NODE, SBATCH_MEM_PER_CPU, SBATCH_MEM_PER_GPU, SBATCH_REQUEUE, SBATCH_NO_REQUEUE",
        "these and the others of `sbatch` count [on Slurm](slurm.md) for what neither options nor settings of Packhorse say",
    ),
    plain(
        "SLURM_CLUSTERS",
        "the cluster that `sbatch` submits to; later questions go to where a run's jobs are",
    ),
    plain(
        "SLURM_CONF",
        "Slurm's configuration file, which [`packhorse node`](slurm-node.md) reads; else it looks in the usual places",
    ),
    plain(
        "LC_ALL, LC_CTYPE, LANG",
        "whether the chart of [`packhorse plan`](plan.md) may use more than plain ASCII",
    ),
    plain("NO_COLOR", "if it is set to anything, there are no colours"),
    plain("TERM", "if it is `dumb` or not set, there is no live view"),
];
