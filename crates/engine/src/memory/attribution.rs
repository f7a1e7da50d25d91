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
    /// How much of what strangers hold is of processes that only draw.
    pub(crate) drawn: Bytes,
    /// Whether a program of strangers computes there.
    pub(crate) has_strangers: bool,
}

/// Memory that no process is shown for is nothing to speak of if it is one part of so many:
/// a desktop's few windows.
pub(super) const VISIBLE: u64 = 20;

/// No program that computes holds as little: a server of MPS does, which may be ours.
const LESS_THAN_A_CONTEXT: u64 = 64 << 20;

/// Sorts what a sample shows of one device. `promised` is what our tasks on it were
/// promised together: it stands in where a driver does not tell what each process holds.
/// `has_ours`: some of them are there, so what cannot be told may be theirs.
pub(crate) fn attribute(member: &MemberView, promised: Bytes, has_ours: bool) -> Attribution {
    let mut found = Attribution::default();
    let (used, free) = member.memory.map_or((0, 0), |(used, free)| (used.0, free.0));
    let (mut drawn, mut unseen_drawn) = (0_u64, 0_u64);
    let mut known = 0_u64;
    let mut theirs = 0_u64;
    let mut silent = member.processes.is_none();
    for process in member.processes.iter().flatten() {
        let is_strangers = match process.owner {
            Owner::Stranger => true,
            Owner::Unseen => !has_ours,
            _ => false,
        };
        let is_large = process.memory.is_none_or(|held| held.0 > LESS_THAN_A_CONTEXT);
        found.has_strangers |= is_strangers && is_large && !process.draws;
        if process.draws && matches!(process.owner, Owner::Stranger | Owner::Unseen) {
            let held = process.memory.unwrap_or_default().0;
            drawn = drawn.saturating_add(held);
            if process.owner == Owner::Unseen {
                unseen_drawn = unseen_drawn.saturating_add(held);
            }
        }
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
    found.drawn = found.strangers.min(Bytes(drawn));
    let unlisted = found.unclaimed.0.saturating_sub(unseen_drawn);
    found.has_strangers |= !has_ours && unlisted > used.saturating_add(free) / VISIBLE;
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
                    draws: (40..50).contains(&pid),
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
        let found = attribute(&member(355, Some(&list)), Bytes(0), true);
        assert_eq!(found.ours[0].1, Bytes(300 * MIB));
        assert_eq!(found.runs, [(10, Bytes(55 * MIB))]);
        assert_eq!(found.strangers, Bytes(0));
    }

    #[test]
    fn what_no_process_is_shown_for_is_strangers_too() {
        let list = [(1, Some(100)), (99, Some(300))];
        let found = attribute(&member(1000, Some(&list)), Bytes(0), true);
        assert_eq!(found.strangers, Bytes(900 * MIB));
    }

    #[test]
    fn what_living_strangers_hold_was_left_by_nobody() {
        let list = [(1, Some(100)), (30, Some(200)), (99, Some(300))];
        let found = attribute(&member(1000, Some(&list)), Bytes(0), true);
        assert_eq!(found.unclaimed, Bytes(600 * MIB));
    }

    #[test]
    fn ignored_processes_hold_nothing_against_a_device() {
        let list = [(20, Some(400))];
        let found = attribute(&member(400, Some(&list)), Bytes(0), true);
        assert_eq!(found.strangers, Bytes(0));
    }

    #[test]
    fn a_driver_that_does_not_tell_who_holds_what_does_not_count_us_twice() {
        let promised = Bytes(600 * MIB);
        for list in [None, Some(&[(1, None)][..])] {
            let found = attribute(&member(1000, list), promised, true);
            assert_eq!(found.strangers, Bytes(400 * MIB));
        }
    }

    #[test]
    fn one_that_only_draws_is_no_stranger_that_computes() {
        let seen = |used, list: &[(u32, Option<u64>)], has_ours| {
            let found = attribute(&member(used, Some(list)), Bytes(0), has_ours);
            (found.drawn.0 / MIB, found.has_strangers)
        };
        let desktop = (40, Some(1600));
        assert_eq!(seen(1600, &[desktop], false), (1600, false));
        assert_eq!(seen(1700, &[desktop, (99, Some(100))], false), (1600, true));
        assert_eq!(seen(1000, &[desktop], false), (1000, false), "no more than there is");
        assert_eq!(seen(2200, &[desktop], false), (1600, true), "600 MiB are nobody's");
        assert_eq!(seen(2200, &[desktop], true), (1600, false), "or our own");
        let unseen = (30, Some(100));
        assert_eq!(seen(100, &[unseen], false), (0, true));
        assert_eq!(seen(100, &[unseen], true), (0, false));
        assert_eq!(seen(100, &[(1, Some(100))], true), (0, false));
    }
}
