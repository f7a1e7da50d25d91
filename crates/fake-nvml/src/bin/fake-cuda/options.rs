//! What the program is told to do.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::oom::Style;

/// The option that a child process is not given.
pub const CHILD: &str = "--child";

/// Takes memory on the pretended machine, as a CUDA program does on a real one. Of an
/// option that is given twice, the last one counts.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
pub struct CudaOptions {
    /// The memory to have on each device in the end
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub peak: u64,
    /// In how many steps to get there
    #[arg(long, default_value = "1")]
    pub steps: NonZeroU32,
    /// How long to wait after each step
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub step_time: Duration,
    /// How often its devices must have been looked at since a step was taken
    #[arg(long, default_value_t)]
    pub step_looks: u64,
    /// The beginning of the files' names that the steps after the first wait for
    #[arg(long)]
    pub step_gate: Option<PathBuf>,
    /// A child process does it all
    #[arg(long)]
    pub child: bool,
    /// How to die of too little memory
    #[arg(long, default_value = "pytorch")]
    pub oom: Style,
    /// The exit status then
    #[arg(long, default_value_t = 1)]
    pub oom_exit: u8,
    /// How long to hold all of the memory
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub hold: Duration,
    /// Hold it until its devices have been looked at so often since
    #[arg(long, default_value_t)]
    pub hold_looks: u64,
    /// Hold it until all writers have closed this fifo
    #[arg(long)]
    pub hold_until_closed: Option<PathBuf>,
    /// Hold it until this file is there
    #[arg(long)]
    pub hold_until_exists: Option<PathBuf>,
    /// How busy to keep each device, in percent
    #[arg(long, default_value_t)]
    pub utilisation: u32,
    /// The exit status in the end
    #[arg(long, default_value_t)]
    pub exit: u8,
}

/// `9G`, `512M`, `1048576`: powers of 1024.
pub fn size(text: &str) -> Result<u64, &'static str> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("one unit is enough"),
    };
    let number = digits.parse::<u64>().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or("an amount is written as 9G or 512M")
}

/// `20ms`, `2s`, `1.5s`, `2`.
fn time(text: &str) -> Result<Duration, &'static str> {
    let time = if let Some(milliseconds) = text.strip_suffix("ms") {
        milliseconds.parse().ok().map(Duration::from_millis)
    } else {
        let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok();
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    };
    time.ok_or("a time is written as 20ms or 1.5s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(size("9G"), Ok(9 << 30));
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("17"), Ok(17));
        assert!(size("G9").is_err());
        assert!(size("99999999999T").is_err());
        assert_eq!(time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(time("soon").is_err());
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(CudaOptions::try_parse_from(["fake-cuda", "--peek", "9G"]).is_err());
    }
}
