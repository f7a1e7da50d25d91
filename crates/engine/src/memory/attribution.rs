//! Whose memory is whose, from one sample of a device.

use packhorse_model::{Bytes, TaskId};

use super::track::NOISE_FLOOR;
use crate::input::{MemberView, Owner};

/// What the memory of a device was found to be taken by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub(crate) ours: Vec<(TaskId, Bytes)>,
    /// Other runs, by their processes.
    pub(crate) runs: Vec<(u32, Bytes)>,
    /// All others: processes we do not know, and what no process is shown for.
    pub(crate) strangers: Bytes,
    /// How much of that no living process of theirs is shown for. It may have been left by
    /// one that has ended.
    pub(crate) unclaimed: Bytes,
}

/// Sorts what a sample shows of one device. `promised` is what our tasks on it were
/// promised together: it stands in where a driver does not tell what each process holds.
pub(crate) fn attribute(member: &MemberView, promised: Bytes) -> Attribution {
    let mut found = Attribution::default();
    let used = member.memory.map_or(0, |(used, _)| used.0);
    let mut known = 0_u64;
    let mut theirs = 0_u64;
    let mut silent = member.processes.is_none();
    for process in member.processes.iter().flatten() {
        let Some(held) = process.memory else {
            silent |= matches!(process.owner, Owner::Task(_));
            continue;
        };
        match process.owner {
            Owner::Task(task) => add(&mut found.ours, task, held),
            Owner::OtherRun(run) => add(&mut found.runs, run, held),
            Owner::Ignored => {}
            Owner::Stranger => {
                theirs = theirs.saturating_add(held.0);
                continue;
            }
            Owner::Unseen => continue,
        }
        known = known.saturating_add(held.0);
    }
    if silent {
        known = known.max(promised.0);
    }
    found.strangers = Bytes(used.saturating_sub(known));
    // What the driver itself takes as soon as a device is used.
    if found.strangers.0 <= NOISE_FLOOR {
        found.strangers = Bytes(0);
    }
    found.unclaimed = Bytes(found.strangers.0.saturating_sub(theirs));
    found
}

fn add<T: PartialEq>(list: &mut Vec<(T, Bytes)>, whose: T, held: Bytes) {
    match list.iter_mut().find(|(other, _)| *other == whose) {
        Some((_, sum)) => sum.0 = sum.0.saturating_add(held.0),
        None => list.push((whose, held)),
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::RunId;

    use super::*;
    use crate::input::ProcessView;

    const MIB: u64 = 1 << 20;

    fn member(used: u64, processes: Option<&[(u32, Option<u64>)]>) -> MemberView {
        let bytes = |mebibytes: u64| Bytes(mebibytes * MIB);
        MemberView {
            memory: Some((bytes(used), bytes(10_000 - used))),
            processes: processes.map(|processes| {
                let process = |&(pid, memory): &(u32, Option<u64>)| ProcessView {
                    pid,
                    memory: memory.map(bytes),
                    owner: owner(pid),
                    description: String::new(),
                };
                processes.iter().map(process).collect()
            }),
            ..MemberView::default()
        }
    }

    fn owner(pid: u32) -> Owner {
        match pid {
            1..=9 => Owner::Task(TaskId::new(RunId(1), 1)),
            10..=19 => Owner::OtherRun(10),
            20..=29 => Owner::Ignored,
            30..=39 => Owner::Unseen,
            _ => Owner::Stranger,
        }
    }

    #[test]
    fn a_whole_process_tree_counts_as_one() {
        let list = [(1, Some(100)), (2, Some(200)), (10, Some(50)), (11, Some(5))];
        let found = attribute(&member(355, Some(&list)), Bytes(0));
        assert_eq!(found.ours[0].1, Bytes(300 * MIB));
        assert_eq!(found.runs, [(10, Bytes(55 * MIB))]);
        assert_eq!(found.strangers, Bytes(0));
    }

    #[test]
    fn what_no_process_is_shown_for_is_strangers_too() {
        let list = [(1, Some(100)), (99, Some(300))];
        let found = attribute(&member(1000, Some(&list)), Bytes(0));
        assert_eq!(found.strangers, Bytes(900 * MIB));
    }

    #[test]
    fn what_living_strangers_hold_was_left_by_nobody() {
        let list = [(1, Some(100)), (30, Some(200)), (99, Some(300))];
        let found = attribute(&member(1000, Some(&list)), Bytes(0));
        assert_eq!(found.unclaimed, Bytes(600 * MIB));
    }

    #[test]
    fn ignored_processes_hold_nothing_against_a_device() {
        let list = [(20, Some(400))];
        let found = attribute(&member(400, Some(&list)), Bytes(0));
        assert_eq!(found.strangers, Bytes(0));
    }

    #[test]
    fn a_driver_that_does_not_tell_who_holds_what_does_not_count_us_twice() {
        let promised = Bytes(600 * MIB);
        for list in [None, Some(&[(1, None)][..])] {
            let found = attribute(&member(1000, list), promised);
            assert_eq!(found.strangers, Bytes(400 * MIB));
        }
    }
}
