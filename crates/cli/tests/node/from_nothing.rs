//! docs/slurm-node.md, from its first step to its last.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use fs_err::OpenOptions;
use packhorse_fake_nvml::{FakeDevice, FakeState, STATE_VARIABLE, library_path};
use packhorse_slurm_lab::{Cgroups, CpuBinding, LabSettings, SlurmLab, SlurmVersion};
use packhorse_test_parts::needs;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;
use tempfile::TempDir;

use crate::fake_slurm::{Done, finish};
use crate::installing::other_minors;

/// A node with four GPUs that nothing is installed on yet.
struct NewNode {
    folder: TempDir,
    driver: FakeState,
    plugin: PathBuf,
}

impl NewNode {
    fn new(version: SlurmVersion) -> Self {
        let plugin = crate::lab::plugin(version);
        let folder = tempfile::tempdir().unwrap();
        fs_err::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let driver = other_minors(folder.path());
        fs_err::create_dir(folder.path().join("dev")).unwrap();
        for minor in 0..4 {
            let file = folder.path().join(format!("dev/nvidia{minor}"));
            let mode = Mode::from_raw_mode(0o666);
            let device = makedev(195, minor);
            mknodat(CWD, &file, FileType::CharacterDevice, mode, device).unwrap();
        }
        Self { folder, driver, plugin }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("packhorse/node.toml")
    }

    /// `packhorse node install`, and what it prints.
    fn install(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
        command.args(["node", "install", "--per-gpu", "320", "--node", "n1"]);
        command.args(["--mode", "choose", "--folder", &self.path("packhorse")]);
        command.arg("--plugin").arg(&self.plugin);
        let done = finish(self.with_driver(&mut command));
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    }

    fn with_driver<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("PACKHORSE_NVML_LIBRARY", library_path());
        command.env(STATE_VARIABLE, self.driver.path())
    }

    /// Writes what is not as usual here: where the devices and the state are, and that there is
    /// no MPS.
    fn configure(&self) {
        let text = fs_err::read_to_string(self.config()).unwrap();
        let text = text.replace("/dev/nvidia", &self.path("dev/nvidia"));
        let text = text.replace("servers = true", "servers = false");
        let text = format!("state = \"{}\"\n{text}", self.path("state"));
        fs_err::write(self.config(), text).unwrap();
    }

    /// `packhorse node` in the lab.
    fn run(&self, lab: &SlurmLab, words: &[&str]) -> Done {
        let mut command = lab.command(env!("CARGO_BIN_EXE_packhorse"));
        command.arg("node").args(words).args(["--node", "n1"]);
        command.arg("--config").arg(self.config());
        finish(self.with_driver(&mut command))
    }

    /// A job that says what it sees, and lasts until somebody writes to the pipe.
    fn submit(&self, lab: &SlurmLab, name: &str) -> (String, String) {
        let script = format!(
            "echo visible=$CUDA_VISIBLE_DEVICES opens=$(for i in 0 1 2 3; do \
             (exec 3<{}$i) 2>&1 | grep -q 'No such device' && printf $i; done); read x <{}",
            self.path("dev/nvidia"),
            self.path("pipe"),
        );
        let job = lab.sbatch([
            "--mem=50".to_owned(),
            "--gres=mps:64".to_owned(),
            format!("--output={}", self.path(name)),
            format!("--wrap={script}"),
        ]);
        let text = lab.wait(|_| {
            let text = fs_err::read_to_string(self.path(name)).unwrap_or_default();
            text.contains("opens=").then_some(text)
        });
        (job, text.expect("it starts"))
    }
}

/// The lines that were printed for one of Slurm's files.
fn lines_for<'a>(printed: &'a str, file: &str) -> Vec<&'a str> {
    let (_, after) = printed.split_once(&format!("\n# {file}\n")).unwrap();
    let lines = after.split("\n# ").next().unwrap();
    lines.lines().take_while(|line| !line.is_empty()).collect()
}

/// A Slurm whose files have these lines as they are; only the node's own goes on.
fn slurm_with(printed: &str, version: SlurmVersion, cgroups: Cgroups) -> SlurmLab {
    let node = "NodeHostname=n1 NodeAddr=127.0.0.1 Port=17001 CPUs=2 CoresPerSocket=2 \
                RealMemory=2000 State=UNKNOWN";
    let slurm_conf = lines_for(printed, "slurm.conf").into_iter();
    let slurm_conf = slurm_conf.map(|line| line.replace("...", node)).collect();
    let join = |file: &str| lines_for(printed, file).join("\n") + "\n";
    let names = ["gres.conf", "plugstack.conf", "cli_filter.lua", "job_submit.lua"];
    let mut files = names.map(|file| (file.to_owned(), join(file))).to_vec();
    let kind = match cgroups {
        Cgroups::Version2 => "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes",
        _ => "CgroupPlugin=cgroup/v1",
    };
    let text = format!("CgroupMountpoint=/sys/fs/cgroup\n{kind}\n{}", join("cgroup.conf"));
    files.push(("cgroup.conf".to_owned(), text));
    SlurmLab::start(LabSettings {
        nodes: 1,
        cpus: 2,
        memory_mib: 2000,
        version,
        cgroups,
        binding: CpuBinding::Affinity,
        files,
        slurm_conf,
        ..LabSettings::default()
    })
}

fn an_admin_gets_a_shared_node(version: SlurmVersion, cgroups: Cgroups) {
    let node = NewNode::new(version);
    node.install();
    node.configure();
    let lab = slurm_with(&node.install(), version, cgroups);
    let checked = node.run(&lab, &["check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    for line in checked.stdout.lines().filter(|line| !line.starts_with(' ')) {
        let is_fine = line.starts_with("ok ") || line.starts_with("better  MPS servers");
        assert!(is_fine, "{}", checked.stdout);
    }

    // A UUID that belongs to another file would be noticed.
    let right = fs_err::read_to_string(node.config()).unwrap();
    let [one, other] = [0, 1].map(|index| FakeDevice::new(index).uuid);
    let swapped = right.replace(&one, "?").replace(&other, &one);
    fs_err::write(node.config(), swapped.replace('?', &other)).unwrap();
    let checked = node.run(&lab, &["check"]).stdout;
    assert!(checked.contains("its uuid is that of /dev/nvidia3"), "{checked}");
    fs_err::write(node.config(), right).unwrap();

    // Two jobs at once, on two GPUs: each sees its own, by the UUID of just that GPU.
    let pipe = node.path("pipe");
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    let jobs = ["first", "second"].map(|name| node.submit(&lab, name));
    for (number, (_, text)) in jobs.iter().enumerate() {
        let uuid = FakeDevice::new(3 - u32::try_from(number).unwrap()).uuid;
        assert_eq!(*text, format!("visible={uuid} opens={number}\n"));
    }
    let status = node.run(&lab, &["status", "--json"]).stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["gpus"][1]["used"], 64, "{status}");

    // Nobody's end of file ends the other's reading.
    let mut options = OpenOptions::new();
    let _open = options.read(true).write(true).open(&pipe).unwrap();
    fs_err::write(&pipe, "1\n2\n").unwrap();
    for (job, _) in &jobs {
        lab.wait_for_job(job, "COMPLETED");
    }
}

#[test]
fn an_admin_follows_the_docs_with_slurm_22_05() {
    needs!(Slurm);
    an_admin_gets_a_shared_node(SlurmVersion::Host, Cgroups::Version1);
}

#[test]
fn an_admin_follows_the_docs_with_slurm_24_11() {
    needs!(Slurm24);
    an_admin_gets_a_shared_node(SlurmVersion::V24_11, Cgroups::Version2);
}
