//! The originals' names: `simple_gpu_scheduler` and `simple_hypersearch`, called
//! through a link to this binary, with their options and their output.

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use packhorse_intake::TaskLanguage;
use packhorse_intake::lines::Separator;
use packhorse_intake::sweep::SweepLanguage;
use packhorse_model::{Exit, OutputMode, PoolSpec, RunSpec, SourceSpec, SweepSpec};
use packhorse_session::{ReadTasks, build_sweep, open_inputs};

use crate::args::{SamplingMode, occurrences};
use crate::commands::{Order, find_settings, parameters, print, seed};
use crate::report::Legacy;
use crate::{complain, terminal};

/// The original's names.
pub const SCHEDULER: &str = "simple_gpu_scheduler";
pub const HYPERSEARCH: &str = "simple_hypersearch";

/// Run commands from standard input on free GPUs.
///
/// This is packhorse under the name of simple_gpu_scheduler: the same options and
/// the same lines. `packhorse run` can do more.
#[derive(Debug, Parser)]
#[command(name = SCHEDULER)]
struct SchedulerArgs {
    /// The ids of the GPUs, separated by blanks or commas
    #[arg(long, required = true, num_args = 1.., value_name = "GPU")]
    gpus: Vec<String>,
}

/// Print a command for each combination of parameters.
///
/// This is packhorse under the name of simple_hypersearch: the same options and
/// the same lines. `packhorse sweep` can do more.
#[derive(Debug, Parser)]
#[command(name = HYPERSEARCH)]
struct HypersearchArgs {
    /// The command, with {name} where a parameter goes
    command_pattern: String,

    /// A parameter and its values
    #[arg(short, long = "parameter", num_args = 2.., value_names = ["NAME", "VALUE"], required = true,
          allow_negative_numbers = true, action = clap::ArgAction::Append)]
    parameter: Vec<String>,

    /// The order of the combinations
    #[arg(long, default_value = "shuffled_grid")]
    sampling_mode: SamplingMode,

    /// Only so many, chosen without repetition
    #[arg(long)]
    n_samples: Option<u64>,

    /// For the same shuffled order every time
    #[arg(long, allow_negative_numbers = true)]
    seed: Option<i64>,
}

/// `simple_gpu_scheduler`
pub fn scheduler(words: Vec<OsString>) -> anyhow::Result<Exit> {
    let args = match SchedulerArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => return Ok(crate::usage(&error)),
    };
    // The original splits at commas only where a single value is given; several
    // values with commas in them are groups. It asks no driver, and an id that is
    // named twice takes two commands at a time.
    let ids: Vec<String> = match args.gpus.as_slice() {
        [one] => one.split(',').map(str::to_owned).collect(),
        several => several.to_vec(),
    };
    let streams = open_inputs(&[])?;
    let spec = RunSpec {
        pool: PoolSpec {
            gpus: ids,
            as_written: true,
            // Its tasks find what the original's find, and nothing else.
            thread_caps: Some(false),
            ..PoolSpec::default()
        },
        source: SourceSpec::Lines { files: Vec::new(), null: false },
        output: Some(OutputMode::Inherit),
        ..RunSpec::default()
    };
    let order = Order { spec, settings: find_settings()? };
    let language = TaskLanguage::Lines(Separator::Newline);
    let source = Box::new(ReadTasks::new(streams, language, 0));
    let summary = order.prepare()?.start(source, &mut Legacy::new(), &mut complain)?;
    Ok(summary.exit)
}

/// `simple_hypersearch`
pub fn hypersearch(words: Vec<OsString>) -> anyhow::Result<Exit> {
    let read = HypersearchArgs::command()
        .try_get_matches_from(words)
        .and_then(|matches| Ok((HypersearchArgs::from_arg_matches(&matches)?, matches)));
    let (args, matches) = match read {
        Ok(read) => read,
        Err(error) => return Ok(crate::usage(&error)),
    };
    // A parameter that is given again takes the first one's place.
    let mut given: Vec<(String, Vec<String>)> = Vec::new();
    for (name, values) in parameters(&occurrences(&matches, "parameter")) {
        match given.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = values,
            None => given.push((name, values)),
        }
    }
    let spec = SweepSpec {
        template: args.command_pattern,
        parameters: given,
        zips: Vec::new(),
        seed: seed(args.sampling_mode, args.seed.map(i64::cast_unsigned)),
        limit: args.n_samples,
    };
    let sweep = build_sweep(&spec, SweepLanguage::Original, terminal::colour())?;
    print(&sweep, Separator::Newline)
}
