//! From arguments to a run.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use packhorse_model::{OutputMode, PoolSpec, RunSpec, TaskSpec};
use packhorse_session::settings::Settings;
use packhorse_session::{Launch, Observer, TaskChecks, TaskSource};

use crate::args::{LaunchArgs, OutputArgs, PoolArgs};
use crate::report::{Json, Live, Plain};
use crate::{complain, terminal};

/// The file that `--config` names: a process has one command line.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file that [`find_settings`] reads.
pub fn name_settings(file: PathBuf) {
    let _ = NAMED.set(file);
}

/// What the environment and files say. Warns of files that were left out.
pub fn find_settings() -> anyhow::Result<Settings> {
    find_settings_of(None)
}

/// The settings for a run that stores the name of its own file.
pub fn find_settings_of(run: Option<&Path>) -> anyhow::Result<Settings> {
    let named = NAMED.get().map(PathBuf::as_path).or(run);
    Ok(Settings::find(named, &mut complain)?)
}

/// What a run needs to be prepared.
pub struct Order {
    pub spec: RunSpec,
    /// What was set elsewhere.
    pub settings: Settings,
}

impl Order {
    /// What the arguments ask for, over what was set elsewhere.
    pub fn new(args: &LaunchArgs) -> anyhow::Result<Self> {
        let order = Self::with(args.pool(), args.task.spec(), args.output.mode())?;
        order.on_slurm(args)
    }

    /// The same on Slurm, if the arguments say so.
    pub fn on_slurm(mut self, args: &LaunchArgs) -> anyhow::Result<Self> {
        let slurm = args.slurm.spec()?;
        self.spec.slurm = slurm.map(|slurm| self.settings.under_slurm(slurm));
        Ok(self)
    }

    /// The same with a task that is no argument.
    pub fn of(pool: &PoolArgs, task: TaskSpec, output: Option<OutputMode>) -> anyhow::Result<Self> {
        Self::with(pool.spec(), task, output)
    }

    /// The same with a pool that is none, either.
    pub fn with(
        pool: PoolSpec,
        task: TaskSpec,
        output: Option<OutputMode>,
    ) -> anyhow::Result<Self> {
        let settings = find_settings()?;
        let (pool, defaults) = settings.under(pool, task);
        Ok(Self {
            spec: RunSpec {
                defaults,
                pool,
                output: output.or(settings.output),
                config: settings.named().map(Path::to_owned),
                ..RunSpec::default()
            },
            settings,
        })
    }

    /// Finds the devices, and checks what can be checked.
    pub fn prepare(self) -> anyhow::Result<Launch> {
        let (colour, settings) = (terminal::colour(), &self.settings);
        let launch = Launch::prepare(self.spec, colour, settings, &mut complain);
        Ok(launch?)
    }
}

/// A run that a door has made of its arguments: it can be started, or planned.
pub struct DoorRun {
    pub order: Order,
    pub source: Box<dyn TaskSource>,
    /// What single tasks ask for.
    pub checks: TaskChecks,
}

/// Who shows a run. `output` is where its tasks' output goes.
pub fn observer(
    args: &OutputArgs,
    spec: &RunSpec,
    output: Option<OutputMode>,
    typed: bool,
) -> Box<dyn Observer> {
    let inherits = output == Some(OutputMode::Inherit);
    if args.json {
        Box::new(Json::new())
    } else if !args.quiet && !inherits && terminal::can_draw() && !typed {
        let live = Live::new();
        Box::new(if spec.calls { live.of_calls() } else { live })
    } else {
        let plain = Plain::new(args.quiet);
        Box::new(if spec.calls { plain.of_calls() } else { plain })
    }
}
