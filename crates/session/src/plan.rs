//! What a run would be like, without running it.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::{Duration, Instant};

use packhorse_core::{Outside, Submission};
use packhorse_engine::{ClockReading, Forecast, Input, LearnedPeaks, OtherRun, draft_of};
use packhorse_gpu::{DeviceSample, Sampler, SamplerReport, Unit};
use packhorse_leases::{Lease, read_leases};
use packhorse_model::{Command, DeviceId, RunId, RunSpec, TaskId, TaskSpec, Timestamp};
use packhorse_store::Reader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::devices::Devices;
use crate::file_contents::FileContents;
use crate::ignored_process::IgnoredProcess;
use crate::launch::{drained, engine, uses_leases};
use crate::sampling::Attributor;
use crate::settings::Settings;
use crate::source::{NextRead, TaskSource};
use crate::{Notices, SessionError, system};

/// Tasks that are to be planned. Plain ones, which are most of those that come in millions,
/// take little more than their commands.
#[derive(Debug, Default)]
pub struct PlannedTasks {
    entries: Vec<PlannedTask>,
    /// The lines of the plain tasks, one after the other.
    lines: Vec<u8>,
    counts_memory: bool,
}

#[derive(Debug)]
enum PlannedTask {
    /// The task has nothing but a line, which is in this place.
    Plain(usize),
    Other(Box<(TaskSpec, Vec<u32>)>),
}

impl PlannedTasks {
    fn push(&mut self, task: TaskSpec, after: Vec<u32>) {
        self.counts_memory |= task.vram.is_some();
        let entry = match &task.command {
            Command::Line(line) if after.is_empty() && task.is_plain() => {
                let start = self.lines.len();
                self.lines.extend_from_slice(line);
                PlannedTask::Plain(start)
            }
            _ => PlannedTask::Other(Box::new((task, after))),
        };
        self.entries.push(entry);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether any of them says how much memory it takes.
    pub fn counts_memory(&self) -> bool {
        self.counts_memory
    }

    /// The task in this place.
    pub fn get(&self, place: usize) -> Option<Cow<'_, TaskSpec>> {
        Some(match self.entries.get(place)? {
            PlannedTask::Plain(start) => {
                let mut later = self.entries[place + 1..].iter();
                let end = later.find_map(|entry| match entry {
                    PlannedTask::Plain(start) => Some(*start),
                    PlannedTask::Other(_) => None,
                });
                let line = &self.lines[*start..end.unwrap_or(self.lines.len())];
                Cow::Owned(TaskSpec::new(Command::Line(line.to_vec())))
            }
            PlannedTask::Other(other) => Cow::Borrowed(&other.0),
        })
    }

    /// The numbers of the tasks that the one in this place comes after.
    fn after(&self, place: usize) -> &[u32] {
        match self.entries.get(place) {
            Some(PlannedTask::Other(other)) => &other.1,
            _ => &[],
        }
    }
}

/// All tasks of a source, and what is wrong with others. Waits until there will be nothing
/// more. `progress` is told now and then how many there are.
pub fn read_all(
    source: &mut dyn TaskSource,
    progress: &mut dyn FnMut(usize),
) -> (PlannedTasks, Vec<String>) {
    let (mut tasks, mut rejected) = (PlannedTasks::default(), Vec::new());
    loop {
        if let Some(input) = source.descriptor() {
            // Whatever comes of it is met when it is read.
            let _ = poll(&mut [PollFd::new(&input, PollFlags::IN)], None);
        }
        let read = source.read(usize::MAX);
        for (task, after) in read.tasks {
            tasks.push(task, after);
        }
        progress(tasks.len());
        rejected.extend(read.rejected.into_iter().map(|(_, message)| message));
        if read.next == NextRead::Never {
            return (tasks, rejected);
        }
    }
}

/// What the scheduler would be told of the tasks of a run, in their order, as tasks of
/// `run`, handed to `each`; tasks that are alike share it, whatever their ids. `reader`
/// knows what was learned, if anything was.
pub fn plan_submissions(
    devices: &Devices,
    spec: &RunSpec,
    reader: Option<&Reader>,
    run: RunId,
    tasks: &PlannedTasks,
    notices: &mut Notices<'_>,
    each: &mut dyn FnMut(TaskId, Rc<Submission>),
) -> Result<(), SessionError> {
    let defaults = devices.defaults(spec, notices)?;
    let folder = std::env::current_dir().map_err(system("tell the current folder"))?;
    let mut files = FileContents::default();
    let mut forecast = Forecast::new(&devices.info, devices.slots);
    let batch = spec.batch.map_or(u32::MAX, NonZeroU32::get);
    let mut groups: HashMap<String, VecDeque<u32>> = HashMap::new();
    let mut known: VecDeque<Rc<Submission>> = VecDeque::new();
    for (place, number) in (0..tasks.len()).zip(1..) {
        let own = tasks.get(place).map(Cow::into_owned).unwrap_or_default();
        let task = own.over(&defaults);
        let draft = draft_of(&task.command, &task, &folder);
        let contents = files.hashes(draft.files());
        let peaks = |signature: &str| match reader {
            Some(reader) => reader.family_peaks(signature),
            None => Ok(LearnedPeaks::new()),
        };
        let signature = draft.finish(&contents);
        let id = TaskId::new(run, number);
        // Who is over first is not known here: each goes on where one before it was.
        let before = task.group_limit.and_then(|limit| {
            let group = groups.entry(task.group.clone().unwrap_or_default());
            let group = group.or_default();
            group.push_back(number);
            (group.len() > limit.get() as usize).then(|| group.pop_front())?
        });
        let after = tasks.after(place).iter().copied().chain(before);
        let after = after.map(|number| TaskId::new(run, number));
        let submission = Submission {
            // Not its own: it is shared.
            id: TaskId::new(run, 0),
            after: after.collect(),
            batch: (number - 1) / batch,
            ..forecast.submission(id, &task, signature, peaks)?
        };
        let shared = known.iter().find(|known| ***known == submission).map(Rc::clone);
        let shared = shared.unwrap_or_else(|| {
            let shared = Rc::new(submission);
            known.push_front(Rc::clone(&shared));
            known.truncate(ALIKE);
            shared
        });
        each(id, shared);
    }
    Ok(())
}

/// A task shares what it has in common with one of the last so many that were different.
const ALIKE: usize = 16;

/// How the devices are that a run would find.
#[derive(Debug, Default)]
pub struct DevicesNow {
    /// What others hold of them.
    pub outside: Vec<(DeviceId, Outside)>,
    /// Those that would not be used, and why.
    pub left_out: Vec<(DeviceId, String)>,
}

impl DevicesNow {
    /// Looks at the devices as a run would that starts now: at those that were taken out,
    /// at what other runs hold, and, if any of its tasks `counts_memory`, at the memory of
    /// everybody else. The driver is not needed any more after that.
    pub fn look(
        spec: &RunSpec,
        devices: &mut Devices,
        counts_memory: bool,
        reader: Option<&Reader>,
        settings: &Settings,
        notices: &mut Notices<'_>,
    ) -> Result<Self, SessionError> {
        let mut engine = engine(spec, devices, settings)?;
        let origin = Instant::now();
        let ignored = spec.pool.ignore_process.iter().map(|who| who.parse());
        let ignored: Result<Vec<IgnoredProcess>, _> = ignored.collect();
        let ignored = ignored.map_err(SessionError::IgnoredProcess)?;
        let mut attributor = Attributor::new(ignored, origin);
        let mut actions = Vec::new();
        let mut left_out = Vec::new();
        let mut feed = |input| {
            let now = ClockReading { monotonic: origin.elapsed(), wall: Timestamp::now() };
            engine.handle(input, now, &mut actions);
        };
        if let Some(reader) = reader.filter(|_| devices.driver.is_some()) {
            left_out = drained(reader, &devices.info)?;
            for (device, reason) in left_out.clone() {
                feed(Input::LeaveOut { device, reason });
            }
        }
        if uses_leases(spec) && !devices.units.is_empty() {
            // Where nobody has left word, nobody holds anything.
            let leases = read_leases(&settings.lease_folder()).unwrap_or_default();
            attributor.other_runs = leases.iter().flat_map(Lease::processes).collect();
            let others = leases.into_iter().map(|lease| OtherRun {
                pid: lease.pid,
                devices: lease.held,
                ..OtherRun::default()
            });
            feed(Input::OtherRuns(others.collect()));
        }
        if let Some(look) = devices.look.take().filter(|_| !counts_memory) {
            feed(Input::FirstLook(attributor.first_look(&look, &devices.units, None)));
        }
        if let Some(driver) = devices.driver.take().filter(|_| counts_memory) {
            let sampler = Sampler::start(driver, &devices.units);
            let sampler = sampler.map_err(system("watch the GPUs"))?;
            let patience = settings.gpu_config().driver_patience;
            let is_known = |unit: &&Unit| unit.members.iter().all(|it| it.index.is_some());
            let units = devices.units.iter().filter(is_known).count();
            let seen = look_once(&sampler, units, patience);
            if seen.len() < units {
                notices("warning: the driver does not answer for every GPU; those count as free");
            }
            for sample in seen {
                let view = attributor.first_view(sample);
                let mut members = view.members.iter();
                if let Some(reason) = members.find_map(|member| member.lost.clone()) {
                    let device = u32::try_from(view.device).map(DeviceId);
                    left_out.extend(device.ok().map(|device| (device, reason)));
                }
                feed(Input::Sampled(view));
            }
        }
        Ok(Self {
            // When they make room is nothing that a plan could know.
            outside: engine
                .outside()
                .map(|(device, held)| (device, Outside { yields: false, ..held }))
                .collect(),
            left_out,
        })
    }
}

/// One look at each of so many units; at fewer if the driver takes too long.
fn look_once(sampler: &Sampler, units: usize, patience: Duration) -> Vec<DeviceSample> {
    let until = Instant::now() + patience;
    let mut seen = Vec::new();
    sampler.request_all();
    while seen.len() < units {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok().filter(|_| !left.is_zero());
        let Some(timeout) = timeout else {
            break;
        };
        // Interrupted or not: what is there is fetched.
        let _ = poll(&mut [PollFd::new(sampler, PollFlags::IN)], Some(&timeout));
        seen.extend(sampler.fetch().into_iter().filter_map(|report| match report {
            SamplerReport::Sample(sample) => Some(sample),
            SamplerReport::Xid { .. } => None,
        }));
    }
    seen
}
