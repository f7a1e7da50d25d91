//! Programs that measure and print `NAME=NUMBER`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::folders::cargo;
use crate::setup::show;

/// What such a program printed.
pub struct Figures(String);

impl Figures {
    /// Runs a program.
    pub fn printed_by(command: &mut Command) -> Result<Self> {
        let output = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| show(command))?;
        if !output.status.success() {
            bail!("{}: {}", show(command), output.status);
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Runs a package's example in a release build.
    pub fn of_example(package: &str, example: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = cargo();
        command.args(["run", "--release", "--quiet", "--package", package]);
        command.args(["--example", example, "--"]).args(arguments);
        Self::printed_by(&mut command)
    }

    /// The last number with this name.
    pub fn get(&self, name: &str) -> Result<f64> {
        let words = self.0.split_whitespace();
        let mut values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let value = values.next_back();
        let value = value.with_context(|| format!("no {name}= in its output:\n{}", self.0))?;
        value.parse().with_context(|| format!("{name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_read_by_its_whole_name() {
        let text = "a million\nbytes_per_task=120 event_ns=850.5\n";
        let figures = Figures(text.to_owned());
        assert!((figures.get("event_ns").unwrap() - 850.5).abs() < 1e-9);
        assert!((figures.get("bytes_per_task").unwrap() - 120.0).abs() < 1e-9);
        assert!(figures.get("event").is_err());
    }

    #[test]
    fn program_that_fails_is_named() {
        let error = Figures::printed_by(&mut Command::new("false")).err().unwrap();
        assert!(error.to_string().starts_with("false: "), "{error}");
    }
}
