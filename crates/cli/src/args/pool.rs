use clap::{Args, ValueEnum};
use packhorse_model::{Ageing, Placing, PoolSpec, TimeLimit};
use packhorse_session::IgnoredProcess;

use super::number::at_least_one;

/// What tasks may run on.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Where tasks run")]
pub struct PoolArgs {
    /// The GPUs to use: `all`, or ids separated by commas or blanks; `0+1` is a group
    ///
    /// Ids are indices, `GPU-…` UUIDs or `MIG-…` UUIDs; `0-3` is 0,1,2,3. Each task gets one of them,
    /// or as many as -g says; with `0+1 2+3` each task gets a pair. Without a driver,
    /// any ids are accepted. The default is all GPUs, or those in
    /// CUDA_VISIBLE_DEVICES if it is set.
    #[arg(long, value_name = "IDS", num_args = 1.., conflicts_with = "slots")]
    pub gpus: Vec<String>,

    /// Hand out the ids after --gpus exactly as written, without a look at the driver
    ///
    /// Commas do not separate ids, `0,1` is what one task gets, and an id that is given
    /// twice takes two tasks at a time. Other runs are not coordinated with.
    #[arg(long, requires = "gpus", hide_short_help = true)]
    pub as_written: bool,

    /// Use no GPUs, and run at most N tasks at a time
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub slots: Option<u32>,

    /// Put at most N tasks on one GPU
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub max_per_gpu: Option<u32>,

    /// Do not count the GPU memory of this program, user (uid:1000) or process id
    ///
    /// May be given several times. This is for desktops and monitors that always hold
    /// a little.
    #[arg(long, value_name = "WHO", value_parser = parse_ignored)]
    pub ignore_process: Vec<String>,

    /// Do not coordinate with other runs on this machine
    #[arg(long)]
    pub no_leases: bool,

    /// Do not tell tasks that run at the same time how many threads to start
    ///
    /// Otherwise OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS and
    /// NUMEXPR_NUM_THREADS are set to each task's part of the cores, unless you have set
    /// them.
    #[arg(long)]
    pub no_thread_caps: bool,

    /// Share GPUs through NVIDIA's Multi-Process Service
    #[arg(
        long, value_name = "BOOL", value_parser = parse_bool, conflicts_with = "slots",
        num_args = 0..=1, default_missing_value = "true"
    )]
    pub mps: Option<bool>,

    /// The part of a GPU's threads that a task may use under MPS, in percent
    /// [default: its share of the GPU]
    #[arg(
        long, value_name = "N", value_parser = parse_percentage, allow_negative_numbers = true,
        aliases = ["thread_percentage", "threads_percentage", "threads-percentage"]
    )]
    pub thread_percentage: Option<u8>,

    /// How long a task must wait to count as one priority more urgent, or `off`
    /// [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub ageing: Option<Ageing>,

    /// Let others start beside a task of an unknown kind once its GPU memory has not grown
    /// for this long, or `never` [default: 10s]
    ///
    /// With `--vram auto`, such a task first has all the memory that is free on its GPU.
    #[arg(long, value_name = "TIME")]
    pub rest: Option<TimeLimit>,

    /// Keep GPUs free for tasks that wait for them, or always use the emptiest
    /// [default: pack]
    #[arg(long, value_name = "HOW")]
    pub place: Option<PlacingArg>,
}

impl PoolArgs {
    /// What they say.
    pub fn spec(&self) -> PoolSpec {
        PoolSpec {
            gpus: self.gpus.clone(),
            as_written: self.as_written,
            slots: self.slots,
            max_per_gpu: self.max_per_gpu,
            at_most: None,
            place: self.place.map(|place| match place {
                PlacingArg::Pack => Placing::Pack,
                PlacingArg::Spread => Placing::Spread,
            }),
            ignore_process: self.ignore_process.clone(),
            leases: self.no_leases.then_some(false),
            mps: self.mps,
            thread_percentage: self.thread_percentage,
            equal_cores: None,
            thread_caps: self.no_thread_caps.then_some(false),
            ageing: self.ageing,
            rest: self.rest,
        }
    }
}

/// As Python and people write it.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("it is either true or false".to_owned()),
    }
}

/// What is beyond 0 and 100 is taken for these, as the original does.
fn parse_percentage(text: &str) -> Result<u8, String> {
    let number: f64 = text
        .trim_end_matches('%')
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or("it is not a number from 0 to 100")?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to 100"
    )]
    Ok(number.clamp(0.0, 100.0).round() as u8)
}

/// As it was written, if it means something.
fn parse_ignored(text: &str) -> Result<String, String> {
    let ignored = text.parse::<IgnoredProcess>();
    ignored.map(|_| text.to_owned())
}

/// Which GPU a task gets when several would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacingArg {
    /// Choose the GPU where waiting tasks lose the least room; among equals, the emptiest
    Pack,
    /// Choose the emptiest GPU
    Spread,
}
