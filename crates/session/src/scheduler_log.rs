//! The file in which the original says which GPU took which test.
//!
//! ```text
//! 2026-11-17 20:15:01 gpu0 receives task method-GAN,num_zmode-1,
//! 2026-11-17 20:15:04 gpu0 finishes task method-GAN,num_zmode-1,
//! 2026-11-17 20:15:04 gpu0 finished
//! ```

use std::fmt;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use fs_err::{File, OpenOptions};
use jiff::tz::TimeZone;
use packhorse_intake::grid::Grid;
use packhorse_model::{Event, EventKind, GridSpec, TaskId, Timestamp};
use rustc_hash::FxHashMap;

use crate::SessionError;
use crate::grid::GridPlaces;
use crate::observer::{Observer, QueueView};

/// An observer beside another one, which writes that file.
pub struct SchedulerLog {
    shown: Box<dyn Observer>,
    file: BufWriter<File>,
    zone: TimeZone,
    grid: Rc<Grid>,
    places: GridPlaces,
    /// The GPUs, in the order in which they were given.
    gpus: Vec<String>,
    /// The GPU of each test that runs, by its place in that order.
    running: FxHashMap<TaskId, usize>,
}

impl SchedulerLog {
    /// Opens the file, which goes on where it ended, if the grid wants one.
    pub fn beside(
        shown: Box<dyn Observer>,
        spec: &GridSpec,
        grid: &Rc<Grid>,
        skipped: impl IntoIterator<Item = u32>,
    ) -> Result<Box<dyn Observer>, SessionError> {
        let Some(path) = &grid.scheduler().scheduler_log else {
            return Ok(shown);
        };
        if let Some(folder) = Path::new(path).parent()
            && !folder.as_os_str().is_empty()
        {
            fs_err::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut log = Self {
            shown,
            file: BufWriter::new(file),
            zone: TimeZone::system(),
            grid: Rc::clone(grid),
            places: GridPlaces::new(&spec.places),
            gpus: Vec::new(),
            running: FxHashMap::default(),
        };
        // What is done is known before any GPU asks for it: the first one skips it.
        let now = Timestamp::now();
        for place in skipped {
            let name = grid.folder_name(place);
            log.line(now, format_args!("gpu0 skips task {name}"));
        }
        Ok(Box::new(log))
    }

    /// Writes a line. A log that cannot be written ends no run.
    fn line(&mut self, time: Timestamp, text: fmt::Arguments<'_>) {
        let time = jiff::Timestamp::from_microsecond(time.0).unwrap_or_default();
        let time = time.to_zoned(self.zone.clone());
        let time = time.strftime("%Y-%m-%d %H:%M:%S");
        let _ = writeln!(self.file, "{time} {text}");
    }

    fn name(&self, task: TaskId) -> String {
        let number = task.number.saturating_sub(1);
        self.grid.folder_name(self.places.of(number))
    }
}

impl Observer for SchedulerLog {
    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { gpus, .. } => self.gpus.clone_from(gpus),
            EventKind::Started { task, gpus, .. } => {
                let gpu = gpus.first().and_then(|gpu| self.gpus.iter().position(|it| it == gpu));
                let gpu = gpu.unwrap_or(0);
                if self.running.insert(*task, gpu).is_none() {
                    let name = self.name(*task);
                    self.line(event.time, format_args!("gpu{gpu} receives task {name}"));
                }
            }
            EventKind::Finished(result) => {
                if let Some(gpu) = self.running.remove(&result.task) {
                    let name = self.name(result.task);
                    self.line(event.time, format_args!("gpu{gpu} finishes task {name}"));
                }
            }
            EventKind::RunEnded(_) => {
                for gpu in 0..self.gpus.len().max(1) {
                    self.line(event.time, format_args!("gpu{gpu} finished"));
                }
                let _ = self.file.flush();
            }
            _ => {}
        }
        self.shown.event(event);
    }

    fn show(&mut self, now: Instant, queue: &dyn QueueView) -> Option<Instant> {
        let _ = self.file.flush();
        self.shown.show(now, queue)
    }

    fn resized(&mut self) {
        self.shown.resized();
    }

    fn suspended(&mut self) {
        self.shown.suspended();
    }

    fn continued(&mut self) {
        self.shown.continued();
    }
}
