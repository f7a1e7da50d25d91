//! Events of plans.

use std::time::Duration;

use crate::{CoreSpec, DeviceSpec, EndCause, Now, SchedulerEvent};
use packhorse_model::{CoreId, DeviceId, Granted, NodeId, Outcome, Placement, RunId, TaskId};
use proptest::sample::Index;

use super::plans::{Plan, Twist, UNKNOWN};
use crate::tests::model::Model;

fn fresh(number: u32) -> TaskId {
    TaskId::new(RunId(1 + number % 3), number * 7)
}

/// Makes an event of a plan, or nothing if there is no task it could be about.
pub fn event(plan: &Plan, model: &Model, number: u32) -> Option<SchedulerEvent> {
    let devices = model.devices();
    let known = model.known();
    let running = model.running();
    let pick = |index: &Index| (!known.is_empty()).then(|| *index.get(&known));
    let pick_device = |index: &Index| (!devices.is_empty()).then(|| *index.get(&devices));
    let pick_running = |index: &Index| (!running.is_empty()).then(|| *index.get(&running));
    Some(match plan {
        Plan::Submit { submission, after, twist } => {
            let mut submission = submission.clone();
            submission.id = fresh(number);
            submission.after = after.iter().filter_map(pick).collect();
            match twist {
                Twist::None => {}
                Twist::KnownId(index) if !known.is_empty() => {
                    submission.id = known[*index as usize % known.len()];
                }
                Twist::KnownId(_) | Twist::UnknownDependency => submission.after.push(UNKNOWN),
                Twist::AfterItself => submission.after.push(submission.id),
            }
            SchedulerEvent::Submit(submission)
        }
        Plan::End(index, outcome, cause) => {
            let (task, attempt) = pick_running(index)?;
            SchedulerEvent::Ended { task, attempt, outcome: *outcome, cause: *cause }
        }
        Plan::EndWrongly(index, attempt) => SchedulerEvent::Ended {
            task: pick(index).unwrap_or(UNKNOWN),
            attempt: *attempt,
            outcome: Outcome::Succeeded,
            cause: EndCause::Own,
        },
        Plan::Observe(index, device, memory) => {
            let (task, attempt) = pick_running(index)?;
            let its_own = model.devices_of(task);
            SchedulerEvent::Observed {
                task,
                attempt,
                // Now and then one that it is not on.
                device: if its_own.is_empty() {
                    pick_device(device)?
                } else {
                    *device.get(&its_own)
                },
                memory: *memory,
            }
        }
        Plan::Promise(index, memory) => {
            let (task, attempt) = pick_running(index)?;
            SchedulerEvent::Promised { task, attempt, memory: *memory }
        }
        Plan::Outside(device, outside) => {
            SchedulerEvent::Outside { device: pick_device(device)?, held: *outside }
        }
        Plan::Drain(device) => SchedulerEvent::Drain(pick_device(device)?),
        Plan::Restore(device) => SchedulerEvent::Restore(pick_device(device)?),
        Plan::Revise { task, request, expected, probe } => SchedulerEvent::Revise {
            task: pick(task)?,
            request: request.clone(),
            expected: *expected,
            probe: *probe,
        },
        Plan::Cancel(index) => SchedulerEvent::Cancel(pick(index)?),
        Plan::CancelUnknown => SchedulerEvent::Cancel(UNKNOWN),
        Plan::Hold => SchedulerEvent::Hold,
        Plan::Unhold => SchedulerEvent::Unhold,
        Plan::MoreToCome(more) => SchedulerEvent::MoreToCome(*more),
        Plan::HoldRun(run) => SchedulerEvent::HoldRun(*run),
        Plan::UnholdRun(run) => SchedulerEvent::UnholdRun(*run),
        Plan::Adopt { .. } => return adoption(plan, model, number),
        change => return pool_event(change, model),
    })
}

/// The same about nodes and devices.
fn pool_event(plan: &Plan, model: &Model) -> Option<SchedulerEvent> {
    let nodes = &model.pool().nodes;
    let known: Vec<&DeviceSpec> = nodes.iter().flat_map(|node| &node.devices).collect();
    let pick_node = |index: &Index| (!nodes.is_empty()).then(|| index.get(nodes));
    let pick_device = |index: &Index| (!known.is_empty()).then(|| (*index.get(&known)).clone());
    Some(match plan {
        Plan::AddNode(node) => SchedulerEvent::AddNode(node.clone()),
        Plan::AddKnownNode(node) => SchedulerEvent::AddNode(pick_node(node)?.clone()),
        Plan::RemoveNode(node) => SchedulerEvent::RemoveNode(pick_node(node)?.id),
        Plan::AddDevice(node, device) => {
            SchedulerEvent::AddDevice { node: pick_node(node)?.id, device: device.clone() }
        }
        Plan::AddKnownDevice(node, device) => {
            SchedulerEvent::AddDevice { node: pick_node(node)?.id, device: pick_device(device)? }
        }
        Plan::RemoveDevice(device) => SchedulerEvent::RemoveDevice(pick_device(device)?.id),
        _ => return None,
    })
}

fn adoption(plan: &Plan, model: &Model, number: u32) -> Option<SchedulerEvent> {
    let Plan::Adopt { submission, attempt, since, node, devices, cores, twist } = plan else {
        return None;
    };
    let (nodes, known, everywhere) = (&model.pool().nodes, model.known(), model.devices());
    let pick_node = |index: &Index| (!nodes.is_empty()).then(|| index.get(nodes));
    let pick_device = |index: &Index| (!everywhere.is_empty()).then(|| *index.get(&everywhere));
    let mut submission = submission.clone();
    submission.id = fresh(number);
    let mut node = pick_node(node)?.clone();
    match twist {
        Twist::None | Twist::AfterItself => {}
        Twist::KnownId(index) if !known.is_empty() => {
            submission.id = known[*index as usize % known.len()];
        }
        Twist::KnownId(_) => node.id = NodeId(9),
        Twist::UnknownDependency => node.devices = vec![],
    }
    let its_own: Vec<DeviceId> = node.devices.iter().map(|device| device.id).collect();
    let devices = devices.iter().filter_map(|(index, granted)| {
        let device = if its_own.is_empty() { pick_device(index)? } else { *index.get(&its_own) };
        Some(Granted { device, ..*granted })
    });
    // One is not a core of this node.
    node.cores.push(CoreSpec::whole(CoreId(9)));
    Some(SchedulerEvent::Adopt {
        submission,
        attempt: *attempt,
        placement: Placement {
            node: node.id,
            devices: devices.collect(),
            cores: cores.iter().map(|index| index.get(&node.cores).id).collect(),
        },
        since: Now(Duration::from_secs(u64::from(number).saturating_sub(*since))),
    })
}
