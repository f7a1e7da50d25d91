use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use packhorse_intake::csv::{self, Header, Row, consume, places};
use packhorse_intake::{Problem as _, Vram, Weight};
use packhorse_model::{Command, Exit, RunId};
use packhorse_runner::{Event, Input, Line, Reporter, overrides};
use packhorse_store::{Home, NewTask};

use super::Order;
use super::launch::{output, reporter};
use super::pool;
use super::run::give_back_files;
use crate::args::CsvArgs;
use crate::saved::{Saved, SavedCsv, SavedRows};
use crate::{complain, terminal, wording};

/// The counter that ids come from.
const COUNTER: &str = "csv";

/// `packhorse csv`
pub fn csv(mut args: CsvArgs) -> anyhow::Result<Exit> {
    let mut files: Vec<PathBuf> = args.file.or(args.csv).into_iter().collect();
    give_back_files(&mut args.pool.gpus, &mut files);
    let path = files.into_iter().next().context(
        "no file was given\nhint: `packhorse csv tasks.csv`, with the file before --gpus",
    )?;
    let header: Header = args.header.parse()?;
    let num = NonZeroU32::new(args.num).context("a batch has at least one row")?;
    let bytes = fs_err::read(&path)?;
    let python = whole_path(&args.python)?;
    let rows = read(&path, &bytes, header, &python)?;
    let name = python.as_bytes();
    let is_python = |row: &Row| row.words.first().is_some_and(|word| word == name);
    if rows.iter().any(is_python) {
        check_python(Path::new(&python))?;
    }
    if rows.is_empty() {
        complain(&format!("{} has no rows", path.display()));
        return Ok(Exit::Success);
    }
    // Tasks are packed by memory unless somebody says how.
    let said = args.task.vram.is_some() || args.task.gpus_per_task.is_some();
    if !said && args.pool.slots.is_none() {
        if pool::has_driver() {
            args.task.vram = Some(Vram::Auto);
        } else {
            complain("warning: there is no GPU driver to ask, so each task has a GPU to itself");
        }
    }
    if args.pool.mps.is_none() && args.pool.slots.is_none() {
        args.pool.mps = Some(has_mps());
    }
    let saved_csv = SavedCsv {
        num,
        probe_epochs: args.probe_epochs,
        consume: args.consume.then(|| SavedRows {
            path: path.clone(),
            header: args.header.clone(),
            rows: rows
                .iter()
                .map(|row| bytes[row.record.clone()].to_vec())
                .collect(),
        }),
    };
    // Ids are taken only when nothing can be wrong any more.
    let mut order = Order::new(
        &args.pool,
        &args.task,
        output(&args.output),
        Input::None,
        &[],
    )?;
    order.input = Input::Made(tasks(&rows, num, args.id)?);
    saved_csv.apply(&mut order.defaults);
    let mut saved = Saved::new(&args.pool, &args.task, None);
    saved.csv = Some(saved_csv.clone());
    let mut reporter = consuming(reporter(&args.output, &order.input), Some(saved_csv), &[]);
    order.launch(&saved, &mut *reporter)
}

/// Reads the file, or says everything that is wrong with it.
fn read(path: &Path, bytes: &[u8], header: Header, python: &OsStr) -> anyhow::Result<Vec<Row>> {
    let base = std::env::current_dir().context("cannot tell the current folder")?;
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let settings = csv::Settings {
        header,
        base: &base,
        python,
        path: &programs,
    };
    let name = path.display().to_string();
    let (rows, mistakes) = match csv::read(bytes, &settings) {
        Ok(table) => (Some(table.rows), table.warnings),
        Err(mistakes) => (None, mistakes),
    };
    for mistake in &mistakes {
        complain(&mistake.render(&name, terminal::colour()));
    }
    let wrong = mistakes
        .iter()
        .filter(|mistake| mistake.problem().weight() == Weight::Error)
        .count();
    rows.with_context(|| {
        format!(
            "nothing was started because of {}",
            wording::count(wrong as u128, "mistake")
        )
    })
}

/// A program as it can be run from any folder.
fn whole_path(name: &str) -> anyhow::Result<OsString> {
    Ok(if name.contains('/') {
        std::path::absolute(name)?.into()
    } else {
        name.into()
    })
}

/// Whether rows whose executable is -1 can be run.
fn check_python(python: &Path) -> anyhow::Result<()> {
    if python.is_file() || (!python.is_absolute() && is_on_path(python)) {
        return Ok(());
    }
    bail!(
        "there is no program {}\nhint: say which Python with --python",
        python.display()
    );
}

/// Whether a program of this name can be found.
fn is_on_path(name: &Path) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// Whether MPS could be used here.
fn has_mps() -> bool {
    let program = packhorse_gpu::Config::from_env().mps_control;
    if program.components().count() > 1 {
        return program.exists();
    }
    is_on_path(&program)
}

fn tasks(rows: &[Row], num: NonZeroU32, first: Option<u64>) -> anyhow::Result<Vec<NewTask>> {
    let count = u32::try_from(rows.len()).context("there are too many rows")?;
    let first = match first {
        Some(first) => first,
        None => Home::locate()?.next_ids(COUNTER, count)?,
    };
    if first.checked_add(u64::from(count)).is_none() {
        bail!("ids from {first} on would be too large for {count} rows");
    }
    let places = places(rows, num);
    let made = rows
        .iter()
        .zip(places)
        .zip(1..)
        .map(|((row, place), number)| {
            let id = first + u64::from(place.number);
            let mut own = overrides(&row.options);
            own.folder = Some(row.directory.clone());
            NewTask {
                name: row.options.name.as_deref().map(Into::into),
                overrides: Some(Box::new(own)),
                ..NewTask::plain(number, Command::Words(row.command(id)))
            }
        });
    Ok(made.collect())
}

/// Takes rows out of the file as their tasks succeed, if that is wanted.
/// `succeeded` are the numbers of tasks that earlier sessions brought to their
/// end: some of their rows may still be there.
pub fn consuming(
    inner: Box<dyn Reporter>,
    csv: Option<SavedCsv>,
    succeeded: &[u32],
) -> Box<dyn Reporter> {
    match csv.and_then(|csv| csv.consume) {
        Some(rows) => Box::new(Consuming {
            inner,
            rows,
            finished: succeeded.to_vec(),
            record: None,
        }),
        None => inner,
    }
}

struct Consuming {
    inner: Box<dyn Reporter>,
    rows: SavedRows,
    /// Tasks that have succeeded, and whose rows are still in the file.
    finished: Vec<u32>,
    /// Where it is written down whose rows were taken out: a row that the person
    /// puts back is for another run.
    record: Option<PathBuf>,
}

impl Consuming {
    fn begin(&mut self, run: RunId) {
        let Ok(home) = Home::locate() else {
            return;
        };
        let record = home.run_dir(run).join("consumed");
        let before = fs_err::read_to_string(&record).unwrap_or_default();
        let before: HashSet<u32> = before
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        self.finished.retain(|number| !before.contains(number));
        self.record = Some(record);
        self.take_out(false);
    }

    fn take_out(&mut self, last: bool) {
        if self.finished.is_empty() {
            return;
        }
        let header = self.rows.header.parse().unwrap_or(Header::None);
        let rows = self.finished.iter();
        let rows = rows.filter_map(|&number| self.rows.rows.get(number as usize - 1));
        match consume(&self.rows.path, header, rows.map(Vec::as_slice)) {
            Ok(_) => self.write_down(),
            // Somebody has it open; there will be another time.
            Err(csv::ConsumeError::Busy { .. }) if !last => return,
            Err(error) => {
                let path = self.rows.path.display();
                let message = format!("finished rows stay in {path}: {error}");
                self.inner.event(&Event::Warning {
                    task: None,
                    message,
                });
            }
        }
        self.finished.clear();
    }

    fn write_down(&self) {
        let Some(record) = &self.record else {
            return;
        };
        let mut lines = String::new();
        for number in &self.finished {
            lines.push_str(&number.to_string());
            lines.push('\n');
        }
        let mut options = fs_err::OpenOptions::new();
        let file = options.create(true).append(true).open(record);
        // Without it, a later session looks for these rows once more.
        let _ = file.and_then(|mut file| file.write_all(lines.as_bytes()));
    }
}

impl Reporter for Consuming {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Finished(finished) if finished.outcome.is_success() => {
                // Told only once the store has it, so nothing is lost here.
                self.finished.push(finished.task.number);
                self.take_out(false);
            }
            Event::RunStarted { run, .. } => self.begin(*run),
            Event::RunEnded(_) => self.take_out(true),
            _ => {}
        }
        self.inner.event(event);
    }

    fn show(&mut self, now: Instant, line: &dyn Line) -> Option<Instant> {
        self.inner.show(now, line)
    }
}
