use clap::{Args, ValueEnum};

/// What tasks may run on.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Where tasks run")]
pub struct PoolArgs {
    /// The GPUs to use: `all`, or ids separated by commas or blanks; `0+1` is a group
    ///
    /// Ids are indices, `GPU-…` or `MIG-…` UUIDs. Each task gets one of them, or
    /// as many as -g says; with `0+1 2+3` each task gets a pair. Without a driver
    /// any ids are taken as they are. The default is all GPUs, or those in
    /// CUDA_VISIBLE_DEVICES if it is set.
    #[arg(long, value_name = "IDS", num_args = 1.., conflicts_with = "slots")]
    pub gpus: Vec<String>,

    /// Use no GPUs, and run at most N tasks at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,

    /// Put at most N tasks on one GPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_per_gpu: Option<u32>,

    /// Fill one GPU before the next, or use all evenly
    #[arg(long, value_name = "HOW")]
    pub place: Option<Placing>,
}

/// Which GPU a task gets when several would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placing {
    /// The fullest that has room: whole GPUs stay free
    Pack,
    /// The least loaded
    Spread,
}
