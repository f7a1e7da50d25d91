use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context as _;
use packhorse_model::{Exit, Outcome, OutputMode, Stream, TaskId, TaskSpec};
use packhorse_proc::has_ended;
use packhorse_session::{AttemptLog, find_task, stored_run, stored_task};
use packhorse_slurm::{AskSlurm, refresh};
use packhorse_store::{Home, Reader, StoredAttempt, StoredRun, StoredTask};
use packhorse_supervisor::{LogReader, processes_of_attempt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::args::LogsArgs;
use crate::complain;
use crate::stdout::{Stdout, raw_stdout, stdout};

/// `packhorse logs`
pub fn logs(args: &LogsArgs) -> anyhow::Result<Exit> {
    let home = Home::locate()?;
    let reader = Reader::open(&home)?;
    let id = find_task(&reader, &args.task)?;
    let on_cluster = reader.is_on_cluster(id.run)?;
    if on_cluster {
        // What cannot be read now is not shown.
        let _ = refresh(&home, id.run, AskSlurm::No);
    }
    let wanted = match (args.stdout, args.stderr) {
        (true, _) => Some(Stream::Stdout),
        (_, true) => Some(Stream::Stderr),
        _ => None,
    };
    let run = stored_run(&reader, id.run)?;
    let (task, tried) = stored_task(&reader, id)?;
    let attempts = task.attempts;
    let attempt = args.attempt.unwrap_or(attempts.max(1));
    if attempt == 0 && tried.iter().all(|tried| tried.attempt != 0) {
        anyhow::bail!("task {id} has had {attempts} attempts, and no probe");
    }
    if attempt > attempts.max(1) && !args.follow {
        anyhow::bail!("task {id} has had {attempts} attempts");
    }
    let logs = LogFolder::of(&home, &reader, &run, &task)?;
    if args.path {
        let log = logs.log(attempt);
        let path = match log.find() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => log.path().to_owned(),
            found => found?,
        };
        writeln!(stdout(), "{}", path.display())?;
        return Ok(Exit::Success);
    }
    let mut printer = Printer {
        logs,
        attempt,
        wanted,
        reader: None,
        buffer: vec![0; 64 * 1024],
        out: if args.raw { raw_stdout() } else { stdout() },
        printed: false,
        told_waiting: false,
    };
    if args.follow {
        let go_on = args.attempt.is_none();
        if on_cluster {
            follow_on_cluster(&home, &reader, go_on, &mut printer)?;
        }
        let process = process_of(&home, &run);
        follow(&home, &reader, process, go_on, &mut printer)?;
    } else {
        printer.print_if_started(&tried)?;
    }
    printer.out.finish()?;
    if !printer.printed && wanted.is_none() {
        complain(&why_nothing(&reader, id, args.attempt)?);
    }
    Ok(Exit::Success)
}

/// Where the logs of a task are.
pub struct LogFolder<'a> {
    home: &'a Home,
    run: &'a StoredRun,
    id: TaskId,
    spec: TaskSpec,
    output: OutputMode,
}

impl<'a> LogFolder<'a> {
    /// Those of a task of a run.
    pub fn of(
        home: &'a Home,
        reader: &Reader,
        run: &'a StoredRun,
        task: &StoredTask,
    ) -> anyhow::Result<Self> {
        let spec = reader.run_spec(run.id)?.unwrap_or_default();
        Ok(Self {
            home,
            run,
            id: task.id,
            output: spec.output.unwrap_or_default(),
            spec: task.spec.clone().over(&spec.defaults),
        })
    }

    pub fn log(&self, attempt: u32) -> AttemptLog {
        AttemptLog::of(self.home, self.run, self.id, &self.spec, attempt)
    }
}

/// Why an attempt has nothing to show, the last one if nobody says which. It may
/// have begun and ended since we first looked.
fn why_nothing(reader: &Reader, id: TaskId, attempt: Option<u32>) -> anyhow::Result<String> {
    let attempts = reader.task(id)?.map(|(_, attempts)| attempts);
    let attempts = attempts.unwrap_or_default();
    let shown = match attempt {
        Some(number) => attempts.iter().find(|shown| shown.attempt == number),
        None => attempts.last(),
    };
    Ok(match shown {
        None => format!("task {id} has not been started"),
        Some(shown) if shown.outcome == Some(Outcome::NotStarted) => {
            let why = shown.message.as_deref().unwrap_or("nobody knows why");
            format!("task {id} could not be started: {why}")
        }
        Some(_) => format!("task {id} wrote nothing, or it was not kept (--output inherit)"),
    })
}

/// Prints a log as far as it goes.
struct Printer<'a> {
    logs: LogFolder<'a>,
    attempt: u32,
    wanted: Option<Stream>,
    reader: Option<LogReader>,
    buffer: Vec<u8>,
    out: Stdout,
    printed: bool,
    told_waiting: bool,
}

impl Printer<'_> {
    /// Prints it, unless the attempt has not been started: what is where its task wants its log
    /// is another run's until then.
    fn print_if_started(&mut self, tried: &[StoredAttempt]) -> anyhow::Result<bool> {
        let is_started = tried.iter().any(|tried| tried.attempt == self.attempt);
        if is_started || self.logs.spec.log.is_none() { self.print() } else { Ok(false) }
    }

    /// Says, once, why nothing is shown yet.
    fn tell_waiting(&mut self) {
        if !std::mem::replace(&mut self.told_waiting, true) {
            let id = self.logs.id;
            complain(&format!("task {id} has not been started; its output is shown when it is"));
        }
    }

    /// Whether there was anything new.
    fn print(&mut self) -> anyhow::Result<bool> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => match self.logs.log(self.attempt).open() {
                Ok(reader) => self.reader.insert(reader),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error.into()),
            },
        };
        let mut has_news = false;
        loop {
            let (stream, bytes) = reader.read(&mut self.buffer)?;
            if bytes.is_empty() {
                break;
            }
            has_news = true;
            if self.wanted.is_none_or(|wanted| wanted == stream) {
                self.out.write_all(bytes)?;
                self.printed = true;
            }
        }
        self.out.flush()?;
        Ok(has_news)
    }
}

/// Prints as it is written, until the task has ended.
///
/// Nothing polls: the kernel tells of changes to the log and to the database,
/// and of the end of whoever writes the log: the run's process, and after it, if tasks
/// write their logs themselves, what is left of the attempt.
fn follow(
    home: &Home,
    reader: &Reader,
    process: Option<OwnedFd>,
    go_on: bool,
    printer: &mut Printer<'_>,
) -> anyhow::Result<()> {
    let id = printer.logs.id;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let written = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
    inotify::add_watch(&watch, home.path(), written)?;
    let mut settling = false;
    let mut writers = Vec::from_iter(process);
    loop {
        // First whether it is over, then what it wrote: not the other way round.
        writers.retain(|process| !has_ended(process));
        if writers.is_empty() && printer.logs.output == OutputMode::File {
            writers = processes_of_attempt(id, printer.attempt, &home.id()?);
        }
        let (task, attempts) = reader.task(id)?.context("the task is gone from the store")?;
        let over = writers.is_empty() || task.outcome.is_some();
        // The log's folder is made with it: until then, the nearest that is there has news.
        let log = printer.logs.log(printer.attempt);
        let mut folders = log.path().ancestors().skip(1);
        folders.find(|&folder| inotify::add_watch(&watch, folder, written).is_ok());
        printer.print_if_started(&attempts)?;
        if !over && attempts.is_empty() {
            printer.tell_waiting();
        }
        let later = attempts.iter().any(|other| other.attempt > printer.attempt);
        if go_on && later {
            printer.attempt += 1;
            printer.reader = None;
            continue;
        }
        let ended = attempts
            .iter()
            .any(|other| other.attempt == printer.attempt && other.outcome.is_some());
        if over || (ended && !go_on) {
            return Ok(());
        }
        settling = wait(&watch, &writers, settling)?;
    }
}

/// The same of a task on a cluster, of which nobody tells: it is looked at, less and less
/// often while there is nothing new. Returns when the task or its run is over.
fn follow_on_cluster(
    home: &Home,
    reader: &Reader,
    go_on: bool,
    printer: &mut Printer<'_>,
) -> anyhow::Result<()> {
    let id = printer.logs.id;
    let mut pause = Duration::ZERO;
    loop {
        // Whoever follows the run does it already.
        let _ = refresh(home, id.run, AskSlurm::No);
        let on_cluster = reader.is_on_cluster(id.run)?;
        let (task, attempts) = reader.task(id)?.context("the task is gone from the store")?;
        let has_news = printer.print()?;
        if go_on && attempts.iter().any(|other| other.attempt > printer.attempt) {
            printer.attempt += 1;
            printer.reader = None;
            continue;
        }
        let is_over = task.outcome.is_some() || !on_cluster;
        if !is_over && attempts.is_empty() {
            printer.tell_waiting();
        }
        let mut shown = attempts.iter();
        let shown = shown.find(|other| other.attempt == printer.attempt);
        let has_ended = shown.is_some_and(|shown| shown.outcome.is_some());
        if is_over || (has_ended && !go_on) {
            return Ok(());
        }
        pause = if has_news { LEAST_PAUSE } else { (pause * 2).clamp(LEAST_PAUSE, LONGEST_PAUSE) };
        packhorse_slurm::pause(pause);
    }
}

/// How long a log on a cluster is not looked at, at least and at most.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The process that works on the run, if one does.
fn process_of(home: &Home, run: &StoredRun) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(run.pid).ok()?)?;
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
    // It holds the lock, so the number is still its own.
    process.filter(|_| home.is_running(run.id).unwrap_or(false))
}

/// How long after it was written a commit is seen by others at the latest.
const SETTLED: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Waits for news, and says whether there were any.
///
/// The database's log is written a moment before what is in it can be seen, so
/// news have to be looked at once more when they have settled.
fn wait(watch: &OwnedFd, writers: &[OwnedFd], settling: bool) -> anyhow::Result<bool> {
    let mut sources = vec![PollFd::new(watch, PollFlags::IN)];
    sources.extend(writers.iter().map(|it| PollFd::new(it, PollFlags::IN)));
    let timeout = settling.then_some(&SETTLED);
    rustix::io::retry_on_intr(|| poll(&mut sources, timeout))?;
    if sources[0].revents().contains(PollFlags::IN) {
        // What changed does not matter, only that something has.
        let mut events = [0_u8; 4096];
        rustix::io::read(watch, &mut events)?;
        return Ok(true);
    }
    Ok(false)
}
