//! Slurm's configuration, as far as it concerns us.

use std::path::{Path, PathBuf};

use crate::config::Mode;
use crate::slurm::Slurm;

/// Where Slurm's configuration usually is.
const USUAL: [&str; 3] =
    ["/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf"];

/// A release of Slurm: 22.05 is (22, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0, self.1)
    }
}

/// What `scontrol show config` says, and the folder of the files.
#[derive(Clone, Debug)]
pub struct SlurmConf {
    /// Keys in lower case.
    settings: Vec<(String, String)>,
    /// The folder of slurm.conf.
    pub folder: PathBuf,
}

impl SlurmConf {
    /// Asks Slurm. `None`: it does not answer.
    pub fn ask(slurm: &Slurm) -> Option<Self> {
        let answer = slurm.show_config()?;
        let settings = answer.lines().filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            Some((key.trim().to_ascii_lowercase(), value.trim().to_owned()))
        });
        let settings: Vec<_> = settings.collect();
        let file = settings.iter().find(|(key, _)| key == "slurm_conf");
        let file = file.map(|(_, value)| PathBuf::from(value)).or_else(usual);
        let file = file.unwrap_or_else(|| PathBuf::from(USUAL[0]));
        let folder = file.parent().unwrap_or(Path::new("/etc/slurm")).to_owned();
        Some(Self { settings, folder })
    }

    /// What a key is set to.
    pub fn get(&self, key: &str) -> Option<&str> {
        let key = key.to_ascii_lowercase();
        let mut settings = self.settings.iter();
        let (_, value) = settings.find(|(known, _)| *known == key)?;
        Some(value.as_str()).filter(|value| !value.is_empty() && *value != "(null)")
    }

    /// All values of a key that newer releases number: `Prolog[0]`.
    pub fn settings_of(&self, key: &str) -> Vec<&str> {
        let key = key.to_ascii_lowercase();
        let is_it = |known: &str| {
            let name = known.split('[').next().unwrap_or_default();
            name == key
        };
        let settings = self.settings.iter().filter(|(known, _)| is_it(known));
        settings.flat_map(|(_, value)| value.split(',').map(str::trim)).collect()
    }

    pub fn release(&self) -> Option<Release> {
        release(self.get("slurm_version")?)
    }

    /// The lines of a file beside slurm.conf, without comments.
    pub fn lines(&self, name: &str) -> Option<Vec<String>> {
        let text = fs_err::read_to_string(self.folder.join(name)).ok()?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        Some(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }
}

fn usual() -> Option<PathBuf> {
    let given = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    given.or_else(|| USUAL.iter().map(PathBuf::from).find(|file| file.exists()))
}

/// The release in `22.05.8` or `slurm-wlm 22.05.8`.
pub fn release(text: &str) -> Option<Release> {
    let word = text.split_whitespace().last()?;
    let mut numbers = word.split(['.', '-']);
    Some(Release(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Which mode fits a release, and why.
pub fn fitting_mode(release: Option<Release>) -> (Mode, String) {
    match release {
        None => (
            Mode::Choose,
            "Slurm does not answer, so its release is not known: \"choose\" needs nothing that is new"
                .to_owned(),
        ),
        Some(release) if release < Release(22, 5) => (
            Mode::Choose,
            format!(
                "Slurm {release} can share only one GPU of a node by itself (Flags=all_sharing came \
                 with 22.05): Packhorse has to choose"
            ),
        ),
        Some(release) if release < Release(23, 11) => (
            Mode::Choose,
            format!(
                "Slurm {release} knows Flags=all_sharing, but always fills the first GPU before the \
                 next (least-loaded came with 23.11): \"choose\" spreads jobs; \"native\" lets \
                 Slurm give whole GPUs (--gres=gpu) and shares on one node, packed"
            ),
        ),
        Some(release) => (
            Mode::Native,
            format!(
                "Slurm {release} chooses the least loaded GPU itself (Flags=all_sharing and \
                 LL_SHARED_GRES), and gives whole GPUs beside shares: Packhorse does the rest. \
                 \"choose\" works as well where shares above one GPU, or packing by fit, are wanted"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_decides_the_mode() {
        assert_eq!(release("slurm-wlm 22.05.8"), Some(Release(22, 5)));
        assert_eq!(release("24.11.5"), Some(Release(24, 11)));
        assert_eq!(release("26.05.0-0rc1"), Some(Release(26, 5)));
        for (text, mode) in [
            ("20.11.9", Mode::Choose),
            ("22.05.8", Mode::Choose),
            ("23.11.1", Mode::Native),
            ("24.11.5", Mode::Native),
        ] {
            assert_eq!(fitting_mode(release(text)).0, mode, "{text}");
        }
        assert_eq!(fitting_mode(None).0, Mode::Choose);
    }
}
