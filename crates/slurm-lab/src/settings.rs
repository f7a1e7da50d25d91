//! What a lab is made of.

use std::path::PathBuf;

use packhorse_test_parts::{Part, slurm_24_11};

/// What a lab is made of.
#[derive(Clone, Debug)]
pub struct LabSettings {
    /// How many nodes: `n1`, `n2` and so on.
    pub nodes: usize,
    /// How many CPUs each node says it has, whatever this machine has.
    pub cpus: usize,
    /// How many GPUs each node has: device files, so that Slurm sets `CUDA_VISIBLE_DEVICES`.
    pub gpus_per_node: usize,
    /// The memory of each node, in MiB. A job gets 100 MiB per CPU unless it asks for another
    /// amount; nothing enforces it.
    pub memory_mib: usize,
    pub version: SlurmVersion,
    /// Whether tasks are kept on the CPUs that they were given.
    pub binding: CpuBinding,
    /// Whether jobs are held to the devices they were given.
    pub cgroups: Cgroups,
    /// More files beside `slurm.conf`, or other texts for those that the lab writes: name and
    /// text. One that begins with `#!` is a program.
    pub files: Vec<(String, String)>,
    /// More lines for `slurm.conf`. A line that sets what the lab sets too takes its place,
    /// `PartitionName=main …` included. Here and in `files`, `{lab}` is the lab's folder.
    pub slurm_conf: Vec<String>,
}

/// Which Slurm a lab runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmVersion {
    /// The one that is installed on this machine: Debian 12 has 22.05.
    Host,
    /// Debian 13's 24.11, in a root folder of its own.
    V24_11,
}

impl SlurmVersion {
    /// What a lab with it needs of the machine.
    pub const fn part(self) -> Part {
        match self {
            Self::Host => Part::Slurm,
            Self::V24_11 => Part::Slurm24,
        }
    }
}

/// Whether tasks are kept on the CPUs that they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuBinding {
    /// No: nodes may have more CPUs than there are.
    None,
    /// By `sched_setaffinity`. Needs [`LabSettings::cpus`] to be at most what there is.
    Affinity,
}

/// Whether jobs are held to the devices they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// No.
    None,
    /// By cgroups of version 1.
    Version1,
    /// By cgroups of version 2.
    Version2,
}

impl Default for LabSettings {
    /// Two nodes with four GPUs and eight CPUs each, on this machine's Slurm.
    fn default() -> Self {
        Self {
            nodes: 2,
            cpus: 8,
            gpus_per_node: 4,
            memory_mib: 5000,
            version: SlurmVersion::Host,
            binding: CpuBinding::None,
            cgroups: Cgroups::None,
            files: Vec::new(),
            slurm_conf: Vec::new(),
        }
    }
}

impl LabSettings {
    /// The root folder of its Slurm, or none for this machine's.
    pub fn root(&self) -> Option<PathBuf> {
        match self.version {
            SlurmVersion::Host => None,
            SlurmVersion::V24_11 => Some(slurm_24_11()),
        }
    }

    /// The names of the nodes.
    pub fn node_names(&self) -> impl Iterator<Item = String> + use<> {
        (1..=self.nodes).map(|number| format!("n{number}"))
    }
}
