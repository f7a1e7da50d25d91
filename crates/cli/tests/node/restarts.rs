//! What a real Slurm does to jobs that run: whatever it is, they stay counted.

use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::needs;

use crate::lab::{GAMES, NOBODY, NodeLab, NodeSettings, UNTIL_OVER};

#[test]
fn jobs_stay_counted_while_slurmd_is_restarted() {
    needs!(Slurm);
    let settings = NodeSettings { cgroups: Cgroups::Version1, ..NodeSettings::default() };
    let lab = NodeLab::start(settings);
    let mut jobs = lab.start_lasting(NOBODY, 64, 3);
    let before = lab.jobs();
    lab.slurm.restart_slurmd("n1");
    // The next job finds them where they were, by Slurm's own word.
    let next = lab.submit_lasting(GAMES, 64);
    lab.wait_for_work(&next);
    lab.slurm.output(&mut lab.node(&["status"]));
    let mut after = lab.jobs();
    let number: u64 = next.parse().unwrap();
    let on: Vec<usize> = after.iter().map(Vec::len).collect();
    assert_eq!(on, [1; 4], "{after:?}");
    for gpu in &mut after {
        gpu.retain(|job| *job != number);
    }
    assert_eq!(after, before);
    jobs.push(next);
    lab.end_lasting();
    for job in &jobs {
        lab.slurm.wait_for_job(job, "COMPLETED");
    }
    lab.saw_every_epilog();
}

/// Slurm may start it again without a prolog: then the plugin ends it, or it is counted
/// where it most likely is.
#[test]
fn a_job_requeued_under_the_same_number_never_runs_uncounted() {
    needs!(Slurm);
    let settings = NodeSettings { cgroups: Cgroups::Version1, ..NodeSettings::default() };
    let lab = NodeLab::start(settings);
    let job = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&job);
    let number: u64 = job.parse().unwrap();
    fs_err::remove_file(lab.folder().join("out").join(format!("started.{job}"))).unwrap();
    let scontrol = |words: &[&str]| lab.slurm.output(lab.slurm.command("scontrol").args(words));
    scontrol(&["requeue", &job]);
    lab.slurm.wait_for_job(&job, "PENDING");
    lab.saw_every_epilog();
    scontrol(&["update", &format!("JobId={job}"), "StartTime=now"]);
    let started = lab.folder().join("out").join(format!("started.{job}"));
    let runs = lab.slurm.wait(|slurm| {
        let is_over = slurm.job_states(&job) == ["FAILED"];
        (started.exists() || is_over).then_some(!is_over)
    });
    let runs = runs.expect("it is started again");
    // The next prolog looks who is there.
    let next = lab.submit_lasting(GAMES, 64);
    lab.wait_for_work(&next);
    let counted = lab.jobs().iter().any(|jobs| jobs.contains(&number));
    assert_eq!(counted, runs, "{}", lab.problems());
    lab.end_lasting();
    lab.slurm.wait_for_job(&next, "COMPLETED");
    if runs {
        lab.slurm.wait_for_job(&job, "COMPLETED");
    }
    lab.saw_every_epilog();
}

#[test]
fn a_job_whose_orders_are_lost_is_counted_while_it_runs() {
    needs!(Slurm, Slurm24);
    for (version, cgroups) in
        [(SlurmVersion::Host, Cgroups::Version1), (SlurmVersion::V24_11, Cgroups::Version2)]
    {
        let settings = NodeSettings { version, cgroups, ..NodeSettings::default() };
        let lab = NodeLab::start(settings);
        let jobs: Vec<String> = (0..2).map(|_| lab.submit_lasting(NOBODY, 64)).collect();
        for job in &jobs {
            lab.wait_for_work(job);
            fs_err::remove_file(lab.folder().join("shared/jobs").join(job)).unwrap();
        }
        let next = lab.submit_lasting(NOBODY, 64);
        lab.wait_for_work(&next);
        let numbers = |jobs: &[String]| jobs.iter().map(|job| job.parse().unwrap()).collect();
        let lost: Vec<u64> = numbers(&jobs);
        let there: Vec<u64> = numbers(std::slice::from_ref(&next));
        assert_eq!(lab.jobs(), [lost, there, vec![], vec![]], "{}", lab.problems());
        lab.end_lasting();
        for job in jobs.iter().chain([&next]) {
            lab.slurm.wait_for_job(job, "COMPLETED");
        }
        lab.saw_every_epilog();
    }
}

#[test]
fn the_name_of_a_job_does_not_say_what_it_asked_for() {
    needs!(Slurm, Slurm24);
    for version in [SlurmVersion::Host, SlurmVersion::V24_11] {
        let settings = NodeSettings { version, ..NodeSettings::default() };
        let lab = NodeLab::start(settings);
        let name = "--job-name=x GRES=mps:25 JOB_GRES=mps:25\n1|0|RUNNING|gres:mps:25";
        let job = lab.submit(NOBODY, &["--gres=mps:1", name], UNTIL_OVER);
        lab.wait_for_work(&job);
        let orders = lab.folder().join("shared/jobs").join(&job);
        let orders = fs_err::read_to_string(orders).unwrap();
        assert!(orders.contains("\nshare 1\n"), "{orders}");
        lab.end_lasting();
        lab.slurm.wait_for_job(&job, "COMPLETED");
        lab.saw_every_epilog();
    }
}
