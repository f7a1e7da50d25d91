//! The one configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use packhorse_intake::{did_you_mean, nearest};
use packhorse_model::{Bytes, Placing};
use packhorse_orders::{SCONTROL, STATE_FOLDER};
use packhorse_trust::read_trusted;
use serde::Deserialize;

use crate::rules::Allow;

/// Where the configuration is, unless another place is named.
pub const CONFIG: &str = "/etc/packhorse/node.toml";

/// How a node is shared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Who chooses the GPU.
    #[serde(default)]
    pub mode: Mode,
    /// How many `mps` the node has, as in `gres.conf`.
    pub count: u64,
    /// Which GPU of several that have room.
    #[serde(default = "spread")]
    pub placing: Placing,
    /// Where the node's state is.
    #[serde(default = "state_folder")]
    pub state: PathBuf,
    /// Slurm's `scontrol`; `squeue` and `scancel` are beside it.
    #[serde(default = "scontrol")]
    pub scontrol: PathBuf,
    /// The GPUs, in the order of `gres.conf`.
    #[serde(default)]
    pub gpus: Vec<GpuConfigEntry>,
    /// What is done with MPS.
    #[serde(default)]
    pub mps: MpsConfig,
    /// Who may ask for `mps`: whoever one of these admits; everybody if there is none.
    #[serde(default)]
    pub allow: Vec<Allow>,
}

/// Who chooses the GPU of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Slurm counts all of the node's `mps` on its first GPU, and we choose.
    #[default]
    Choose,
    /// Slurm counts on every GPU and chooses.
    Native,
}

/// One GPU of the node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuConfigEntry {
    /// Its device file, as in `gres.conf`.
    pub file: PathBuf,
    /// Its UUID, as the driver tells it. Without it, jobs are given the number.
    pub uuid: Option<String>,
    /// How much memory it has. Without it, memory is not limited.
    pub memory: Option<Bytes>,
}

/// What is done with MPS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MpsConfig {
    /// Whether servers are started for jobs.
    pub servers: bool,
    /// Whether a job may use no more threads than its share.
    pub threads: bool,
    /// Whether a job may use no more memory than its share.
    pub memory: bool,
    /// NVIDIA's program.
    pub control: PathBuf,
    /// How long a server may take to start or to end, in seconds.
    pub patience: u64,
    /// Where the servers' folders are. Users can fill theirs.
    pub folder: PathBuf,
}

impl Default for MpsConfig {
    fn default() -> Self {
        Self {
            servers: true,
            threads: true,
            memory: true,
            control: PathBuf::from("/usr/bin/nvidia-cuda-mps-control"),
            patience: 20,
            folder: PathBuf::from("/var/lib/packhorse/mps"),
        }
    }
}

fn spread() -> Placing {
    Placing::Spread
}

fn state_folder() -> PathBuf {
    PathBuf::from(STATE_FOLDER)
}

fn scontrol() -> PathBuf {
    PathBuf::from(SCONTROL)
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read, or not be trusted.
    #[error("cannot read {}: {source}\nhint: `packhorse node install --dry-run` shows what belongs there; root owns it, and nobody else may write it", .file.display())]
    Unreadable {
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a configuration.
    #[error("{}: {why}", .file.display())]
    Wrong {
        file: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
}

impl Config {
    /// Reads the configuration, which root alone may write.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = read_trusted(file)
            .map_err(|source| ConfigError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|why| ConfigError::Wrong { file: file.to_owned(), why })
    }

    /// The configuration that is written in a text; or what is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| reworded(&error))?;
        config.check(text)?;
        Ok(config)
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let gpus = self.gpus.len() as u64;
        if gpus == 0 {
            return Err(
                "no GPU is named\nhint: a section [[gpus]] for each, with file = \"/dev/nvidia0\""
                    .to_owned(),
            );
        }
        if gpus > 64 {
            return Err("a node has no more than 64 GPUs".to_owned());
        }
        if self.count == 0 || !self.count.is_multiple_of(gpus) || self.count > 1 << 40 {
            let up = self.count.next_multiple_of(gpus).max(gpus);
            let why = format!(
                "count = {} cannot be divided among {gpus} GPUs\n\
                 hint: the same number as in gres.conf, such as {up}",
                self.count
            );
            return Err(quoted(text, "count", &why));
        }
        let mut files: Vec<&Path> = self.gpus.iter().map(|gpu| gpu.file.as_path()).collect();
        files.sort_unstable();
        if let Some(twice) = files.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} is named twice", twice[0].display()));
        }
        let paths = [
            ("state", &self.state),
            ("scontrol", &self.scontrol),
            ("control", &self.mps.control),
            ("folder", &self.mps.folder),
        ];
        for (key, path) in paths {
            if !path.is_absolute() {
                let why = format!(
                    "{key} = \"{}\" is not a whole path\nhint: there is no PATH in a prolog; begin with /",
                    path.display()
                );
                return Err(quoted(text, key, &why));
            }
        }
        if self.allow.iter().any(|allow| allow.most == Some(0)) {
            return Err(quoted(
                text,
                "most",
                "most = 0 allows nothing\nhint: leave it out for no limit",
            ));
        }
        Ok(())
    }

    /// How many `mps` one GPU has.
    pub fn per_gpu(&self) -> u64 {
        self.count / (self.gpus.len() as u64).max(1)
    }

    /// How many `mps` are 100 percent for Slurm: what it counts on one GPU.
    pub fn whole(&self) -> u64 {
        match self.mode {
            Mode::Choose => self.count,
            Mode::Native => self.per_gpu(),
        }
    }

    /// Whether it names all of these GPUs. A job may have begun when it named more.
    pub fn has_all(&self, gpus: &[packhorse_orders::GpuPart]) -> bool {
        gpus.iter().all(|part| (part.gpu as usize) < self.gpus.len())
    }

    /// The folder of an MPS server.
    pub fn server_folder(&self, name: &str) -> PathBuf {
        self.mps.folder.join(name)
    }

    /// How long a server may take to start or to end.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.mps.patience.clamp(1, 600))
    }

    /// After so long nobody waits any more for what starts or ends a server. That has a time
    /// limit for each of its steps, unless its user holds it up.
    pub fn longest_start(&self) -> Duration {
        self.patience() * 3
    }
}

/// The line that sets a key, before what is wrong with it.
fn quoted(text: &str, key: &str, why: &str) -> String {
    let sets = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    match text.lines().position(sets) {
        Some(line) => {
            let written = text.lines().nth(line).unwrap_or_default();
            let number = line + 1;
            format!("line {number}\n  |\n{number} | {written}\n  |\n{why}")
        }
        None => why.to_owned(),
    }
}

/// What TOML's reader says, with the key that was probably meant.
fn reworded(error: &toml::de::Error) -> String {
    let rendered = error.to_string();
    let rendered = rendered.trim_end();
    let message = error.message();
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return rendered.to_owned();
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let hint = nearest(unknown, names)
        .map_or_else(|| "docs/slurm-node.md lists what can be set".to_owned(), did_you_mean);
    rendered.replace(message, &format!("nothing here is called `{unknown}`\nhint: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: &str = "[[gpus]]\nfile = \"/dev/nvidia0\"\n[[gpus]]\nfile = \"/dev/nvidia1\"\n";

    #[test]
    fn the_shortest_configuration_is_enough() {
        let config = Config::parse(&format!("count = 640\n{GPUS}")).unwrap();
        assert_eq!((config.mode, config.placing), (Mode::Choose, Placing::Spread));
        assert_eq!((config.per_gpu(), config.whole()), (320, 640));
        assert_eq!(config.state, Path::new("/run/packhorse"));
        let native = Config::parse(&format!("count = 640\nmode = \"native\"\n{GPUS}")).unwrap();
        assert_eq!(native.whole(), 320);
    }

    #[test]
    fn mistakes_are_told_with_their_line_and_a_hint() {
        for (text, expected) in [
            ("count = 640\ncuont = 3\n", vec!["2 | cuont = 3", "hint"]),
            ("count = 641\n", vec!["1 | count = 641", "hint", "642"]),
            ("count = 640\nstate = \"run\"\n", vec!["2 | state", "hint"]),
            ("count = 640\nplacing = \"left\"\n", vec!["2 | placing", "spread"]),
            ("count = 640\n[[allow]]\nusers = [\"a b\"]\n", vec!["3 | users", "hint"]),
        ] {
            let text = if text.contains("allow") {
                format!("count = 640\n{GPUS}{}", &text[12..])
            } else {
                format!("{text}{GPUS}")
            };
            let error = Config::parse(&text).unwrap_err();
            for part in expected {
                let part = part.trim_start_matches("3 | ");
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        assert!(Config::parse("count = 640\n").unwrap_err().contains("GPU"));
    }
}
