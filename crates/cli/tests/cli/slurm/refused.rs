//! What is refused, what a dry run shows, and what is left behind if something goes wrong while
//! a run is submitted.

use packhorse_slurm_lab::LabSettings;
use packhorse_test_parts::needs;

use super::{Cluster, lines};
use crate::support::{Running, finish, finish_with};

#[test]
fn of_several_arrays_all_are_submitted_or_none() {
    needs!(Slurm);
    let settings =
        LabSettings { slurm_conf: vec!["MaxArraySize=2".to_owned()], ..LabSettings::default() };
    let cluster = Cluster::with(settings);
    // Slurm takes the question and the first array, and not the second.
    cluster.wrap(
        "sbatch",
        "echo x >> calls\n\
        if [ $(wc -l < calls) = 3 ]; then echo 'sbatch: error: over quota' >&2; exit 1; fi\n\
        exec $REAL \"$@\"\n",
    );
    let words = ["run", "--slurm", "--gres", "gpu:1", "--time", "1h", "--task-time", "1h"];
    let command = cluster.command_with_wrappers(words);
    let done = finish_with(command, lines("sleep 1000", 3));
    assert_eq!(done.code, 2, "{done:?}");
    for told in [
        "Slurm did not take the job: over quota",
        "what had been submitted before was cancelled again: job 2",
        "run 1 is kept with its 3 tasks",
        "hint: `packhorse slurm resume 1` submits it again",
    ] {
        assert!(done.stderr.contains(told), "{told}: {}", done.stderr);
    }
    assert!(cluster.lab.job_states("2").iter().all(|state| state == "CANCELLED"));
    let again = cluster.packhorse(["slurm", "resume", "1"]);
    assert!(again.stdout.contains("run 1: 3 tasks in 3 jobs"), "{again:?}");
    let stopped = cluster.packhorse(["slurm", "cancel", "1"]);
    assert!(stopped.stderr.contains("run 1 has stopped"), "{stopped:?}");
}

#[test]
fn arrays_are_no_larger_than_slurm_allows() {
    needs!(Slurm);
    let settings =
        LabSettings { slurm_conf: vec!["MaxArraySize=3".to_owned()], ..LabSettings::default() };
    let cluster = Cluster::with(settings);
    let words = [
        "run",
        "--slurm",
        "--wait",
        "--gres",
        "gpu:1",
        "--time",
        "30",
        "--task-time",
        "30m",
        "--jobs",
        "4",
    ];
    let done = cluster.packhorse_with(words, lines("true", 7));
    assert_eq!(done.code, 0, "{done:?}");
    // One array comes after the other, so that no more than four jobs run at a time.
    assert!(done.stdout.contains("on Slurm as jobs "), "{done:?}");
    let jobs = fs_err::read_to_string(cluster.folder(1).join("jobs.jsonl")).unwrap();
    let elements: Vec<&str> = jobs
        .lines()
        .map(|line| {
            let (_, behind) = line.split_once("\"elements\":").unwrap();
            behind.split_once(",\"at\"").unwrap().0
        })
        .collect();
    assert_eq!(elements, ["[[0,3]]", "[[3,3]]", "[[6,1]]"]);
    assert_eq!(cluster.outcomes(1), ["succeeded"; 7]);
}

#[test]
fn what_slurm_refuses_is_told_in_its_own_words_and_leaves_nothing() {
    needs!(Slurm);
    let cluster = Cluster::with_one_node();
    for (words, told) in [
        (&["--partition", "nope"][..], "invalid partition specified: nope"),
        (&["--gres", "gpu:5"], "Requested node configuration is not available"),
        (&["--sbatch=--nonsense"], "unrecognized option"),
    ] {
        let words = ["run", "--slurm"].iter().chain(words);
        let done = cluster.packhorse_with(words, "true\n");
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(told), "{told}: {}", done.stderr);
        assert_eq!(done.stderr.matches("error").count(), 1, "{}", done.stderr);
    }
    assert_eq!(cluster.packhorse(["ls"]).stdout, "no runs yet\n");
    let left = fs_err::read_dir(cluster.world.work()).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_script_that_cannot_run_us_is_told() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.world.write("no-packhorse", "");
    let config = cluster.lab.folder().join("home/.config/packhorse");
    fs_err::create_dir_all(&config).unwrap();
    fs_err::write(config.join("config.toml"), "[slurm]\nprogram = \"/no/packhorse\"\n").unwrap();
    let done = cluster.packhorse_with(["run", "--slurm", "--wait"], "true\n");
    assert_eq!(done.code, 1, "{done:?}");
    assert!(
        done.stdout.contains("_0 on n1 has ended: FAILED") && done.stdout.contains("/no/packhorse"),
        "{done:?}"
    );
    assert!(done.stdout.contains("1 left"), "{done:?}");
}

#[test]
fn ctrl_c_while_tasks_are_read_leaves_nothing() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let mut running = Running::start(cluster.command(["run", "--slurm"]));
    running.send("true\n");
    let folder = cluster.world.work().join("packhorse-slurm");
    let there = cluster.lab.wait(|_| folder.exists().then_some(()));
    assert!(there.is_some());
    running.signal(rustix::process::Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(!folder.exists());
}

#[test]
fn jobs_of_another_cluster_are_neither_taken_for_gone_nor_for_others_with_their_number() {
    needs!(Slurm);
    let named = |name: &str| LabSettings {
        nodes: 1,
        slurm_conf: vec![format!("ClusterName={name}")],
        ..LabSettings::default()
    };
    let north = Cluster::with(named("north"));
    let south = Cluster::with(named("south"));
    let done = north.packhorse_with(["run", "--slurm", "--time", "10"], "sleep 1000\n");
    assert_eq!(done.code, 0, "{done:?}");
    // Somebody's job with the same number, on a cluster that shares the home.
    let hold = ["--hold", "--wrap", "true"];
    while south.lab.sbatch(hold) != north.job(1) {}
    let on_south = |words: &[&str]| {
        let mut command = south.command(words);
        command.current_dir(north.world.work()).env("PACKHORSE_HOME", north.world.home());
        finish(command)
    };
    for words in [&["slurm", "cancel"][..], &["slurm", "resume"]] {
        let refused = on_south(words);
        assert_eq!(refused.code, 2, "{refused:?}");
        let told = "the jobs are on the cluster `north`, and this machine belongs to `south`";
        assert!(refused.stderr.contains(told), "{refused:?}");
    }
    let status = on_south(&["slurm", "status"]);
    assert!(status.stdout.starts_with("run 1  on-slurm\n"), "{status:?}");
    assert!(status.stdout.contains("cluster `north`"), "{status:?}");
    assert_eq!(south.lab.job_states(&north.job(1)), ["PENDING"]);
    let done = north.packhorse(["slurm", "cancel"]);
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
}
