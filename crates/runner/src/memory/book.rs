//! Whose memory is whose, from one sample of a device.

use packhorse_gpu::Reading;
use packhorse_model::{Bytes, TaskId};

use super::track::CRUMB;

/// Whose process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A task of this run.
    Ours(TaskId),
    /// Another run, by its process.
    Run(u32),
    /// Somebody whose memory is not to count.
    Ignored,
    /// Anybody else.
    Stranger,
}

/// What a device's memory was found to be taken by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Tasks of this run.
    pub(crate) ours: Vec<(TaskId, Bytes)>,
    /// Other runs, by their processes.
    pub(crate) runs: Vec<(u32, Bytes)>,
    /// All others: processes we do not know, and what no process is shown for.
    pub(crate) strangers: Bytes,
}

/// Sorts what a sample shows of one device. `promised` is what our tasks on it
/// were promised together: it stands in where a driver does not tell what each
/// process holds.
pub(crate) fn account(
    sample: &Reading,
    promised: Bytes,
    mut owner: impl FnMut(u32) -> Owner,
) -> Account {
    let mut account = Account::default();
    let used = sample.memory.map_or(0, |memory| memory.used.0);
    let mut known = 0_u64;
    let mut silent = sample.processes.is_none();
    for process in sample.processes.iter().flatten() {
        let Some(held) = process.memory else {
            silent |= matches!(owner(process.pid), Owner::Ours(_));
            continue;
        };
        let list = match owner(process.pid) {
            Owner::Ours(task) => add(&mut account.ours, task, held),
            Owner::Run(run) => add(&mut account.runs, run, held),
            Owner::Ignored => true,
            Owner::Stranger => false,
        };
        if list {
            known = known.saturating_add(held.0);
        }
    }
    if silent {
        known = known.max(promised.0);
    }
    account.strangers = Bytes(used.saturating_sub(known));
    // What the driver itself takes as soon as a device is used.
    if account.strangers.0 <= CRUMB {
        account.strangers = Bytes(0);
    }
    account
}

fn add<T: PartialEq>(list: &mut Vec<(T, Bytes)>, whose: T, held: Bytes) -> bool {
    match list.iter_mut().find(|(other, _)| *other == whose) {
        Some((_, sum)) => sum.0 = sum.0.saturating_add(held.0),
        None => list.push((whose, held)),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhorse_gpu::{Health, Held, Memory};
    use packhorse_model::RunId;

    const MIB: u64 = 1 << 20;

    fn sample(used: u64, processes: Option<&[(u32, Option<u64>)]>) -> Reading {
        let bytes = |mebibytes: u64| Bytes(mebibytes * MIB);
        Reading {
            memory: Some(Memory {
                total: bytes(10_000),
                used: bytes(used),
                free: bytes(10_000 - used),
                reserved: Bytes(0),
            }),
            processes: processes.map(|processes| {
                let process = |&(pid, memory): &(u32, Option<u64>)| Held {
                    pid,
                    memory: memory.map(bytes),
                };
                processes.iter().map(process).collect()
            }),
            utilisation: None,
            health: Health::Ok,
        }
    }

    fn owner(pid: u32) -> Owner {
        match pid {
            1..=9 => Owner::Ours(TaskId::new(RunId(1), 1)),
            10..=19 => Owner::Run(10),
            20..=29 => Owner::Ignored,
            _ => Owner::Stranger,
        }
    }

    #[test]
    fn a_whole_process_tree_counts_as_one() {
        let list = [
            (1, Some(100)),
            (2, Some(200)),
            (10, Some(50)),
            (11, Some(5)),
        ];
        let account = account(&sample(355, Some(&list)), Bytes(0), owner);
        assert_eq!(account.ours[0].1, Bytes(300 * MIB));
        assert_eq!(account.runs, [(10, Bytes(55 * MIB))]);
        assert_eq!(account.strangers, Bytes(0));
    }

    #[test]
    fn what_no_process_is_shown_for_is_strangers_too() {
        let list = [(1, Some(100)), (99, Some(300))];
        let account = account(&sample(1000, Some(&list)), Bytes(0), owner);
        assert_eq!(account.strangers, Bytes(900 * MIB));
    }

    #[test]
    fn ignored_processes_hold_nothing_against_a_device() {
        let list = [(20, Some(400))];
        let account = account(&sample(400, Some(&list)), Bytes(0), owner);
        assert_eq!(account.strangers, Bytes(0));
    }

    #[test]
    fn a_driver_that_does_not_tell_who_holds_what_does_not_count_us_twice() {
        let promised = Bytes(600 * MIB);
        for list in [None, Some(&[(1, None)][..])] {
            let account = account(&sample(1000, list), promised, owner);
            assert_eq!(account.strangers, Bytes(400 * MIB));
        }
    }
}
