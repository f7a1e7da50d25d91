//! Jobs that do not come to their end: dead nodes, scancel, time limits.

use packhorse_test_parts::needs;

use super::{Cluster, WAITING, lines};
use crate::support::finish;

#[test]
fn what_ran_on_a_node_that_died_runs_again_and_nothing_else_does() {
    needs!(Slurm);
    let mut cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:2", "--time", "1h"];
    let done = "echo $PACKHORSE_TASK >> ran";
    let mut running = cluster.start_with(words, lines(done, 2) + &lines(WAITING, 2));
    running.wait_for("run 1 started");
    // What is not told yet when a node dies did not happen.
    cluster.wait_until(1, |status| status["running"] == 2 && status["succeeded"] == 2);
    cluster.lab.kill_node("n1");
    running.wait_for("1.3 attempt 1: its job was cut off; no retry is used up");
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("on n2 GPU 0 (attempt 2)"), "{done:?}");
    let mut ran: Vec<String> = cluster.world.read("ran").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["1.1", "1.2", "1.3", "1.3", "1.4", "1.4"]);
    let task = cluster.packhorse(["show", "1.3", "--json"]).json();
    let tries = task["tries"].as_array().unwrap();
    let outcomes: Vec<_> = tries.iter().map(|it| (&it["outcome"], &it["node"])).collect();
    assert_eq!(
        outcomes,
        [(&"interrupted".into(), &"n1".into()), (&"succeeded".into(), &"n2".into())]
    );
}

#[test]
fn what_a_task_comes_after_is_known_to_its_next_life() {
    needs!(Slurm);
    let mut cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let tasks = format!(
        "#packhorse name=a\necho $PACKHORSE_TASK >> ran\n\
         #packhorse name=b\nfalse\n\
         #packhorse after=a retries=1\n{WAITING}; test -e mended\n\
         #packhorse after=b\ntrue\n"
    );
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--time", "1h", "--json"];
    let mut running = cluster.start_with(words, tasks);
    running.wait_for("\"task\":\"1.4\"");
    cluster.wait_for_lines("ran", 2);
    // It fails once, and is cut off while it runs a second time.
    gate.pass(1);
    cluster.wait_until(1, |status| status["running_tasks"][0]["attempt"] == 2);
    cluster.lab.kill_node("n1");
    cluster.world.write("mended", "");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded", "failed", "succeeded", "skipped"]);
    assert_eq!(cluster.world.read("ran"), "1.1\n1.3\n1.3\n1.3\n");
    let task = cluster.packhorse(["show", "1.3", "--json"]).json();
    assert_eq!(task["attempts"], 3);
}

#[test]
fn a_task_that_is_cut_off_too_often_is_left() {
    needs!(Slurm);
    let mut cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--requeues", "0", "--time", "1h"];
    let mut running = cluster.start_with(words, lines(WAITING, 2));
    running.wait_for("1.1 started on n1");
    cluster.lab.kill_node("n1");
    // The second task never ran, so it does now.
    running.wait_for("1.2 started on n2");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("1.1 interrupted after"), "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 1 succeeded, 1 left"), "{done:?}");
    // Whoever wants it all the same gets it.
    let again = cluster.packhorse(["slurm", "resume", "1"]);
    assert!(again.stdout.contains("1 task in 1 job"), "{again:?}");
    gate.pass(1);
    assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
    assert_eq!(cluster.outcomes(1), ["succeeded"; 2]);
}

#[test]
fn a_job_that_is_never_seen_to_start_a_task_is_given_up() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = ["run", "--slurm", "--requeues", "1", "--sbatch=--hold"];
    let done = cluster.packhorse_with(words, "echo $PACKHORSE_TASK >> ran\n");
    assert_eq!(done.code, 0, "{done:?}");
    // What is left of nodes that died before anybody else saw what they wrote.
    for life in ["0.1", "0.2"] {
        let file = cluster.folder(1).join(format!("outcomes/{life}.jsonl"));
        fs_err::write(file, "").unwrap();
    }
    let mut scontrol = cluster.lab.command("scontrol");
    cluster.lab.output(scontrol.args(["release", &cluster.job(1)]));
    let done = cluster.packhorse(["slurm", "wait"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(
        done.stdout.contains("its last 2 lives ended before a task was seen to start"),
        "{done:?}"
    );
    let again = cluster.packhorse(["slurm", "resume", "1", "--sbatch=--begin=now"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(cluster.packhorse(["slurm", "wait"]).code, 0);
    assert_eq!(cluster.world.read("ran"), "1.1\n");
}

#[test]
fn scancel_interrupts_tasks_and_never_fails_them() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    // One dies of the signal, one in a shell that tells so, one takes its time and fails.
    let tasks = "exec sleep 1000\nsleep 1000; exit $?\ntrap 'sleep 0.2; exit 7' TERM; sleep 1000 & wait\nread x < gate\n";
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:4", "--retries", "3", "--time", "1h"];
    let mut running = cluster.start_with(words, tasks);
    for task in 1..=4 {
        running.wait_for(&format!("1.{task} started"));
    }
    cluster.lab.output(cluster.lab.command("scancel").arg(cluster.job(1)));
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 0 succeeded, 4 left"), "{done:?}");
    assert!(!done.stdout.contains("failed"), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["interrupted"; 4]);
    drop(gate);
}

#[test]
fn a_run_is_cancelled_and_resumed() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let words =
        ["run", "--slurm", "--gres", "gpu:1", "--time", "1h", "--task-time", "1h", "--jobs", "2"];
    let done = cluster.packhorse_with(words, lines(WAITING, 4));
    assert!(done.stdout.contains("4 tasks in 4 jobs"), "{done:?}");
    cluster.wait_for_lines("ran", 2);
    let status = cluster.packhorse(["slurm", "status"]).stdout;
    assert!(status.contains(": 2 running, 2 pending, of 4"), "{status}");
    assert!(
        status.contains("(JobArrayTaskLimit): as many run at a time as --jobs allows"),
        "{status}"
    );
    assert!(status.contains("n1    0    1.1"), "{status}");
    assert!(cluster.packhorse(["ls"]).stdout.contains("on-slurm"));
    let refused = cluster.packhorse(["resume", "1"]);
    assert!(refused.stderr.contains("run 1 is still on the cluster"), "{refused:?}");

    let done = cluster.packhorse(["stop", "1"]);
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["interrupted", "interrupted", "none", "none"]);
    let status = cluster.packhorse(["slurm", "status"]);
    assert!(status.stdout.starts_with("run 1  interrupted\n"), "{status:?}");
    assert!(status.stderr.contains("packhorse slurm resume 1"), "{status:?}");

    // A disk that was full has left half a line behind.
    let jobs = cluster.folder(1).join("jobs.jsonl");
    let torn = fs_err::read_to_string(&jobs).unwrap() + "{\"job\":12,\"ba";
    fs_err::write(&jobs, torn).unwrap();
    // With other options, all that is left fits into one job.
    let words = ["slurm", "resume", "1", "--gres", "gpu:4", "--wait"];
    let running = cluster.start_with(words, "");
    gate.pass(4);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("on Slurm as jobs "), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded"; 4]);
    let task = cluster.packhorse(["show", "1.1", "--json"]).json();
    assert_eq!(task["attempts"], 2);
    assert_eq!(cluster.packhorse(["show", "1.3", "--json"]).json()["attempts"], 1);
}

#[test]
fn a_run_is_not_resumed_while_a_job_is_on_its_way_back_into_the_queue() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    // For a moment it is not in the queue.
    cluster.wrap("squeue", "if [ -e away ]; then rm away; exit 0; fi\nexec $REAL \"$@\"\n");
    let _gate = cluster.world.gate("gate");
    let words = ["run", "--slurm", "--gres", "gpu:1", "--time", "1h"];
    cluster.packhorse_with(words, lines(WAITING, 1));
    cluster.wait_for_lines("ran", 1);
    cluster.world.write("away", "");
    let again = finish(cluster.command_with_wrappers(["slurm", "resume", "1"]));
    assert!(again.stderr.contains("run 1 is still on the cluster"), "{again:?}");
    assert!(!cluster.world.work().join("away").exists());
    assert_eq!(cluster.submitted(), (1, 0));
}

#[test]
fn what_is_behind_a_hole_in_what_a_job_wrote_does_not_run_again() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    let words = ["run", "--slurm", "--gres", "gpu:1", "--time", "1h"];
    cluster.packhorse_with(words, lines("echo $PACKHORSE_TASK >> ran", 2));
    let element = format!("{}_0", cluster.job(1));
    cluster.lab.wait_for_job(&element, "COMPLETED");
    // A page that never came to be written reads as zeros.
    let path = cluster.folder(1).join("outcomes/0.1.jsonl");
    let mut written = fs_err::read(&path).unwrap();
    let end = written.iter().position(|&byte| byte == b'\n').unwrap();
    written[..end].fill(0);
    fs_err::write(&path, written).unwrap();
    let again = cluster.packhorse(["slurm", "resume", "1"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(cluster.submitted(), (1, 0), "{again:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded"; 2]);
}

#[test]
fn what_comes_back_into_the_queue_while_a_run_is_cancelled_is_cancelled_too() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = ["run", "--slurm", "--gres", "gpu:1", "--sbatch=--hold"];
    let done = cluster.packhorse_with(words, "touch ran\n");
    assert_eq!(done.code, 0, "{done:?}");
    // As if it had put itself back right after it was cancelled.
    let later = "if mkdir cancelled 2> /dev/null; then exit; fi\nexec $REAL \"$@\"";
    cluster.wrap("scancel", later);
    let done = finish(cluster.command_with_wrappers(["slurm", "cancel"]));
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
    let states = cluster.lab.job_states(&cluster.job(1));
    assert_eq!(states, ["CANCELLED"]);
    // Should it start all the same, it does nothing.
    let folder = cluster.folder(1);
    let script = [folder.join("script.sh"), "0".into()];
    let job =
        cluster.lab.sbatch(["--array=0".into(), "--gres=gpu:1".into()].into_iter().chain(script));
    cluster.lab.output(cluster.lab.command("scontrol").args(["release", &job]));
    cluster.lab.wait_for_job(&format!("{job}_0"), "COMPLETED");
    assert!(!cluster.world.work().join("ran").exists());
}

/// Jobs of a minute, of which tasks have some seconds: Slurm knows no shorter ones.
fn short_jobs() -> Cluster {
    // A requeued job waits for its old credentials to expire.
    let cluster = Cluster::with_one_node();
    cluster.world.write("packhorse.toml", "[slurm]\ntime = 1\nmargin = \"54s\"\n");
    cluster
}

#[test]
fn what_does_not_fit_into_a_jobs_time_goes_on_in_another() {
    needs!(Slurm);
    let cluster = short_jobs();
    // Of six seconds, the first takes four: the second is known to take as long, and waits for
    // the next job, as does the third.
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--task-time", "1s"];
    let task = "echo $PACKHORSE_TASK ${SLURM_RESTART_COUNT:-0} >> ran; sleep 4";
    let done = cluster.packhorse_with(words, lines(task, 3));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 3 succeeded"), "{done:?}");
    assert!(!done.stdout.contains("cut off"), "{done:?}");
    assert_eq!(cluster.world.read("ran"), "1.1 0\n1.2 1\n1.3 2\n");
    let jobs = fs_err::read_to_string(cluster.folder(1).join("jobs.jsonl")).unwrap();
    assert_eq!(jobs.lines().count(), 1, "it is the same job: {jobs}");
}

#[test]
fn what_runs_when_a_jobs_time_is_over_is_cut_off_and_runs_again() {
    needs!(Slurm);
    let cluster = short_jobs();
    // A job that may not be put back is followed by another.
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--sbatch=--no-requeue"];
    let task = "test -e checkpoint && exit 0; touch checkpoint; sleep 100";
    let done = cluster.packhorse_with(words, lines(task, 1));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stdout.contains("1.1 attempt 1: its job was cut off; no retry is used up"),
        "{done:?}"
    );
    assert!(done.stdout.contains("run 1 ended: 1 succeeded"), "{done:?}");
    let followed = fs_err::read_dir(cluster.folder(1).join("jobs")).unwrap().count();
    assert_eq!(followed, 1);
}

#[test]
fn what_slurm_ends_at_its_time_limit_goes_on() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    let gate = cluster.world.gate("gate");
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1", "--time", "1h"];
    let mut running = cluster.start_with(words, lines(WAITING, 1));
    cluster.wait_for_lines("ran", 1);
    // It comes as a surprise: the job counts on its hour.
    let job = format!("JobId={}_0", cluster.job(1));
    let mut scontrol = cluster.lab.command("scontrol");
    cluster.lab.output(scontrol.args(["update", &job, "EndTime=now+1"]));
    running.wait_for("1.1 attempt 1: its job was cut off; no retry is used up");
    cluster.wait_for_lines("ran", 2);
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded"]);
}

#[test]
fn a_job_that_was_not_told_when_it_ends_asks_again() {
    needs!(Slurm);
    let cluster = short_jobs();
    // Slurm is busy for a moment.
    cluster.wrap("squeue", "if mkdir asked 2> /dev/null; then exit 1; fi\nexec $REAL \"$@\"");
    let path = cluster.node_path();
    let settings = format!("[slurm]\n{path}time = 1\nmargin = \"50s\"\n");
    cluster.world.write("packhorse.toml", settings);
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1"];
    let task = "test -e checkpoint && exit 0; touch checkpoint; sleep 100";
    let done = cluster.packhorse_with(words, lines(task, 1));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(cluster.world.work().join("asked").is_dir());
    // It had the time to put itself back.
    assert_eq!(cluster.submitted(), (1, 0));
}

#[test]
fn what_a_failed_job_wrote_is_told_wherever_it_wrote_it() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.world.write(
        "packhorse.toml",
        "[slurm]\noutput = \"what it said %A-%a.txt\"\nsh_lines = [\"echo no such module; exit 3\"]\n",
    );
    let words = ["run", "--slurm", "--wait", "--gres", "gpu:1"];
    let done = cluster.packhorse_with(words, "true\n");
    assert_eq!(done.code, 1, "{done:?}");
    let told = "_0 on n1 has ended: FAILED\n  no such module\n";
    assert!(done.stdout.contains(told), "{done:?}");
}

#[test]
fn what_comes_after_a_task_that_failed_is_skipped_though_nobody_said_so() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let tasks = "#packhorse name=a\nfalse\n#packhorse after=a name=b\ntouch ran\n\
                 #packhorse after=b\ntouch ran\n";
    let words = ["run", "--slurm", "--gres", "gpu:1"];
    let done = cluster.packhorse_with(words, tasks);
    assert_eq!(done.code, 0, "{done:?}");
    cluster.lab.wait_for_job(&format!("{}_0", cluster.job(1)), "FAILED");
    // The node dies before it has said what becomes of the others.
    let outcomes = cluster.folder(1).join("outcomes/0.1.jsonl");
    let text = fs_err::read_to_string(&outcomes).unwrap();
    let (said, _) = text.split_once("\"outcome\":\"failed\"").unwrap();
    let end = said.len() + text[said.len()..].find('\n').unwrap() + 1;
    fs_err::write(&outcomes, &text[..end]).unwrap();
    let done = cluster.packhorse(["slurm", "resume"]);
    assert!(!done.stdout.contains("submitted"), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["failed", "skipped", "skipped"]);
    assert_eq!(cluster.world.read("ran"), "");
}
