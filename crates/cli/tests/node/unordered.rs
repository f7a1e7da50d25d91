//! What has no orders, or cannot be held to them, gets no GPU; and nothing of a user's runs
//! outside of what was given.

use std::process::Command;

use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::needs;

use crate::fake_slurm::{Done, finish};
use crate::lab::{NOBODY, NodeLab, NodeSettings, UNTIL_OVER};

const BOTH: [(SlurmVersion, Cgroups); 2] =
    [(SlurmVersion::Host, Cgroups::Version1), (SlurmVersion::V24_11, Cgroups::Version2)];

/// A node where somebody is on GPU 0, which is the one that Slurm counts on.
fn busy(version: SlurmVersion, cgroups: Cgroups) -> NodeLab {
    let lab = NodeLab::start(NodeSettings { version, cgroups, ..NodeSettings::default() });
    let first = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&first);
    lab
}

fn scontrol(lab: &NodeLab, words: &[&str]) {
    let mut scontrol = lab.slurm.command("scontrol");
    lab.slurm.output(scontrol.args(words));
}

#[test]
fn a_job_that_is_requeued_and_started_at_once_is_on_no_gpu_but_its_own() {
    needs!(Slurm);
    let lab = busy(SlurmVersion::Host, Cgroups::Version1);
    let script = format!("{}; {UNTIL_OVER}", lab.look("job"));
    let options = ["--gres=mps:64", "--output=job.txt", "--open-mode=append", "--requeue"];
    let job = lab.submit(NOBODY, &options, &script);
    lab.wait_for_work(&job);
    scontrol(&lab, &["requeue", &job]);
    lab.slurm.wait_for_job(&job, "PENDING");
    scontrol(&lab, &["update", &format!("jobid={job}"), "starttime=now"]);
    // Slurm runs no prolog for it if it begins in the second in which it ended before.
    let outcome = lab.slurm.wait(|_| {
        let text = lab.wrote("job.txt");
        let again = text.matches("job visible=").count() == 2;
        let ended = text.contains("packhorse: this job cannot have its share");
        // Nor does slurmd start it then: it takes the new credential for the old one.
        let failed = || lab.slurm.job_states(&job) == ["FAILED"];
        (again || ended || failed()).then_some(text)
    });
    let outcome = outcome.expect("it starts again, or is ended");
    assert!(!outcome.contains("opens=0"), "{outcome}");
    assert!(!lab.slurm.node_state("n1").contains("DRAIN"));
}

#[test]
fn a_job_whose_orders_cannot_be_read_gets_no_gpu_and_others_are_not_stopped() {
    needs!(Slurm, Slurm24);
    for (version, cgroups) in BOTH {
        let lab = busy(version, cgroups);
        let job = lab.submit_lasting(NOBODY, 64);
        lab.wait_for_work(&job);
        let orders = lab.folder().join("shared/jobs").join(&job);
        let whole = fs_err::read_to_string(&orders).unwrap();
        let look = lab.look("step");
        fs_err::write(lab.folder().join("out/look.sh"), format!("#!/bin/sh\n{look} >>after.txt\n"))
            .unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs_err::set_permissions(lab.folder().join("out/look.sh"), all).unwrap();
        let step = || {
            let mut srun = lab.by(NOBODY, "srun");
            srun.args(["--overlap", "--mem=0", &format!("--jobid={job}")]);
            let script =
                |name: &str| format!("--task-{name}={}/out/look.sh", lab.folder().display());
            srun.args([script("prolog"), script("epilog")]);
            finish(srun.args(["sh", "-c", &look]))
        };
        let refused = |why: &str| {
            let done = step();
            assert_ne!(done.code, Some(0), "{done:?}");
            assert_eq!(done.stdout, "", "{done:?}");
            assert!(done.stderr.contains(why), "{done:?}");
        };
        fs_err::write(&orders, &whole[..whole.len() / 2]).unwrap();
        refused("it was cut off");
        fs_err::remove_file(&orders).unwrap();
        refused("Slurm ran no prolog for it");
        // Nor do orders help that order nothing.
        let is_order = |line: &&str| {
            let words = ["allow ", "deny ", "set ", "unset "];
            words.iter().any(|word| line.starts_with(word))
        };
        let lines = whole.lines().filter(|line| !is_order(line));
        let counted = lines.collect::<Vec<&str>>().join("\n") + "\n";
        fs_err::write(&orders, counted).unwrap();
        refused("Slurm ran no prolog for it");
        fs_err::write(&orders, whole.replace("uid 65534", "uid 1000")).unwrap();
        refused("is another job's");
        // What Slurm runs for its user before and after has none either.
        for line in lab.wrote("after.txt").lines() {
            assert!(line.ends_with("opens="), "{line}");
        }
        fs_err::write(&orders, &whole).unwrap();
        assert!(step().stdout.contains("opens=1"));

        // Whoever did not ask for mps is not stopped, whatever their environment says.
        let options = ["--gres=gpu:1", "--hold", "--output=gpu.txt"];
        let script = format!(
            "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50; srun --mem=0 --gres=none sh -c '{}'",
            look.replace('\'', "'\\''")
        );
        let job = lab.submit(NOBODY, &options, &script);
        fs_err::write(lab.folder().join("shared/jobs").join(&job), "damaged").unwrap();
        scontrol(&lab, &["release", &job]);
        lab.slurm.wait_for_job(&job, "COMPLETED");
        let text = lab.wrote("gpu.txt");
        assert!(text.contains("step visible="), "{text}");
    }
}

#[test]
fn a_task_that_cannot_be_held_to_its_gpu_is_ended() {
    needs!(Slurm);
    let lab = busy(SlurmVersion::Host, Cgroups::Version1);
    let name = lab.folder().file_name().unwrap().to_str().unwrap();
    let node = format!("/sys/fs/cgroup/devices/{name}.n1");
    let mut find = Command::new("find");
    let found = finish(find.arg(&node).args(["-name", "uid_65534"])).stdout;
    // What its folder does not have, no job below it can be given.
    fs_err::write(format!("{}/devices.deny", found.trim()), "c 195:1 rwm").unwrap();
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["-n2", "--mem=50", "--gres=mps:64", "sh", "-c", &lab.look("task")]);
    let Done { code, stdout, stderr } = finish(&mut srun);
    assert_ne!(code, Some(0), "{stderr}");
    assert_eq!(stdout, "", "{stderr}");
    assert!(stderr.contains("packhorse: this task cannot be held to its GPU"), "{stderr}");
}

fn a_task_epilog_sees_its_own_gpu(version: SlurmVersion, cgroups: Cgroups) {
    let lab = busy(version, cgroups);
    let out = lab.folder().join("out");
    let script = out.join("epilog.sh");
    let look = lab.look("epilog");
    fs_err::write(&script, format!("#!/bin/sh\n{look} >>epilog.txt\necho >ended\n")).unwrap();
    let _ended = lab.gate("ended");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(&script, all).unwrap();
    // The epilog of the first task runs while the second one is still there.
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["-n2", "--mem=50", "--gres=mps:64"]);
    srun.arg(format!("--task-epilog={}", script.display()));
    let wait = "[ $SLURM_PROCID = 0 ] || read x <ended";
    lab.slurm.output(srun.args(["sh", "-c", &format!("{}; {wait}", lab.look("task"))]));
    let text = lab.wrote("epilog.txt");
    assert_eq!(text.lines().count(), 2, "{text}");
    for line in text.lines() {
        assert!(line.ends_with("opens=1"), "{text}");
    }
}

#[test]
fn a_task_epilog_sees_its_own_gpu_with_cgroups_of_version_1() {
    needs!(Slurm, Slurm24);
    a_task_epilog_sees_its_own_gpu(SlurmVersion::Host, Cgroups::Version1);
    a_task_epilog_sees_its_own_gpu(SlurmVersion::V24_11, Cgroups::Version1);
}

#[test]
fn a_task_epilog_sees_its_own_gpu_with_cgroups_of_version_2() {
    needs!(Slurm, Slurm24);
    a_task_epilog_sees_its_own_gpu(SlurmVersion::Host, Cgroups::Version2);
    a_task_epilog_sees_its_own_gpu(SlurmVersion::V24_11, Cgroups::Version2);
}

#[test]
fn no_panic_crosses_into_slurm() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings { plugin: "panic", ..NodeSettings::default() });
    // In every hook of the plugin, in sbatch, srun and the steps of both.
    let job = lab.submit(NOBODY, &["--output=panic.txt"], "srun echo well");
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let text = lab.wrote("panic.txt");
    assert!(text.contains("\nwell\n"), "{text}");
    assert!(text.contains("packhorse: internal error"), "{text}");
}

#[test]
fn a_step_does_not_wait_for_ever_for_its_server() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings { plugin: "wait=1", ..NodeSettings::default() });
    let job = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&job);
    let orders = lab.folder().join("shared/jobs").join(&job);
    let text = fs_err::read_to_string(&orders).unwrap();
    // As if whoever starts the server hung.
    let lock = fs_err::File::create(lab.folder().join("lock")).unwrap();
    lock.file().lock().unwrap();
    let wait = format!("wait {}/lock\nend\n", lab.folder().display());
    fs_err::write(&orders, text.replace("end\n", &wait)).unwrap();
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--overlap", "--mem=0", &format!("--jobid={job}"), "echo"]);
    assert_eq!(lab.slurm.output(srun.arg("well")), "well\n");
    let log = fs_err::read_to_string(lab.folder().join("log/slurmd.n1.log")).unwrap();
    assert!(log.contains("the MPS server does not start"), "{log}");
}

#[test]
fn a_step_goes_on_if_slurm_does_not_say_whether_its_job_has_mps() {
    needs!(Slurm);
    let lab =
        NodeLab::start(NodeSettings { plugin: "scontrol=/bin/false", ..NodeSettings::default() });
    let job = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&job);
    fs_err::remove_file(lab.folder().join("shared/jobs").join(&job)).unwrap();
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--overlap", "--mem=0", &format!("--jobid={job}"), "echo"]);
    assert_eq!(lab.slurm.output(srun.arg("well")), "well\n");
    let log = fs_err::read_to_string(lab.folder().join("log/slurmd.n1.log")).unwrap();
    let told = "/bin/false does not say whether this job has mps";
    assert!(log.contains(told), "{log}");
}
