use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packhorse_core::{self as core, Effect, Now, SchedulerState, Submission};
use packhorse_hands::{self as hands, Ended, Hands, Happening, Signal, Stop};
use packhorse_model::{Exit, RunId, TaskId};
use packhorse_store::{Reader, Record, UnixMicros, Writer};
use rustc_hash::FxHashMap;

use crate::Line;
use crate::ask::Ear;
use crate::backlog::Backlog;
use crate::devices::Devices;
use crate::feed::Feed;
use crate::known::Known;
use crate::memory::{Judgement, Needs, Watching};
use crate::mps::Service;
use crate::neighbours::Neighbours;
use crate::told::{LULL, Told};
use crate::{Beginning, Event, Input, Phase, Reporter, RunError, Settings, Summary};

/// How long a repeated SIGTERM or SIGHUP is taken for the same one.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Watched descriptors.
pub(crate) const STORE: u32 = 0;
pub(crate) const INPUT: u32 = 1;
pub(crate) const ASK: u32 = 2;
pub(crate) const WATCH: u32 = 3;
pub(crate) const LEASES: u32 = 4;

/// Runs everything to its end, or to where the person stops it.
pub fn run(
    settings: Settings,
    input: Input,
    reporter: &mut dyn Reporter,
) -> Result<Summary, RunError> {
    let mut run = Run::start(settings, input, reporter)?;
    match run.go_on() {
        Ok(()) => Ok(run.end()),
        Err(error) => {
            // Nothing is left running without us.
            run.leave();
            Err(error)
        }
    }
}

/// A run while it goes on.
pub(crate) struct Run<'r> {
    pub(crate) id: RunId,
    pub(crate) settings: Settings,
    pub(crate) devices: Devices,
    pub(crate) state: SchedulerState,
    pub(crate) hands: Hands,
    pub(crate) store: Writer,
    pub(crate) reader: Option<Reader>,
    pub(crate) feed: Feed,
    pub(crate) backlog: Backlog,
    /// The tasks that the core has, by number.
    pub(crate) tasks: FxHashMap<u32, Known>,
    /// What is seen of the devices, where a driver knows them.
    pub(crate) watching: Option<Watching>,
    /// What was learned of commands like these.
    pub(crate) needs: Needs,
    /// The folder we run in.
    pub(crate) folder: PathBuf,
    /// The folder of the logs.
    pub(crate) logs: Arc<Path>,
    /// Other runs on this machine.
    pub(crate) neighbours: Neighbours,
    /// The daemons that tasks share devices through.
    pub(crate) service: Option<Rc<RefCell<Service>>>,
    /// Where questions of other processes arrive.
    pub(crate) ear: Option<Ear>,
    pub(crate) reporter: &'r mut dyn Reporter,
    pub(crate) told: Told,
    started: Instant,
    pub(crate) phase: Phase,
    signal: Option<Signal>,
    /// When the phase last changed.
    stepped: Instant,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) interrupted: u64,
    effects: Vec<Effect>,
    /// Whether the store's bell is listened to.
    bell: bool,
    /// When the loop last turned.
    turned: Instant,
    /// The store's trouble that was told last.
    trouble: Option<String>,
}

impl<'r> Run<'r> {
    fn start(
        mut settings: Settings,
        input: Input,
        reporter: &'r mut dyn Reporter,
    ) -> Result<Self, RunError> {
        let id = settings.lock.run();
        let devices = Devices::new(&settings.places);
        let state = settings.places.scheduler()?;
        let mut environment = devices.fixed();
        environment.push(("PACKHORSE_RUN".into(), id.to_string().into()));
        // Before the store's thread starts, which inherits the signal mask.
        let hands = Hands::new(hands::Settings {
            log_folder: settings.home.log_dir(id),
            output: settings.output,
            grace: settings.grace,
            environment,
            hidden: devices.hidden(settings.sharing.mps),
            home_mark: settings.home.path().to_string_lossy().into_owned(),
        })
        .map_err(system("take over signals and child processes"))?;
        let store = Writer::start(&settings.home, id)?;
        let mut told = Told::new(settings.store_patience);
        let beginning = std::mem::replace(
            &mut settings.beginning,
            Beginning::Again {
                reopened: Vec::new(),
                tasks: 0,
            },
        );
        // Both kinds begin with a record that makes the run known.
        let resumed = matches!(beginning, Beginning::Again { .. });
        told.tell_after(
            1,
            Event::RunStarted {
                run: id,
                devices: devices.labels(),
                slots: settings.places.slots,
                resumed,
            },
        );
        let mut run = Self {
            id,
            devices,
            state,
            hands,
            store,
            reader: None,
            feed: Feed::new(input),
            backlog: Backlog::default(),
            tasks: FxHashMap::default(),
            watching: None,
            needs: Needs::default(),
            folder: std::env::current_dir().unwrap_or_default(),
            logs: settings.home.log_dir(id).into(),
            neighbours: Neighbours::default(),
            service: None,
            ear: None,
            reporter,
            told,
            started: Instant::now(),
            phase: Phase::Running,
            signal: None,
            stepped: Instant::now(),
            succeeded: 0,
            failed: 0,
            interrupted: 0,
            effects: Vec::new(),
            bell: false,
            turned: Instant::now(),
            trouble: None,
            settings,
        };
        run.listen();
        run.prepare_mps();
        run.meet_neighbours();
        run.watch_devices()?;
        run.leave_out_drained()?;
        run.begin(beginning)?;
        Ok(run)
    }

    /// Listens to questions. Nothing depends on it.
    fn listen(&mut self) {
        let ear = Ear::open(&self.settings.home.run_dir(self.id)).ok();
        self.ear = ear.filter(|ear| self.hands.watch(ear.as_fd(), ASK).is_ok());
    }

    /// Leaves out devices that an earlier run found broken.
    fn leave_out_drained(&mut self) -> Result<(), RunError> {
        if self.watching.is_none() {
            return Ok(());
        }
        let drained = self.reader()?.drained()?;
        for index in 0..self.settings.places.devices.len() {
            let keys = self.devices.keys(index);
            let broken = drained
                .iter()
                .find(|drained| keys.contains(&drained.device));
            if let Some(broken) = broken {
                self.leave_out(index, &broken.reason);
            }
        }
        Ok(())
    }

    /// Turns until everything is done, or stopped.
    fn go_on(&mut self) -> Result<(), RunError> {
        let mut happenings = Vec::new();
        self.feed_on()?;
        while !self.is_over() {
            self.judge_pending();
            self.give_up_leases();
            self.mind_neighbours()?;
            self.show()?;
            self.hands
                .wait(&mut happenings)
                .map_err(system("wait for events"))?;
            for happening in happenings.drain(..) {
                self.handle(happening)?;
            }
            self.feed_on()?;
        }
        if self.phase > Phase::Running && self.phase < Phase::Killing {
            self.keep_rest_of_input()?;
        }
        Ok(())
    }

    /// Ends what runs, after something went wrong that nothing works without.
    fn leave(mut self) {
        self.step(core::SchedulerEvent::Hold);
        self.hands.stop_all(Stop::Terminate);
        for ended in self.take_pending() {
            self.attempt_ended(&ended, &Judgement::default());
        }
        let mut happenings = Vec::new();
        while !self.hands.is_idle() && self.hands.wait(&mut happenings).is_ok() {
            for happening in happenings.drain(..) {
                if let Happening::Ended(ended) = happening {
                    self.attempt_ended(&ended, &Judgement::default());
                }
            }
        }
        self.end_mps();
        self.hands.finish();
        // The error that led here is told; this would be its consequence.
        let _ = self.store.finish();
        self.told.release(u64::MAX, self.reporter);
        self.reporter.show(Instant::now(), &Nobody);
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.started.elapsed())
    }

    fn is_over(&self) -> bool {
        if !self.hands.is_idle() || self.has_pending() {
            return false;
        }
        if self.feed.is_over() && self.state.is_stuck() {
            return true;
        }
        self.phase > Phase::Running || (self.feed.is_over() && self.left() == 0)
    }

    /// Tasks that are known and not settled.
    fn left(&self) -> u64 {
        self.tasks.len() as u64 + self.backlog.stored()
    }

    pub(crate) fn show(&mut self) -> Result<(), RunError> {
        let now = Instant::now();
        let safe = if self.trouble.is_some() || self.told.is_overdue(now) {
            u64::MAX
        } else {
            self.store.committed()
        };
        self.told.release(safe, self.reporter);
        // Before the alarm is set, which is set early if nobody listens.
        self.mind_the_bell(now)?;
        let line = Waiting {
            state: &self.state,
            devices: &self.devices,
            now: self.now(),
        };
        let again = self.reporter.show(now, &line);
        let wake = [
            again,
            self.told.deadline(self.bell, now),
            self.look_around(),
            self.pending_until(),
            self.neighbours.again(),
        ];
        self.hands.wake_at(wake.into_iter().flatten().min());
        Ok(())
    }

    /// Listens to the store's bell while there is something to hear. While tasks
    /// come and go there is a turn of the loop every moment anyway, and being
    /// woken for each commit would cost more than the commit.
    fn mind_the_bell(&mut self, now: Instant) -> Result<(), RunError> {
        let turned = std::mem::replace(&mut self.turned, now);
        let wanted = self.backlog.is_due()
            || self.is_input_paused()
            || (self.told.is_waiting() && now.duration_since(turned) >= LULL);
        if wanted == self.bell {
            return Ok(());
        }
        self.bell = wanted;
        let bell = self.store.as_fd();
        if wanted {
            self.hands.watch(bell, STORE)
        } else {
            self.hands.unwatch(bell, STORE)
        }
        .map_err(system("watch the store"))
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.told.tell(self.reporter, event);
    }

    pub(crate) fn warn(&mut self, task: Option<TaskId>, message: String) {
        self.tell(Event::Warning { task, message });
    }

    fn handle(&mut self, happening: Happening) -> Result<(), RunError> {
        match happening {
            Happening::Started(task) => {
                let known = self.tasks.get_mut(&task.number);
                if let Some((mut record, told)) = known.and_then(|known| known.later.take()) {
                    record.at = UnixMicros::now();
                    self.attempt_started(record, told);
                }
            }
            Happening::Ended(ended) => self.attempt_over(ended),
            Happening::Output {
                task,
                stream,
                bytes,
            } => self.tell(Event::Output {
                task,
                stream,
                bytes,
            }),
            Happening::Trouble { task, message } => self.warn(Some(task), message),
            Happening::Signal(Signal::Resize) => self.tell(Event::Resized),
            Happening::Signal(signal) => self.signalled(signal),
            Happening::Readable(STORE) => self.store_rang(),
            Happening::Readable(ASK) => self.answer(),
            Happening::Readable(WATCH) => self.devices_seen(),
            Happening::Readable(LEASES) => self.neighbours_changed(),
            Happening::Readable(_) => self.read_input()?,
            Happening::Alarm => {}
        }
        Ok(())
    }

    fn signalled(&mut self, signal: Signal) {
        // `timeout` and service managers send the same signal to us and to our
        // group: that is one wish, not two.
        let typed = matches!(signal, Signal::Interrupt | Signal::Quit);
        let again = self.phase >= Phase::Terminating && !typed;
        if again && self.stepped.elapsed() < ONE_WISH {
            return;
        }
        self.stepped = Instant::now();
        let phase = self.phase.after(signal);
        self.signal = Some(signal);
        if self.phase == Phase::Killing {
            // They were killed before, and are still there.
            self.hands.abandon_all();
            return;
        }
        self.phase = phase;
        self.step(core::SchedulerEvent::Hold);
        match phase {
            Phase::Running | Phase::Draining => {}
            Phase::Terminating => self.hands.stop_all(Stop::Terminate),
            Phase::Killing => self.hands.stop_all(Stop::Kill),
        }
        let running = self.hands.running();
        self.tell(Event::Stopping { phase, running });
    }

    fn store_rang(&mut self) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.store, &mut counter);
        let trouble = self.store.trouble();
        if trouble.is_some() {
            if trouble != self.trouble {
                let message = trouble.clone().unwrap_or_default();
                // Told at once: it may be what keeps the others waiting.
                self.reporter.event(&Event::Warning {
                    task: None,
                    message: format!("{message}; it is tried again, and tasks go on"),
                });
            }
            self.told.release(u64::MAX, self.reporter);
        } else {
            self.told.release(self.store.committed(), self.reporter);
        }
        self.trouble = trouble;
    }

    /// Gives the core a task, whose record is on its way to the store.
    pub(crate) fn submit(
        &mut self,
        mut submission: Submission,
        mut known: Known,
    ) -> Result<(), RunError> {
        self.settle_needs(&mut submission, &mut known)?;
        self.tasks.insert(submission.id.number, known);
        self.step(core::SchedulerEvent::Submit(submission));
        Ok(())
    }

    /// Lets the core decide, and does what it says.
    pub(crate) fn step(&mut self, event: core::SchedulerEvent) {
        self.step_with(event, None);
    }

    pub(crate) fn step_with(
        &mut self,
        event: core::SchedulerEvent,
        ended: Option<(&Ended, &Judgement)>,
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        self.decide(event, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect, ended);
        }
        self.effects = effects;
    }

    fn end(mut self) -> Summary {
        if self.phase == Phase::Running && self.left() > 0 {
            let left = match self.left() {
                1 => "a task waits".to_owned(),
                many => format!("{many} tasks wait"),
            };
            self.warn(
                None,
                format!(
                    "{left} for GPUs that were taken out, and nothing else can be done\n\
                     hint: put the GPUs back with `packhorse gpus --restore ID`, then `packhorse resume {}`",
                    self.id
                ),
            );
        }
        self.end_mps();
        self.hands.finish();
        let unread = self.feed.unread();
        let left = u128::from(self.left()) + u128::from(self.interrupted) + unread;
        let stopped = left > 0 || !self.feed.is_over();
        let exit = match self
            .signal
            .filter(|_| stopped && self.phase > Phase::Running)
        {
            Some(Signal::Terminate) => Exit::Signal(15),
            Some(Signal::Hangup) => Exit::Signal(1),
            Some(Signal::Quit) => Exit::Signal(3),
            Some(_) => Exit::Signal(2),
            None if self.failed + self.feed.rejected > 0 || left > 0 => Exit::TasksFailed,
            None => Exit::Success,
        };
        self.store.send(Record::RunEnded {
            at: UnixMicros::now(),
            exit: exit.code(),
        });
        if !self.store.ends_within(self.settings.store_patience) {
            let trouble = self.store.trouble();
            let why = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
            self.told.release(u64::MAX, self.reporter);
            self.reporter.event(&Event::Warning {
                task: None,
                message: format!("the last results are not written yet{why}; waiting for that"),
            });
            self.reporter.show(Instant::now(), &Nobody);
        }
        let written = self.store.finish();
        self.told.release(u64::MAX, self.reporter);
        if let Err(error) = &written {
            self.reporter.event(&Event::Warning {
                task: None,
                message: format!(
                    "{error}\nhint: what was told here has happened all the same; \
                     `packhorse show {}` may know less of it",
                    self.id
                ),
            });
        }
        let summary = Summary {
            run: self.id,
            succeeded: self.succeeded,
            failed: self.failed,
            left,
            rejected: self.feed.rejected,
            took: self.started.elapsed(),
            stored: written.is_ok(),
            exit: match exit {
                Exit::Success if written.is_err() => Exit::TasksFailed,
                exit => exit,
            },
        };
        self.reporter.event(&Event::RunEnded(summary.clone()));
        self.reporter.show(Instant::now(), &Nobody);
        summary
    }
}

/// Who waits, and why.
struct Waiting<'a> {
    state: &'a SchedulerState,
    devices: &'a Devices,
    now: Now,
}

impl Line for Waiting<'_> {
    fn why(&self) -> Option<String> {
        let first = self.state.first_in_line()?;
        let explanation = core::explain(self.state, first, self.now)?;
        let name = |device| self.devices.label(device);
        Some(explanation.prose(&name).to_string())
    }
}

/// Nobody waits any more.
pub(crate) struct Nobody;

impl Line for Nobody {
    fn why(&self) -> Option<String> {
        None
    }
}

pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> RunError {
    move |source| RunError::System { doing, source }
}
