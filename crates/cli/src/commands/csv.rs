use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use packhorse_intake::csv::{self, CsvSettings, Header, Row, turns};
use packhorse_intake::{InputProblem as _, LONGEST_LINE, Severity};
use packhorse_model::{
    ByteString, ConsumedRows, Exit, ProbeSpec, SourceSpec, TaskSpec, VramRequest,
};
use packhorse_proc::{LARGEST_TABLE, read_regular, read_whole};
use packhorse_session::{
    ConsumedFile, MadeTasks, TaskChecks, consume_leftovers, consuming, has_driver, has_mps,
    is_on_path,
};
use packhorse_store::Home;

use super::launch::{DoorRun, Order, observer};
use super::mistakes::Mistakes;
use super::run::{give_back_files, refuse_impossible};
use super::slurm::{ClusterLaunch, launch};
use crate::args::CsvArgs;
use crate::{complain, terminal};

/// The counter that ids come from.
const COUNTER: &str = "csv";

/// A file of rows that could be run.
struct CsvRun {
    order: Order,
    rows: Vec<Row>,
    num: NonZeroU32,
    checks: TaskChecks,
}

/// `packhorse csv`
pub fn csv(mut args: CsvArgs) -> anyhow::Result<Exit> {
    let path = path_of(&mut args)?;
    if args.consume && path.is_file() {
        consume_leftovers(&path, &mut complain)?;
    }
    let bytes = read_table(&path, args.consume)?;
    let mut run = read_csv(&args, &path, &bytes, "nothing was started")?;
    if run.rows.is_empty() {
        complain(&format!("{} has no rows", path.display()));
        return Ok(Exit::Success);
    }
    let consume = args.consume.then(|| ConsumedRows {
        path: path.clone(),
        header: args.header.clone(),
        rows: run.rows.iter().map(|row| ByteString(bytes[row.record.clone()].to_vec())).collect(),
    });
    run.order.spec.source = SourceSpec::Csv { consume: consume.clone() };
    if run.order.spec.slurm.is_some() {
        return on_slurm(&args, run, consume);
    }
    let (rows, num) = (run.rows, run.num);
    let shown = observer(&args.launch.output, &run.order.spec, run.order.spec.output, false);
    let prepared = run.order.prepare()?;
    refuse_impossible(&run.checks, &prepared)?;
    // Ids are taken only when nothing can be wrong any more.
    let first = match args.id {
        Some(first) => first,
        None => Home::locate()?.next_ids(COUNTER, count(&rows)?)?,
    };
    let source = Box::new(MadeTasks::new(tasks(&rows, num, first)?));
    let rows = consume.map(ConsumedFile::new);
    let mut observer = consuming(shown, rows);
    let summary = prepared.start(source, &mut *observer, &mut complain)?;
    Ok(summary.exit)
}

/// Hands the rows to a cluster.
fn on_slurm(args: &CsvArgs, run: CsvRun, consume: Option<ConsumedRows>) -> anyhow::Result<Exit> {
    if args.consume && !args.launch.slurm.wait {
        bail!(
            "--consume takes rows out when they have succeeded\nhint: add --wait to stay until then"
        );
    }
    let first = match args.id {
        Some(first) => first,
        None if args.dry_run => 1,
        None => Home::locate()?.next_ids(COUNTER, count(&run.rows)?)?,
    };
    let door = DoorRun {
        order: run.order,
        source: Box::new(MadeTasks::new(tasks(&run.rows, run.num, first)?)),
        checks: run.checks,
    };
    let how = ClusterLaunch::new(&args.launch, args.dry_run);
    let rows = consume.map(ConsumedFile::new);
    launch(door, how, |shown| Ok(consuming(shown, rows)))
}

/// What would be run. No ids are taken.
pub fn open_csv(args: &mut CsvArgs, consequence: &str) -> anyhow::Result<DoorRun> {
    let path = path_of(args)?;
    let run = read_csv(args, &path, &read_table(&path, args.consume)?, consequence)?;
    let tasks = tasks(&run.rows, run.num, args.id.unwrap_or(1))?;
    Ok(DoorRun { order: run.order, source: Box::new(MadeTasks::new(tasks)), checks: run.checks })
}

/// The file that is meant.
fn path_of(args: &mut CsvArgs) -> anyhow::Result<PathBuf> {
    let file = args.file.take().or(args.csv.take());
    let mut files: Vec<PathBuf> = file.into_iter().collect();
    give_back_files(&mut args.launch.pool.gpus, &mut files)?;
    match files.as_slice() {
        [] => {
            bail!("no file was given\nhint: `packhorse csv tasks.csv`, with the file before --gpus")
        }
        [path] => Ok(path.clone()),
        [_, other, ..] => bail!(
            "`{}` is one file too many\nhint: run the files one after the other",
            other.display()
        ),
    }
}

/// Reads the table. With `--consume` the file is replaced later, so it must be regular.
fn read_table(path: &Path, consume: bool) -> std::io::Result<Vec<u8>> {
    let read = if consume { read_regular } else { read_whole };
    read(path, LARGEST_TABLE)
}

/// Reads the file, and works out what its run is like. `consequence` is what is not done
/// if something is wrong with it.
fn read_csv(
    args: &CsvArgs,
    path: &Path,
    bytes: &[u8],
    consequence: &str,
) -> anyhow::Result<CsvRun> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    if let Some(line) = lines.position(|line| line.len() > LONGEST_LINE) {
        let (file, line) = (path.display(), line + 1);
        bail!("{file}:{line}: this line is longer than 16 MiB\nhint: is it a table of commands?");
    }
    let header: Header = args.header.parse()?;
    let num = NonZeroU32::new(args.num).context("a batch has at least one row")?;
    let python = whole_path(&args.python)?;
    let rows = read(path, bytes, header, &python, consequence)?;
    let name = python.as_bytes();
    let is_python = |row: &Row| row.words.first().is_some_and(|word| word == name);
    if rows.iter().any(is_python) {
        check_python(Path::new(&python))?;
    }
    let mut order = Order::new(&args.launch)?;
    let gpu_config = order.settings.gpu_config();
    let spec = &mut order.spec;
    // Tasks are packed by memory unless somebody says how.
    let said = spec.defaults.vram.is_some() || spec.defaults.gpus.is_some();
    let is_here = spec.slurm.is_none();
    if !rows.is_empty() && !said && spec.pool.slots.is_none() && is_here {
        if has_driver(&gpu_config, &mut complain) {
            spec.defaults.vram = Some(VramRequest::Auto);
        } else {
            complain("warning: there is no GPU driver to ask, so each task has a GPU to itself");
        }
    }
    if spec.pool.mps.is_none() && spec.pool.slots.is_none() && is_here {
        spec.pool.mps = Some(has_mps(&gpu_config));
    }
    spec.batch = Some(num);
    if args.probe_epochs > 0 && spec.defaults.probe.is_none() {
        spec.defaults.probe = Some(ProbeSpec::Epochs(args.probe_epochs));
    }
    let mut checks = TaskChecks::new(&order.spec.defaults);
    let name = path.display().to_string();
    let mut mistakes = Mistakes::default();
    for row in &rows {
        checks.note(&name, row.line, &row.spec);
        if let Err(shared) = checks.take_paths(&name, row.line, &row.spec) {
            mistakes.tell(|| crate::wording::message(shared));
        }
    }
    mistakes.refuse(consequence)?;
    Ok(CsvRun { order, rows, num, checks })
}

/// Reads the file, or says everything that is wrong with it.
fn read(
    path: &Path,
    bytes: &[u8],
    header: Header,
    python: &OsStr,
    consequence: &str,
) -> anyhow::Result<Vec<Row>> {
    let base = std::env::current_dir().context("cannot tell the current folder")?;
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let settings = CsvSettings { header, base: &base, python, path: &programs };
    let name = path.display().to_string();
    let (rows, mistakes) = match csv::read(bytes, &settings) {
        Ok(table) => (table.rows, table.warnings),
        Err(mistakes) => (Vec::new(), mistakes),
    };
    let (mut errors, mut warnings) = (Mistakes::default(), Mistakes::default());
    for mistake in &mistakes {
        let told = match mistake.problem().severity() {
            Severity::Error => &mut errors,
            Severity::Warning => &mut warnings,
        };
        told.tell(|| mistake.render(&name, terminal::colour()));
    }
    warnings.tell_rest();
    errors.refuse(consequence)?;
    Ok(rows)
}

/// A program as it can be run from any folder.
fn whole_path(name: &str) -> anyhow::Result<OsString> {
    Ok(if name.contains('/') { std::path::absolute(name)?.into() } else { name.into() })
}

/// Whether rows whose executable is -1 can be run.
fn check_python(python: &Path) -> anyhow::Result<()> {
    if python.is_file() || (!python.is_absolute() && is_on_path(python)) {
        return Ok(());
    }
    bail!("there is no program {}\nhint: say which Python with --python", python.display());
}

fn count(rows: &[Row]) -> anyhow::Result<u32> {
    u32::try_from(rows.len()).context("there are too many rows")
}

fn tasks(rows: &[Row], num: NonZeroU32, first: u64) -> anyhow::Result<Vec<TaskSpec>> {
    let count = count(rows)?;
    if first.checked_add(u64::from(count)).is_none() {
        bail!("ids from {first} on would be too large for {count} rows");
    }
    let made = rows.iter().zip(turns(rows, num));
    Ok(made.map(|(row, turn)| row.task(first + turn)).collect())
}
