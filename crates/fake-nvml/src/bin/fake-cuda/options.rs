//! What the program is told to do.

use std::path::PathBuf;
use std::time::Duration;

use crate::hold::Hold;
use crate::oom::Style;

/// The option that has no value.
pub const CHILD: &str = "--child";

/// The options, in short.
pub const USAGE: &str = "usage: fake-cuda [--peak SIZE] [--steps N] [--step-time TIME] \
[--step-looks N | --step-gate PREFIX] [--child] [--oom pytorch|tensorflow|jax|cublas|cuda|silent] [--oom-exit CODE] \
[--hold TIME | --hold-looks N | --hold-until-closed FIFO | --hold-until-exists FILE] \
[--utilisation PERCENT] [--exit CODE]";

/// What the program is told to do.
#[derive(Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// The memory to have on each device in the end, in bytes.
    pub peak: u64,
    /// In how many steps to get there.
    pub steps: u32,
    /// How long to wait after each step.
    pub step_time: Duration,
    /// How often its devices must have been looked at since a step was taken.
    pub step_looks: u64,
    /// The beginning of the files' names that the steps after the first wait
    /// for.
    pub step_gate: Option<PathBuf>,
    /// A child process does it all.
    pub child: bool,
    /// How to die of too little memory.
    pub oom: Style,
    /// The exit status then.
    pub oom_exit: u8,
    /// What to do when all memory is there.
    pub hold: Hold,
    /// How busy to keep each device, in percent.
    pub utilisation: u32,
    /// The exit status in the end.
    pub exit: u8,
}

impl CudaOptions {
    /// Reads the arguments after the program's name.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            peak: 1 << 30,
            steps: 1,
            step_time: Duration::ZERO,
            step_looks: 0,
            step_gate: None,
            child: false,
            oom: Style::PyTorch,
            oom_exit: 1,
            hold: Hold::For(Duration::ZERO),
            utilisation: 0,
            exit: 0,
        };
        while let Some(argument) = arguments.next() {
            if argument == CHILD {
                options.child = true;
                continue;
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument, arguments.next()),
            };
            let value = value.ok_or_else(|| format!("{name} needs a value"))?;
            let wrong = || format!("{name} cannot be {value}");
            match name.as_str() {
                "--peak" => options.peak = size(&value).ok_or_else(wrong)?,
                "--steps" => {
                    let steps = value.parse().ok().filter(|&steps| steps > 0);
                    options.steps = steps.ok_or_else(wrong)?;
                }
                "--step-time" => options.step_time = time(&value).ok_or_else(wrong)?,
                "--step-looks" => options.step_looks = value.parse().map_err(|_| wrong())?,
                "--step-gate" => options.step_gate = Some(PathBuf::from(value)),
                "--oom" => options.oom = Style::parse(&value).ok_or_else(wrong)?,
                "--oom-exit" => options.oom_exit = value.parse().map_err(|_| wrong())?,
                "--hold" => options.hold = Hold::For(time(&value).ok_or_else(wrong)?),
                "--hold-looks" => {
                    options.hold = Hold::Looks(value.parse().map_err(|_| wrong())?);
                }
                "--hold-until-closed" => options.hold = Hold::UntilClosed(PathBuf::from(value)),
                "--hold-until-exists" => options.hold = Hold::UntilExists(PathBuf::from(value)),
                "--utilisation" => options.utilisation = value.parse().map_err(|_| wrong())?,
                "--exit" => options.exit = value.parse().map_err(|_| wrong())?,
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(options)
    }
}

/// `9G`, `512M`, `1048576`: powers of 1024.
pub fn size(text: &str) -> Option<u64> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `20ms`, `2s`, `1.5s`, `2`.
fn time(text: &str) -> Option<Duration> {
    if let Some(milliseconds) = text.strip_suffix("ms") {
        return milliseconds.parse().ok().map(Duration::from_millis);
    }
    let seconds = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!(size("9G"), Some(9 << 30));
        assert_eq!(size("512MiB"), Some(512 << 20));
        assert_eq!(size("17"), Some(17));
        assert_eq!(size("G9"), None);
        assert_eq!(size("99999999999T"), None);
        assert_eq!(time("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(time("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(time("soon"), None);
    }

    #[test]
    fn an_unknown_option_is_refused() {
        let arguments = ["--peek", "9G"].map(str::to_owned);
        assert!(CudaOptions::parse(arguments.into_iter()).is_err());
    }
}
