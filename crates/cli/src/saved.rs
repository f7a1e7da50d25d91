//! What a run writes down so that a later session can go on with it.

use std::fs::Metadata;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use fs_err::File;
use packhorse_intake::Vram;
use packhorse_intake::sweep::{Order, Parameter, Sweep, SweepError, Template, TemplateError};
use packhorse_model::{Bytes, GpuRequest, Milli};
use packhorse_runner::{Defaults, Measure, Source};
use serde::{Deserialize, Serialize};

use crate::args::{Ageing, Placing, PoolArgs, TaskArgs};

/// The settings of a run, as the store keeps them. Members are only ever added,
/// each with a default: an old run can be resumed by a new program.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct Saved {
    gpus: Vec<String>,
    /// The ids are handed out as they stand.
    as_written: bool,
    slots: Option<u32>,
    max_per_gpu: Option<u32>,
    spread: bool,
    ignore_process: Vec<String>,
    no_leases: bool,
    mps: Option<bool>,
    thread_percentage: Option<u8>,
    /// Milliseconds; 0 is never.
    ageing_ms: Option<u64>,
    gpus_per_task: Option<String>,
    vram: Option<String>,
    probe: Option<String>,
    signature: Option<String>,
    gpu_model: Option<String>,
    ram: Option<u64>,
    cpu: Option<u32>,
    cores: Option<u32>,
    retries: Option<u32>,
    timeout_ms: Option<u64>,
    grace_ms: u64,
    /// Commands in files are separated by NUL bytes.
    pub null: bool,
    /// The files that commands come from, if all of them can be read again.
    pub files: Vec<SavedFile>,
    /// What came from a CSV file.
    pub csv: Option<SavedCsv>,
    /// The commands of a sweep that is run are made as they are needed.
    pub sweep: Option<SavedSweep>,
}

/// A file with commands, and how to know that it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    path: PathBuf,
    length: u64,
    modified: (i64, i64),
    /// Where reading began.
    start: u64,
}

impl SavedFile {
    /// What is to be remembered of an open file; nothing of a pipe.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        // Standard input has no name of its own, but the file behind it has.
        let name = format!("/proc/self/fd/{}", file.file().as_raw_fd());
        Some(Self {
            path: fs_err::read_link(name).ok()?,
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            start: rustix::fs::tell(file.file()).ok()?,
        })
    }

    /// Opens the file again, if it is still the same.
    pub fn open(&self) -> Option<Source> {
        let file = File::open(&self.path).ok()?;
        rustix::fs::seek(file.file(), rustix::fs::SeekFrom::Start(self.start)).ok()?;
        (Self::of(&file)? == *self).then(|| Source {
            name: self.path.display().to_string(),
            file,
        })
    }
}

/// What a later session needs to know of a CSV file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedCsv {
    /// How many rows make a batch.
    pub num: NonZeroU32,
    /// How many epochs measure a task.
    pub probe_epochs: u32,
    /// Where rows are taken out once they have succeeded.
    pub consume: Option<SavedRows>,
}

/// The rows of a CSV file that is consumed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedRows {
    /// The file.
    pub path: PathBuf,
    /// The row that names the columns.
    pub header: String,
    /// Every row as it stands in the file, in the order of the tasks.
    pub rows: Vec<Vec<u8>>,
}

impl SavedCsv {
    /// Has tasks run in batches, and measured by a few epochs.
    pub fn apply(&self, defaults: &mut Defaults) {
        defaults.batch = Some(self.num);
        if self.probe_epochs > 0 {
            defaults.probe = Some(Measure::Epochs(self.probe_epochs));
        }
    }
}

/// A sweep whose commands can be made again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedSweep {
    /// The template.
    pub template: String,
    /// Each parameter's name and values.
    pub parameters: Vec<(String, Vec<String>)>,
    /// Parameters that go together.
    pub zips: Vec<Vec<String>>,
    /// The seed of the shuffled order; none is grid order.
    pub seed: Option<u64>,
    /// How many of them.
    pub limit: Option<u64>,
}

impl Saved {
    /// What these arguments say.
    pub fn new(pool: &PoolArgs, task: &TaskArgs, sweep: Option<SavedSweep>) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            gpus: pool.gpus.clone(),
            as_written: pool.as_written,
            slots: pool.slots,
            max_per_gpu: pool.max_per_gpu,
            spread: pool.place == Some(Placing::Spread),
            ignore_process: pool.ignore_process.clone(),
            no_leases: pool.no_leases,
            mps: pool.mps,
            thread_percentage: pool.thread_percentage,
            ageing_ms: pool.ageing.map(|ageing| match ageing {
                Ageing::After(time) => millis(time),
                Ageing::Off => 0,
            }),
            gpus_per_task: task.gpus_per_task.map(|gpus| gpus.to_string()),
            vram: task.vram.map(|vram| vram.to_string()),
            probe: task.probe.clone(),
            signature: task.signature.clone(),
            gpu_model: task.gpu_model.clone(),
            ram: task.ram.map(|ram| ram.0),
            cpu: task.cpu.map(|cpu| cpu.0),
            cores: task.cores,
            retries: task.retries,
            timeout_ms: task.timeout.map(millis),
            grace_ms: millis(task.grace),
            null: false,
            files: Vec::new(),
            csv: None,
            sweep,
        }
    }

    /// What the store kept.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("the run's settings cannot be read")
    }

    /// For the store to keep.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether tasks ran on GPUs, and now run in slots.
    fn leaves_gpus(&self, now: &PoolArgs) -> bool {
        self.slots.is_none() && now.slots.is_some()
    }

    /// How much GPU memory each task asked for, in words, if that counts no longer.
    pub fn vram_left_aside(&self, now: &PoolArgs) -> Option<String> {
        let vram = self.vram.as_deref().filter(|_| self.leaves_gpus(now))?;
        Some(match vram.parse() {
            Ok(Vram::Bytes(bytes)) => format!("--vram {bytes}"),
            _ => format!("--vram {vram}"),
        })
    }

    /// Where tasks ran, with what is asked for now in its place.
    pub fn pool(&self, now: PoolArgs) -> PoolArgs {
        if self.leaves_gpus(&now) {
            return PoolArgs {
                ageing: now.ageing.or(self.ageing()),
                ..now
            };
        }
        let elsewhere = !now.gpus.is_empty() || now.slots.is_some();
        PoolArgs {
            gpus: if elsewhere {
                now.gpus
            } else {
                self.gpus.clone()
            },
            as_written: !elsewhere && self.as_written,
            slots: if elsewhere { now.slots } else { self.slots },
            max_per_gpu: now.max_per_gpu.or(self.max_per_gpu),
            ignore_process: if now.ignore_process.is_empty() {
                self.ignore_process.clone()
            } else {
                now.ignore_process
            },
            no_leases: now.no_leases || self.no_leases,
            mps: now.mps.or(self.mps),
            thread_percentage: now.thread_percentage.or(self.thread_percentage),
            ageing: now.ageing.or(self.ageing()),
            place: now.place.or(Some(if self.spread {
                Placing::Spread
            } else {
                Placing::Pack
            })),
        }
    }

    fn ageing(&self) -> Option<Ageing> {
        self.ageing_ms.map(|millis| match millis {
            0 => Ageing::Off,
            millis => Ageing::After(Duration::from_millis(millis)),
        })
    }

    /// What each task needs where it runs now. What was said of GPUs means nothing
    /// in slots, nor does `-g 0` on GPUs.
    pub fn task(&self, now: &PoolArgs) -> anyhow::Result<TaskArgs> {
        let mut task = self.task_then()?;
        if self.leaves_gpus(now) {
            task.gpus_per_task = None;
            task.vram = None;
            task.probe = None;
            task.gpu_model = None;
        } else if now.slots.is_none() && task.gpus_per_task == Some(GpuRequest::None) {
            task.gpus_per_task = None;
        }
        Ok(task)
    }

    /// What each task needed where it ran.
    fn task_then(&self) -> anyhow::Result<TaskArgs> {
        let gpus: Option<GpuRequest> = self
            .gpus_per_task
            .as_deref()
            .map(str::parse)
            .transpose()
            .context("the run's settings cannot be read")?;
        let vram: Option<Vram> = self
            .vram
            .as_deref()
            .map(str::parse)
            .transpose()
            .context("the run's settings cannot be read")?;
        Ok(TaskArgs {
            gpus_per_task: gpus,
            vram,
            probe: self.probe.clone(),
            signature: self.signature.clone(),
            gpu_model: self.gpu_model.clone(),
            ram: self.ram.map(Bytes),
            cpu: self.cpu.map(Milli),
            cores: self.cores,
            retries: self.retries,
            timeout: self.timeout_ms.map(Duration::from_millis),
            grace: Duration::from_millis(self.grace_ms),
        })
    }
}

impl SavedSweep {
    /// The sweep itself, after checking all of it.
    pub fn build(&self) -> anyhow::Result<Sweep> {
        let template = Template::parse(&self.template).map_err(|error| shown(&error))?;
        let mut sweep = Sweep::builder(template);
        for (name, values) in &self.parameters {
            sweep = sweep.parameter(Parameter::parse(name, values)?);
        }
        for names in &self.zips {
            sweep = sweep.zip(names.iter().map(String::as_str));
        }
        sweep = sweep.order(match self.seed {
            Some(seed) => Order::Shuffled { seed },
            None => Order::Grid,
        });
        if let Some(limit) = self.limit {
            sweep = sweep.limit(limit);
        }
        sweep.build().map_err(|error| match error {
            SweepError::Template(error) => shown(&error),
            other => other.into(),
        })
    }
}

/// A mistake in a template, with the place.
pub fn shown(error: &TemplateError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.render("template", crate::terminal::colour()))
}
