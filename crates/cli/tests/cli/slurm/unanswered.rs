//! Jobs that Slurm has taken although its commands say otherwise, or nothing.

use std::process::Command;

use packhorse_slurm_lab::{LabSettings, SlurmVersion};
use packhorse_test_parts::needs;

use super::{Cluster, lines};
use crate::support::{finish, finish_with};

/// Takes the job, and fails as if the answer had not come in time.
const TIMES_OUT: &str = "case \"$*\" in *--test-only*) exec $REAL \"$@\";; esac\n\
    $REAL \"$@\" > /dev/null\n\
    echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\n\
    exit 1\n";

const RUN: [&str; 7] = ["run", "--slurm", "--gres", "gpu:1", "--time", "10", "--jobs=2"];

impl Cluster {
    /// How many arrays of the first run have not been answered.
    fn unanswered(&self) -> usize {
        let links = fs_err::read_dir(self.folder(1).join("submitting"));
        links.unwrap().count()
    }

    /// How many jobs Slurm knows, whoever has submitted them.
    fn all_jobs(&self) -> usize {
        let mut squeue: Command = self.lab.command("squeue");
        let told = self.lab.output(squeue.args(["-h", "-t", "all", "-o", "%F"]));
        let mut jobs: Vec<&str> = told.lines().collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.len()
    }
}

#[test]
fn a_job_that_slurm_took_although_sbatch_failed_is_the_runs_own() {
    needs!(Slurm, Slurm24);
    // They tell the script of a job in different ways.
    for version in [SlurmVersion::Host, SlurmVersion::V24_11] {
        let settings = LabSettings { version, ..LabSettings::default() };
        let cluster = Cluster::with(settings);
        cluster.wrap("sbatch", TIMES_OUT);
        let command = cluster.command_with_wrappers(RUN);
        let done = finish_with(command, lines("echo $PACKHORSE_TASK >> ran", 3));
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stdout.starts_with("run 1: 3 tasks in 3 jobs"), "{done:?}");
        assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
        let ran = cluster.world.read("ran");
        let mut ran: Vec<&str> = ran.lines().collect();
        ran.sort_unstable();
        assert_eq!(ran, ["1.1", "1.2", "1.3"]);
        assert_eq!(cluster.unanswered(), 0);
    }
}

#[test]
fn what_nobody_could_ask_after_is_found_later_and_does_not_run_twice() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.wrap("sbatch", TIMES_OUT);
    cluster.wrap("squeue", "echo 'slurm_load_jobs error: Socket timed out' >&2; exit 1\n");
    let command = cluster.command_with_wrappers(RUN);
    let done = finish_with(command, "sleep 1000\n");
    assert_eq!(done.code, 2, "{done:?}");
    for told in [
        "Slurm did not take the job: Batch job submission failed: Socket timed out",
        "it is not known whether Slurm has taken the job all the same",
        "run 1 is kept with its 1 tasks",
    ] {
        assert!(done.stderr.contains(told), "{told}: {}", done.stderr);
    }
    assert_eq!(cluster.unanswered(), 1);
    let again = cluster.packhorse(["slurm", "resume", "1"]);
    assert!(again.stderr.contains("run 1 is still on the cluster"), "{again:?}");
    assert_eq!(cluster.all_jobs(), 1);
    let done = cluster.packhorse(["slurm", "cancel", "1"]);
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
    assert_eq!(cluster.lab.job_states(&cluster.job(1)), ["CANCELLED"]);
    assert_eq!(cluster.unanswered(), 0);
}

#[test]
fn the_number_is_found_among_whatever_a_site_writes() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let banner = "echo 'Welcome to 3 clusters'; echo\n$REAL \"$@\"\ncode=$?\n\
        echo 'Your quota: 5'\nexit $code\n";
    cluster.wrap("sbatch", banner);
    let command = cluster.command_with_wrappers(RUN);
    let done = finish_with(command, "true\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
    assert_eq!(cluster.all_jobs(), 1);
}

#[test]
fn ctrl_c_while_a_job_is_submitted_acts_when_it_is_written_down() {
    needs!(Slurm);
    let cluster = Cluster::start();
    // A terminal would send it to everybody in our process group.
    let group = "cut -d' ' -f5 /proc/$1/stat";
    let script = format!(
        "case \"$*\" in *--test-only*) exec $REAL \"$@\";; esac\n\
         $REAL \"$@\"\ncode=$?\nkill -INT $PPID\n\
         group() {{ {group}; }}\n\
         [ $(group $$) = $(group $PPID) ] && echo same > group\nexit $code\n"
    );
    cluster.wrap("sbatch", &script);
    let done = finish_with(cluster.command_with_wrappers(RUN), "sleep 1000\n");
    assert_eq!(done.code, 130, "{done:?}");
    assert!(!cluster.world.work().join("group").exists());
    assert!(done.stdout.starts_with("run 1: 1 task in 1 job"), "{done:?}");
    let done = finish(cluster.command(["slurm", "cancel"]));
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
    assert_eq!(cluster.lab.job_states(&cluster.job(1)), ["CANCELLED"]);
}

#[test]
fn a_job_that_is_put_back_although_scontrol_failed_is_not_followed_by_another() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    // Slurm usually ends a job that it has put back before it could go wrong. Here it does not.
    cluster.wrap(
        "scontrol",
        "case \"$*\" in *requeue*) ;; *) exec $REAL \"$@\";; esac\n\
         echo 'slurm_requeue error: Socket timed out on send/recv operation' >&2\nexit 1\n",
    );
    cluster
        .wrap("squeue", "case \"$*\" in *format=%T*) echo PENDING;; *) exec $REAL \"$@\";; esac\n");
    cluster.world.write("packhorse.toml", "[slurm]\ntime = 1\nmargin = \"54s\"\n");
    // Nobody follows it, who would submit again what was cut off.
    let words = ["run", "--slurm", "--gres", "gpu:1"];
    let command = cluster.command_with_wrappers(words);
    let done = finish_with(command, "sleep 100\n");
    assert_eq!(done.code, 0, "{done:?}");
    let element = format!("{}_0", cluster.job(1));
    cluster.lab.wait_for_job(&element, "FAILED");
    assert_eq!(cluster.all_jobs(), 1);
}
