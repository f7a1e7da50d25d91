//! docs/slurm-node.md, from its first step to its last.

use std::path::Path;
use std::process::Command;

use packhorse_fake_nvml::{FakeDevice, STATE_VARIABLE, library_path};
use packhorse_slurm_lab::{Cgroups, CpuBinding, LabSettings, SlurmLab, SlurmVersion};
use serde_json::Value;

use crate::fake_slurm::{Done, finish};
use crate::installing::other_minors;

/// The lines that were printed for one of Slurm's files.
fn lines_for<'a>(printed: &'a str, file: &str) -> Vec<&'a str> {
    let (_, after) = printed.split_once(&format!("\n# {file}\n")).unwrap();
    let lines = after.split("\n# ").next().unwrap();
    lines.lines().take_while(|line| !line.is_empty()).collect()
}

fn an_admin_gets_a_shared_node(version: SlurmVersion, cgroups: Cgroups) {
    let Some(plugin) = crate::lab::plugin(version) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(folder.path(), all).unwrap();
    let driver = other_minors(folder.path());
    let ours = folder.path().join("packhorse");
    let install = || -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
        command.args(["node", "install", "--per-gpu", "320", "--node", "n1"]);
        command.args(["--mode", "choose", "--folder"]).arg(&ours);
        command.arg("--plugin").arg(&plugin);
        command.env("PACKHORSE_NVML_LIBRARY", library_path());
        let done = finish(command.env(STATE_VARIABLE, driver.path()));
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    install();
    // What is not as usual here: where the devices and the state are, and that there is no MPS.
    let config = ours.join("node.toml");
    let dev = folder.path().join("dev");
    let text = fs_err::read_to_string(&config).unwrap();
    let text = text.replace("/dev/nvidia", &format!("{}/nvidia", dev.display()));
    let text = text.replace("servers = true", "servers = false");
    let state = folder.path().join("state");
    let text = format!("state = \"{}\"\n{text}", state.display());
    fs_err::write(&config, text).unwrap();
    make_devices(&dev);
    let printed = install();

    // The lines, put into Slurm's files as they are; only the node's own goes on.
    let join = |file: &str| lines_for(&printed, file).join("\n") + "\n";
    let node = "NodeHostname=n1 NodeAddr=127.0.0.1 Port=17001 CPUs=2 CoresPerSocket=2 \
                RealMemory=2000 State=UNKNOWN";
    let slurm_conf = lines_for(&printed, "slurm.conf").into_iter();
    let slurm_conf = slurm_conf.map(|line| line.replace("...", node)).collect();
    let version_of_cgroups = match cgroups {
        Cgroups::Version2 => "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n",
        _ => "CgroupPlugin=cgroup/v1\n",
    };
    let mut files: Vec<(String, String)> = [
        "gres.conf",
        "plugstack.conf",
        "cli_filter.lua",
        "job_submit.lua",
    ]
    .map(|file| (file.to_owned(), join(file)))
    .to_vec();
    files.push((
        "cgroup.conf".to_owned(),
        format!(
            "CgroupMountpoint=/sys/fs/cgroup\n{version_of_cgroups}{}",
            join("cgroup.conf")
        ),
    ));
    let Some(lab) = SlurmLab::start(LabSettings {
        nodes: 1,
        cpus: 2,
        memory_mib: 2000,
        version,
        cgroups,
        binding: CpuBinding::Affinity,
        files,
        slurm_conf,
        ..LabSettings::default()
    }) else {
        return;
    };
    let run = |words: &[&str]| -> Done {
        let mut command = lab.command(env!("CARGO_BIN_EXE_packhorse"));
        command
            .arg("node")
            .args(words)
            .args(["--node", "n1", "--config"]);
        command
            .arg(&config)
            .env("PACKHORSE_NVML_LIBRARY", library_path());
        finish(command.env(STATE_VARIABLE, driver.path()))
    };
    let checked = run(&["check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    for line in checked.stdout.lines().filter(|line| !line.starts_with(' ')) {
        let is_fine = line.starts_with("ok ") || line.starts_with("better  MPS servers");
        assert!(is_fine, "{}", checked.stdout);
    }

    // A UUID that belongs to another file would be noticed.
    let right = fs_err::read_to_string(&config).unwrap();
    let [one, other] = [0, 1].map(|index| FakeDevice::new(index).uuid);
    let swapped = right
        .replace(&one, "?")
        .replace(&other, &one)
        .replace('?', &other);
    fs_err::write(&config, swapped).unwrap();
    let checked = run(&["check"]).stdout;
    assert!(
        checked.contains("its uuid is that of /dev/nvidia3"),
        "{checked}"
    );
    fs_err::write(&config, right).unwrap();

    // Two jobs at once, on two GPUs: each sees its own, by the UUID of just that GPU.
    let fifo = folder.path().join("fifo");
    let script = format!(
        "echo visible=$CUDA_VISIBLE_DEVICES opens=$(for i in 0 1 2 3; do \
         (exec 3<{}/nvidia$i) 2>&1 | grep -q 'No such device' && printf $i; done); {}",
        dev.display(),
        "read x <\"$FIFO\""
    );
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let jobs: Vec<(String, std::path::PathBuf)> = (0..2)
        .map(|number| {
            let output = folder.path().join(format!("job{number}"));
            let job = lab.sbatch([
                "--mem=50".to_owned(),
                "--gres=mps:64".to_owned(),
                format!("--output={}", output.display()),
                format!("--export=ALL,FIFO={}", fifo.display()),
                format!("--wrap={script}"),
            ]);
            let seen = lab.wait(|_| {
                let text = fs_err::read_to_string(&output).unwrap_or_default();
                text.contains("opens=").then_some(())
            });
            assert!(seen.is_some(), "job {job} is not at work");
            (job, output)
        })
        .collect();
    for (number, (_, output)) in jobs.iter().enumerate() {
        let text = fs_err::read_to_string(output).unwrap();
        let uuid = FakeDevice::new(3 - u32::try_from(number).unwrap()).uuid;
        assert_eq!(text, format!("visible={uuid} opens={number}\n"));
    }
    let status: Value = serde_json::from_str(&run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["gpus"][1]["used"], 64, "{status}");
    // Both are let go.
    let _open = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    fs_err::write(&fifo, "1\n2\n").unwrap();
    for (job, _) in &jobs {
        lab.wait_for_job(job, "COMPLETED");
    }
}

fn make_devices(dev: &Path) {
    fs_err::create_dir(dev).unwrap();
    for minor in 0..4 {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let kind = rustix::fs::FileType::CharacterDevice;
        let device = rustix::fs::makedev(195, minor);
        let file = dev.join(format!("nvidia{minor}"));
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, device).unwrap();
    }
}

#[test]
fn an_admin_follows_the_docs_with_slurm_22_05() {
    an_admin_gets_a_shared_node(SlurmVersion::Host, Cgroups::Version1);
}

#[test]
fn an_admin_follows_the_docs_with_slurm_24_11() {
    an_admin_gets_a_shared_node(SlurmVersion::V24_11, Cgroups::Version2);
}
