//! Examples that measure and print `NAME=NUMBER`.

use std::process::Stdio;

use anyhow::{Result, bail};

use crate::bench::waiting::figure;
use crate::folders::cargo;

/// What an example printed.
pub struct Figures(String);

impl Figures {
    /// Runs a package's example in a release build.
    pub fn of(package: &str, example: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = cargo();
        command.args(["run", "--release", "--quiet", "--package", package]);
        command.args(["--example", example, "--"]).args(arguments);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            let arguments = arguments.join(" ");
            bail!(
                "{package}'s example {example} {arguments}: {}",
                output.status
            );
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// The number that belongs to `name`.
    pub fn get(&self, name: &str) -> Result<f64> {
        figure(&self.0, name)
    }
}
