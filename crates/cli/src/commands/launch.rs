//! From arguments to a run.

use packhorse_model::{OutputMode, RunSpec, TaskSpec};
use packhorse_session::settings::Settings;
use packhorse_session::{Launch, Observer};

use crate::args::{LaunchArgs, OutputArgs, PoolArgs, Shown};
use crate::report::{Json, Live, Plain};
use crate::{complain, terminal};

/// What a run needs to be prepared.
pub struct Order {
    /// What it is.
    pub spec: RunSpec,
    /// What was set elsewhere.
    pub settings: Settings,
    /// What becomes of output.
    pub output: OutputMode,
}

impl Order {
    /// What the arguments ask for, over what was set elsewhere.
    pub fn new(args: &LaunchArgs) -> anyhow::Result<Self> {
        Self::of(&args.pool, args.task.spec(), output_mode(&args.output))
    }

    /// The same with a task that is no argument.
    pub fn of(pool: &PoolArgs, task: TaskSpec, output: OutputMode) -> anyhow::Result<Self> {
        let settings = Settings::find()?;
        let (pool, defaults) = settings.under(pool.spec(), task);
        Ok(Self {
            spec: RunSpec {
                defaults,
                pool,
                ..RunSpec::default()
            },
            settings,
            output,
        })
    }

    /// Finds the devices, and checks what can be checked.
    pub fn prepare(self) -> anyhow::Result<Launch> {
        let (colour, settings) = (terminal::colour(), &self.settings);
        let launch = Launch::prepare(self.spec, self.output, colour, settings, &mut complain);
        Ok(launch?)
    }
}

/// Who shows the run.
pub fn observer(args: &OutputArgs, typed: bool) -> Box<dyn Observer> {
    if args.json {
        Box::new(Json::new())
    } else if !args.quiet && args.output != Shown::Inherit && terminal::can_draw() && !typed {
        Box::new(Live::new())
    } else {
        Box::new(Plain::new(args.quiet))
    }
}

/// What becomes of output.
pub fn output_mode(args: &OutputArgs) -> OutputMode {
    match args.output {
        Shown::Log => OutputMode::Log,
        Shown::Lines => OutputMode::Lines,
        Shown::Inherit => OutputMode::Inherit,
    }
}
