//! A `RunSpec` becomes a run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packhorse_core::RefusalReason;
use packhorse_engine::{
    DeviceInfo, Engine, EngineSettings, Input, MpsSettings, NewRunInput, OomSigns,
};
use packhorse_gpu::{GpuConfig, Sampler};
use packhorse_intake::Colour;
use packhorse_intake::probe::ProbeTemplate;
use packhorse_leases::{LeaseOwner, Leases};
use packhorse_model::{
    DeviceId, OutputMode, ProbeSpec, RunId, RunSpec, RunSummary, TaskSpec, Timestamp,
};
use packhorse_store::{Home, NewRun, Record, RunLock, new_run_uuid};
use packhorse_supervisor::{
    Children, SignalMask, Supervisor, SupervisorSettings, request_short_slice,
};

use crate::control::ControlSocket;
use crate::devices::{Devices, scheduler_settings};
use crate::environment::AttemptEnvironment;
use crate::executor::{Executor, LocalExecutor};
use crate::journal::{Journal as _, StoreJournal};
use crate::mps::MpsThread;
use crate::observer::Observer;
use crate::sampling::Attributor;
use crate::session::{Session, SessionParts};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::source::{MadeTasks, TaskSource};
use crate::{Notices, SessionError, system};

/// How many tasks are read back from the store at once.
const PAGE: u32 = 2048;

/// A run that could start now: its devices are found, and its tasks could run on them.
pub struct Launch {
    spec: RunSpec,
    output: OutputMode,
    devices: Devices,
    engine: Engine,
    /// Who runs the attempts, if not this machine's own executor.
    executor: Option<Box<dyn Executor>>,
    config: GpuConfig,
    lease_folder: PathBuf,
    patience: Duration,
}

/// How a run begins.
pub(crate) enum Beginning {
    /// It is a new one.
    New,
    /// It goes on.
    Resumed {
        /// The settled tasks that are to run once more.
        reopened: Vec<u32>,
        /// How many tasks the store has.
        tasks: u32,
    },
}

impl Launch {
    /// Finds the devices, and checks all that can be checked before anything starts.
    pub fn prepare(
        spec: RunSpec,
        output: OutputMode,
        colour: Colour,
        settings: &Settings,
        notices: &mut Notices<'_>,
    ) -> Result<Self, SessionError> {
        let config = settings.gpu_config();
        let devices = Devices::find(&spec.pool, &spec.defaults, &config, notices)?;
        if let Some(ProbeSpec::Template(template)) = &spec.defaults.probe {
            ProbeTemplate::parse(template)
                .map_err(|error| SessionError::Rendered(error.render("--probe", colour)))?;
        }
        let engine = engine(&spec, &devices, settings)?;
        if let Some(reason) = engine.refusal(&spec.defaults) {
            return Err(SessionError::Impossible {
                advice: advice(&reason),
                reason: reason.to_string(),
            });
        }
        Ok(Self {
            spec,
            output,
            devices,
            engine,
            executor: None,
            config,
            lease_folder: settings.lease_folder(),
            patience: settings.store_patience,
        })
    }

    /// Lets another executor run the attempts, instead of this machine's own.
    #[must_use]
    pub fn with_executor(mut self, executor: Box<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Why a task of this run could never run, if it could not.
    pub fn refusal(&self, task: &TaskSpec) -> Option<String> {
        let spec = task.clone().over(&self.spec.defaults);
        if task.vram.is_some() && !self.engine.uses_gpus(&spec) {
            return Some("it asks for GPU memory (vram), but for no GPU".to_owned());
        }
        if let Some(names) = &task.gpu_model
            && self.engine.uses_gpus(&spec)
            && let Err(error) = self.devices.check_model(names)
        {
            return Some(error.to_string());
        }
        self.engine.refusal(&spec).map(|reason| reason.to_string())
    }

    /// Runs it as a new run, and stays until it is over.
    pub fn start(
        self,
        source: Box<dyn TaskSource>,
        observer: &mut dyn Observer,
        notices: &mut Notices<'_>,
    ) -> Result<RunSummary, SessionError> {
        let home = Home::locate()?;
        // The database is opened while the first tasks start already.
        home.check_database()?;
        let (_, lock) = home.new_run()?;
        let source = Some(source);
        self.run(&home, &lock, Beginning::New, source, observer, notices)
    }

    /// Runs it under a number that it has already.
    pub(crate) fn run(
        self,
        home: &Home,
        lock: &RunLock,
        beginning: Beginning,
        source: Option<Box<dyn TaskSource>>,
        observer: &mut dyn Observer,
        notices: &mut Notices<'_>,
    ) -> Result<RunSummary, SessionError> {
        if let Some(kind) = home.network_filesystem() {
            notices(&format!(
                "warning: the state folder {} is on {kind}: use it from one machine at a time\n\
                 hint: set PACKHORSE_HOME to a folder on a local disk",
                home.path().display()
            ));
        }
        let Self {
            spec,
            output,
            devices,
            engine,
            executor,
            config,
            lease_folder,
            patience,
        } = self;
        let run = lock.run();
        let origin = Instant::now();
        let folder = std::env::current_dir().map_err(system("tell the current folder"))?;
        let mps = spec.pool.mps == Some(true);
        // Before other threads start, which inherit the signal mask.
        let mask = SignalMask::of_this_thread();
        let signals = Signals::block().map_err(system("take over signals"))?;
        request_short_slice();
        let executor = match executor {
            Some(executor) => executor,
            None => local_executor(home, &devices, mps, mask)?,
        };
        let mut journal = StoreJournal::new(home)?;
        let mut warnings = Vec::new();
        let leases = leases(&spec, &devices, &lease_folder, run, &mut warnings);
        let sampler = sampler(devices.driver, &devices.units, &mut warnings);
        let resumed = match &beginning {
            Beginning::New => None,
            Beginning::Resumed { tasks, .. } => Some(*tasks),
        };
        let record = begin(&mut journal, run, beginning, &spec, &folder);
        let has_source = source.is_some();
        let drained = match &sampler {
            Some(_) => drained(&mut journal, &devices.info)?,
            None => Vec::new(),
        };
        let left = match resumed {
            Some(_) => {
                journal.wait_for(record)?;
                Some(journal.unfinished(run, 0, PAGE)?)
            }
            None => None,
        };
        let parts = SessionParts {
            executor,
            control: ControlSocket::open(&home.run_dir(run)).ok(),
            mps: mps
                .then(|| mps_thread(config, home, &devices.info))
                .transpose()?,
            attributor: Attributor::new(&spec.pool.ignore_process, origin),
            journal: Box::new(journal),
            source: source.unwrap_or_else(|| Box::new(MadeTasks::default())),
            signals,
            sampler,
            leases,
        };
        let new = NewRunInput {
            run,
            total: parts.source.total(),
            defaults: spec.defaults.into(),
            batch: spec.batch,
            output,
            folder,
            logs: home.log_dir(run).into(),
            resumed,
            record,
        };
        let mut session = Session::new(run, engine, parts, observer, origin, patience)?;
        session.feed(Input::AddRun(Box::new(new)));
        for (device, reason) in drained {
            session.feed(Input::LeaveOut { device, reason });
        }
        for message in warnings {
            let task = None;
            session.feed(Input::Warning { task, message });
        }
        if let Some(page) = left {
            session.resume(page, PAGE)?;
        }
        if !has_source {
            session.end_source();
        }
        session.run()
    }
}

fn engine(spec: &RunSpec, devices: &Devices, settings: &Settings) -> Result<Engine, SessionError> {
    let pool = &spec.pool;
    Ok(Engine::new(EngineSettings {
        pool: devices.pool(),
        scheduler: scheduler_settings(pool),
        devices: devices.info.clone(),
        sampled: devices.driver.is_some(),
        silence: settings.gpu_config().driver_patience,
        leases: uses_leases(spec),
        mps: (pool.mps == Some(true)).then_some(MpsSettings {
            threads: pool.thread_percentage,
        }),
        oom_signs: oom_signs(settings)?,
        patience: settings.store_patience,
    })?)
}

/// Runs attempts on this machine.
fn local_executor(
    home: &Home,
    devices: &Devices,
    mps: bool,
    mask: SignalMask,
) -> Result<Box<dyn Executor>, SessionError> {
    let environment = AttemptEnvironment::new(devices.units.clone(), devices.cores.len(), mps);
    let supervisor = Supervisor::new(SupervisorSettings {
        environment: environment.fixed(),
        hidden: environment.hidden(mps),
        home_mark: home.path().to_string_lossy().into_owned(),
        signal_mask: Some(mask),
        children: Children::All,
    })
    .map_err(system("watch processes"))?;
    Ok(Box::new(LocalExecutor::new(supervisor, environment, mps)))
}

fn uses_leases(spec: &RunSpec) -> bool {
    let pool = &spec.pool;
    pool.leases != Some(false) && !pool.as_written && pool.slots.is_none()
}

/// The person's own signs of running out of memory.
fn oom_signs(settings: &Settings) -> Result<OomSigns, SessionError> {
    let Some(path) = settings.oom_texts() else {
        return Ok(OomSigns::default());
    };
    let text = fs_err::read_to_string(&path)?;
    Ok(OomSigns::parse(&path, &text)?)
}

/// What to do about a request that the options made.
fn advice(reason: &RefusalReason) -> &'static str {
    match reason {
        RefusalReason::TooManyGpus { most_gpus: 1.., .. } => {
            "\nhint: ask for fewer with -g, or name more with --gpus"
        }
        _ => "",
    }
}

/// Makes ourselves known to other runs, and them to us.
fn leases(
    spec: &RunSpec,
    devices: &Devices,
    folder: &Path,
    run: RunId,
    warnings: &mut Vec<String>,
) -> Option<Leases> {
    if !uses_leases(spec) || devices.units.is_empty() {
        return None;
    }
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let owner = LeaseOwner {
        user: user(),
        run: Some(run),
        command: words.join(" "),
    };
    match Leases::open(folder, owner) {
        Ok(leases) => Some(leases),
        Err(error) => {
            warnings.push(format!("other runs on this machine are not seen: {error}"));
            None
        }
    }
}

/// Who we are, as the environment tells: for people to read.
fn user() -> String {
    let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    name.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string())
}

fn sampler(
    driver: Option<packhorse_gpu::Driver>,
    units: &[packhorse_gpu::Unit],
    warnings: &mut Vec<String>,
) -> Option<Sampler> {
    match Sampler::start(driver?, units) {
        Ok(sampler) => Some(sampler),
        Err(error) => {
            warnings.push(format!("the GPUs cannot be watched: {error}"));
            None
        }
    }
}

/// Starts to talk to MPS daemons.
fn mps_thread(
    config: GpuConfig,
    home: &Home,
    devices: &[DeviceInfo],
) -> Result<MpsThread, SessionError> {
    let keys = devices.iter().map(|info| info.keys.join("+")).collect();
    let labels = devices.iter().map(|info| info.label.clone()).collect();
    let thread = MpsThread::start(config, home.path().to_owned(), keys, labels);
    thread.map_err(system("start a thread"))
}

/// Writes down how the run begins. Returns the place of the last record about that.
fn begin(
    journal: &mut StoreJournal,
    run: RunId,
    beginning: Beginning,
    spec: &RunSpec,
    folder: &Path,
) -> u64 {
    match beginning {
        Beginning::New => {
            let started = Timestamp::now();
            journal.send_record(Record::NewRun {
                run,
                facts: Box::new(NewRun {
                    uuid: new_run_uuid(started),
                    started,
                    cwd: folder.to_owned(),
                    argv: std::env::args_os().collect(),
                    host: host(),
                    pid: std::process::id(),
                    spec: spec.clone(),
                }),
            })
        }
        Beginning::Resumed { reopened, .. } => {
            journal.send_record(Record::RunResumed {
                run,
                pid: std::process::id(),
                host: host().into(),
            });
            journal.send_record(Record::Reopened {
                run,
                tasks: reopened.into(),
            })
        }
    }
}

/// This machine's name.
fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// The devices that an earlier run found broken, and why.
fn drained(
    journal: &mut StoreJournal,
    devices: &[DeviceInfo],
) -> Result<Vec<(DeviceId, String)>, SessionError> {
    let drained = journal.reader()?.drained()?;
    let devices = devices.iter().zip(0..);
    let broken = devices.filter_map(|(device, number)| {
        let mut drained = drained.iter();
        let broken = drained.find(|drained| device.keys.contains(&drained.device))?;
        Some((DeviceId(number), broken.reason.clone()))
    });
    Ok(broken.collect())
}
