//! Which cores tasks get: whole physical ones, near their devices and to each other.

use crate::SchedulerEvent::{Hold, Unhold};

use crate::tests::lab::{Builder, Lab, Running, task};

fn bare(number: u32) -> Builder {
    task(number).no_gpu()
}

/// Submits them together, and returns what is done about it.
fn together(lab: &mut Running, tasks: impl IntoIterator<Item = Builder>) -> String {
    lab.step(Hold);
    for task in tasks {
        lab.submit(task);
    }
    lab.step(Unhold)
}

#[test]
fn a_task_gets_whole_physical_cores_while_there_are_enough() {
    // 0 and 4 are threads of one, 1 and 5, and so on.
    let mut lab = Lab::default().node(0).threads(4, 2, 1).start();
    assert_eq!(lab.submit(bare(1).cores(2)), "start 1 at node 1 cores 0+1");
    assert_eq!(lab.submit(bare(2).cores(2)), "start 2 at node 1 cores 2+3");
    assert_eq!(
        lab.submit(bare(3).cores(2)),
        "start 3 at node 1 cores 4+5",
        "there is no other way than beside others"
    );
    lab.done(2);
    assert_eq!(
        lab.submit(bare(4).cores(3)),
        "start 4 at node 1 cores 2+3+6",
        "its own threads before those beside others"
    );
}

#[test]
fn tasks_that_fill_the_machine_have_no_physical_core_in_common() {
    let mut lab = Lab::default().node(0).threads(4, 2, 1).start();
    let tasks = (1..=5).map(|number| bare(number).cores(4));
    assert_eq!(
        together(&mut lab, tasks),
        "start 1 at node 1 cores 0+1+4+5, start 2 at node 1 cores 2+3+6+7"
    );
    // Two of the five run at a time, whoever waits.
    assert_eq!(lab.done(1), "succeeded 1/1, start 3 at node 1 cores 0+1+4+5");
}

#[test]
fn few_tasks_share_all_physical_cores_whatever_would_fit() {
    // Four tasks with half a device each would fit, but there are two.
    let lab = || Lab::default().node(2).threads(8, 2, 1).start();
    let tasks = |count| (1..=count).map(|number| task(number).share(500).cores(4));
    assert_eq!(
        together(&mut lab(), tasks(2)),
        "start 1 on 10:0.5 cores 0+1+2+3, start 2 on 11:0.5 cores 4+5+6+7"
    );
    assert_eq!(
        together(&mut lab(), tasks(4)),
        "start 1 on 10:0.5 cores 0+1+8+9, start 2 on 11:0.5 cores 2+3+10+11, \
         start 3 on 10:0.5 cores 4+5+12+13, start 4 on 11:0.5 cores 6+7+14+15"
    );
}

#[test]
fn how_many_run_at_a_time_is_told_by_devices_memory_limits_and_slots() {
    // 16 physical cores with two threads; each task wants 8.
    let many = |number: u32| (1..=number).map(|number| task(number).cores(8));
    let first = |lab: &Lab, tasks: Vec<Builder>| {
        let mut lab = lab.clone().start();
        together(&mut lab, tasks);
        let cores = &lab.running(1).placement.cores;
        cores.iter().filter(|core| core.0 < 16).count()
    };
    let two = Lab::default().node(2).threads(16, 2, 1);
    assert_eq!(first(&two, many(9).collect()), 8, "two run at a time");
    let four = Lab::default().node(4).threads(16, 2, 1);
    assert_eq!(first(&four, many(9).collect()), 4, "four run at a time");
    let pairs = many(9).map(|task| task.whole(2)).collect();
    assert_eq!(first(&four, pairs), 8, "two run at a time");
    let parts: Vec<Builder> = many(9).map(|task| task.share(500)).collect();
    assert_eq!(first(&two, parts.clone()), 4, "four run at a time");
    let limited = two.clone().max_per_device(1);
    assert_eq!(first(&limited, parts.clone()), 8, "two run at a time");
    assert_eq!(first(&two.clone().slots(2), parts), 8, "two run at a time");
    let sized = two.clone().sizes(&[24, 24]);
    let large: Vec<Builder> = many(9).map(|task| task.memory(13)).collect();
    assert_eq!(first(&sized, large), 8, "two run at a time");
    let small: Vec<Builder> = many(9).map(|task| task.memory(9)).collect();
    assert_eq!(first(&sized, small), 4, "four run at a time");
}

#[test]
fn a_core_whose_other_thread_is_not_ours_is_a_whole_one() {
    // Of four physical cores, the job may use 0, 1 and 4, and 4 is a thread of 0.
    let lab = Lab::default().node(0).threads(4, 2, 1).only(&[0, 1, 4]);
    let mut lab = lab.start();
    assert_eq!(lab.submit(bare(1).cores(2)), "start 1 at node 1 cores 0+1");
    assert_eq!(lab.submit(bare(2).cores(1)), "start 2 at node 1 cores 4");
}

#[test]
fn whole_cores_far_away_are_better_than_threads_beside_others() {
    let lab = Lab::default().node(2).threads(4, 2, 2);
    let mut lab = lab.near(0, &[0, 1, 4, 5]).near(1, &[0, 1, 4, 5]).start();
    assert_eq!(lab.submit(task(1).cores(2)), "start 1 on 10 cores 0+1");
    assert_eq!(lab.submit(task(2).cores(2)), "start 2 on 11 cores 2+3");
}

#[test]
fn threads_beside_others_are_taken_near_the_device_first() {
    let lab = Lab::default().node(1).threads(4, 2, 2);
    let mut lab = lab.near(0, &[2, 3, 6, 7]).start();
    assert_eq!(lab.submit(bare(1).cores(4)), "start 1 at node 1 cores 0+1+2+3");
    assert_eq!(lab.submit(task(2).cores(2)), "start 2 on 10 cores 6+7");
}

#[test]
fn cores_are_next_to_each_other_where_the_least_is_left_over() {
    let mut lab = Lab::default().node(0).cores(8).start();
    for number in 1..=8 {
        lab.submit(bare(number).cores(1));
    }
    for number in [2, 5, 6, 8] {
        lab.done(number);
    }
    // 1, 4, 5 and 7 are free.
    assert_eq!(lab.submit(bare(9).cores(2)), "start 9 at node 1 cores 4+5");
    assert_eq!(lab.submit(bare(10).cores(2)), "start 10 at node 1 cores 1+7");
}

#[test]
fn cores_are_of_one_part_of_the_machine_where_that_has_enough() {
    let mut lab = Lab::default().node(0).threads(8, 1, 2).start();
    assert_eq!(lab.submit(bare(1).cores(3)), "start 1 at node 1 cores 0+1+2");
    assert_eq!(
        lab.submit(bare(2).cores(2)),
        "start 2 at node 1 cores 4+5",
        "not 3 and 4, which are neighbours but in two parts"
    );
    assert_eq!(lab.submit(bare(3).cores(1)), "start 3 at node 1 cores 3");
    assert_eq!(lab.done(1), "succeeded 1/1");
    // 0, 1, 2, 6 and 7 are free.
    assert_eq!(lab.submit(bare(4).cores(2)), "start 4 at node 1 cores 6+7");
    lab.done(4);
    lab.submit(bare(5).cores(1));
    assert_eq!(
        lab.submit(bare(6).cores(4)),
        "start 6 at node 1 cores 0+1+2+7",
        "there is no other way"
    );
}

#[test]
fn cores_that_come_back_are_whole_again() {
    let mut lab = Lab::default().node(0).threads(2, 2, 1).start();
    together(&mut lab, (1..=2).map(|number| bare(number).cores(2)));
    assert_eq!(lab.running(1).placement.cores.len(), 2);
    lab.done(1);
    lab.done(2);
    assert_eq!(lab.submit(bare(3).cores(2)), "start 3 at node 1 cores 0+1");
    assert_eq!(lab.submit(bare(4).cores(2)), "start 4 at node 1 cores 2+3");
}
