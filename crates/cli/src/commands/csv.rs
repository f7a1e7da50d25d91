use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use packhorse_intake::csv::{self, Header, Row, places};
use packhorse_intake::{Problem as _, Vram, Weight};
use packhorse_model::{Command, Exit};
use packhorse_runner::{Input, overrides};
use packhorse_store::{Home, NewTask};

use super::Order;
use super::consuming::{Rows, consuming, take_out_left};
use super::launch::{output, reporter};
use super::mistakes::Mistakes;
use super::pool;
use super::run::give_back_files;
use super::wishes::Wishes;
use crate::args::CsvArgs;
use crate::saved::{Saved, SavedCsv, SavedRows};
use crate::{complain, terminal};

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
    if args.consume {
        take_out_left(&path)?;
    }
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
    let mut order = Order::new(&args.pool, &args.task, output(&args.output), Input::None)?;
    let mut wishes = Wishes::default();
    let name = path.display().to_string();
    for row in &rows {
        wishes.note(&name, row.line, &row.options);
    }
    wishes.check(&order.places, &order.defaults)?;
    order.input = Input::Made(tasks(&rows, num, args.id)?);
    saved_csv.apply(&mut order.defaults);
    let mut saved = Saved::new(&args.pool, &args.task, None);
    saved.csv = Some(saved_csv.clone());
    let rows = saved_csv.consume.map(Rows::new);
    let mut reporter = consuming(reporter(&args.output, &order.input), rows);
    Ok(order.launch(&saved, &mut *reporter)?.exit)
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
        Ok(table) => (table.rows, table.warnings),
        Err(mistakes) => (Vec::new(), mistakes),
    };
    let (mut errors, mut warnings) = (Mistakes::default(), Mistakes::default());
    for mistake in &mistakes {
        let told = match mistake.problem().weight() {
            Weight::Error => &mut errors,
            Weight::Warning => &mut warnings,
        };
        told.tell(|| mistake.render(&name, terminal::colour()));
    }
    warnings.tell_rest();
    errors.refuse("nothing was started")?;
    Ok(rows)
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
