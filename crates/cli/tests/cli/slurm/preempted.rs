//! Jobs that Slurm ends for others, and nodes that may not submit what is left.

use packhorse_slurm_lab::{LabSettings, SlurmVersion};
use packhorse_test_parts::needs;
use rustix::process::Signal;

use super::{Cluster, WAITING, lines};

/// A node whose jobs make room for those of the partition `urgent`.
fn preempting(mode: &str) -> Cluster {
    preempting_with(mode, &[], SlurmVersion::Host)
}

/// The same with further lines in Slurm's configuration, and of another version.
fn preempting_with(mode: &str, lines: &[&str], version: SlurmVersion) -> Cluster {
    let main = format!(
        "PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1 PreemptMode={mode}"
    );
    let urgent = "PartitionName=urgent Nodes=ALL State=UP PriorityTier=10 PreemptMode=OFF";
    Cluster::with(LabSettings {
        nodes: 1,
        version,
        slurm_conf: [
            &["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", &main, urgent],
            lines,
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect(),
        ..LabSettings::default()
    })
}

impl Cluster {
    /// Somebody else needs all GPUs for a moment.
    fn preempt(&self) {
        let words = ["--partition=urgent", "--gres=gpu:4", "--output=/dev/null", "--wrap=true"];
        self.lab.sbatch(words);
    }

    /// The number of the last array that was submitted from here.
    fn last_job(&self) -> String {
        let jobs = fs_err::read_to_string(self.folder(1).join("jobs.jsonl")).unwrap();
        let last: serde_json::Value = serde_json::from_str(jobs.lines().last().unwrap()).unwrap();
        last["job"].to_string()
    }

    /// Whether Slurm keeps a job until the first array of the run is over.
    fn comes_after_first(&self, job: &str) -> bool {
        let mut scontrol = self.lab.command("scontrol");
        let shown = self.lab.output(scontrol.args(["show", "job", job]));
        shown.contains(&format!("Dependency=afterany:{}_", self.job(1)))
    }

    /// What the first element of the run has submitted.
    fn next_of_first(&self) -> String {
        let next = self.folder(1).join("jobs/0.1.json");
        let next: serde_json::Value = serde_json::from_slice(&fs_err::read(next).unwrap()).unwrap();
        next["job"].to_string()
    }

    /// Jobs may neither go back into the queue nor submit others.
    fn nodes_submit_nothing(&self, settings: &str) {
        let refuse = "echo 'not from here' >&2; exit 1";
        self.wrap("sbatch", refuse);
        let requeue = format!("if [ $1 = requeue ]; then {refuse}; fi\nexec $REAL \"$@\"");
        self.wrap("scontrol", &requeue);
        let path = self.node_path();
        self.world.write("packhorse.toml", format!("[slurm]\n{path}{settings}"));
    }
}

const WORDS: [&str; 7] = ["run", "--slurm", "--gres", "gpu:2", "--time", "1h", "--wait"];

#[test]
fn what_slurm_puts_back_for_others_goes_on_in_the_same_job() {
    needs!(Slurm);
    let cluster = preempting("REQUEUE");
    let gate = cluster.world.gate("gate");
    let mut running = cluster.start_with(WORDS, lines(WAITING, 2));
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    running.wait_for("1.1 attempt 1: its job was cut off; no retry is used up");
    cluster.wait_for_lines("ran", 4);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (1, 0));
    let task = cluster.packhorse(["show", "1.1", "--json"]).json();
    assert_eq!(task["attempts"], 2);
}

#[test]
fn a_job_that_slurm_ends_for_others_submits_the_next_itself() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    let gate = cluster.world.gate("gate");
    // Nobody follows it.
    let done = cluster.packhorse_with(&WORDS[..6], lines(WAITING, 2));
    assert_eq!(done.code, 0, "{done:?}");
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    cluster.wait_for_lines("ran", 4);
    assert_eq!(cluster.submitted(), (1, 1));
    // Whoever follows it leaves that to the job.
    let mut running = cluster.start_with(["slurm", "wait"], "");
    running.wait_for("1.1 started on n1");
    cluster.preempt();
    running.wait_for("1.1 attempt 2: its job was cut off");
    cluster.wait_for_lines("ran", 6);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded"; 2]);
    assert_eq!(cluster.submitted(), (1, 2));
}

#[test]
fn what_slurm_ends_for_others_is_submitted_from_here_where_nodes_may_not() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    cluster.nodes_submit_nothing("");
    let gate = cluster.world.gate("gate");
    let mut running = cluster.start_with(WORDS, lines(WAITING, 2));
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    running.wait_for("2 tasks are left, and cannot go on from here: ");
    running.wait_for("a job that ended with tasks left was submitted again");
    cluster.wait_for_lines("ran", 4);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
}

#[test]
fn a_lost_job_does_not_wait_for_the_others_and_is_not_submitted_once_cancelled() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    cluster.nodes_submit_nothing("");
    let _gate = cluster.world.gate("gate");
    // Two jobs, each with half of the GPUs.
    let words = [&WORDS[..], &["--task-time", "1h", "--jobs", "2"]].concat();
    let mut running = cluster.start_with(words, lines(WAITING, 4));
    cluster.wait_for_lines("ran", 4);
    // Room for this is made by one of the two.
    let words = ["--partition=urgent", "--gres=gpu:2", "--output=/dev/null"];
    cluster.lab.sbatch([&words[..], &["--wrap=true"]].concat());
    running.wait_for("a job that ended with tasks left was submitted again");
    cluster.wait_for_lines("ran", 6);
    assert_eq!(cluster.submitted(), (2, 0));
    // The same once more, and before anybody has seen to it, the run is cancelled.
    cluster.lab.sbatch([&words[..], &["--wrap=true"]].concat());
    running.wait_for("cannot go on from here");
    running.signal(Signal::STOP);
    let done = cluster.packhorse(["slurm", "cancel", "1"]);
    assert!(done.stderr.contains("were cancelled"), "{done:?}");
    running.signal(Signal::CONT);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
}

/// Of two jobs one runs at a time, each with half of the GPUs.
const ONE_AT_A_TIME: [&str; 4] = ["--task-time", "1h", "--jobs", "1"];

#[test]
fn a_lost_job_comes_after_those_that_wait_for_each_other() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    cluster.nodes_submit_nothing("");
    let gate = cluster.world.gate("gate");
    let words = [&WORDS[..], &ONE_AT_A_TIME].concat();
    let mut running = cluster.start_with(words, lines(WAITING, 4));
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    // While the other one waits or runs.
    running.wait_for("a job that ended with tasks left was submitted again");
    let last = cluster.last_job();
    assert!(cluster.comes_after_first(&last), "{last}");
    cluster.wait_for_lines("ran", 4);
    gate.pass(2);
    cluster.wait_for_lines("ran", 6);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
    let ran = cluster.world.read("ran");
    let first: Vec<&str> = ran.lines().skip(4).collect();
    assert!(first.contains(&"1.1") && first.contains(&"1.2"), "{ran}");
}

#[test]
fn a_job_that_a_job_submits_comes_after_those_that_wait_for_each_other() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    let gate = cluster.world.gate("gate");
    let words = [&WORDS[..6], &ONE_AT_A_TIME].concat();
    let done = cluster.packhorse_with(words, lines(WAITING, 4));
    assert_eq!(done.code, 0, "{done:?}");
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    cluster.wait_for_lines("ran", 4);
    let next = cluster.next_of_first();
    assert!(cluster.comes_after_first(&next), "{next}");
    gate.pass(2);
    cluster.wait_for_lines("ran", 6);
    gate.pass(2);
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// Each task has a gate of its own.
const AT_OWN_GATE: &str = "echo $PACKHORSE_TASK >> ran; read x < gate-$PACKHORSE_TASK";

#[test]
fn jobs_that_jobs_submit_run_side_by_side() {
    needs!(Slurm);
    jobs_run_side_by_side(SlurmVersion::Host);
}

#[test]
fn jobs_that_jobs_submit_run_side_by_side_with_slurm_24_11() {
    needs!(Slurm24);
    jobs_run_side_by_side(SlurmVersion::V24_11);
}

fn jobs_run_side_by_side(version: SlurmVersion) {
    let cluster = preempting_with("CANCEL", &[], version);
    let gates = [1, 2, 3].map(|task| cluster.world.gate(&format!("gate-1.{task}")));
    // Two of three at a time, each with a task that takes half of the GPUs.
    let two = ["-g", "2", "--task-time", "1h", "--jobs", "2"];
    let words = [&WORDS[..6], &two].concat();
    let done = cluster.packhorse_with(words, lines(AT_OWN_GATE, 3));
    assert_eq!(done.code, 0, "{done:?}");
    let first = cluster.job(1);
    let urgent = ["--partition=urgent", "--gres=gpu:2", "--output=/dev/null"];
    let urgent = [&urgent[..], &["--wrap=true"]].concat();
    cluster.wait_for_lines("ran", 2);
    cluster.lab.sbatch(&urgent);
    cluster.wait_for_lines("ran", 3);
    cluster.lab.sbatch(&urgent);
    // Two of them were cut off; the third comes to its end.
    let state = |index: usize| cluster.lab.job_states(&format!("{first}_{index}"));
    let last = cluster.lab.wait(|_| {
        let is_over = |index: &usize| state(*index) == ["PREEMPTED"];
        let left: Vec<usize> = (0..3).filter(|index| !is_over(index)).collect();
        (left.len() == 1).then(|| left[0])
    });
    gates[last.unwrap()].pass(1);
    // The others run again, and neither waits for the end of the other.
    cluster.wait_for_lines("ran", 5);
    assert_eq!(cluster.submitted(), (1, 2));
    for (index, gate) in gates.iter().enumerate() {
        if Some(index) != last {
            gate.pass(1);
        }
    }
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_job_goes_on_although_nobody_tells_what_else_is_in_the_queue() {
    needs!(Slurm);
    // As long as Slurm leaves a job if nobody says otherwise.
    let lines_of_conf = ["KillWait=30"];
    let cluster = preempting_with("CANCEL", &lines_of_conf, SlurmVersion::Host);
    let gate = cluster.world.gate("gate");
    cluster.wrap(
        "squeue",
        "case \"$*\" in *%o*) echo >> asked; exec sleep 1000;; esac\nexec $REAL \"$@\"\n",
    );
    let path = cluster.node_path();
    cluster.world.write("packhorse.toml", format!("[slurm]\n{path}"));
    let words = [&WORDS[..6], &ONE_AT_A_TIME].concat();
    let done = cluster.packhorse_with(words, lines(WAITING, 4));
    assert_eq!(done.code, 0, "{done:?}");
    cluster.wait_for_lines("ran", 2);
    // Nor can the list of jobs be read.
    let list = cluster.folder(1).join("jobs.jsonl");
    let away = cluster.folder(1).join("jobs.away");
    fs_err::rename(&list, &away).unwrap();
    fs_err::create_dir(&list).unwrap();
    cluster.preempt();
    cluster.wait_for_lines("ran", 4);
    // Before it was submitted, and after that.
    assert_eq!(cluster.world.read("asked").lines().count(), 2);
    fs_err::remove_dir(&list).unwrap();
    fs_err::rename(&away, &list).unwrap();
    // It does not run beside the other one of its array.
    let next = cluster.next_of_first();
    assert!(cluster.comes_after_first(&next), "{next}");
    gate.pass(2);
    cluster.wait_for_lines("ran", 6);
    gate.pass(2);
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (1, 1));
}

#[test]
fn a_job_that_a_job_submits_does_not_wait_for_one_that_is_held() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    let gates = [1, 2, 3].map(|task| cluster.world.gate(&format!("gate-1.{task}")));
    let one = ["-g", "2", "--task-time", "1h", "--jobs", "1"];
    let words = [&WORDS[..6], &one].concat();
    let done = cluster.packhorse_with(words, lines(AT_OWN_GATE, 3));
    assert_eq!(done.code, 0, "{done:?}");
    cluster.wait_for_lines("ran", 1);
    let held = format!("{}_1", cluster.job(1));
    let scontrol = |word: &str| {
        let mut scontrol = cluster.lab.command("scontrol");
        cluster.lab.output(scontrol.args([word, &held]));
    };
    scontrol("hold");
    cluster.preempt();
    // After the one that still waits, which is not held.
    cluster.wait_for_lines("ran", 2);
    assert_eq!(cluster.world.read("ran"), "1.1\n1.3\n");
    gates[2].pass(1);
    cluster.wait_for_lines("ran", 3);
    assert_eq!(cluster.world.read("ran"), "1.1\n1.3\n1.1\n");
    let told = cluster.packhorse(["slurm", "status"]).stdout;
    let how = format!("`scontrol release {held}` lets them go");
    assert!(told.contains(&how), "{told}");
    gates[0].pass(1);
    scontrol("release");
    gates[1].pass(1);
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_lost_job_is_submitted_when_the_folder_can_be_written_to_again() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    cluster.nodes_submit_nothing("");
    let gate = cluster.world.gate("gate");
    let mut running = cluster.start_with(WORDS, lines(WAITING, 2));
    cluster.wait_for_lines("ran", 2);
    let submitting = cluster.folder(1).join("submitting");
    let _ = fs_err::remove_dir_all(&submitting);
    fs_err::write(&submitting, "").unwrap();
    cluster.preempt();
    running.wait_for("; it is tried again");
    fs_err::remove_file(&submitting).unwrap();
    running.wait_for("a job that ended with tasks left was submitted again");
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
}

#[test]
fn what_a_job_submitted_before_it_died_is_not_submitted_twice() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    // It dies before it can write down what it has submitted.
    cluster.wrap("sbatch", "$REAL \"$@\"\nkill -KILL $PPID\n");
    let path = cluster.node_path();
    cluster.world.write("packhorse.toml", format!("[slurm]\n{path}"));
    let gate = cluster.world.gate("gate");
    let mut running = cluster.start_with(WORDS, lines(WAITING, 2));
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    running.wait_for("1.1 attempt 1: its job was cut off");
    cluster.wait_for_lines("ran", 4);
    // Whoever follows it has seen to what was lost: one job is from here, and one was found.
    let looked = cluster.lab.wait(|_| (cluster.submitted() == (2, 0)).then_some(()));
    assert!(looked.is_some(), "{:?}", cluster.submitted());
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("submitted again"), "{done:?}");
    assert_eq!(cluster.world.read("ran").lines().count(), 4);
}

#[test]
fn a_job_that_a_job_submitted_is_submitted_again_if_it_dies_before_it_begins() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    let begin = cluster.world.gate("begin");
    let gate = cluster.world.gate("gate");
    cluster.world.write(
        "packhorse.toml",
        "[slurm]\nsh_lines = [\"echo >> starting\", \"read x < begin\"]\n",
    );
    let mut running = cluster.start_with(WORDS, lines(WAITING, 2));
    begin.pass(1);
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    cluster.wait_for_lines("starting", 2);
    cluster.preempt();
    running.wait_for("a job that ended with tasks left was submitted again");
    assert_eq!(cluster.submitted(), (2, 1));
    begin.pass(1);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded"; 2]);
}

#[test]
fn a_run_is_not_over_while_a_job_that_nobody_was_told_of_is_in_the_queue() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    // Nodes submit nothing. From here it once seems as if Slurm had not taken the job, and
    // nobody can ask whether it has.
    let timed_out = "echo 'error: Socket timed out on send/recv operation' >&2; exit 1";
    let sbatch = format!(
        "if [ -n \"$SLURM_JOB_ID\" ]; then exit 1; fi\n\
         if [ ! -e broken ]; then exec $REAL \"$@\"; fi\n\
         $REAL \"$@\" > /dev/null; {timed_out}\n"
    );
    cluster.wrap("sbatch", &sbatch);
    let squeue = format!(
        "case \"$SLURM_JOB_ID$*\" in --*%o*) if rm broken; then {timed_out}; fi;; esac\n\
         exec $REAL \"$@\"\n"
    );
    cluster.wrap("squeue", &squeue);
    let path = cluster.node_path();
    cluster.world.write("packhorse.toml", format!("[slurm]\n{path}"));
    let gate = cluster.world.gate("gate");
    let other = cluster.world.gate("other");
    let command = cluster.command_with_wrappers(WORDS);
    let mut running = crate::support::Running::start(command);
    running.send(lines(WAITING, 2));
    running.end_input();
    cluster.wait_for_lines("ran", 2);
    cluster.world.write("broken", "");
    let wait = format!("--wrap=read x < {}/other", cluster.world.work().display());
    let urgent = ["--partition=urgent", "--gres=gpu:4", "--output=/dev/null"];
    cluster.lab.sbatch([&urgent[..], &[&wait]].concat());
    running.wait_for("it is not known whether Slurm has taken the job all the same");
    running.wait_for("Slurm has taken a job that was not known here: ");
    other.pass(1);
    cluster.wait_for_lines("ran", 4);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
}

#[test]
fn what_was_left_before_a_run_was_resumed_is_not_submitted_twice() {
    needs!(Slurm);
    let cluster = preempting("CANCEL");
    cluster.nodes_submit_nothing("");
    let gate = cluster.world.gate("gate");
    let words = [&WORDS[..6], &["--requeues", "0"]].concat();
    cluster.packhorse_with(words, lines(WAITING, 2));
    cluster.wait_for_lines("ran", 2);
    cluster.preempt();
    let first = format!("{}_0", cluster.job(1));
    cluster.lab.wait_for_job(&first, "PREEMPTED");
    // What is said now counts for whoever follows it, too.
    let words = ["slurm", "resume", "--wait", "--requeues", "1"];
    let mut running = cluster.start_with(words, "");
    cluster.wait_for_lines("ran", 4);
    // By now the first job is known to be gone.
    cluster.preempt();
    running.wait_for("a job that ended with tasks left was submitted again");
    cluster.wait_for_lines("ran", 6);
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.submitted(), (3, 0));
    assert_eq!(cluster.world.read("ran").lines().count(), 6);
}

#[test]
fn what_does_not_fit_is_submitted_from_here_where_nodes_may_not() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    cluster.nodes_submit_nothing("time = 1\nmargin = \"54s\"\n");
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--task-time", "1s"];
    let done = cluster.packhorse_with(words, lines("sleep 4", 2));
    assert_eq!(done.code, 0, "{done:?}");
    let why = "1 task is left, and cannot go on from here: Slurm did not put the job back: \
               not from here; Slurm did not take the job: not from here";
    assert!(done.stdout.contains(why), "{done:?}");
    assert_eq!(cluster.submitted(), (2, 0));
}

#[test]
fn a_job_that_leads_nowhere_says_so() {
    needs!(Slurm);
    let cluster = Cluster::start();
    // The job's time for tasks is over when they could begin.
    cluster
        .world
        .write("packhorse.toml", "[slurm]\ntime = 1\nmargin = \"59s\"\nsh_lines = [\"sleep 2\"]\n");
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--task-time", "1s"];
    let done = cluster.packhorse_with(words, lines("true", 2));
    assert_eq!(done.code, 1, "{done:?}");
    let why = "2 tasks are left, and cannot go on from here: not one of them ran";
    assert!(done.stdout.contains(why), "{done:?}");
    assert_eq!(cluster.submitted(), (1, 0));
}
