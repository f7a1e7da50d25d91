//! A `RunSpec` becomes a run.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packhorse_core::RefusalReason;
use packhorse_engine::{
    DeviceInfo, Engine, EngineSettings, Input, MpsSettings, NewRunInput, OomSigns,
};
use packhorse_gpu::{Sampler, Unit};
use packhorse_intake::probe::ProbeTemplate;
use packhorse_intake::{Colour, check_values};
use packhorse_leases::{LeaseError, LeaseOwner, Leases};
use packhorse_model::{
    DEFAULT_REST, DeviceId, ProbeSpec, RunId, RunSpec, RunSummary, TaskSpec, Timestamp,
};
use packhorse_store::{Home, NewRun, Reader, Record, RunLock, RunSeed, Uuid, new_run_uuid};
use packhorse_supervisor::{
    Children, EndNotice, SignalMask, Supervisor, SupervisorSettings, request_short_slice,
};
use packhorse_trust::ensure_private_folder;
use rustix::time::{ClockId, clock_gettime};

use crate::core_parts::ThreadCaps;
use crate::devices::{Devices, scheduler_settings};
use crate::environment::AttemptEnvironment;
use crate::executor::{Executor, LocalExecutor};
use crate::file_contents::FileContents;
use crate::ignored_process::IgnoredProcess;
use crate::journal::{Journal, StoreJournal};
use crate::leaders::LeaderRecord;
use crate::marked_run::{KnownHome, OwnRun};
use crate::markers::Markers;
use crate::mps::MpsThread;
use crate::observer::Observer;
use crate::run_part::{PartTime, RunPart};
use crate::sampling::Attributor;
use crate::session::{Session, SessionParts};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::source::{MadeTasks, TaskSource};
use crate::{Notices, SessionError, system};

/// A run that could start now: its devices are found, and its tasks could run on them.
pub struct Launch {
    spec: RunSpec,
    /// What holds for every task that says nothing else, on these devices.
    defaults: TaskSpec,
    devices: Devices,
    engine: Engine,
    /// Who runs the attempts, if not this machine's own executor.
    executor: Option<Box<dyn Executor>>,
    end_with: Option<OwnedFd>,
    ignored: Vec<IgnoredProcess>,
    settings: Settings,
}

/// Where what becomes of a run is stored.
enum RunStorage<'a> {
    /// The store, which may have it from an earlier session.
    Store(&'a RunLock, Option<EarlierTasks>),
    /// Another store, of which this part is.
    Elsewhere(RunPart),
}

impl RunStorage<'_> {
    /// The UUID of the run, if it is not a new one.
    fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Store(_, earlier) => earlier.as_ref().map(|earlier| earlier.uuid),
            Self::Elsewhere(part) => Some(part.uuid),
        }
    }
}

/// What an earlier session has left.
pub(crate) struct EarlierTasks {
    pub(crate) uuid: Uuid,
    /// The settled tasks that are to run once more.
    pub(crate) reopened: Vec<u32>,
    /// How many tasks the store has.
    pub(crate) count: u32,
    /// How many of them succeeded.
    pub(crate) succeeded: u64,
    /// How many failed, of those that do not run once more.
    pub(crate) failed: u64,
}

impl Launch {
    /// Finds the devices, and checks all that can be checked before anything starts.
    pub fn prepare(
        spec: RunSpec,
        colour: Colour,
        settings: &Settings,
        notices: &mut Notices<'_>,
    ) -> Result<Self, SessionError> {
        if let Some(ProbeSpec::Template(template)) = &spec.defaults.probe {
            ProbeTemplate::parse(template)
                .map_err(|error| SessionError::Rendered(error.render("--probe", colour)))?;
        }
        check_values(&spec.defaults).map_err(|(key, why)| SessionError::Value(key, why))?;
        let config = settings.gpu_config();
        let devices = Devices::find(&spec.pool, &spec.defaults, &config, notices)?;
        let ignored = spec.pool.ignore_process.iter().map(|who| who.parse());
        let ignored = ignored.collect::<Result<_, _>>().map_err(SessionError::IgnoredProcess)?;
        let defaults = devices.defaults(&spec, notices)?;
        let engine = engine(&spec, &devices, settings)?;
        if let Some(reason) = engine.refusal(&defaults) {
            let advice = match reason {
                RefusalReason::TooManyGpus { most_gpus: 1.., .. } => {
                    "\nhint: ask for fewer with -g, or name more with --gpus"
                }
                _ => "",
            };
            let reason = reason.to_string();
            return Err(SessionError::Impossible { reason, advice });
        }
        Ok(Self {
            spec,
            defaults,
            devices,
            engine,
            executor: None,
            end_with: None,
            ignored,
            settings: settings.clone(),
        })
    }

    /// Lets another executor run the attempts, instead of this machine's own.
    #[must_use]
    pub fn with_executor(mut self, executor: Box<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Ends the run, and what is running, when this is readable: the handle of a process
    /// ([`NamedProcess::open`](crate::NamedProcess::open)).
    #[must_use]
    pub fn ending_with(mut self, process: Option<OwnedFd>) -> Self {
        self.end_with = process;
        self
    }

    /// Why a task of this run could never run, if it could not.
    pub fn refusal(&self, task: &TaskSpec) -> Option<String> {
        let spec = task.clone().over(&self.defaults);
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
        self.run(&home, &lock, None, Some(source), observer, notices)
    }

    /// Runs it under a number that it has already. `earlier`: it goes on.
    pub(crate) fn run(
        self,
        home: &Home,
        lock: &RunLock,
        earlier: Option<EarlierTasks>,
        source: Option<Box<dyn TaskSource>>,
        observer: &mut dyn Observer,
        notices: &mut Notices<'_>,
    ) -> Result<RunSummary, SessionError> {
        warn_of_network(home, notices);
        let storage = RunStorage::Store(lock, earlier);
        self.keep_and_run(home, storage, source, observer)
    }

    /// Runs a part of a run that is in a store elsewhere, and stays until it is over.
    /// `self` was prepared with what that run says.
    pub fn run_part(
        self,
        part: RunPart,
        observer: &mut dyn Observer,
    ) -> Result<RunSummary, SessionError> {
        let home = part.home.clone();
        ensure_private_folder(&home.run_dir(part.run))?;
        self.keep_and_run(&home, RunStorage::Elsewhere(part), None, observer)
    }

    fn keep_and_run(
        self,
        home: &Home,
        storage: RunStorage<'_>,
        source: Option<Box<dyn TaskSource>>,
        observer: &mut dyn Observer,
    ) -> Result<RunSummary, SessionError> {
        let (spec, devices, settings) = (self.spec, self.devices, self.settings);
        let origin = clock_origin();
        let folder = std::env::current_dir().map_err(system("tell the current folder"))?;
        let mps = spec.pool.mps == Some(true);
        // Before other threads start, which inherit the signal mask.
        let mask = SignalMask::of_this_thread();
        let signals = Signals::block().map_err(system("take over signals"))?;
        request_short_slice();
        let home_id = home.id()?;
        let is_local = self.executor.is_none();
        let most = most_tasks(&storage, source.as_deref());
        let caps = ThreadCaps::new(&spec, &self.defaults, most, devices.cores.len());
        let caps = caps.shared(self.engine.at_a_time(&self.defaults));
        let uuid = storage.uuid().unwrap_or_else(|| new_run_uuid(Timestamp::now()));
        let has_source = source.is_some();
        let units = devices.units.clone();
        let environment = AttemptEnvironment::new(units, caps, mps, RunSeed::of(uuid));
        let executor = match self.executor {
            Some(executor) => executor,
            None => local_executor(&home_id, environment, mps, mask, signals.end_notice())?,
        };
        let mut kept = KeptRun::begin(home, storage, uuid, &spec, &folder)?;
        let run = kept.run;
        // Whoever runs attempts elsewhere has the folders of their results there.
        let own = OwnRun { id: run, uuid };
        let markers = is_local.then(|| kept.markers(home, &home_id, own, &devices.units, &spec));
        let mut warnings = Vec::new();
        let mut warn = |message| warnings.push(message);
        let leases = leases(&spec, &devices, &settings, run, &home_id)
            .map_err(|error| warn(format!("other runs on this machine are not seen: {error}")))
            .unwrap_or_default();
        let mut attributor = Attributor::new(self.ignored, origin);
        let others = leases.as_ref().map(|_| settings.lease_folder());
        let look = devices
            .look
            .map(|look| attributor.first_look(&look, &devices.units, others.as_deref()));
        let sampler = devices
            .driver
            .map(|driver| Sampler::start(driver, &devices.units))
            .transpose()
            .map_err(|error| warn(format!("the GPUs cannot be watched: {error}")))
            .unwrap_or_default();
        let drained = match (&sampler, &mut kept.journal) {
            (Some(_), KeptJournal::Store(journal)) => drained(journal.reader()?, &devices.info)?,
            _ => Vec::new(),
        };
        let journal = kept.journal.after(kept.resumed.map(|_| kept.record))?;
        let parts = SessionParts {
            executor,
            control_folder: Some(home.run_dir(run)),
            control: None,
            mps: mps.then(|| mps_thread(&settings, home, devices.info)).transpose()?,
            attributor,
            file_contents: FileContents::default(),
            journal,
            source: source.unwrap_or_else(|| Box::new(MadeTasks::default())),
            signals,
            end_with: self.end_with,
            sampler,
            leases,
            leaders: LeaderRecord::new(home, run),
            markers,
            given: devices.given,
            home: home_id,
            holds_failures: kept.is_part,
        };
        let new = NewRunInput {
            run,
            total: parts.source.total(),
            defaults: self.defaults.into(),
            batch: spec.batch,
            output: spec.output.unwrap_or_default(),
            folder,
            logs: kept.logs.into(),
            resumed: kept.resumed,
            succeeded_before: kept.before.0,
            failed_before: kept.before.1,
            record: kept.record,
            recoverable: kept.recoverable,
        };
        let (engine, patience) = (self.engine, settings.store_patience);
        let mut session = Session::new(run, engine, parts, observer, origin, patience)?;
        session.dispatch(Input::FirstLook(look.unwrap_or_default()));
        session.dispatch(Input::AddRun(Box::new(new)));
        for (device, reason) in drained {
            session.dispatch(Input::LeaveOut { device, reason });
        }
        for message in warnings {
            session.dispatch(Input::Warning { task: None, message });
        }
        if let Some(time) = kept.time {
            session.dispatch(Input::TimeBudget(Box::new(time.budget(run, origin))));
        }
        if kept.resumed.is_some() {
            session.resume()?;
        }
        if !has_source {
            session.end_source();
        }
        session.run()
    }
}

/// Says what to do about a state folder that several machines see.
fn warn_of_network(home: &Home, notices: &mut Notices<'_>) {
    if let Some(kind) = home.network_filesystem() {
        notices(&format!(
            "warning: the state folder {} is on {kind}: use it from one machine at a time\n\
             hint: set PACKHORSE_HOME to a folder on a local disk",
            home.path().display()
        ));
    }
}

pub(crate) fn engine(
    spec: &RunSpec,
    devices: &Devices,
    settings: &Settings,
) -> Result<Engine, SessionError> {
    let pool = &spec.pool;
    Ok(Engine::new(EngineSettings {
        pool: devices.pool(),
        scheduler: scheduler_settings(pool),
        devices: devices.info.clone(),
        sampled: devices.driver.is_some(),
        silence: settings.gpu_config().driver_patience,
        rest: match pool.rest {
            None => DEFAULT_REST,
            Some(rest) => rest.get().unwrap_or(Duration::MAX),
        },
        leases: uses_leases(spec),
        at_most: pool.at_most,
        mps: (pool.mps == Some(true)).then_some(MpsSettings { threads: pool.thread_percentage }),
        oom_signs: oom_signs(settings)?,
        patience: settings.store_patience,
    })?)
}

/// No more tasks than this will run, if that is known.
fn most_tasks(storage: &RunStorage<'_>, source: Option<&dyn TaskSource>) -> Option<u64> {
    let RunStorage::Store(_, earlier) = storage else {
        return None;
    };
    let left = earlier.as_ref().map_or(0, |earlier| {
        u64::from(earlier.count).saturating_sub(earlier.succeeded + earlier.failed)
    });
    let to_come = source.map_or(Some(0), TaskSource::most);
    to_come.map(|to_come| left.saturating_add(to_come))
}

/// Starts what controls the daemons of MPS.
fn mps_thread(
    settings: &Settings,
    home: &Home,
    devices: Vec<DeviceInfo>,
) -> Result<MpsThread, SessionError> {
    MpsThread::start(settings.gpu_config(), home.path().to_owned(), devices)
        .map_err(system("start a thread"))
}

/// Runs attempts on this machine.
fn local_executor(
    home_id: &str,
    environment: AttemptEnvironment,
    mps: bool,
    mask: SignalMask,
    ends: EndNotice,
) -> Result<Box<dyn Executor>, SessionError> {
    let supervisor = Supervisor::new(SupervisorSettings {
        environment: environment.fixed(),
        hidden: environment.hidden(),
        home_mark: home_id.to_owned(),
        signal_mask: Some(mask),
        children: Children::All(ends),
    })
    .map_err(system("watch processes"))?;
    Ok(Box::new(LocalExecutor { supervisor, environment, hold_end: mps }))
}

/// The moment from which the monotonic clock counts: times since then mean the same in all
/// processes of this machine.
fn clock_origin() -> Instant {
    let reading = clock_gettime(ClockId::Monotonic);
    let now = Instant::now();
    let since = Duration::try_from(reading).unwrap_or_default();
    now.checked_sub(since).unwrap_or(now)
}

pub(crate) fn uses_leases(spec: &RunSpec) -> bool {
    let pool = &spec.pool;
    pool.leases != Some(false) && !pool.as_written && pool.slots.is_none()
}

/// The person's own signs of running out of memory.
fn oom_signs(settings: &Settings) -> Result<OomSigns, SessionError> {
    let Some((path, text)) = settings.oom_texts()? else {
        return Ok(OomSigns::default());
    };
    Ok(OomSigns::parse(&path, &text)?)
}

/// Makes ourselves known to other runs, and them to us.
fn leases(
    spec: &RunSpec,
    devices: &Devices,
    settings: &Settings,
    run: RunId,
    home: &str,
) -> Result<Option<Leases>, LeaseError> {
    if !uses_leases(spec) || devices.units.is_empty() {
        return Ok(None);
    }
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let owner = LeaseOwner {
        user: user(),
        run: Some(run),
        command: words.join(" "),
        home: home.to_owned(),
    };
    Leases::open(&settings.lease_folder(), owner).map(Some)
}

/// Who we are, if the environment tells. Else whoever reads the lease looks it up.
fn user() -> String {
    let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    name.unwrap_or_default()
}

/// A run, and who keeps what becomes of it.
struct KeptRun {
    run: RunId,
    logs: PathBuf,
    journal: KeptJournal,
    /// How many tasks there were before; `None` for a new run.
    resumed: Option<u32>,
    /// How many of them succeeded and failed, and do not run again.
    before: (u64, u64),
    /// The place of the record that makes the run known.
    record: u64,
    recoverable: bool,
    /// When its time is over, if that is known.
    time: Option<PartTime>,
    /// Whether there is more of it elsewhere.
    is_part: bool,
}

enum KeptJournal {
    Store(Box<StoreJournal>),
    Elsewhere(Box<dyn Journal>),
}

impl KeptJournal {
    /// The journal, once this record is in it.
    fn after(self, record: Option<u64>) -> Result<Box<dyn Journal>, SessionError> {
        match self {
            Self::Store(mut journal) => {
                record.map_or(Ok(()), |record| journal.wait_for(record))?;
                Ok(journal)
            }
            Self::Elsewhere(journal) => Ok(journal),
        }
    }
}

impl KeptRun {
    fn begin(
        home: &Home,
        storage: RunStorage<'_>,
        uuid: Uuid,
        spec: &RunSpec,
        folder: &Path,
    ) -> Result<Self, SessionError> {
        let (lock, earlier) = match storage {
            RunStorage::Store(lock, earlier) => (lock, earlier),
            RunStorage::Elsewhere(part) => {
                return Ok(Self {
                    run: part.run,
                    logs: part.logs,
                    journal: KeptJournal::Elsewhere(part.journal),
                    resumed: Some(part.last),
                    before: (0, 0),
                    record: 0,
                    recoverable: false,
                    time: part.time,
                    is_part: true,
                });
            }
        };
        let run = lock.run();
        let mut journal = StoreJournal::new(home)?;
        let resumed = earlier.as_ref().map(|earlier| earlier.count);
        let before = earlier.as_ref();
        let before = before.map_or((0, 0), |earlier| (earlier.succeeded, earlier.failed));
        let record = begin(&mut journal, run, earlier, uuid, spec, folder);
        Ok(Self {
            run,
            logs: home.log_dir(run),
            resumed,
            before,
            record,
            recoverable: journal.is_recoverable(run),
            journal: KeptJournal::Store(Box::new(journal)),
            time: None,
            is_part: false,
        })
    }

    /// The markers of its tasks. A job on a cluster cannot look into the person's state folder.
    fn markers(
        &self,
        home: &Home,
        home_id: &str,
        own: OwnRun,
        units: &[Unit],
        spec: &RunSpec,
    ) -> Markers {
        let home = (!self.is_part).then(|| home.clone());
        Markers::new(units, KnownHome::of_run(home_id, home, own, spec), spec)
    }
}

/// Writes down how the run begins. Returns the place of the last record about that.
fn begin(
    journal: &mut StoreJournal,
    run: RunId,
    earlier: Option<EarlierTasks>,
    uuid: Uuid,
    spec: &RunSpec,
    folder: &Path,
) -> u64 {
    let names = rustix::system::uname();
    let host = names.nodename().to_string_lossy().into_owned();
    let pid = std::process::id();
    if let Some(earlier) = earlier {
        let host = host.into();
        journal.send(Record::RunResumed { run, pid, host });
        let tasks = earlier.reopened.into();
        return journal.send(Record::Reopened { run, tasks });
    }
    let facts = Box::new(NewRun {
        uuid,
        started: Timestamp::now(),
        cwd: folder.to_owned(),
        argv: std::env::args_os().collect(),
        host,
        pid,
        spec: spec.clone(),
    });
    journal.send(Record::NewRun { run, facts })
}

/// The devices that an earlier run found broken, and why.
pub(crate) fn drained(
    reader: &Reader,
    devices: &[DeviceInfo],
) -> Result<Vec<(DeviceId, String)>, SessionError> {
    let drained = reader.drained()?;
    let devices = devices.iter().zip(0..);
    let broken = devices.filter_map(|(device, number)| {
        let mut drained = drained.iter();
        let broken = drained.find(|drained| device.keys.contains(&drained.device))?;
        Some((DeviceId(number), broken.reason.clone()))
    });
    Ok(broken.collect())
}
