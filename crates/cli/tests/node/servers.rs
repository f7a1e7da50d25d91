//! MPS servers: one for each user and GPU.

use std::collections::BTreeSet;

use packhorse_fake_nvml::fake_mps_control_path;
use serde_json::Value;

use crate::lab::{GAMES, NOBODY, NodeLab, NodeSettings};

/// A lab with a stand-in for NVIDIA's program.
fn lab() -> Option<NodeLab> {
    let control = format!(
        "#!/bin/sh\nexport FAKE_NVML_STATE={{lab}}/gpus\nexec {} \"$@\"\n",
        fake_mps_control_path().display()
    );
    NodeLab::start(NodeSettings {
        more: "[mps]\ncontrol = \"{lab}/etc/mps-control\"\n",
        files: vec![("mps-control".to_owned(), control)],
        ..NodeSettings::default()
    })
}

/// The servers that run, by name.
fn running(lab: &NodeLab) -> BTreeSet<String> {
    // The node has processes of its own, which only it can see.
    let mut srun = lab.slurm.command("srun");
    let packhorse = env!("CARGO_BIN_EXE_packhorse");
    srun.args([
        "--overcommit",
        "--mem=50",
        packhorse,
        "node",
        "status",
        "--json",
        "--config",
    ]);
    let text = lab
        .slurm
        .output(srun.arg(lab.folder().join("etc/node.toml")));
    let status: Value = serde_json::from_str(&text).unwrap();
    let servers = status["servers"].as_array().unwrap().iter();
    let running = servers.filter(|server| server["processes"].as_u64() > Some(0));
    running
        .map(|server| server["name"].as_str().unwrap().to_owned())
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn each_user_has_a_server_on_each_gpu_from_the_first_job_to_the_last() {
    let Some(lab) = lab() else { return };
    let show = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; \
                ls $CUDA_MPS_PIPE_DIRECTORY/control; until [ -e $NAME ]; do sleep 0.1; done";
    let submit = |user, name: &str| {
        let script = show.replace("$NAME", name);
        let job = lab.submit(
            user,
            &["--gres=mps:320", &format!("--output={name}.txt")],
            &script,
        );
        lab.wait_for_work(&job);
        job
    };
    let end = |name: &str, job: &str| {
        fs_err::write(lab.folder().join("out").join(name), "").unwrap();
        lab.slurm.wait_for_job(job, "COMPLETED");
    };
    // Three GPUs are taken, so that these two users share the fourth.
    let full: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|name| submit(NOBODY, name))
        .collect();
    let small = |user, name: &str| {
        let script = show.replace("$NAME", name);
        let output = format!("--output={name}.txt");
        let job = lab.submit(user, &["--gres=mps:80", &output], &script);
        lab.wait_for_work(&job);
        job
    };
    let first = small(NOBODY, "d");
    let second = small(GAMES, "e");
    let third = small(GAMES, "f");
    let all = names(&["0-65534", "1-65534", "2-65534", "3-65534", "3-5"]);
    let seen = lab.slurm.wait(|_| (running(&lab) == all).then_some(()));
    assert!(seen.is_some(), "{:?}", running(&lab));
    let wrote = |name: &str| {
        let text = lab
            .slurm
            .wait(|_| Some(lab.wrote(name)).filter(|text| text.lines().count() == 2));
        text.unwrap_or_else(|| panic!("{name}: {}", lab.wrote(name)))
    };
    // A quarter of 24 GiB, at a server of one's own, which was there before the job.
    for (name, server) in [("d.txt", "3-65534"), ("e.txt", "3-5"), ("f.txt", "3-5")] {
        let text = wrote(name);
        assert!(
            text.contains(&format!("mps/{server}/pipe 0=6144M")),
            "{text}"
        );
        assert!(text.contains("/control\n"), "{text}");
    }
    // Nobody else can reach into it.
    let mut ls = lab.by(GAMES, "ls");
    let listed = ls
        .arg(lab.folder().join("shared/mps/3-65534"))
        .output()
        .unwrap();
    assert!(!listed.status.success());

    end("e", &second);
    let seen = lab
        .slurm
        .wait(|_| running(&lab).contains("3-5").then_some(()));
    assert!(seen.is_some(), "its user's other job needs it");
    end("f", &third);
    let seen = lab
        .slurm
        .wait(|_| (!running(&lab).contains("3-5")).then_some(()));
    assert!(seen.is_some(), "it was the last");
    assert!(running(&lab).contains("3-65534"), "another user's goes on");
    end("d", &first);
    for (name, job) in ["a", "b", "c"].iter().zip(&full) {
        end(name, job);
    }
    let seen = lab.slurm.wait(|_| running(&lab).is_empty().then_some(()));
    assert!(seen.is_some(), "{:?}", running(&lab));
    let folders = fs_err::read_dir(lab.folder().join("shared/mps")).unwrap();
    assert_eq!(folders.count(), 0);
}
