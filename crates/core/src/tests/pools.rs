use crate::{CoreSpec, DeviceSpec, NodeSpec, Pool, PoolError, SchedulerSettings, SchedulerState};
use packhorse_model::{Bytes, CoreId, DeviceId, NodeId};

fn node(id: u32, devices: &[u32], cores: &[u32]) -> NodeSpec {
    let device = |&id: &u32| DeviceSpec {
        id: DeviceId(id),
        near_cores: vec![],
        memory: Bytes(0),
        model: 0,
        one_process: false,
    };
    NodeSpec {
        id: NodeId(id),
        devices: devices.iter().map(device).collect(),
        cores: cores.iter().map(|&core| CoreSpec::whole(CoreId(core))).collect(),
        cpu: None,
        ram: None,
    }
}

fn error(nodes: Vec<NodeSpec>, slots: Option<u32>, max_per_device: Option<u32>) -> PoolError {
    let settings = SchedulerSettings { max_per_device, ..SchedulerSettings::default() };
    SchedulerState::new(&Pool { nodes, slots }, settings).unwrap_err()
}

#[test]
fn a_pool_that_makes_no_sense_is_an_error() {
    let one = || vec![node(1, &[5], &[0])];
    assert_eq!(error(vec![], None, None), PoolError::NoNodes);
    assert_eq!(error(one(), Some(0), None), PoolError::NoSlots);
    assert_eq!(error(one(), None, Some(0)), PoolError::NoneAllowedOnDevice);
    let twice = vec![node(1, &[], &[]), node(1, &[], &[])];
    assert_eq!(error(twice, None, None), PoolError::DuplicateNode(NodeId(1)));
    let twice = vec![node(1, &[5], &[]), node(2, &[5], &[])];
    assert_eq!(error(twice, None, None), PoolError::DuplicateDevice(DeviceId(5)));
    let mut exotic = vec![node(1, &[5], &[])];
    exotic[0].devices[0].model = 64;
    let wrong = error(exotic, None, None);
    assert_eq!(wrong.to_string(), "device 5 is of model 64, and a pool has no more than 64 models");
    let wrong = error(vec![node(1, &[], &[3, 3])], None, None);
    assert_eq!(wrong.to_string(), "core 3 is twice among the cores of node 1");
}

#[test]
fn the_same_core_number_on_two_nodes_is_two_cores() {
    let nodes = vec![node(1, &[], &[0]), node(2, &[], &[0])];
    assert!(
        SchedulerState::new(&Pool { nodes, slots: None }, SchedulerSettings::default()).is_ok()
    );
}
