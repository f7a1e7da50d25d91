//! What can be wrong with a node, and how it heals.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use packhorse_test_parts::needs;

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
    assert!(node.asked().contains("scontrol requeue 1"), "{}", node.asked());
    assert!(node.asked().contains("Comment=packhorse: "), "{}", node.asked());
    assert!(!node.asked().contains("scancel"), "{}", node.asked());
    assert!(done.stderr.contains("job 1: "), "{done:?}");
    // One that cannot go back to the queue is ended.
    fs_err::write(node.path("requeue"), "1").unwrap();
    node.prolog(2, 64);
    assert!(node.asked().contains("scancel 2"), "{}", node.asked());
}

#[test]
fn text_of_users_that_is_not_utf_8_gets_no_job_past_its_prolog() {
    let node = FakeNode::new("");
    node.knows(&[1]);
    for verb in ["prolog", "epilog"] {
        let mut command = node.command(verb, 1, Some(64));
        for name in ["SLURM_JOB_COMMENT", "SLURM_JOB_WORK_DIR"] {
            command.env(name, OsStr::from_bytes(b"\xff\xfe"));
        }
        command.env(OsStr::from_bytes(b"\xff"), "");
        let done = finish(&mut command);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert_eq!(exists(&node.orders(1)), verb == "prolog");
    }
    // Nor does a name that a rule looks at.
    node.configure("[[allow]]\naccounts = [\"staff\"]\n");
    node.knows(&[1, 2]);
    let mut command = node.command("prolog", 2, Some(64));
    command.env("SLURM_JOB_ACCOUNT", OsStr::from_bytes(b"staff\xff"));
    finish(&mut command);
    assert!(node.asked().contains("scancel 2"), "{}", node.asked());
}

#[test]
fn without_a_configuration_slurm_is_looked_for_in_the_usual_places() {
    needs!(Root);
    let node = FakeNode::new("");
    fs_err::write(node.config(), "nonsense").unwrap();
    // For this process, /opt has the only scontrol there is.
    let script = "set -e; mkdir $1/usr; cp /bin/sh /bin/cat $1/usr; \
                  mount -t tmpfs usual /opt; mkdir /opt/slurm; ln -s $1/bin /opt/slurm/bin; \
                  mount --bind $1/usr /usr/bin; shift; exec \"$@\"";
    let prolog = node.command("prolog", 1, Some(64));
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", script, "sh"]);
    hidden.arg(node.path(""));
    let done = finish(like(&mut hidden, &prolog));
    assert_eq!(done.code, Some(0), "{done:?}");
    let asked = node.asked();
    assert!(asked.contains("scontrol requeue 1"), "{asked} {done:?}");
    // Nobody has orders that would end it: it is not left to squeue.
    node.falls_silent();
    let again = node.command("prolog", 2, Some(64));
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", &script.replace("mkdir $1/usr; ", "")]);
    hidden.arg("sh").arg(node.path(""));
    finish(like(&mut hidden, &again));
    let asked = node.asked();
    assert!(asked.contains("scontrol requeue 2"), "{asked}");
}

#[test]
fn a_prolog_that_fails_in_an_unforeseen_way_lets_no_job_through() {
    needs!(Root);
    let node = FakeNode::new("");
    // Nobody foresees a machine without /proc.
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let mut without = Command::new("unshare");
    without.args(["--mount", "sh", "-c", script, "sh"]);
    let prolog = node.command("prolog", 1, Some(64));
    let done = finish(like(&mut without, &prolog));
    assert_eq!(done.code, Some(0), "{done:?}");
    let asked = node.asked();
    assert!(asked.contains("scontrol requeue 1"), "{asked} {done:?}");
    let job = node.command("prolog", 2, None);
    let mut without = Command::new("unshare");
    without.args(["--mount", "sh", "-c", script, "sh"]);
    finish(like(&mut without, &job));
    assert!(!node.asked().contains("requeue 2"), "it asks for nothing");
}

/// This command with another one's program, words and environment after its own.
fn like<'a>(command: &'a mut Command, other: &Command) -> &'a mut Command {
    command.arg(other.get_program()).args(other.get_args());
    let variables = other.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))))
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
    assert!(node.asked().contains("scontrol requeue 5"), "{}", node.asked());
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
    node.knows(&[]);
    node.falls_silent();
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
            if line.starts_with("boot ") { "boot other\n".to_owned() } else { format!("{line}\n") }
        })
        .collect();
    fs_err::write(node.orders(1), other).unwrap();
    let text = fs_err::read(node.orders(2)).unwrap();
    fs_err::write(node.orders(2), &text[..text.len() / 2]).unwrap();
    fs_err::write(node.state().join("jobs/.9"), "half").unwrap();
    fs_err::write(node.state().join("jobs/99"), "packhorse job 1\n").unwrap();
    node.knows(&[3, 4]);
    node.prolog(4, 64);
    for gone in ["1", "2", ".9", "99"] {
        assert!(!exists(&node.state().join("jobs").join(gone)), "{gone}");
    }
    assert_eq!(node.gpus(3).len(), 1);
    assert_eq!(node.used().iter().sum::<u64>(), 128);
    let problems = node.status()["problems"].to_string();
    assert!(problems.contains("dropped 2"), "{problems}");
    assert!(problems.contains("dropped 99"), "{problems}");
}

#[test]
fn nothing_is_read_that_a_user_could_have_written() {
    needs!(Root);
    let node = FakeNode::new("");
    node.knows(&[1]);
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
    assert!(done.stderr.contains("every user can write to it"), "{done:?}");
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
fn a_configuration_with_fewer_gpus_than_jobs_are_on_stops_nothing() {
    let node = FakeNode::new("");
    for job in 1..=4 {
        node.prolog(job, 64);
    }
    let text = fs_err::read_to_string(node.config()).unwrap();
    let sections: Vec<&str> = text.split("[[gpus]]").collect();
    let two = [sections[0], sections[1], sections[2]].join("[[gpus]]");
    let two = format!("{two}\n[mps]\nservers = false\n").replace("1280", "640");
    fs_err::write(node.config(), two).unwrap();
    // Job 4 was on GPU 3, and comes again.
    for job in [4, 5] {
        let mut command = node.command("prolog", job, Some(64));
        command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10");
        let done = finish(&mut command);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    }
    assert_eq!(node.used(), [128, 128]);
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
    let done = finish(like(full.env_clear(), &prolog));
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
    let boot = orders.lines().find_map(|line| line.strip_prefix("boot ")).unwrap();
    // Slurm was asked in what is now the future.
    let answer = format!("{boot} 99999999999 99999999999 answered\n1|1000|RUNNING|N/A\n");
    fs_err::write(node.state().join("queue"), answer).unwrap();
    let later = orders.replace("\nsince ", "\nsince 9999999");
    fs_err::write(node.orders(1), later).unwrap();
    node.knows(&[2]);
    node.prolog(2, 64);
    assert!(!exists(&node.orders(1)));
    assert_eq!(node.gpus(2), [0]);
}
