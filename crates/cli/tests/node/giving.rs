//! What a job is given, and what it takes to take it back.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::fake_slurm::{FakeNode, exists, finish};

#[test]
fn jobs_go_to_the_gpu_with_the_most_left_and_are_told_so() {
    let node = FakeNode::new("");
    for (job, gpu) in [(11, 0), (12, 1), (13, 2), (14, 3), (15, 0)] {
        let done = node.prolog(job, 64);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert_eq!(node.gpus(job), [gpu]);
    }
    assert_eq!(node.variable(13, "CUDA_VISIBLE_DEVICES").unwrap(), "GPU-2");
    let threads = node.variable(13, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    assert_eq!(threads.unwrap(), "20");
    let memory = node.variable(13, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    assert_eq!(memory.unwrap(), "0=4915M", "a fifth of 24 GiB");
    let text = fs_err::read_to_string(node.orders(13)).unwrap();
    // /dev/full is c 1 7, and the others are not for this job.
    for line in ["allow 1 7", "deny 1 3", "deny 1 5", "deny 1 8"] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    let status = node.status();
    assert_eq!(status["gpus"][0]["used"], 128, "{status}");
    let job = &status["gpus"][2]["jobs"][0];
    assert_eq!(job["job"], 13, "{status}");
    assert_eq!(job["user"], "alice", "{status}");
    assert_eq!(job["threads"], 20, "{status}");

    assert_eq!(node.epilog(13, 64).code, Some(0));
    assert!(!exists(&node.orders(13)));
    node.prolog(16, 64);
    assert_eq!(node.gpus(16), [2], "it is the emptiest now");
}

#[test]
fn packing_fills_one_gpu_after_the_other() {
    let node = FakeNode::new("placing = \"pack\"\n");
    for job in 1..=6 {
        node.prolog(job, 64);
    }
    let gpus: Vec<u32> = (1..=6).flat_map(|job| node.gpus(job)).collect();
    assert_eq!(gpus, [0, 0, 0, 0, 0, 1]);
}

#[test]
fn what_a_percentage_leaves_open_is_asked() {
    let node = FakeNode::new("");
    // All of these are 1 percent of 1280.
    for job in 1..=16 {
        node.prolog(job, 20);
    }
    assert_eq!(node.used(), [80, 80, 80, 80]);
    // It is not believed if it does not fit the percentage that Slurm itself worked out.
    let mut command = node.command("prolog", 17, Some(64));
    node.says(17, 640);
    finish(&mut command);
    assert_eq!(node.used().iter().sum::<u64>(), 320 + 76, "the most that 5 percent may be");
    // If there is nothing to ask, somebody looks once a minute which jobs there are.
    let node = FakeNode::new("");
    let text = fs_err::read_to_string(node.config()).unwrap();
    fs_err::write(node.config(), text.replace("1280", "100")).unwrap();
    for job in 1..=4 {
        let mut command = node.command("prolog", job, None);
        finish(command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "20"));
        assert_eq!(node.gpus(job).len(), 1);
    }
    assert_eq!(node.asked().lines().count(), 1, "{}", node.asked());
}

#[test]
fn more_than_one_gpus_share_gives_several() {
    let node = FakeNode::new("");
    node.prolog(1, 64);
    node.prolog(2, 480);
    assert_eq!(node.gpus(2), [1, 2]);
    let visible = node.variable(2, "CUDA_VISIBLE_DEVICES");
    assert_eq!(visible.unwrap(), "GPU-1,GPU-2");
    let memory = node.variable(2, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    assert_eq!(memory.unwrap(), "0=18432M,1=18432M");
    assert_eq!(node.used(), [64, 240, 240, 0]);
}

#[test]
fn limits_can_be_turned_off() {
    let node = FakeNode::new("[mps]\nservers = false\nthreads = false\nmemory = false\n");
    node.prolog(1, 64);
    for name in [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "CUDA_MPS_PIPE_DIRECTORY",
    ] {
        assert_eq!(node.variable(1, name), None, "{name}");
    }
}

#[test]
fn in_native_mode_slurms_choice_counts() {
    let node = FakeNode::new("mode = \"native\"\n");
    let mut command = node.command("prolog", 1, None);
    command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25");
    command.env("SLURM_JOB_GPUS", "2");
    node.says(1, 80);
    finish(&mut command);
    assert_eq!(node.gpus(1), [2]);
    assert_eq!(node.variable(1, "CUDA_VISIBLE_DEVICES").unwrap(), "GPU-2");
    let text = fs_err::read_to_string(node.orders(1)).unwrap();
    assert!(!text.contains("deny"), "Slurm does that: {text}");
    let threads = node.variable(1, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    assert_eq!(threads.unwrap(), "25");
}

#[test]
fn in_native_mode_several_gpus_are_filled_one_after_the_other_and_nonsense_is_sent_back() {
    let node = FakeNode::new("mode = \"native\"\n");
    let run = |job: u32, gpus: Option<&str>| {
        let mut command = node.command("prolog", job, None);
        command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "150");
        command.env_remove("CUDA_VISIBLE_DEVICES");
        command.envs(gpus.map(|gpus| ("SLURM_JOB_GPUS", gpus)));
        node.says(job, 480);
        finish(&mut command).stderr
    };
    assert_eq!(run(1, Some("1,3")), "");
    assert_eq!(node.gpus(1), [1, 3]);
    let visible = node.variable(1, "CUDA_VISIBLE_DEVICES");
    assert_eq!(visible.unwrap(), "GPU-1,GPU-3");
    assert_eq!(node.used(), [0, 320, 0, 160]);
    for (job, gpus, told) in
        [(2, Some("1,9"), "Slurm chose GPU 9"), (3, None, "Slurm named no GPU")]
    {
        let said = run(job, gpus);
        assert!(said.contains(told), "{said}");
        let asked = node.asked();
        assert!(asked.contains(&format!("requeue {job}")), "{asked}");
    }
}

#[test]
fn a_link_is_a_prolog_and_reads_the_configuration_beside_it() {
    let node = FakeNode::new("");
    let link = node.path("packhorse-prolog");
    symlink(env!("CARGO_BIN_EXE_packhorse"), &link).unwrap();
    let mut command = Command::new(link);
    command.env_clear().env("SLURM_JOB_ID", "5").env("SLURM_JOB_UID", "7");
    node.says(5, 64);
    finish(command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "5"));
    assert_eq!(node.gpus(5), [0]);
}

#[test]
fn status_is_a_table_too() {
    let node = FakeNode::new("");
    node.knows(&[1]);
    node.prolog(1, 64);
    let mut command = Command::new(env!("CARGO_BIN_EXE_packhorse"));
    command.args(["node", "status", "--node", "n1", "--config"]);
    let table = finish(command.arg(node.config())).stdout;
    assert!(table.contains("node n1, mode choose, mps:320 per GPU"), "{table}");
    let row = table.lines().find(|line| line.contains("alice")).unwrap();
    for word in ["64", "256", "20%", "4.7 GiB"] {
        assert!(row.contains(word), "{word}: {table}");
    }
}
