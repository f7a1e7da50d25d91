//! Shares in a real Slurm: where jobs land, and how they come back.

use packhorse_slurm_lab::{Cgroups, SlurmVersion};
use packhorse_test_parts::needs;

use crate::lab::{GAMES, NOBODY, NodeLab, NodeSettings, UNTIL_OVER};

#[test]
fn twenty_jobs_with_a_fifth_of_a_gpu_land_five_on_each() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    let jobs = lab.start_lasting(NOBODY, 64, 20);
    let on: Vec<usize> = lab.jobs().iter().map(Vec::len).collect();
    assert_eq!(on, [5; 4], "{:?}", lab.jobs());
    // Nothing is left, for Slurm either.
    let next = lab.submit_lasting(GAMES, 1);
    assert_eq!(lab.slurm.job_states(&next), ["PENDING"]);
    lab.end_lasting();
    for job in &jobs {
        lab.slurm.wait_for_job(job, "COMPLETED");
    }
    lab.slurm.wait_for_job(&next, "COMPLETED");
    lab.saw_every_epilog();
}

#[test]
fn the_table_of_the_seed_holds_on_every_gpu() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    // mps:80 four jobs … mps:16 twenty, on each GPU; and more than one GPU.
    for (mps, jobs) in [(80, 4), (40, 8), (32, 10), (20, 16), (16, 20), (640, 0)] {
        let count = if jobs == 0 { 2 } else { jobs * 4 };
        let ids = lab.start_lasting(NOBODY, mps, count);
        let on: Vec<usize> = lab.jobs().iter().map(Vec::len).collect();
        assert_eq!(on, [jobs.max(1); 4], "mps:{mps} {:?}", lab.jobs());
        lab.end_lasting();
        for id in &ids {
            lab.slurm.wait_for_job(id, "COMPLETED");
        }
        lab.saw_every_epilog();
        lab.last_again();
    }
}

#[test]
fn a_job_whose_epilog_never_ran_leaves_nothing_behind() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    let job = lab.submit_lasting(NOBODY, 64);
    lab.wait_for_work(&job);
    let number: u64 = job.parse().unwrap();
    assert_eq!(lab.jobs(), [vec![number], vec![], vec![], vec![]]);
    // Its epilog does nothing.
    let epilog = lab.folder().join("etc/epilog.sh");
    let ours = fs_err::read(&epilog).unwrap();
    fs_err::write(&epilog, "#!/bin/sh\n").unwrap();
    lab.end_lasting();
    lab.slurm.wait_for_job(&job, "COMPLETED");
    let orders = lab.folder().join("shared/jobs").join(&job);
    assert!(orders.exists());
    fs_err::write(&epilog, ours).unwrap();
    lab.last_again();
    lab.start_lasting(NOBODY, 320, 4);
    assert!(!orders.exists());
    let on: Vec<usize> = lab.jobs().iter().map(Vec::len).collect();
    assert_eq!(on, [1; 4]);
}

#[test]
fn where_no_gpu_has_room_in_one_piece_a_job_goes_back_to_the_queue() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    lab.start_lasting(NOBODY, 200, 4);
    // Slurm counts 480 that are left.
    let job = lab.submit_lasting(NOBODY, 200);
    let comment = lab.slurm.wait(|slurm| {
        let mut scontrol = slurm.command("scontrol");
        let text = slurm.output(scontrol.args(["-o", "show", "job", &job]));
        (text.contains("JobState=PENDING") && text.contains("Restarts=1")).then_some(text)
    });
    let comment = comment.expect("it is sent back");
    assert!(comment.contains("packhorse: no GPU has mps:200 left"), "{comment}");
    assert!(!lab.slurm.node_state("n1").contains("DRAIN"));
    let on: Vec<usize> = lab.jobs().iter().map(Vec::len).collect();
    assert_eq!(on, [1; 4]);
}

#[test]
fn an_element_that_is_sent_back_leaves_the_others_of_its_array_alone() {
    needs!(Slurm);
    let lab = NodeLab::start(NodeSettings::default());
    lab.start_lasting(NOBODY, 200, 3);
    let options = ["--array=0-1", "--hold", "--gres=mps:200", "--output=/dev/null"];
    let script = format!("touch element.$SLURM_ARRAY_TASK_ID; {UNTIL_OVER}");
    let array = lab.submit(NOBODY, &options, &script);
    let release = |element: &str| {
        let mut scontrol = lab.slurm.command("scontrol");
        lab.slurm.output(scontrol.args(["release", element]));
    };
    let shown = |element: &str| {
        let mut scontrol = lab.slurm.command("scontrol");
        let words = ["-o", "show", "job", element];
        lab.slurm.output(scontrol.args(words))
    };
    let (first, last) = (format!("{array}_0"), format!("{array}_1"));
    release(&first);
    let begun = lab.folder().join("out/element.0");
    let seen = lab.slurm.wait(|_| begun.exists().then_some(()));
    assert!(seen.is_some(), "{}", shown(&first));
    // The last to start has the number of its array, and there is no GPU with room for it.
    release(&last);
    let seen = lab.slurm.wait(|_| {
        let text = shown(&last);
        let is_back = text.contains("JobState=PENDING") && text.contains("Restarts=1");
        is_back.then_some(text)
    });
    let text = seen.unwrap_or_else(|| panic!("{}", shown(&last)));
    assert!(text.starts_with(&format!("JobId={array} ")), "{text}");
    assert!(text.contains("packhorse: no GPU has mps:200 left"), "{text}");
    let text = shown(&first);
    assert!(text.contains("JobState=RUNNING"), "{text}");
    assert!(text.contains("Restarts=0"), "{text}");
    assert!(!text.contains("no GPU has"), "{text}");
    lab.end_lasting();
    lab.slurm.wait_for_job(&array, "COMPLETED");
}

#[test]
fn in_native_mode_slurm_chooses_the_least_loaded() {
    needs!(Slurm24);
    let settings = NodeSettings {
        version: SlurmVersion::V24_11,
        cgroups: Cgroups::Version2,
        mode: "native",
        slurm_conf: &["SelectTypeParameters=CR_Core_Memory,LL_SHARED_GRES"],
        ..NodeSettings::default()
    };
    let lab = NodeLab::start(settings);
    lab.start_lasting(NOBODY, 64, 5);
    let mut on: Vec<usize> = lab.jobs().iter().map(Vec::len).collect();
    on.sort_unstable();
    assert_eq!(on, [1, 1, 1, 2], "{:?}", lab.jobs());
    let mut srun = lab.by(NOBODY, "srun");
    srun.args(["--mem=50", "--gres=mps:64", "sh", "-c", &lab.look("native")]);
    let text = lab.slurm.output(&mut srun);
    // It counts what it can open.
    let (before, opens) = text.trim().split_once("opens=").unwrap();
    assert_eq!(opens.len(), 1, "{text}");
    assert!(before.contains("visible=0 threads=20"), "{text}");
}
