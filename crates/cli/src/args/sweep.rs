use clap::{Args, ValueEnum};

use super::LaunchArgs;
use super::number::whole;

/// Make a command for each combination of parameters
///
/// The commands are printed one per line, ready for `packhorse run`; with --run
/// they are run right away.
#[derive(Debug, Args)]
#[command(override_usage = "packhorse sweep TEMPLATE -p <NAME> <VALUE>... [OPTIONS]")]
#[command(after_help = "\
Values: text is taken as it is; 1..5 counts, 0..1:0.25 counts in steps,
log:1e-4..1e-1:4 is 4 values, evenly spaced on a logarithmic scale.

Example: packhorse sweep \"python train.py --lr {lr} --bs {bs}\" -p lr 0.1 0.01 -p bs 32 64")]
pub struct SweepArgs {
    /// The command, with {name} where a parameter goes; {{ and }} are braces
    #[arg(value_name = "TEMPLATE")]
    pub template: Option<String>,

    /// A parameter and its values; may be given several times
    #[arg(short, long = "param", value_names = ["NAME", "VALUE"], num_args = 2.., required = true,
          action = clap::ArgAction::Append)]
    pub param: Vec<String>,

    /// The same, each parameter by itself.
    #[arg(skip)]
    pub parameters: Vec<Vec<String>>,

    /// An option that needs `run`, if one was given.
    #[arg(skip)]
    pub about_running: Option<String>,

    /// Parameters that go together, value by value: lr,bs
    #[arg(long, value_name = "NAMES", action = clap::ArgAction::Append)]
    pub zip: Vec<String>,

    /// The order of the combinations
    #[arg(long, visible_alias = "order", value_name = "MODE", default_value = "shuffled_grid")]
    pub sampling_mode: SamplingMode,

    /// Only this many combinations, chosen without repetition
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>)]
    pub n_samples: Option<u64>,

    /// The seed of the shuffled order, to get the same order every time
    #[arg(long, value_name = "S", value_parser = whole::<u64>)]
    pub seed: Option<u64>,

    /// Separate commands by NUL bytes, as `packhorse run --null` reads them
    #[arg(short = '0', long)]
    pub null: bool,

    /// Run the commands instead of printing them
    #[arg(long)]
    pub run: bool,

    /// Print the script that --run --slurm would submit, and submit nothing
    #[arg(long, requires = "run")]
    pub dry_run: bool,

    /// What its run is like.
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// The order of the combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SamplingMode {
    /// The last parameter changes fastest
    #[value(name = "grid")]
    Grid,
    /// The same combinations in random order
    #[value(name = "shuffled_grid", alias = "shuffled-grid", alias = "shuffled")]
    ShuffledGrid,
}
