//! A shell in a lab, to try things out by hand.
//!
//! `cargo run -p packhorse-slurm-lab --example slurm-lab [-- [--24.11] COMMAND…]`

use std::env;
use std::process::ExitCode;

use packhorse_slurm_lab::{LabSettings, SlurmLab, SlurmVersion};

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1).peekable();
    let mut settings = LabSettings::default();
    if words.next_if(|word| word == "--24.11").is_some() {
        settings.version = SlurmVersion::V24_11;
    }
    let Some(lab) = SlurmLab::start(settings) else {
        return ExitCode::FAILURE;
    };
    let program = words.next().unwrap_or_else(|| "bash".into());
    let mut command = lab.command(program);
    command.args(words).env("LAB", lab.folder());
    if let Some(term) = env::var_os("TERM") {
        command.env("TERM", term);
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
