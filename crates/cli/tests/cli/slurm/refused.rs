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
fn what_slurm_refuses_only_when_it_is_submitted_leaves_nothing_either() {
    needs!(Slurm);
    let cluster = Cluster::start();
    cluster.wrap(
        "sbatch",
        "case \"$*\" in *--test-only*) exec $REAL \"$@\";; esac\n\
         echo 'sbatch: error: over quota' >&2; exit 1\n",
    );
    let command = cluster.command_with_wrappers(["run", "--slurm"]);
    let done = finish_with(command, lines("true", 3));
    assert_eq!(done.code, 2, "{done:?}");
    assert_eq!(done.stderr, "error: Slurm did not take the job: over quota\n");
    assert_eq!(cluster.packhorse(["ls"]).stdout, "no runs yet\n");
    assert!(!cluster.world.work().join("packhorse-slurm").exists());
}

#[test]
fn what_could_never_run_is_refused_before_anything_is_submitted() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let refused = |words: &[&str], tasks: &str| {
        let done = cluster.packhorse_with(["run", "--slurm"].iter().chain(words), tasks);
        assert_eq!(done.code, 2, "{done:?}");
        done.stderr
    };
    let told = refused(&["-g", "1"], "true\n");
    assert!(told.contains("tasks ask for GPUs, and nothing asks Slurm for any"), "{told}");
    let told = refused(&["-g", "2", "--gres", "gpu:1"], "true\n");
    assert!(told.contains("a task asks for 2 GPUs, and a job has 1"), "{told}");
    let file = cluster.world.write("c.txt", "true\n#packhorse gpus=3\ntrue\n");
    let file = file.to_str().unwrap();
    let told = refused(&["--gres", "gpu:2", file], "");
    assert!(told.contains("c.txt:3: this task could never run: a task asks for 3"), "{told}");
    let told = refused(&["--gpus", "0"], "true\n");
    assert!(told.contains("--gpus"), "{told}");
    // Two minutes and five seconds of two minutes.
    let told = refused(&["--time", "2", "--grace", "2m"], "true\n");
    assert!(
        told.contains("a job ends after 00:02:00, and its tasks are ended 00:02:05 before that"),
        "{told}"
    );
    let told = refused(&["--slurm-folder", "a\nb"], "true\n");
    assert!(told.contains("it has a line break"), "{told}");
    cluster.world.write("packhorse.toml", "[slurm]\nvenv = \"a\\nb\"\n");
    let told = refused(&[], "true\n");
    assert!(told.contains("`a…` has a line break"), "{told}");
    let told = cluster.packhorse(["run", "--partition", "main", "--", "true"]);
    assert!(told.stderr.contains("without --slurm"), "{told:?}");
}

#[test]
fn without_slurms_commands_there_is_one_clear_error() {
    let world = crate::support::World::new();
    let mut command = world.command(["run", "--slurm", "--", "true"]);
    command.env("PATH", world.work());
    let done = finish(command);
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.starts_with("error: there is no `sbatch` on the PATH\nhint: "),
        "{}",
        done.stderr
    );
}

#[test]
fn a_dry_run_shows_the_script_and_submits_nothing() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let template = "#!/bin/sh\n#SBATCH -p %%partition%%\n%%sh_lines%%\nexec %%command%%\n";
    cluster.world.write("template.sh", template);
    let settings = "[slurm]\ntemplate = \"template.sh\"\nsh_lines = [\"export A=b\"]\n";
    cluster.world.write("packhorse.toml", settings);
    let words = ["--slurm", "--dry-run", "--partition", "main", "--jobs", "2", "--time", "1h"];
    let door = ["sweep", "--run", "echo {a}", "-p", "a", "1", "2", "3"];
    let shown = cluster.packhorse(door.iter().chain(&words));
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(
        lines[..6],
        [
            "#!/bin/sh",
            "# sbatch --array=0-1%2 script.sh",
            "# 3 tasks in 2 jobs, at most 2 in one, each for at most 01:00:00, at most 2 at a time",
            "#SBATCH -p main",
            "export A=b",
            lines[5],
        ],
        "{shown:?}"
    );
    assert!(lines[5].starts_with("exec /") && lines[5].contains(" slurm element "), "{shown:?}");
    assert!(cluster.lab.job_states("1").is_empty());
    assert!(!cluster.folder(1).exists());
    // The same with a template that cannot work.
    cluster.world.write("template.sh", "#!/bin/sh\n#SBATCH -p %%partitoin%%\n");
    let shown = cluster.packhorse(door.iter().chain(&words));
    assert!(shown.stderr.contains("template.sh: line 2: there is no placeholder"), "{shown:?}");
}

#[test]
fn who_fans_out_more_than_a_job_has_time_for_is_warned() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let tasks = "#packhorse name=prepare\ntrue\n".to_owned()
        + &lines("#packhorse after=prepare\ntrue", 100);
    let words = ["run", "--slurm", "--dry-run", "--time", "1h", "--jobs", "8"];
    let done = cluster.packhorse_with(words, &tasks);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stderr.starts_with(
            "warning: 101 tasks come after each other, so one job runs them all, which takes about 16:50:00\n"
        ),
        "{done:?}"
    );
    let words = ["run", "--slurm", "--dry-run", "--time", "1h", "--slots=200"];
    let done = cluster.packhorse_with(words, &tasks);
    assert_eq!(done.stderr, "", "{done:?}");
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
