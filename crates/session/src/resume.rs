//! Going on with a run.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use packhorse_intake::grid::Grid;
use packhorse_intake::lines::Separator;
use packhorse_intake::sweep::SweepLanguage;
use packhorse_intake::{Colour, TaskLanguage};
use packhorse_model::{
    GpuRequest, GridSpec, OutputMode, PoolSpec, RunId, RunSpec, RunSummary, SourceSpec,
    VramRequest, printable,
};
use packhorse_store::{Home, Reader, RunLock, StoredRun, TaskFilter};
use packhorse_trust::ensure_private_folder;

use crate::consume::{ConsumedFile, consuming};
use crate::experiments::{experiments_source, open_experiments};
use crate::grid::{grid_source, read_grid};
use crate::input_files::open_again;
use crate::launch::{EarlierTasks, Launch};
use crate::leaders::end_left_running;
use crate::lookup::{check_can_go_on, each_task, find_run, stored_run};
use crate::observer::Observer;
use crate::scheduler_log::SchedulerLog;
use crate::settings::{Settings, without_gpus};
use crate::source::{ReadTasks, TaskSource};
use crate::sweep::{build_sweep, sweep_source};
use crate::{Notices, SessionError};

/// Which tasks of a run are to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichTasks {
    /// Those that are not settled: `packhorse resume`
    Unfinished,
    /// Those that failed as well: `packhorse retry`
    Failed,
}

/// A run that could go on now.
pub struct Resume {
    home: Home,
    lock: RunLock,
    run: StoredRun,
    spec: RunSpec,
    reopened: Vec<u32>,
    source: Option<Box<dyn TaskSource>>,
    rows: Option<ConsumedFile>,
    grid: Option<Rc<Grid>>,
}

impl Resume {
    /// Takes a run that nobody is at work on.
    pub fn open(
        run: Option<&str>,
        which: WhichTasks,
        colour: Colour,
    ) -> Result<Self, SessionError> {
        let home = Home::locate()?;
        let reader = Reader::open(&home)?;
        let id = find_run(&reader, run)?.id;
        check_can_go_on(&reader, id)?;
        // Its folder may have been removed to save space.
        ensure_private_folder(&home.run_dir(id))?;
        // From here on nobody else works on it.
        let lock = home.lock_run(id)?;
        // The process that had it may have written more until then.
        let run = stored_run(&reader, id)?;
        let spec = reader.run_spec(id).map_err(SessionError::RunSettings)?;
        let spec = spec.unwrap_or_default();
        let reopened = match which {
            WhichTasks::Unfinished => Vec::new(),
            WhichTasks::Failed => failed(&reader, id)?,
        };
        let rows = match &spec.source {
            SourceSpec::Csv { consume } => consume.clone(),
            _ => None,
        };
        let rows =
            rows.map(|rows| ConsumedFile::left_by(&run, rows, &home, &reader)).transpose()?;
        let tasks = u32::try_from(run.counts.total()).unwrap_or(u32::MAX);
        let grid = match &spec.source {
            SourceSpec::Grid(grid) => Some(read_saved_grid(grid, colour)?),
            _ => None,
        };
        let source = match (&spec.source, &grid) {
            _ if run.input_complete => None,
            (SourceSpec::Experiments(spec), _) => {
                let experiments = Rc::new(open_experiments(spec, colour)?);
                Some(experiments_source(spec, experiments, tasks))
            }
            (SourceSpec::Grid(spec), Some(grid)) => Some(grid_source(spec, Rc::clone(grid), tasks)),
            (source, _) => rest_of(source, tasks, colour)?,
        };
        Ok(Self { home, lock, run, spec, reopened, source, rows, grid })
    }

    /// The run as it is in the store.
    pub fn run(&self) -> &StoredRun {
        &self.run
    }

    fn unread_input(&self) -> String {
        let id = self.run.id;
        format!(
            "warning: run {id} had not read all of its input when it ended, and cannot read it again"
        )
    }

    /// The file of settings that was named when the run was made.
    pub fn config(&self) -> Option<&Path> {
        self.spec.config.as_deref()
    }

    /// What it was made with.
    pub fn spec(&self) -> &RunSpec {
        &self.spec
    }

    /// Whether there is nothing to do. What rows are still in their file are taken out,
    /// and what the run's own process could not record of its end is.
    pub fn is_done(&mut self, notices: &mut Notices<'_>) -> bool {
        let done =
            self.reopened.is_empty() && self.run.counts.unfinished() == 0 && self.source.is_none();
        if done && !self.run.input_complete {
            notices(&self.unread_input());
        }
        if done
            && (self.run.ended.is_none() || !self.run.input_complete)
            && let Err(error) = self.home.settle_run(&self.lock)
        {
            notices(&format!("warning: {error}"));
        }
        if done && let Some(Err(message)) = self.rows.as_mut().map(ConsumedFile::take_out_at_last) {
            notices(&format!("warning: {message}"));
        }
        done
    }

    /// Goes on with it, where `pool` says or else where it ran before.
    pub fn start(
        self,
        pool: PoolSpec,
        output: Option<OutputMode>,
        colour: Colour,
        settings: &Settings,
        observer: Box<dyn Observer>,
        notices: &mut Notices<'_>,
    ) -> Result<RunSummary, SessionError> {
        if !self.run.input_complete && self.source.is_none() {
            notices(&(self.unread_input() + "; what it had read goes on"));
        }
        let (home, run, mut spec) = (self.home, self.run, self.spec);
        let id = run.id;
        std::env::set_current_dir(&run.cwd).map_err(|error| {
            let folder = run.cwd.display().to_string();
            let folder = printable(&folder);
            SessionError::Rendered(format!("cannot go back to the run's folder {folder}: {error}"))
        })?;
        end_leftovers(&home, id, notices)?;
        move_to(&mut spec, pool, id, notices);
        spec.output = output.or(spec.output);
        spec.config = settings.named().map(Path::to_owned);
        let observer = match (&spec.source, &self.grid) {
            (SourceSpec::Grid(spec), Some(grid)) => {
                SchedulerLog::beside(observer, spec, grid, std::iter::empty())?
            }
            _ => observer,
        };
        let launch = Launch::prepare(spec, colour, settings, notices)?;
        let count = u32::try_from(run.counts.total()).unwrap_or(u32::MAX);
        let earlier = EarlierTasks {
            uuid: run.uuid,
            succeeded: run.counts.succeeded,
            failed: (run.counts.failed).saturating_sub(self.reopened.len() as u64),
            reopened: self.reopened,
            count,
        };
        let mut observer = consuming(observer, self.rows);
        let (lock, source) = (&self.lock, self.source);
        launch.run(&home, lock, Some(earlier), source, &mut *observer, notices)
    }
}

/// Has a run go on elsewhere. What was said of GPUs means nothing in slots, nor does `-g 0`
/// on GPUs.
fn move_to(spec: &mut RunSpec, pool: PoolSpec, id: RunId, notices: &mut Notices<'_>) {
    let leaves_gpus = spec.pool.slots.is_none() && pool.slots.is_some();
    if leaves_gpus {
        let vram = match spec.defaults.vram {
            Some(VramRequest::Bytes(bytes)) => Some(bytes.to_string()),
            vram => vram.map(|vram| vram.to_string()),
        };
        if let Some(vram) = vram {
            notices(&format!(
                "warning: with --slots nobody counts GPU memory, so --vram {vram} of run {id} is left aside"
            ));
        }
        without_gpus(&mut spec.defaults);
        spec.pool = PoolSpec {
            ageing: pool.ageing.or(spec.pool.ageing),
            equal_cores: pool.equal_cores.or(spec.pool.equal_cores),
            thread_caps: pool.thread_caps.or(spec.pool.thread_caps),
            ..pool
        };
        return;
    }
    spec.pool = pool.over(&spec.pool);
    if spec.pool.slots.is_none() && spec.defaults.gpus == Some(GpuRequest::None) {
        spec.defaults.gpus = None;
    }
}

/// The grid as it was when the run began.
fn read_saved_grid(spec: &GridSpec, colour: Colour) -> Result<Rc<Grid>, SessionError> {
    let command = spec.command.as_ref();
    let grid = read_grid(&spec.text, spec.language, command, "the run's grid", colour)?;
    Ok(Rc::new(grid))
}

/// What is still to be read or made, if it can be read again.
fn rest_of(
    source: &SourceSpec,
    tasks: u32,
    colour: Colour,
) -> Result<Option<Box<dyn TaskSource>>, SessionError> {
    let (files, language) = match source {
        SourceSpec::Lines { files, null } => {
            (files, TaskLanguage::Lines(Separator::null_if(*null)))
        }
        SourceSpec::TaskLines { files } => (files, TaskLanguage::TaskLines),
        SourceSpec::Sweep(spec) => {
            let sweep = build_sweep(spec, SweepLanguage::Packhorse, colour)?;
            return Ok(Some(sweep_source(sweep, tasks)?));
        }
        SourceSpec::Nowhere
        | SourceSpec::Csv { .. }
        | SourceSpec::Grid(_)
        | SourceSpec::Experiments(_) => return Ok(None),
    };
    // They were looked through when the run was made, and are the same.
    let read_on = |streams| ReadTasks::new(streams, language, tasks);
    Ok(open_again(files).map(|streams| Box::new(read_on(streams)) as Box<dyn TaskSource>))
}

fn failed(reader: &Reader, run: RunId) -> Result<Vec<u32>, SessionError> {
    let mut numbers = Vec::new();
    each_task(reader, run, TaskFilter::Failed, |listed| {
        numbers.push(listed.task.id.number);
        Ok::<_, SessionError>(())
    })?;
    Ok(numbers)
}

/// A run that was killed leaves its tasks behind. They would run twice.
fn end_leftovers(home: &Home, run: RunId, notices: &mut Notices<'_>) -> Result<(), SessionError> {
    let what = match end_left_running(home, run, Duration::ZERO)? {
        0 => return Ok(()),
        1 => format!("a process of run {run} still ran and was ended"),
        many => format!("{many} processes of run {run} still ran and were ended"),
    };
    notices(&format!("warning: {what}"));
    Ok(())
}
