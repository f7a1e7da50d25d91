//! The files that Slurm reads.

use std::path::Path;

use crate::settings::{Cgroups, CpuBinding, LabSettings};

/// The port of `slurmctld`. Only in the lab's own network, as the others.
pub const CONTROLLER_PORT: u16 = 6817;

/// The port of the first node's `slurmd`.
const FIRST_NODE_PORT: usize = 17001;

/// The text of `slurm.conf`, for a lab in this folder.
pub fn slurm_conf(settings: &LabSettings, folder: &Path) -> String {
    let folder = folder.display();
    let task_plugin = match (settings.binding, settings.cgroups) {
        (CpuBinding::None, Cgroups::None) => "task/none",
        (CpuBinding::None, _) => "task/cgroup",
        (CpuBinding::Affinity, Cgroups::None) => "task/affinity",
        (CpuBinding::Affinity, _) => "task/affinity,task/cgroup",
    };
    let tracking = match settings.cgroups {
        Cgroups::None => "proctrack/linuxproc",
        _ => "proctrack/cgroup",
    };
    let mut lines = vec![
        "ClusterName=lab".to_owned(),
        "SlurmctldHost=lab(127.0.0.1)".to_owned(),
        "SlurmUser=root".to_owned(),
        "SlurmdUser=root".to_owned(),
        "AuthType=auth/munge".to_owned(),
        "CredType=cred/munge".to_owned(),
        // What is requeued waits until old credentials have expired, usually for two minutes.
        format!("AuthInfo=socket={folder}/run/munge.socket,cred_expire=10"),
        format!("SlurmctldPort={CONTROLLER_PORT}"),
        format!("SlurmctldPidFile={folder}/run/slurmctld.pid"),
        format!("SlurmdPidFile={folder}/run/slurmd.%n.pid"),
        format!("StateSaveLocation={folder}/state"),
        format!("SlurmdSpoolDir={folder}/spool/%n"),
        format!("SlurmctldLogFile={folder}/log/slurmctld.log"),
        format!("SlurmdLogFile={folder}/log/slurmd.%n.log"),
        // Registration of nodes, which is waited for, is told at this level: waiting is longer
        // without.
        "SlurmctldDebug=debug".to_owned(),
        "JobCompType=jobcomp/filetxt".to_owned(),
        format!("JobCompLoc={folder}/log/jobcomp.txt"),
        "AccountingStorageType=accounting_storage/none".to_owned(),
        format!("ProctrackType={tracking}"),
        format!("TaskPlugin={task_plugin}"),
        "MpiDefault=none".to_owned(),
        "MailProg=/bin/true".to_owned(),
        "ReturnToService=2".to_owned(),
        "MinJobAge=600".to_owned(),
        // The usual 30 s between SIGTERM and SIGKILL would be most of a test.
        "KillWait=3".to_owned(),
        "SelectType=select/cons_tres".to_owned(),
        "SelectTypeParameters=CR_Core_Memory".to_owned(),
        "DefMemPerCPU=100".to_owned(),
        // Without these a job starts 2 to 3 s late.
        "SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1,bf_interval=1".to_owned(),
        "SlurmdParameters=config_overrides".to_owned(),
    ];
    if settings.gpus_per_node > 0 {
        lines.push("GresTypes=gpu".to_owned());
    }
    for (index, name) in settings.node_names().enumerate() {
        let port = FIRST_NODE_PORT + index;
        let (cpus, memory) = (settings.cpus, settings.memory_mib);
        let gres = match settings.gpus_per_node {
            0 => String::new(),
            gpus => format!(" Gres=gpu:titanrtx:{gpus}"),
        };
        lines.push(format!(
            "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} \
             CPUs={cpus} CoresPerSocket={cpus} RealMemory={memory}{gres} State=UNKNOWN"
        ));
    }
    lines.push("PartitionName=main Nodes=ALL Default=YES State=UP".to_owned());

    let replaced: Vec<_> = settings.slurm_conf.iter().map(|line| subject(line)).collect();
    lines.retain(|line| !replaced.contains(&subject(line)));
    lines.extend(settings.slurm_conf.iter().cloned());
    in_lab(&(lines.join("\n") + "\n"), &folder.to_string())
}

/// A text in which `{lab}` is the lab's folder.
pub fn in_lab(text: &str, folder: &str) -> String {
    text.replace("{lab}", folder)
}

/// The text of `gres.conf`.
pub fn gres_conf(settings: &LabSettings, folder: &Path) -> String {
    let Some(last) = settings.gpus_per_node.checked_sub(1) else {
        return String::new();
    };
    let folder = folder.display();
    format!("Name=gpu Type=titanrtx File={folder}/dev/nvidia[0-{last}]\n")
}

/// The text of `/etc/hosts`.
pub fn hosts(settings: &LabSettings) -> String {
    let mut text = "127.0.0.1 localhost lab".to_owned();
    for name in settings.node_names() {
        text.push(' ');
        text.push_str(&name);
    }
    text.push('\n');
    text
}

/// What a line sets: two with the same subject would contradict each other.
fn subject(line: &str) -> String {
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    let key = key.trim().to_ascii_lowercase();
    match key.as_str() {
        // There may be many, each about another thing.
        "nodename" | "partitionname" => {
            let name = value.split_whitespace().next().unwrap_or_default();
            format!("{key}={name}")
        }
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(lines: &[&str]) -> String {
        let settings = LabSettings {
            slurm_conf: lines.iter().map(ToString::to_string).collect(),
            ..LabSettings::default()
        };
        slurm_conf(&settings, Path::new("/lab"))
    }

    #[test]
    fn a_line_of_the_test_takes_the_place_of_the_same_line_of_the_lab() {
        let text = conf(&["killwait=30", "PartitionName=main Nodes=n1"]);
        assert!(!text.contains("KillWait"), "{text}");
        assert_eq!(text.matches("PartitionName=").count(), 1, "{text}");
        assert!(text.ends_with("killwait=30\nPartitionName=main Nodes=n1\n"), "{text}");
    }

    #[test]
    fn another_partition_stands_beside_the_usual_one() {
        let text = conf(&["PartitionName=low Nodes=ALL"]);
        assert_eq!(text.matches("PartitionName=").count(), 2, "{text}");
    }
}
