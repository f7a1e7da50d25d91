//! The orders of one job, and the text they are written as.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What one job on this node was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOrders {
    /// Slurm's number of the job.
    pub job: u32,
    /// Whose it is.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// That user's name.
    pub user: String,
    /// The boot of the node in which this was written.
    pub boot: String,
    /// When, in seconds since then. No clock that can be set.
    pub since: u64,
    /// How much it asked for, in the units of Slurm's `mps`.
    pub share: u64,
    /// What it has of each of its GPUs.
    pub gpus: Vec<GpuPart>,
    /// The memory it may use on each of its GPUs, in MiB. `None`: there is no limit.
    pub memory_mib: Option<u64>,
    /// The percentage of the threads that it may use. `None`: there is no limit.
    pub threads: Option<u32>,
    /// The name of its MPS server, if it has one.
    pub server: Option<String>,
    /// Why it may not run.
    pub refused: Option<String>,
    /// The devices it may use and those it may not.
    pub devices: Vec<DeviceRule>,
    /// Variables to set in its tasks' environment, or to remove from it.
    pub variables: Vec<(String, Option<String>)>,
    /// A file that is locked until its MPS server runs.
    pub wait: Option<PathBuf>,
}

/// What a job has of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPart {
    /// The GPU's place in the configuration, from 0.
    pub gpu: u32,
    /// How much of it, in the units of Slurm's `mps`.
    pub units: u64,
}

/// Whether a character device may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    /// Its driver's number.
    pub major: u32,
    /// Its own number.
    pub minor: u32,
    /// Whether it may be used.
    pub allowed: bool,
}

/// What names GPUs to a program.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

impl JobOrders {
    /// Whether it was written down only to be counted: every prolog orders something.
    pub fn is_only_counted(&self) -> bool {
        self.refused.is_none() && self.devices.is_empty() && self.variables.is_empty()
    }

    /// The variables of a task that can open every GPU of its node, since it could not be held
    /// to its own. GPUs that were named by numbers of what it can open have others then. (Not to
    /// clients of an MPS server, which count what their server has.)
    pub fn variables_if_not_held(&self) -> Vec<(String, Option<String>)> {
        let mut variables = self.variables.clone();
        if self.server.is_some() {
            return variables;
        }
        let gpus: Vec<String> = self.gpus.iter().map(|part| part.gpu.to_string()).collect();
        let is_numbers =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
        for (name, value) in &mut variables {
            if name == VISIBLE && value.as_deref().is_some_and(is_numbers) {
                *value = Some(gpus.join(","));
            }
        }
        variables
    }
}

/// Why a text is not a job's orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrdersError(String);

impl fmt::Display for OrdersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for OrdersError {}

/// The first line, with the version of this format.
const HEAD: &str = "packhorse job 1";

/// The last line: without it, the file was cut off.
const END: &str = "end";

impl fmt::Display for JobOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |key: &str, value: &dyn fmt::Display| {
            // A line break in a value would start another order.
            let value = value.to_string().replace(['\n', '\r', '\0'], " ");
            writeln!(f, "{key} {value}")
        };
        line("packhorse", &"job 1")?;
        line("job", &self.job)?;
        line("uid", &self.uid)?;
        line("gid", &self.gid)?;
        line("user", &self.user)?;
        line("boot", &self.boot)?;
        line("since", &self.since)?;
        line("share", &self.share)?;
        for part in &self.gpus {
            line("gpu", &format_args!("{} {}", part.gpu, part.units))?;
        }
        if let Some(memory) = self.memory_mib {
            line("memory", &memory)?;
        }
        if let Some(threads) = self.threads {
            line("threads", &threads)?;
        }
        if let Some(server) = &self.server {
            line("server", server)?;
        }
        if let Some(reason) = &self.refused {
            line("refused", reason)?;
        }
        for rule in &self.devices {
            let key = if rule.allowed { "allow" } else { "deny" };
            line(key, &format_args!("{} {}", rule.major, rule.minor))?;
        }
        for (name, value) in &self.variables {
            match value {
                Some(value) => line("set", &format_args!("{name}={value}"))?,
                None => line("unset", name)?,
            }
        }
        if let Some(file) = &self.wait {
            line("wait", &file.display())?;
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for JobOrders {
    type Err = OrdersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cut = || OrdersError("it was cut off".to_owned());
        let body = text.strip_suffix('\n').ok_or_else(cut)?;
        let body = body.strip_suffix(END).ok_or_else(cut)?;
        let body = body.strip_prefix(HEAD).and_then(|body| body.strip_prefix('\n'));
        let body = body.ok_or_else(|| OrdersError("it is not a job's file".to_owned()))?;
        let mut orders = Self::default();
        for line in body.lines() {
            orders.take(line).ok_or_else(|| OrdersError(format!("`{line}` makes no sense")))?;
        }
        if orders.job == 0 || orders.boot.is_empty() {
            return Err(OrdersError("it does not say whose it is".to_owned()));
        }
        Ok(orders)
    }
}

impl JobOrders {
    fn take(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(' ')?;
        let device = |allowed| {
            let (major, minor) = pair(value)?;
            Some(DeviceRule { major, minor, allowed })
        };
        match key {
            "job" => self.job = value.parse().ok()?,
            "uid" => self.uid = value.parse().ok()?,
            "gid" => self.gid = value.parse().ok()?,
            "user" => value.clone_into(&mut self.user),
            "boot" => value.clone_into(&mut self.boot),
            "since" => self.since = value.parse().ok()?,
            "share" => self.share = value.parse().ok()?,
            "gpu" => {
                let (gpu, units) = pair(value)?;
                self.gpus.push(GpuPart { gpu, units });
            }
            "memory" => self.memory_mib = Some(value.parse().ok()?),
            "threads" => self.threads = Some(value.parse().ok()?),
            "server" => self.server = Some(value.to_owned()),
            "refused" => self.refused = Some(value.to_owned()),
            "allow" => self.devices.push(device(true)?),
            "deny" => self.devices.push(device(false)?),
            "set" => {
                let (name, value) = value.split_once('=')?;
                self.variables.push((name.to_owned(), Some(value.to_owned())));
            }
            "unset" => self.variables.push((value.to_owned(), None)),
            "wait" => self.wait = Some(value.into()),
            _ => return None,
        }
        Some(())
    }
}

fn pair<A: FromStr, B: FromStr>(text: &str) -> Option<(A, B)> {
    let (one, other) = text.split_once(' ')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> JobOrders {
        JobOrders {
            job: 17,
            uid: 1000,
            gid: 100,
            user: "alice".to_owned(),
            boot: "b".to_owned(),
            since: 5,
            share: 400,
            gpus: vec![GpuPart { gpu: 0, units: 200 }, GpuPart { gpu: 3, units: 200 }],
            memory_mib: Some(1024),
            threads: Some(62),
            server: Some("0+3-1000".to_owned()),
            refused: None,
            devices: vec![
                DeviceRule { major: 195, minor: 0, allowed: true },
                DeviceRule { major: 195, minor: 1, allowed: false },
            ],
            variables: vec![("A".to_owned(), Some("b=c d".to_owned())), ("X".to_owned(), None)],
            wait: Some("/run/lock".into()),
        }
    }

    #[test]
    fn orders_are_read_as_they_were_written() {
        let orders = orders();
        assert_eq!(orders.to_string().parse(), Ok(orders));
    }

    #[test]
    fn what_can_open_every_gpu_is_told_the_number_of_its_own() {
        let mut orders = orders();
        let told = |orders: &JobOrders| {
            let variables = orders.variables_if_not_held();
            assert_eq!(variables.len(), orders.variables.len());
            let mut values = variables.into_iter();
            values.find_map(|(name, value)| value.filter(|_| name == VISIBLE))
        };
        let visible = |text: &str| (VISIBLE.to_owned(), Some(text.to_owned()));
        orders.variables.push(visible("0,1"));
        assert_eq!(told(&orders).as_deref(), Some("0,1"), "its server's");
        orders.server = None;
        assert_eq!(told(&orders).as_deref(), Some("0,3"));
        orders.variables.pop();
        orders.variables.push(visible("GPU-1,GPU-2"));
        assert_eq!(told(&orders).as_deref(), Some("GPU-1,GPU-2"));
    }

    #[test]
    fn whatever_is_cut_off_is_noticed() {
        let text = orders().to_string();
        for length in 0..text.len() {
            assert!(text[..length].parse::<JobOrders>().is_err(), "{length}");
        }
    }

    #[test]
    fn a_value_cannot_become_another_order() {
        let mut orders = orders();
        orders.user = "eve\nallow 195 1".to_owned();
        let again: JobOrders = orders.to_string().parse().unwrap();
        assert_eq!(again.devices, orders.devices);
    }

    #[test]
    fn anything_unknown_is_refused() {
        for text in [
            "",
            "end\n",
            "packhorse job 1\nend\n",
            "packhorse job 2\njob 1\nboot b\nend\n",
            "packhorse job 1\njob x\nboot b\nend\n",
            "packhorse job 1\njob 1\nboot b\nobey me\nend\n",
        ] {
            assert!(text.parse::<JobOrders>().is_err(), "{text}");
        }
    }
}
