//! What the store costs: CPU time for each task (its row, its start and its
//! end), at full speed and at 3,000 tasks a second, and the time to open.
//!
//! `cargo run --release -p packhorse-store --example throughput [FOLDER]`

#![expect(clippy::print_stdout, reason = "a measurement is there to be read")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_model::{Command, Outcome, RunId, RunSpec, TaskId, TaskSpec, Timestamp};
use packhorse_store::{
    EndedAttempt, Home, NewRun, NewTask, Reader, Record, StartedAttempt, TaskFilter, Writer,
    new_run_uuid,
};
use rustix::time::{ClockId, TimerfdClockId, clock_gettime};

const TASKS: u32 = 20_000;
const RATE: u32 = 3_000;

type Outcomes<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcomes<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1);
    let folder = folder.as_deref().map_or(temporary.path(), Path::new);
    let home = Home::open(folder.join("store"))?;

    let at_first = resident()?;
    at_a_pace(&home)?;
    println!("resident: {at_first} kB at first, {} kB then", resident()?);
    at_full_speed(&home, "a new database", TASKS)?;
    at_full_speed(&home, "an old database", TASKS)?;
    opening(&home)?;
    skipping(&home)
}

fn at_full_speed(home: &Home, what: &str, tasks: u32) -> Outcomes<()> {
    let (mut writer, run, began) = begin(home)?;
    let cpu = cpu_time();
    for number in 1..=tasks {
        let id = TaskId::new(run, number);
        writer.send(Record::Tasks(vec![task(id)]));
        start_and_end(&writer, id);
    }
    let sent = cpu_since(cpu);
    writer.finish()?;
    let cpu = cpu_since(cpu);
    println!(
        "full speed, {what}: {:.2} µs CPU a task in all, {:.0} tasks/s (until sent: {:.2} µs)",
        micros(cpu, tasks),
        f64::from(tasks) / began.elapsed().as_secs_f64(),
        micros(sent, tasks),
    );
    Ok(())
}

/// Two tasks run at any time, each for two thirds of a millisecond, as two
/// slots of `/bin/true` do.
fn at_a_pace(home: &Home) -> Outcomes<()> {
    let (mut writer, run, began) = begin(home)?;
    let clock = rustix::time::timerfd_create(
        TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    )?;
    let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: (1_000_000_000 / RATE).into() };
    let every_tick = rustix::time::Itimerspec { it_interval: tick, it_value: tick };
    rustix::time::timerfd_settime(&clock, rustix::time::TimerfdTimerFlags::empty(), &every_tick)?;
    let wait = || rustix::io::read(&clock, &mut [0_u8; 8]);

    // The writer's thread is measured by the kernel, and the sender by the
    // clock around its calls: the timer's own wake-ups cost more than both.
    let label: Arc<str> = "gpu 0".into();
    let mut sending = Duration::ZERO;
    let before = writer_cpu()?;
    for number in 1..=TASKS + 2 {
        wait()?;
        let awake = Instant::now();
        if number > 2 {
            end(&writer, TaskId::new(run, number - 2));
        }
        if number <= TASKS {
            let id = TaskId::new(run, number);
            writer.send(Record::Tasks(vec![task(id)]));
            start(&writer, id, &label);
        }
        sending += awake.elapsed();
    }
    let writing = writer_cpu()?.saturating_sub(before);
    let took = began.elapsed();
    let closing = Instant::now();
    writer.finish()?;
    println!(
        "at {RATE}/s for {took:.1?}: {:.2} µs CPU a task to write, {:.2} µs to send; \
         last commit and close {:.1?}",
        micros(writing, TASKS),
        micros(sending, TASKS),
        closing.elapsed(),
    );
    Ok(())
}

/// The CPU time of the thread that writes.
fn writer_cpu() -> Outcomes<Duration> {
    for entry in fs_err::read_dir("/proc/self/task")? {
        let thread = entry?.path();
        if fs_err::read_to_string(thread.join("comm"))?.trim() == "store-writer" {
            let times = fs_err::read_to_string(thread.join("schedstat"))?;
            let nanos = times.split(' ').next().ok_or("an empty schedstat")?;
            return Ok(Duration::from_nanos(nanos.parse()?));
        }
    }
    Err("no thread writes".into())
}

fn opening(home: &Home) -> Outcomes<()> {
    let mut took = [(); 4].map(|()| Vec::new());
    for _ in 0..51 {
        let t0 = Instant::now();
        let (run, _lock) = home.new_run()?;
        let t1 = Instant::now();
        let mut writer = Writer::start(home)?;
        let t2 = Instant::now();
        writer.ready()?;
        let t3 = Instant::now();
        writer.send(new_run(run));
        writer.finish()?;
        let all = [t1 - t0, t2 - t1, t3 - t1, t3.elapsed()];
        for (list, one) in took.iter_mut().zip(all) {
            list.push(one);
        }
    }
    let [number, thread, open, close] = took.map(|mut list| {
        list.sort_unstable();
        list[list.len() / 2]
    });
    println!(
        "medians of 51: run number {number:.0?}, thread {thread:.0?}, thread and open {open:.0?}, \
         commit and close {close:.0?}"
    );
    let t0 = Instant::now();
    let runs = Reader::open(home)?.runs(20)?;
    println!("reader: {} runs in {:.0?}", runs.len(), t0.elapsed());
    Ok(())
}

/// How long the first unfinished task behind a million finished ones takes.
fn skipping(home: &Home) -> Outcomes<()> {
    const MANY: u32 = 1_000_000;
    let (mut writer, run, began) = begin(home)?;
    let cpu = cpu_time();
    for first in (1..=MANY).step_by(1000) {
        let ids = (first..first + 1000).map(|number| TaskId::new(run, number));
        writer.send(Record::Tasks(ids.map(task).collect()));
        while writer.unwritten().bytes > 1 << 20 {
            wait_for(&writer)?;
        }
    }
    println!(
        "a million tasks: {:.2} µs CPU each, {:.1?}",
        micros(cpu_since(cpu), MANY),
        began.elapsed()
    );
    let (reader, before) = (Reader::open(home)?, cpu_time());
    let mut last = 0;
    while let Some(task) = reader.stored(run, TaskFilter::PlainUnfinished, last, 1000)?.last() {
        last = task.id.number;
    }
    println!("reading them back: {:.2} µs CPU each", micros(cpu_since(before), MANY));
    for number in 1..MANY {
        start_and_end(&writer, TaskId::new(run, number));
        while writer.unwritten().bytes > 1 << 20 {
            wait_for(&writer)?;
        }
    }
    writer.send(Record::RunEnded { run, at: Timestamp::now(), exit: 0 });
    let last = Instant::now();
    writer.finish()?;
    println!("its end, with the count: {:.1?}", last.elapsed());
    let reader = Reader::open(home)?;
    let t0 = Instant::now();
    let left = reader.stored(run, TaskFilter::Unfinished, 0, 1000)?;
    println!("unfinished behind a million: {} in {:.1?}", left.len(), t0.elapsed());
    Ok(())
}

fn wait_for(writer: &Writer) -> Outcomes<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(writer, PollFlags::IN)], None)?;
    rustix::io::read(writer, &mut [0_u8; 8])?;
    Ok(())
}

fn begin(home: &Home) -> Outcomes<(Writer, RunId, Instant)> {
    let (run, _lock) = home.new_run()?;
    let writer = Writer::start(home)?;
    writer.send(new_run(run));
    writer.ready()?;
    Ok((writer, run, Instant::now()))
}

fn new_run(run: RunId) -> Record {
    let started = Timestamp::now();
    let facts = Box::new(NewRun {
        uuid: new_run_uuid(started),
        started,
        cwd: "/somewhere".into(),
        argv: vec!["packhorse".into(), "run".into()],
        host: "here".to_owned(),
        pid: std::process::id(),
        spec: RunSpec::default(),
    });
    Record::NewRun { run, facts }
}

fn task(id: TaskId) -> NewTask {
    let number = id.number;
    let line = format!("python train.py --lr 0.1 --seed {number} --out results/{number}");
    let spec = TaskSpec::new(Command::Line(line.into_bytes()));
    NewTask::new(id, spec, Box::default())
}

fn start_and_end(writer: &Writer, task: TaskId) {
    start(writer, task, &"gpu 0".into());
    end(writer, task);
}

fn start(writer: &Writer, task: TaskId, label: &Arc<str>) {
    writer.send(Record::Started(StartedAttempt {
        task,
        attempt: 1,
        at: Timestamp::now(),
        device: Some(Arc::clone(label)),
    }));
}

fn end(writer: &Writer, task: TaskId) {
    writer.send(Record::AttemptEnded(EndedAttempt {
        task,
        attempt: 1,
        at: Timestamp::now(),
        outcome: Outcome::Succeeded,
        message: None,
        peak: None,
        note: None,
        is_final: true,
    }));
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn cpu_since(earlier: Duration) -> Duration {
    cpu_time().saturating_sub(earlier)
}

fn micros(cpu: Duration, tasks: u32) -> f64 {
    cpu.as_secs_f64() * 1e6 / f64::from(tasks)
}

fn resident() -> Outcomes<String> {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.ok_or("no VmHWM")?.trim().trim_end_matches(" kB").to_owned())
}
