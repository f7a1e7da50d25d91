//! `packhorse node`: the GPUs of a Slurm node, shared.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Share the GPUs of a Slurm node.
///
/// Jobs that ask Slurm for a part of a GPU (--gres=mps:25) are put on the GPU with the most
/// left, see no other one, and are held to their share. docs/slurm-node.md shows how
/// to set up a shared node.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: NodeVerb,
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub struct NodeConfigArgs {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = packhorse_node::CONFIG)]
    pub config: PathBuf,
}

/// What to do with a node.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Write the files that a shared node needs, and print what to add to Slurm's own
    Install(InstallArgs),
    /// Check each point of the set-up, and say what to do where it is wrong
    Check {
        /// Where the configuration is.
        #[command(flatten)]
        config: NodeConfigArgs,

        /// What Slurm calls this node [default: its host name]
        #[arg(long)]
        node: Option<String>,
    },
    /// Show the GPUs, the jobs on each, their shares and limits, and the MPS servers
    Status {
        /// Where the configuration is.
        #[command(flatten)]
        config: NodeConfigArgs,

        /// What Slurm calls this node [default: its host name]
        #[arg(long)]
        node: Option<String>,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a job its GPU; named as Prolog in slurm.conf
    Prolog(NodeConfigArgs),
    /// Take it back; named as Epilog in slurm.conf
    Epilog(NodeConfigArgs),
    /// Start or end an MPS server, as the state wants it
    #[command(hide = true)]
    Serve {
        /// Where the configuration is.
        #[command(flatten)]
        config: NodeConfigArgs,
        /// Its name.
        server: String,
    },
    /// Become a user, in a cgroup, and go on with another program
    #[command(hide = true)]
    Enter {
        /// The user.
        #[arg(long)]
        uid: u32,
        /// The group.
        #[arg(long)]
        gid: u32,
        /// The folder of the cgroup.
        #[arg(long)]
        cgroup: Option<PathBuf>,
        /// The program and its words.
        #[arg(last = true, required = true)]
        words: Vec<OsString>,
    },
    /// The part of that which its user does
    #[command(hide = true)]
    Daemon {
        /// start or end.
        task: DaemonTask,
        /// NVIDIA's program.
        #[arg(long)]
        control: PathBuf,
        /// In seconds.
        #[arg(long)]
        patience: u64,
        /// Its folder.
        folder: PathBuf,
        /// Its GPUs.
        devices: String,
    },
}

/// What to do with an MPS daemon.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DaemonTask {
    /// Start it.
    Start,
    /// End it.
    End,
}

/// Write the files that a shared node needs, and print what to add to Slurm's own.
///
/// Slurm's own files are never changed.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Write nothing, and print everything
    #[arg(long)]
    pub dry_run: bool,

    /// The folder of the configuration, the filters and the links for prolog and epilog
    #[arg(long, value_name = "FOLDER", default_value = "/etc/packhorse")]
    pub folder: PathBuf,

    /// Who chooses the GPU [default: what fits the release of Slurm]
    #[arg(long)]
    pub mode: Option<ModeArg>,

    /// How many mps a GPU has
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..1_000_000))]
    pub per_gpu: Option<u64>,

    /// Where the plugin is, or will be
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/packhorse/libpackhorse_spank.so")]
    pub plugin: PathBuf,

    /// Slurm's scontrol
    #[arg(long, value_name = "FILE")]
    pub scontrol: Option<PathBuf>,

    /// What Slurm calls this node [default: its host name]
    #[arg(long)]
    pub node: Option<String>,
}

/// Who chooses the GPU of a job.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModeArg {
    /// Packhorse.
    Choose,
    /// Slurm.
    Native,
}
