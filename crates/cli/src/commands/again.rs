use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use packhorse_intake::lines::Separator;
use packhorse_model::{Exit, RunId};
use packhorse_runner::{Beginning, Input};
use packhorse_store::{Home, Reader, Run};

use super::consuming::{Rows, consuming};
use super::launch::{output, reporter};
use super::{Order, find, sweep};
use crate::args::AgainArgs;
use crate::saved::{Saved, SavedFile, SavedSweep};
use crate::{complain, wording};

/// Which tasks of a run are to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that are not settled: `packhorse resume`
    Unfinished,
    /// Those that failed as well: `packhorse retry`
    Failed,
}

/// `packhorse resume` and `packhorse retry`
pub fn again(args: AgainArgs, which: Which) -> anyhow::Result<Exit> {
    if let (None, [_, second, ..]) = (&args.run, args.pool.gpus.as_slice()) {
        bail!(
            "`{second}` could be a GPU or the run\n\
             hint: name the run first, or separate GPUs with commas"
        );
    }
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let run = find::run(&reader, args.run.as_deref())?;
    let id = run.id;
    // Logs may have been removed to save space.
    fs_err::create_dir_all(home.log_dir(id))?;
    // From here on nobody else works on it.
    let lock = home.lock_run(id)?;
    // The process that had it may have written more until then.
    let run = find::run(&reader, Some(&id.to_string()))?;
    let saved = Saved::read(&run.settings)?;
    let reopened = match which {
        Which::Unfinished => Vec::new(),
        Which::Failed => failed(&reader, id)?,
    };
    let rows = saved.csv.as_ref().and_then(|csv| csv.consume.clone());
    let mut rows = rows
        .map(|rows| Rows::left_by(&run, rows, &home, &reader))
        .transpose()?;
    let tasks = u32::try_from(run.counts.total()).unwrap_or(u32::MAX);
    let sweep = saved.sweep.as_ref().map(SavedSweep::build).transpose()?;
    let sweep = sweep.map(Rc::new);
    let input = match &sweep {
        _ if run.input_complete => Input::None,
        Some(sweep) => sweep::generated(Rc::clone(sweep))?,
        None => rest_of_files(&saved, tasks),
    };
    if reopened.is_empty() && run.counts.unfinished() == 0 && matches!(input, Input::None) {
        if let Some(Err(message)) = rows.as_mut().map(Rows::take_out_at_last) {
            complain(&format!("warning: {message}"));
        }
        say_nothing_to_do(&run, which);
        return Ok(Exit::Success);
    }
    if !run.input_complete && matches!(input, Input::None) {
        complain(&format!(
            "warning: run {id} had not read all of its input when it ended, and cannot read it again; \
             what it had read goes on"
        ));
    }
    std::env::set_current_dir(&run.cwd)
        .with_context(|| format!("cannot go back to the run's folder {}", run.cwd.display()))?;
    end_leftovers(&home, id);
    let pool = saved.pool(args.pool);
    let task = saved.task(&pool)?;
    if let Some(vram) = saved.vram_left_aside(&pool) {
        complain(&format!(
            "warning: with --slots nobody counts GPU memory, so {vram} of run {id} is left aside"
        ));
    }
    let mut order = Order::new(&pool, &task, output(&args.output), input)?;
    order.parameters = sweep.map(sweep::told);
    if let Some(csv) = &saved.csv {
        csv.apply(&mut order.defaults);
    }
    let beginning = Beginning::Again { reopened, tasks };
    let mut reporter = consuming(reporter(&args.output, &order.input), rows);
    Ok(order.go_on(home, lock, beginning, &mut *reporter)?.exit)
}

/// The files that were read, if all of them are still the same.
fn rest_of_files(saved: &Saved, tasks: u32) -> Input {
    let sources: Option<VecDeque<_>> = saved.files.iter().map(SavedFile::open).collect();
    match sources {
        Some(sources) if !sources.is_empty() => Input::Lines {
            sources,
            separator: if saved.null {
                Separator::Null
            } else {
                Separator::Newline
            },
            skip: tasks,
        },
        _ => Input::None,
    }
}

fn failed(reader: &Reader, run: RunId) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    loop {
        let after = numbers.last().copied().unwrap_or(0);
        let page = reader.failed(run, after, 1000)?;
        if page.is_empty() {
            return Ok(numbers);
        }
        numbers.extend(page.iter().map(|task| task.id.number));
    }
}

fn say_nothing_to_do(run: &Run, which: Which) {
    let done = wording::count(run.counts.succeeded, "task");
    let id = run.id;
    match which {
        Which::Unfinished if run.counts.unsuccessful() > 0 => complain(&format!(
            "nothing to resume: every task of run {id} is settled\nhint: `packhorse retry {id}` runs the {} again that failed",
            run.counts.unsuccessful()
        )),
        _ => complain(&format!(
            "nothing to do: run {id} has finished, {done} succeeded"
        )),
    }
}

/// A run that was killed leaves its tasks behind. They would run twice.
fn end_leftovers(home: &Home, run: RunId) {
    let mark = home.path().to_string_lossy();
    let ended = packhorse_hands::end_leftovers_of_run(&mark, &run.to_string());
    if ended > 0 {
        complain(&format!(
            "warning: {} of run {run} still ran and {} ended",
            if ended == 1 {
                "a process".to_owned()
            } else {
                format!("{ended} processes")
            },
            if ended == 1 { "was" } else { "were" },
        ));
    }
}
