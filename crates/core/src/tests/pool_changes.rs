use crate::SchedulerEvent::{AddDevice, AddNode, RemoveDevice, RemoveNode};
use crate::{CoreSpec, DeviceSpec, NodeSpec};
use packhorse_model::{Bytes, CoreId, DeviceId, NodeId};

use crate::tests::lab::{Lab, Running, task};

fn device(id: u32) -> DeviceSpec {
    DeviceSpec {
        id: DeviceId(id),
        near_cores: vec![],
        memory: Bytes(0),
        model: 0,
        one_process: false,
    }
}

fn node(id: u32, devices: &[u32]) -> NodeSpec {
    NodeSpec {
        id: NodeId(id),
        devices: devices.iter().map(|&id| device(id)).collect(),
        cores: vec![],
        cpu: None,
        ram: None,
    }
}

fn add(lab: &mut Running, node: u32, id: u32) -> String {
    lab.step(AddDevice { node: NodeId(node), device: device(id) })
}

fn devices(lab: &Running) -> Vec<u32> {
    lab.state.devices().map(|load| load.device.0).collect()
}

#[test]
fn what_waits_starts_on_what_is_added() {
    let mut lab = Lab::default().node(1).node(1).start();
    for number in 1..=5 {
        lab.submit(task(number));
    }
    assert_eq!(add(&mut lab, 1, 15), "start 3 on 15");
    assert_eq!(devices(&lab), [10, 15, 20], "the last of its machine");
    assert_eq!(lab.step(AddNode(node(3, &[30, 31]))), "start 4 on 30, start 5 on 31");
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert_eq!(lab.submit(task(6)), "start 6 on 20");
}

#[test]
fn what_is_in_use_goes_when_it_is_not_any_more() {
    let mut lab = Lab::default().node(2).start();
    lab.drain(11);
    lab.submit(task(1).share(500));
    lab.submit(task(2).share(500));
    assert_eq!(lab.step(RemoveDevice(DeviceId(11))), "", "nobody uses it");
    assert_eq!(devices(&lab), [10]);
    lab.step(RemoveDevice(DeviceId(10)));
    assert_eq!(devices(&lab), [10]);
    assert!(lab.state.devices().all(|load| load.drained));
    assert_eq!(lab.restore(10), "", "it does not come back by that");
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert!(devices(&lab).is_empty());
    lab.step(RemoveDevice(DeviceId(10)));
    assert_eq!(add(&mut lab, 1, 10), "");
    assert_eq!(lab.submit(task(4)), "start 4 on 10");
}

#[test]
fn a_node_goes_with_all_that_is_on_it() {
    let mut lab = Lab::default().node(2).cores(2).node(1).start();
    lab.submit(task(1).whole(2));
    lab.submit(task(2));
    lab.submit(task(3).whole(2));
    assert_eq!(lab.reserved(), [10, 11]);
    assert_eq!(lab.step(RemoveNode(NodeId(1))), "");
    assert!(lab.reserved().is_empty());
    assert_eq!(devices(&lab), [10, 11, 20]);
    assert_eq!(lab.done(1), "succeeded 1/1");
    assert_eq!(devices(&lab), [20]);
    assert_eq!(lab.running(2).placement.devices[0].device, DeviceId(20));
    assert_eq!(lab.done(2), "succeeded 2/1");
    assert_eq!(lab.submit(task(4)), "start 4 on 20");
}

#[test]
fn a_machine_that_is_to_go_takes_nothing_even_without_devices() {
    let mut lab = Lab::default().node(0).node(0).start();
    lab.submit(task(1).no_gpu());
    lab.step(RemoveNode(NodeId(1)));
    assert_eq!(lab.submit(task(2).no_gpu()), "start 2 at node 2");
    assert_eq!(lab.done(1), "succeeded 1/1");
    lab.step(RemoveNode(NodeId(2)));
    let refused = lab.submit(task(3).no_gpu());
    assert_eq!(refused, "refuse 3: there is no machine to run it on");
}

#[test]
fn tasks_that_fit_nowhere_any_more_wait_for_a_machine() {
    let mut lab = Lab::default().node(2).node(1).start();
    lab.submit(task(1).whole(2));
    lab.submit(task(2));
    lab.submit(task(3).whole(2));
    lab.step(RemoveNode(NodeId(1)));
    lab.done(1);
    let why = lab.why(3);
    let wanted = "1.3 waits: it needs 2 GPUs, but one machine has no more than 1 GPU; ";
    assert!(why.starts_with(wanted), "{why}");
    lab.submit(task(4));
    assert_eq!(lab.done(2), "succeeded 2/1, start 4 on 20", "others go on");
    assert!(!lab.state.is_stuck());
    lab.done(4);
    assert!(lab.state.is_stuck());
    assert_eq!(lab.step(AddNode(node(4, &[40, 41]))), "start 3 on 40+41");
}

#[test]
fn what_is_wrong_is_not_added() {
    let mut lab = Lab::default().node(1).start();
    let mut add_node = |spec| lab.step(AddNode(spec));
    assert_eq!(add_node(node(1, &[30])), "not added: node 1 is in the pool twice");
    assert_eq!(add_node(node(2, &[10])), "not added: device 10 is in the pool twice");
    assert_eq!(add_node(node(2, &[30, 30])), "not added: device 30 is in the pool twice");
    let mut twice = node(2, &[30]);
    twice.cores = vec![CoreSpec::whole(CoreId(1)); 2];
    let error = "not added: core 1 is twice among the cores of node 2";
    assert_eq!(add_node(twice), error);
    let mut many = node(2, &[30]);
    many.devices[0].model = 64;
    assert!(add_node(many).starts_with("not added: device 30 is of model 64"));
    assert_eq!(add(&mut lab, 1, 10), "not added: device 10 is in the pool twice");
    assert_eq!(add(&mut lab, 9, 30), "not added: node 9 is not in the pool");
    assert_eq!(lab.step(RemoveNode(NodeId(9))), "");
    assert_eq!(lab.step(RemoveDevice(DeviceId(9))), "");
    lab.submit(task(1));
    lab.step(RemoveNode(NodeId(1)));
    assert_eq!(add(&mut lab, 1, 30), "not added: node 1 is not in the pool");
    assert_eq!(add(&mut lab, 1, 30), "not added: node 1 is not in the pool");
    assert_eq!(devices(&lab), [10]);
}
