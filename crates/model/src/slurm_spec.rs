use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::optional::{Optional, OptionalFields, optional_fields};
use crate::{ParseValueError, TimeLimit, byte_string, parse_duration, written};

optional_fields! {
    /// What a run asks Slurm for, and how. What is left out is whatever the cluster does
    /// without being asked.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SlurmSpec {
        /// The partition, or several separated by commas.
        pub partition: Option<String>,
        /// The account that pays.
        pub account: Option<String>,
        #[serde(alias = "job-name")]
        pub job_name: Option<String>,
        /// How long one job may take. A bare number is minutes.
        pub time: Option<JobTime>,
        /// Generic resources of each job: `gpu:4`, `gpu:a100:2`.
        pub gres: Option<String>,
        /// Tasks in Slurm's sense, each with cores of its own: the cores of a job are
        /// these times `cpus_per_task`.
        pub ntasks: Option<NonZeroU32>,
        /// Cores for each of these.
        #[serde(alias = "cpus-per-task")]
        pub cpus_per_task: Option<NonZeroU32>,
        /// Main memory of each job: `64G`.
        #[serde(deserialize_with = "written::text")]
        pub mem: Option<String>,
        /// Main memory for each core.
        #[serde(alias = "mem-per-cpu", deserialize_with = "written::text")]
        pub mem_per_cpu: Option<String>,
        /// At most so many jobs at a time.
        pub jobs: Option<NonZeroU32>,
        /// More arguments of sbatch, each as it stands behind `#SBATCH`:
        /// `--constraint=a100`.
        #[serde(deserialize_with = "written::list")]
        pub sbatch: Vec<String>,
        /// Lines of shell that run before the tasks do.
        #[serde(deserialize_with = "written::list")]
        pub sh_lines: Vec<String>,
        /// The virtual environment to activate, by `source activate`.
        pub venv: Option<String>,
        /// A script with `%%placeholders%%`, instead of the usual one.
        #[serde(with = "byte_string::path::option")]
        pub template: Option<PathBuf>,
        /// The file for what the script itself writes, with Slurm's own `%`-patterns.
        pub output: Option<String>,
        /// The folder for all that a run and its jobs tell each other. Every node has to see
        /// it.
        #[serde(with = "byte_string::path::option")]
        pub folder: Option<PathBuf>,
        /// The `packhorse` to run on the nodes.
        #[serde(with = "byte_string::path::option")]
        pub program: Option<PathBuf>,
        /// How many more times to run a task whose job was cut off: its node died, it was
        /// preempted, or its time was over.
        pub requeues: Option<u32>,
        /// How long a task takes, for how many of them go into one job.
        #[serde(alias = "task-time")]
        pub task_time: Option<TimeLimit>,
        /// How long before its end a job ends its tasks, to have time to write down what
        /// became of them.
        pub margin: Option<TimeLimit>,
    }
}

/// How many more times a task is run whose job was cut off, if nobody says.
pub const DEFAULT_REQUEUES: u32 = 5;

impl SlurmSpec {
    /// This with what it leaves out taken from `defaults`.
    #[must_use]
    pub fn over(mut self, defaults: &Self) -> Self {
        self.fill(defaults);
        self
    }
}

/// How long a job may take, as Slurm is asked for it.
///
/// It reads what Slurm does (`90`, `1:30:00`, `2-12`, `UNLIMITED`) and what people write
/// elsewhere (`2h30m`). A bare number is minutes, as it is for Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobTime {
    /// So long.
    After(Duration),
    /// As long as it likes.
    Unlimited,
}

impl JobTime {
    /// The length of time, if there is a limit.
    pub const fn get(self) -> Option<Duration> {
        match self {
            Self::After(time) => Some(time),
            Self::Unlimited => None,
        }
    }
}

impl FromStr for JobTime {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let wrong =
            || ParseValueError::new(text, "a time such as 90 (minutes), 2h30m or 1-12:00:00");
        if ["unlimited", "infinite"].contains(&text.to_ascii_lowercase().as_str()) {
            return Ok(Self::Unlimited);
        }
        let seconds = match text.parse::<u64>() {
            Ok(minutes) => minutes.checked_mul(60),
            Err(_) if text.contains([':', '-']) => clock(text),
            Err(_) => {
                let time = parse_duration(text).map_err(|_| wrong())?;
                return Ok(Self::After(time));
            }
        };
        // A thousand years, as elsewhere.
        match seconds {
            Some(seconds @ 1..32_000_000_000) => Ok(Self::After(Duration::from_secs(seconds))),
            _ => Err(wrong()),
        }
    }
}

/// `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` and `D-HH:MM:SS`, in seconds.
fn clock(text: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    let (hours, minutes, seconds) = match (days.is_some(), parts[..].as_ref()) {
        (true, [hours]) => (*hours, 0, 0),
        (true, [hours, minutes]) => (*hours, *minutes, 0),
        (false, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    Some(days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

/// As Slurm reads it: `2:00:00`, `1-12:00:00`. Slurm counts whole minutes, and so a part of
/// a second is one.
impl fmt::Display for JobTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.get() else {
            return f.write_str("UNLIMITED");
        };
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
        if days > 0 {
            write!(f, "{days}-")?;
        }
        write!(f, "{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60)
    }
}

impl Serialize for JobTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

written::parsed!(JobTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_and_people_write_them() {
        for (text, seconds) in [
            ("90", 5400),
            ("2h", 7200),
            ("1h30m", 5400),
            ("1:30", 90),
            ("0:45:00", 2700),
            ("1-12", 129_600),
            ("1-12:30", 131_400),
            ("2-00:00:10", 172_810),
        ] {
            let time = JobTime::After(Duration::from_secs(seconds));
            assert_eq!(text.parse(), Ok(time), "{text}");
            assert_eq!(time.to_string().parse(), Ok(time), "{text}");
        }
        assert_eq!("UNLIMITED".parse(), Ok(JobTime::Unlimited));
        assert_eq!(JobTime::After(Duration::from_hours(2)).to_string(), "02:00:00");
        for text in ["", "0", "soon", "1:2:3:4", "-5", "1-", "1--2", "3 parsecs"] {
            assert!(text.parse::<JobTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_asked_of_slurm_is_read_as_it_was_written() {
        let text = r#"{"partition": "gpu", "time": 120, "mem": 4000, "cpus-per-task": 4,
            "sbatch": "--exclusive", "jobs": 2}"#;
        let spec: SlurmSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.time, Some(JobTime::After(Duration::from_hours(2))));
        assert_eq!(spec.mem.as_deref(), Some("4000"));
        assert_eq!(spec.sbatch, ["--exclusive"]);
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<SlurmSpec>(&json).unwrap(), spec);
        let over = SlurmSpec { partition: Some("cpu".to_owned()), ..SlurmSpec::default() };
        let over = over.over(&spec);
        assert_eq!(over.partition.as_deref(), Some("cpu"));
        assert_eq!(over.jobs, NonZeroU32::new(2));
    }
}
