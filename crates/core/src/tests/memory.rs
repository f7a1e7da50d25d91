use packhorse_model::{Bytes, MemoryRequest};

use crate::Outside;

use crate::tests::lab::{Lab, gib, task};

#[test]
fn as_many_share_a_device_as_its_memory_allows() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    assert_eq!(lab.submit(task(1).memory(9)), "start 1 on 10 with 9.0 GiB");
    assert_eq!(lab.submit(task(2).memory(9)), "start 2 on 11 with 9.0 GiB");
    assert_eq!(lab.submit(task(3).memory(9)), "start 3 on 10 with 9.0 GiB");
    assert_eq!(lab.submit(task(4).memory(9)), "start 4 on 11 with 9.0 GiB");
    assert_eq!(lab.submit(task(5).memory(9)), "");
    assert_eq!(
        lab.done(2),
        "succeeded 2/1, start 5 on 11 with 9.0 GiB",
        "a device is free again when its attempt is over"
    );
}

#[test]
fn share_and_memory_have_to_fit_both() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    lab.submit(task(1).share(600).with_memory(4));
    assert_eq!(lab.submit(task(2).share(600).with_memory(4)), "start 2 on 11:0.6");
    lab.submit(task(3).share(300).with_memory(18));
    assert_eq!(lab.submit(task(4).share(100).with_memory(3)), "start 4 on 11:0.1");
    let loads: Vec<_> =
        lab.state.devices().map(|load| (load.used.0, load.promised, load.memory)).collect();
    assert_eq!(loads, [(900, gib(22), gib(24)), (700, gib(7), gib(24))]);
}

#[test]
fn what_is_seen_counts_if_it_is_more_than_promised() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(8));
    assert_eq!(lab.observe(1, 10, 15), "");
    assert_eq!(lab.submit(task(2).memory(10)), "", "9 are left");
    assert_eq!(lab.observe(1, 10, 13), "start 2 on 10 with 10.0 GiB");
    lab.observe(1, 10, 30);
    let load = lab.state.devices().next().unwrap();
    assert_eq!((load.promised, load.counted), (gib(18), gib(40)));
    assert_eq!(lab.submit(task(3).memory(1)), "");
    lab.observe(1, 10, 2);
    assert_eq!(lab.submit(task(4).memory(7)), "", "its promise is kept free");
}

#[test]
fn memory_that_was_not_asked_for_counts_when_it_is_seen() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).share(100));
    lab.observe(1, 10, 20);
    assert_eq!(lab.submit(task(2).memory(5)), "");
    assert_eq!(lab.submit(task(3).share(100)), "", "10 is kept");
    assert_eq!(lab.observe(1, 10, 19), "start 2 on 10 with 5.0 GiB, start 3 on 10:0.1");
}

#[test]
fn one_that_is_alone_lets_nobody_in_and_joins_nobody() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).start();
    assert_eq!(lab.submit(task(1).alone()), "start 1 on 10 with 24.0 GiB");
    assert_eq!(lab.submit(task(2).memory(1)), "start 2 on 11 with 1.0 GiB");
    assert_eq!(lab.submit(task(3).alone()), "");
    let load = lab.state.devices().next().unwrap();
    assert!(load.whole);
    assert_eq!(lab.done(2), "succeeded 2/1, start 3 on 11 with 24.0 GiB");
    assert_eq!(lab.submit(task(4).memory(1)), "");
}

#[test]
fn nobody_joins_one_that_has_the_whole_device() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).whole(1).with_memory(2));
    assert_eq!(lab.submit(task(2).memory(1)), "", "though 22 are free");
}

#[test]
fn where_memory_is_not_known_no_amount_is_promised() {
    let mut lab = Lab::default().node(2).sizes(&[0, 24]).start();
    assert_eq!(lab.submit(task(1).memory(20)), "start 1 on 11 with 20.0 GiB");
    assert_eq!(lab.submit(task(2).memory(5)), "");
    assert_eq!(lab.submit(task(3).share(500)), "start 3 on 10:0.5");
}

#[test]
fn several_devices_each_have_the_memory() {
    let mut lab = Lab::default().node(3).sizes(&[24, 80, 80]).start();
    assert_eq!(lab.submit(task(1).whole(2).with_memory(40)), "start 1 on 11+12");
    let refused = lab.submit(task(2).whole(3).with_memory(40));
    assert_eq!(
        refused,
        "refuse 2: it needs 3 GPUs that suit it on one machine, but one machine has no more than 2 such GPUs"
    );
}

#[test]
fn of_empty_devices_pack_takes_the_smallest_that_fits() {
    let mut lab = Lab::default().node(3).sizes(&[80, 24, 40]).start();
    assert_eq!(lab.submit(task(1).memory(30)), "start 1 on 12 with 30.0 GiB");
    assert_eq!(lab.submit(task(2).memory(12)), "start 2 on 11 with 12.0 GiB");
    assert_eq!(lab.submit(task(3).memory(12)), "start 3 on 11 with 12.0 GiB");
}

#[test]
fn spread_takes_the_device_with_the_most_memory_left() {
    let mut lab = Lab::default().node(2).sizes(&[24, 24]).spread().start();
    lab.submit(task(1).memory(9));
    assert_eq!(lab.submit(task(2).memory(4)), "start 2 on 11 with 4.0 GiB");
    assert_eq!(lab.submit(task(3).memory(4)), "start 3 on 11 with 4.0 GiB");
    assert_eq!(lab.submit(task(4).memory(4)), "start 4 on 11 with 4.0 GiB");
    assert_eq!(lab.submit(task(5).memory(4)), "start 5 on 10 with 4.0 GiB");
}

#[test]
fn only_suitable_models_and_sizes_are_used() {
    let pool = || Lab::default().node(3).sizes(&[24, 80, 80]).models(&[0, 1, 2]);
    let mut lab = pool().start();
    assert_eq!(lab.submit(task(1).models(&[1])), "start 1 on 11");
    assert_eq!(lab.submit(task(2).models(&[0, 1])), "start 2 on 10");
    assert_eq!(lab.submit(task(3).models(&[0, 1])), "");
    assert_eq!(lab.submit(task(4).device_memory(25)), "start 4 on 12");
    let mut lab = pool().start();
    assert_eq!(lab.submit(task(1).models(&[7])), "refuse 1: no GPU is of a model that it may use");
    assert_eq!(
        lab.submit(task(1).models(&[0]).device_memory(30)),
        "refuse 1: it needs 30.0 GiB of GPU memory, but the largest GPU that it may use has 24.0 GiB"
    );
}

#[test]
fn more_memory_than_any_device_has_is_refused() {
    let mut lab = Lab::default().node(2).sizes(&[24, 40]).start();
    assert_eq!(
        lab.submit(task(1).memory(41)),
        "refuse 1: it needs 41.0 GiB of GPU memory, but the largest GPU that it may use has 40.0 GiB"
    );
    let mut lab = Lab::default().node(1).start();
    assert_eq!(
        lab.submit(task(1).memory(1)),
        "refuse 1: it needs 1.0 GiB of GPU memory, but how much the GPUs have is not known, \
         so none can be promised"
    );
}

#[test]
fn a_place_without_share_needs_an_amount_of_memory() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    for memory in [MemoryRequest::Uncounted, MemoryRequest::Bytes(Bytes(0))] {
        let mut none = task(1).share(0);
        none.0.request.memory = memory;
        let refused = lab.submit(none);
        assert!(refused.contains("is not an amount of GPU"), "{refused}");
    }
}

#[test]
fn cpu_and_main_memory_are_counted_where_they_are_known() {
    let mut lab = Lab::default().node(0).host(4000, 10).node(0).start();
    assert_eq!(lab.submit(task(1).no_gpu().cpu(2500)), "start 1 at node 1");
    assert_eq!(lab.submit(task(2).no_gpu().cpu(2500)), "start 2 at node 2");
    assert_eq!(lab.submit(task(3).no_gpu().ram(10)), "start 3 at node 1");
    assert_eq!(lab.submit(task(4).no_gpu().ram(1)), "start 4 at node 2");

    let mut lab = Lab::default().node(1).cores(4).host(4000, 10).start();
    lab.submit(task(1).share(100).cores(3));
    assert_eq!(lab.submit(task(2).share(100).cpu(1500)), "", "cores of one's own are busy");
    assert_eq!(lab.done(1), "succeeded 1/1, start 2 on 10:0.1");
    lab.submit(task(3).share(100).ram(7));
    assert_eq!(lab.submit(task(4).share(100).ram(4)), "");
    assert_eq!(lab.done(3), "succeeded 3/1, start 4 on 10:0.1");
    assert_eq!(
        lab.submit(task(5).no_gpu().cpu(4001)),
        "refuse 5: it keeps 4.001 cores busy, but those of one machine may be kept busy up to 4 at most"
    );
    assert_eq!(
        lab.submit(task(5).no_gpu().ram(11)),
        "refuse 5: it needs 11.0 GiB of main memory, but one machine has no more than 10.0 GiB"
    );
}

#[test]
fn what_no_single_node_has_is_refused() {
    let pool = Lab::default().node(1).host(1000, 100);
    let mut lab = pool.node(0).host(8000, 1).start();
    assert_eq!(
        lab.submit(task(1).whole(1).cpu(2000)),
        "refuse 1: no machine has all that it needs, though each thing is there on some"
    );
}

#[test]
fn one_of_which_nothing_is_known_has_all_that_is_free_until_that_changes() {
    let mut lab = Lab::default().node(2).sizes(&[24, 16]).start();
    lab.submit(task(1).memory(10));
    assert_eq!(lab.submit(task(2).at_least(4)), "start 2 on 10 with 24.0 GiB");
    assert_eq!(lab.submit(task(3).at_least(4)), "start 3 on 11 with 6.0 GiB");
    assert_eq!(lab.submit(task(4).at_least(4)), "");
    assert_eq!(lab.submit(task(5).memory(1)), "", "nobody joins them");
    assert_eq!(lab.promise(2, 5), "start 4 on 10 with 19.0 GiB");
    assert_eq!(lab.promise(4, 30), "", "no more than there is");
    let promised = lab.state.devices().map(|load| load.promised);
    assert_eq!(promised.collect::<Vec<_>>(), [gib(24), gib(16)]);
    assert_eq!(lab.promise(4, 3), "start 5 on 10 with 1.0 GiB");
}

#[test]
fn what_was_asked_for_exactly_stays_promised() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(20));
    lab.submit(task(2).memory(8));
    assert_eq!(lab.promise(1, 1), "");
}

#[test]
fn what_was_asked_for_exactly_can_be_raised_as_far_as_there_is_room() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.submit(task(1).memory(4));
    lab.submit(task(2).memory(8));
    lab.promise(1, 30);
    let promised: Vec<_> = lab.state.devices().map(|load| load.promised).collect();
    assert_eq!(promised, [gib(24)], "nothing joins it");
    assert_eq!(lab.submit(task(3).memory(4)), "");
    assert_eq!(lab.promise(1, 9), "start 3 on 10 with 4.0 GiB");
}

#[test]
fn one_of_which_nothing_is_known_leaves_strangers_alone_and_joins_other_runs() {
    let mut lab = Lab::default().node(1).sizes(&[24]).start();
    lab.strangers(10, 2);
    assert_eq!(lab.submit(task(1).at_least(6)), "");
    let held = Outside { memory: gib(17), runs: gib(16), ..Outside::default() };
    assert_eq!(lab.outside(10, held), "start 1 on 10 with 7.0 GiB");
}
