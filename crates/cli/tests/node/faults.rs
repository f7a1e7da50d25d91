//! What can be wrong with a node, and how it heals.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use crate::fake_slurm::{FakeNode, exists, finish};

#[test]
fn a_job_that_did_not_ask_is_let_through_whatever_is_broken() {
    let node = FakeNode::new("");
    let through = || {
        for verb in ["prolog", "epilog"] {
            let done = finish(&mut node.command(verb, 1, None));
            assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        }
        assert_eq!(node.asked(), "");
    };
    through();
    assert!(!exists(&node.state()), "nothing was even looked at");
    fs_err::write(node.config(), "nonsense").unwrap();
    through();
    fs_err::remove_file(node.config()).unwrap();
    fs_err::write(node.state(), "a file").unwrap();
    through();
}

#[test]
fn a_job_that_cannot_be_served_is_sent_back_and_the_node_stays() {
    let node = FakeNode::new("");
    fs_err::write(node.state(), "a file").unwrap();
    let done = node.prolog(1, 64);
    assert_eq!(done.code, Some(0), "Slurm would drain the node");
    assert!(
        node.asked().contains("scontrol requeue 1"),
        "{}",
        node.asked()
    );
    assert!(
        node.asked().contains("Comment=packhorse: "),
        "{}",
        node.asked()
    );
    assert!(!node.asked().contains("scancel"), "{}", node.asked());
    assert!(done.stderr.contains("job 1: "), "{done:?}");
    // One that cannot go back to the queue is ended.
    fs_err::write(node.path("requeue"), "1").unwrap();
    node.prolog(2, 64);
    assert!(node.asked().contains("scancel 2"), "{}", node.asked());
}

#[test]
fn a_gpu_is_not_given_more_than_it_has_even_if_slurm_says_so() {
    let node = FakeNode::new("");
    let jobs = [1, 2, 3, 4, 5];
    node.knows(&jobs);
    for job in jobs {
        node.prolog(job, 200);
    }
    // 480 are left on the node, but 120 on each GPU.
    assert_eq!(node.used(), [200; 4]);
    assert!(
        node.asked().contains("scontrol requeue 5"),
        "{}",
        node.asked()
    );
    let status = node.status();
    let problems = status["problems"].to_string();
    assert!(problems.contains("no GPU has mps:200 left"), "{status}");
}

#[test]
fn jobs_that_slurm_does_not_know_any_more_are_forgotten() {
    let node = FakeNode::new("");
    let jobs: Vec<u32> = (1..=20).collect();
    node.knows(&jobs);
    for job in jobs {
        node.prolog(job, 64);
    }
    // Their epilogs never ran. There is no room, so Slurm is asked at once.
    node.knows(&[7, 21]);
    node.prolog(21, 64);
    assert_eq!(node.gpus(7).len(), 1);
    assert_eq!(node.gpus(21).len(), 1);
    assert_eq!(node.used().iter().sum::<u64>(), 128);
    // If Slurm does not answer, what is there stays.
    fs_err::remove_file(node.path("jobs")).unwrap();
    assert_eq!(node.used().iter().sum::<u64>(), 128);
}

#[test]
fn what_is_from_another_boot_or_damaged_is_dropped_and_told() {
    let node = FakeNode::new("");
    node.knows(&[1, 2, 3]);
    for job in [1, 2, 3] {
        node.prolog(job, 64);
    }
    let text = fs_err::read_to_string(node.orders(1)).unwrap();
    let other: String = text
        .lines()
        .map(|line| {
            if line.starts_with("boot ") {
                "boot other\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    fs_err::write(node.orders(1), other).unwrap();
    let text = fs_err::read(node.orders(2)).unwrap();
    fs_err::write(node.orders(2), &text[..text.len() / 2]).unwrap();
    fs_err::write(node.state().join("jobs/.9"), "half").unwrap();
    fs_err::write(node.state().join("jobs/99"), "packhorse job 1\n").unwrap();
    node.prolog(4, 64);
    for gone in ["1", "2", ".9", "99"] {
        assert!(!exists(&node.state().join("jobs").join(gone)), "{gone}");
    }
    assert_eq!(node.gpus(3).len(), 1);
    node.knows(&[3, 4]);
    assert_eq!(node.used().iter().sum::<u64>(), 128);
    let problems = node.status()["problems"].to_string();
    assert!(problems.contains("dropped 2"), "{problems}");
    assert!(problems.contains("dropped 99"), "{problems}");
}

#[test]
fn nothing_is_read_that_a_user_could_have_written() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let node = FakeNode::new("");
    node.knows(&[1, 2, 3]);
    node.prolog(1, 64);
    // A whole GPU for nobody, planted in three ways.
    let planted = fs_err::read_to_string(node.orders(1)).unwrap();
    let planted = |job: u32| planted.replace("\njob 1\n", &format!("\njob {job}\n"));
    fs_err::write(node.orders(2), planted(2)).unwrap();
    chown(node.orders(2), Some(1000), None).unwrap();
    fs_err::write(node.orders(3), planted(3)).unwrap();
    fs_err::set_permissions(node.orders(3), PermissionsExt::from_mode(0o666)).unwrap();
    let outside = node.path("outside");
    fs_err::write(&outside, planted(4)).unwrap();
    symlink(&outside, node.orders(4)).unwrap();
    assert_eq!(node.used().iter().sum::<u64>(), 64, "only our own counts");
    assert!(exists(&outside));
    // Nor is a configuration of somebody else's.
    fs_err::set_permissions(node.config(), PermissionsExt::from_mode(0o666)).unwrap();
    let done = node.prolog(5, 64);
    assert!(done.stderr.contains("could have written"), "{done:?}");
    assert!(!exists(&node.orders(5)));
    fs_err::set_permissions(node.config(), PermissionsExt::from_mode(0o644)).unwrap();
    // Nor a folder.
    chown(node.state(), Some(1000), None).unwrap();
    let done = node.prolog(6, 64);
    assert!(done.stderr.contains("belongs to user 1000"), "{done:?}");
}

#[test]
fn a_job_that_comes_again_keeps_what_it_has() {
    let node = FakeNode::new("");
    node.knows(&[1, 2, 3]);
    node.prolog(1, 64);
    node.prolog(2, 64);
    // slurmd was restarted, or the job was requeued and its epilog never ran.
    node.prolog(1, 64);
    assert_eq!(node.gpus(1), [0]);
    assert_eq!(node.used(), [64, 64, 0, 0]);
    // With another amount it is another job.
    node.prolog(2, 320);
    assert_eq!(node.used(), [64, 320, 0, 0]);
    node.prolog(3, 320);
    node.prolog(1, 320);
    assert_eq!(node.used(), [320, 320, 320, 0]);
}

#[test]
fn a_full_disk_takes_nothing_from_others() {
    let node = FakeNode::new("");
    node.knows(&[1]);
    node.prolog(1, 64);
    // No file can grow: what is written fails.
    let prolog = node.command("prolog", 2, Some(64));
    let mut full = Command::new("/bin/sh");
    full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "full"]);
    full.arg(prolog.get_program()).args(prolog.get_args());
    full.env_clear();
    full.envs(
        prolog
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let done = finish(&mut full);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("job 2: "), "{done:?}");
    assert!(!exists(&node.orders(2)));
    assert_eq!(node.gpus(1), [0]);
    node.knows(&[1, 3]);
    node.prolog(3, 64);
    assert_eq!(node.gpus(3), [1], "it is well again");
}

#[test]
fn a_clock_that_was_set_back_stops_nothing_from_healing() {
    let node = FakeNode::new("");
    node.knows(&[1]);
    node.prolog(1, 64);
    let orders = fs_err::read_to_string(node.orders(1)).unwrap();
    let boot = orders
        .lines()
        .find_map(|line| line.strip_prefix("boot "))
        .unwrap();
    // Slurm was asked in what is now the future.
    fs_err::write(node.state().join("asked"), format!("{boot} 99999999999\n")).unwrap();
    let later = orders.replace("\nsince ", "\nsince 9999999");
    fs_err::write(node.orders(1), later).unwrap();
    node.knows(&[2]);
    node.prolog(2, 64);
    assert!(!exists(&node.orders(1)));
    assert_eq!(node.gpus(2), [0]);
}
