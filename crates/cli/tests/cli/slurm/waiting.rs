//! Staying with a run: Ctrl-C, leaving, coming back.

use packhorse_slurm_lab::LabSettings;
use packhorse_test_parts::needs;
use rustix::process::Signal;

use super::{Cluster, lines};
use crate::terminal::Terminal;

const WORDS: [&str; 12] = [
    "run",
    "--slurm",
    "--wait",
    "--gres",
    "gpu:1",
    "--time",
    "1h",
    "--task-time",
    "1h",
    "--jobs",
    "2",
    "--json",
];

#[test]
fn ctrl_c_lets_what_runs_finish_and_takes_the_rest_out_of_the_queue() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let words = &WORDS[..11];
    let mut running = cluster.start_with(words, lines("read x < gate", 4));
    running.wait_for(" started on n1");
    running.wait_for(" started on n1");
    running.signal(Signal::INT);
    running.wait_for("stopping: no new tasks are started, 2 running tasks may finish");
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 2 succeeded, 2 left"), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["succeeded", "succeeded", "none", "none"]);
    // The rest can be had.
    gate.pass(2);
    let words = ["slurm", "resume", "--wait"];
    let done = cluster.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("4 succeeded in all"), "{done:?}");
}

#[test]
fn a_second_ctrl_c_cancels_everything() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let words = &WORDS[..11];
    let mut running = cluster.start_with(words, lines("sleep 1000", 3));
    running.wait_for(" started on n1");
    running.wait_for(" started on n1");
    running.signal(Signal::INT);
    running.wait_for("stopping:");
    running.signal(Signal::INT);
    running.wait_for("ending 2 running tasks");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 0 succeeded, 3 left"), "{done:?}");
    assert_eq!(cluster.outcomes(1), ["interrupted", "interrupted", "none"]);
}

#[test]
fn what_could_not_be_cancelled_is_cancelled_when_slurm_answers() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.wrap(
        "scancel",
        "if [ -e broken ]; then rm broken; echo 'scancel: error: Kill job error on job id 7: \
         Invalid job id specified' >&2\n\
         echo 'scancel: error: Kill job error on job id 2: Socket timed out' >&2; exit 1; fi\n\
         exec $REAL \"$@\"\n",
    );
    let command = cluster.command_with_wrappers(&WORDS[..11]);
    let mut running = crate::support::Running::start(command);
    running.send(lines("sleep 1000", 2));
    running.end_input();
    running.wait_for(" started on n1");
    running.wait_for(" started on n1");
    running.signal(Signal::INT);
    running.wait_for("stopping:");
    cluster.world.write("broken", "");
    running.signal(Signal::INT);
    running.wait_for("job id 2: Socket timed out; it is tried again");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(cluster.outcomes(1), ["interrupted"; 2]);
}

#[test]
fn ctrl_c_reaches_a_job_that_is_just_starting() {
    needs!(Slurm);
    let cluster = Cluster::start();
    // A shell that has something else to do does not pass on what it is told.
    let settings = "[slurm]\nsh_lines = [\"trap 'echo >> told' INT\", \"echo >> starting\", \
                    \"sh -c 'read x < begin' & wait $!; wait $!\", \"trap - INT\"]\n";
    cluster.world.write("packhorse.toml", settings);
    let begin = cluster.world.gate("begin");
    let words = &WORDS[..7];
    let mut running = cluster.start_with(words, lines("echo >> ran", 2));
    cluster.wait_for_lines("starting", 1);
    running.signal(Signal::INT);
    running.wait_for("stopping:");
    cluster.wait_for_lines("told", 1);
    begin.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(!done.stdout.contains("warning"), "{done:?}");
    assert_eq!(cluster.world.read("ran"), "");
    assert_eq!(cluster.outcomes(1), ["none"; 2]);
    // Whoever resumes it means it.
    begin.pass(1);
    let done = cluster.packhorse(["slurm", "resume", "--wait"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn slurm_is_asked_for_its_queue_when_something_has_happened_and_else_seldom() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    cluster.wrap("squeue", "date +%s.%N >> calls\nexec $REAL \"$@\"");
    // One job runs, and one waits for it. Tasks begin and end all the time.
    let words = [
        "run",
        "--slurm",
        "--wait",
        "--gres",
        "gpu:1",
        "--time",
        "1h",
        "--task-time",
        "5m",
        "--jobs",
        "1",
    ];
    let command = cluster.command_with_wrappers(words);
    let mut running = crate::support::Running::start(command);
    running.send(lines("sleep 1", 10) + &lines("read x < gate", 10));
    running.end_input();
    // By then it is known that one runs and one waits.
    running.wait_for("1.4 started");
    let calls = || cluster.world.read("calls").lines().count();
    let before = calls();
    running.wait_for("1.11 started");
    let asked = calls() - before;
    assert!(asked <= 4, "asked {asked} times while seven tasks ran for a second each");
    gate.pass(10);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn whoever_comes_back_sees_that_a_node_has_died() {
    needs!(Slurm);
    let settings = LabSettings { nodes: 1, ..LabSettings::default() };
    let mut cluster = Cluster::with(settings);
    let _gate = cluster.world.gate("gate");
    let words = ["run", "--slurm", "--gres", "gpu:1", "--time", "1h"];
    cluster.packhorse_with(words, "read x < gate\n");
    cluster.wait_for_run(1);
    let mut running = cluster.start_with(["slurm", "wait"], "");
    running.wait_for("1.1 started on n1");
    cluster.lab.kill_node("n1");
    // There is no other that it could start on.
    running.wait_for("1.1 attempt 1: its job was cut off");
    running.signal(Signal::TERM);
    running.finish();
}

#[test]
fn a_run_goes_on_without_those_who_follow_it() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let mut running = cluster.start_with(WORDS, lines("echo here; read x < gate; echo gone", 3));
    running.wait_for("\"started\"");
    running.wait_for("\"started\"");
    // Somebody else may look meanwhile.
    let other = cluster.packhorse(["slurm", "wait"]);
    assert!(other.code == 2 && other.stderr.contains("run 1"), "{other:?}");
    let status = cluster.packhorse(["slurm", "status"]).stdout;
    assert!(status.contains("2 running, 1 pending, of 3"), "{status}");
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert!(done.stderr.contains("run 1 goes on without us"), "{done:?}");
    assert_eq!(cluster.lab.job_states(&format!("{}_0", cluster.job(1))), ["RUNNING"]);

    // Whoever comes back sees what runs, and how it ends.
    let mut running = cluster.start_with(["slurm", "wait", "1"], "");
    running.wait_for("run 1 resumed, on Slurm as job ");
    running.wait_for("1.1 started on n1 GPU 0");
    let mut log = cluster.start_with(["slurm", "logs", "-f", "1.1"], "");
    log.wait_for("here");
    let why = cluster.packhorse(["why", "1.3"]).stdout;
    assert!(why.contains("(JobArrayTaskLimit): as many run at a time"), "{why}");
    gate.pass(3);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("3 succeeded"), "{done:?}");
    assert_eq!(log.finish().stdout, "here\ngone\n");
    // Once more, there is nothing to follow.
    let done = cluster.packhorse(["slurm", "wait"]);
    assert!(done.code == 0 && done.stderr.contains("run 1 is over: 3 succeeded"), "{done:?}");
}

#[test]
fn elements_that_somebody_took_out_of_the_queue_are_missed() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gate = cluster.world.gate("gate");
    let words = &WORDS[..11];
    let mut running = cluster.start_with(words, lines("read x < gate", 4));
    running.wait_for(" started on n1");
    running.wait_for(" started on n1");
    // They leave no trace.
    let scancel = [2, 3].map(|index| format!("{}_{index}", cluster.job(1)));
    cluster.lab.output(cluster.lab.command("scancel").args(scancel));
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 2 succeeded, 2 left"), "{done:?}");
}

#[test]
fn the_live_view_has_a_row_for_each_gpu_of_each_node() {
    needs!(Slurm);
    let settings = LabSettings { gpus_per_node: 1, ..LabSettings::default() };
    let cluster = Cluster::with(settings);
    let gate = cluster.world.gate("gate");
    cluster.world.write("tasks", lines("read x < gate", 4));
    let mut command = cluster.command(&WORDS[..11]);
    command.arg("tasks").env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(command, 120, 24);
    terminal.wait_for("0/4 done, 2 running, 2 waiting");
    // Whether jobs wait is asked now and then.
    terminal.wait_for("(JobArrayTaskLimit): as many run at a time as --jobs allows");
    let screen = terminal.screen();
    for begin in [" n1 GPU 0  1.1  ", " n2 GPU 0  1.2  ", " next: 2 jobs wait in Slurm's queue"] {
        assert!(screen.iter().any(|line| line.starts_with(begin)), "{screen:#?}");
    }
    gate.pass(4);
    assert_eq!(terminal.finish(), 0);
    let screen = terminal.screen();
    assert_eq!(screen.len(), 1, "{screen:#?}");
    assert!(screen[0].starts_with("run 1 ended: 4 succeeded in "), "{screen:#?}");
}
