//! Runs a command in a Slurm cluster of its own: for tests in other languages, and to try
//! things out by hand.
//!
//! `cargo run -p packhorse-slurm-lab -- sinfo`

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;

use clap::Parser;
use packhorse_slurm_lab::{CpuBinding, LabSettings, SlurmLab, SlurmVersion};

/// Run a command in a Slurm cluster of its own, which ends with it
#[derive(Parser)]
struct Args {
    /// Use Slurm 24.11 instead of this machine's
    #[arg(long = "24.11")]
    v24_11: bool,
    /// How many nodes: n1, n2 and so on
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// How many GPUs each node has
    #[arg(long, default_value_t = 4)]
    gpus: usize,
    /// How many CPUs each node has
    #[arg(long, default_value_t = 8)]
    cpus: usize,
    /// Keep tasks on the CPUs that they were given
    #[arg(long)]
    affinity: bool,
    /// A line for slurm.conf (may be given several times)
    #[arg(long, value_name = "LINE")]
    conf: Vec<String>,
    /// The command; the folder of the cluster is in $SLURM_LAB
    #[arg(trailing_var_arg = true, default_value = "bash")]
    command: Vec<OsString>,
}

#[expect(clippy::print_stderr, reason = "it is a program for a terminal")]
fn main() -> ExitCode {
    let args = Args::parse();
    let settings = LabSettings {
        nodes: args.nodes,
        cpus: args.cpus,
        gpus_per_node: args.gpus,
        version: if args.v24_11 { SlurmVersion::V24_11 } else { SlurmVersion::Host },
        binding: if args.affinity { CpuBinding::Affinity } else { CpuBinding::None },
        slurm_conf: args.conf,
        ..LabSettings::default()
    };
    if let Some(missing) = settings.version.part().missing() {
        eprintln!("error: cannot start a Slurm: {missing}");
        eprintln!("hint: `cargo xtask test --set-up` installs it");
        return ExitCode::FAILURE;
    }
    let lab = SlurmLab::start(settings);
    let (program, words) = args.command.split_first().expect("there is a default");
    let mut command = lab.command(program);
    command.args(words);
    // Only what says where Slurm is comes from the lab.
    command.envs(std::env::vars_os().filter(|(name, _)| name != "SLURM_CONF"));
    command.env("SLURM_LAB", lab.folder());
    let status = command.status().expect("it can be started");
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
