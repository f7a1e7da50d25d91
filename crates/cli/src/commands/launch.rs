use std::time::Duration;

use anyhow::bail;
use packhorse_core::RefusalReason;
use packhorse_hands::Output;
use packhorse_runner::{
    Beginning, Defaults, Input, Parameters, Places, Reporter, Settings, Sharing, Summary, refusal,
};
use packhorse_store::{Home, NewRun, RunLock, RunUuid, UnixMicros};

use super::patience::patience;
use super::pool::{self, Found};
use crate::args::{OutputArgs, PoolArgs, Shown, TaskArgs};
use crate::complain;
use crate::report::{Json, Live, Plain};
use crate::saved::Saved;
use crate::terminal;

/// How long what happens is told only once it is written.
const STORE_PATIENCE: Duration = Duration::from_secs(1);
/// The environment variable that says otherwise.
const STORE_PATIENCE_VARIABLE: &str = "PACKHORSE_STORE_PATIENCE";

/// What to run, and how.
pub struct Order {
    /// Where.
    pub places: Places,
    /// What each task needs that says nothing itself.
    pub defaults: Defaults,
    /// How devices are shared.
    pub sharing: Sharing,
    /// How long an attempt has between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// What becomes of output.
    pub output: Output,
    /// Where tasks come from.
    pub input: Input,
    /// What their commands were made of, if they were made.
    pub parameters: Option<Parameters>,
    store_patience: Duration,
}

impl Order {
    /// What the arguments ask for.
    pub fn new(
        pool: &PoolArgs,
        task: &TaskArgs,
        output: Output,
        input: Input,
    ) -> anyhow::Result<Self> {
        let Found {
            places,
            defaults,
            sharing,
        } = pool::find(pool, task)?;
        if let Some(reason) = refusal(&places, &defaults.first_request())? {
            bail!("a task could never run: {reason}{}", advice(&reason));
        }
        Ok(Self {
            places,
            defaults,
            sharing,
            grace: task.grace,
            output,
            input,
            parameters: None,
            store_patience: patience(STORE_PATIENCE_VARIABLE)?.unwrap_or(STORE_PATIENCE),
        })
    }

    /// Runs it as a new run, and stays until it is over.
    pub fn launch(self, saved: &Saved, reporter: &mut dyn Reporter) -> anyhow::Result<Summary> {
        let home = Home::locate()?;
        // The database is opened while the first tasks start already.
        home.check_database()?;
        let cwd = std::env::current_dir()
            .map_err(|error| anyhow::anyhow!("cannot tell the current folder: {error}"))?;
        let (_, lock) = home.new_run()?;
        let started = UnixMicros::now();
        let new = NewRun {
            uuid: RunUuid::new(started),
            started,
            cwd,
            argv: std::env::args_os().collect(),
            host: packhorse_runner::host(),
            pid: std::process::id(),
            settings: saved.write(),
        };
        self.go_on(home, lock, Beginning::New(Box::new(new)), reporter)
    }

    /// Runs it as part of a run that has a number already.
    pub fn go_on(
        self,
        home: Home,
        lock: RunLock,
        beginning: Beginning,
        reporter: &mut dyn Reporter,
    ) -> anyhow::Result<Summary> {
        if let Some(kind) = home.network_filesystem() {
            complain(&format!(
                "warning: the state folder {} is on {kind}: use it from one machine at a time\n\
                 hint: set PACKHORSE_HOME to a folder on a local disk",
                home.path().display()
            ));
        }
        let settings = Settings {
            home,
            lock,
            beginning,
            places: self.places,
            defaults: self.defaults,
            sharing: self.sharing,
            parameters: self.parameters,
            output: self.output,
            grace: self.grace,
            store_patience: self.store_patience,
        };
        Ok(packhorse_runner::run(settings, self.input, reporter)?)
    }
}

/// What to do about a request that the options made.
fn advice(reason: &RefusalReason) -> &'static str {
    match reason {
        RefusalReason::TooManyGpus { most_gpus: 1.., .. } => {
            "\nhint: ask for fewer with -g, or name more with --gpus"
        }
        _ => "",
    }
}

/// Who shows the run.
pub fn reporter(args: &OutputArgs, input: &Input) -> Box<dyn Reporter> {
    if args.json {
        Box::new(Json::new())
    } else if !args.quiet
        && args.output != Shown::Inherit
        && terminal::can_draw()
        && !is_typed(input)
    {
        Box::new(Live::new())
    } else {
        Box::new(Plain::new(args.quiet))
    }
}

/// Whether commands are typed into a terminal, where a live view would be drawn
/// over them.
fn is_typed(input: &Input) -> bool {
    match input {
        Input::Lines { sources, .. } => sources
            .iter()
            .any(|source| rustix::termios::isatty(source.file.file())),
        _ => false,
    }
}

/// What becomes of output.
pub fn output(args: &OutputArgs) -> Output {
    match args.output {
        Shown::Log => Output::Log,
        Shown::Lines => Output::LogAndShow,
        Shown::Inherit => Output::Inherit,
    }
}
