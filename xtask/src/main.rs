//! What developers of Packhorse run: `cargo xtask test`, `bench` and `docs`.

#![expect(clippy::print_stdout, reason = "a developer's tool talks to its terminal")]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

mod bench;
mod debian;
mod dist;
mod docs;
mod folders;
mod limit;
mod python;
mod setup;
mod slurm;
#[cfg(test)]
mod sources;
mod test;

/// What developers of Packhorse run.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    /// Install what the tests need, then run every check
    Test(test::TestArgs),
    /// Measure Packhorse, the kernel's limit and similar programs, side by side
    Bench(bench::BenchArgs),
    /// Write the parts of docs/ that are made from the code: schemas, variables
    Docs,
    /// Make what can be given away: a wheel and a tarball, in target/dist
    Dist,
    /// Run a command many times as fast as possible: what the bench compares with
    #[command(hide = true)]
    Limit(limit::LimitArgs),
    /// Print figures of the scheduler alone, for the bench
    #[command(hide = true, subcommand)]
    Simulate(bench::SimulateArgs),
}

fn main() -> Result<ExitCode> {
    match Xtask::parse() {
        Xtask::Test(args) => test::run(&args),
        Xtask::Bench(args) => bench::run(&args),
        Xtask::Docs => docs::run(),
        Xtask::Dist => dist::run(),
        Xtask::Limit(args) => limit::run(&args),
        Xtask::Simulate(args) => bench::simulate(&args),
    }
}
