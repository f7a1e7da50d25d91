//! Whether a lease that has changed leaves more to others.

use crate::{Lease, LeasedDevice};

/// Whether somebody who held the one, and now the other, has given something up, or waits for
/// something else.
pub(crate) fn gives_up(before: &Lease, after: &Lease) -> bool {
    let covers = |held: &LeasedDevice| {
        let now = find(&after.held, &held.device);
        now.is_some_and(|now| {
            now.memory >= held.memory
                && now.share >= held.share
                && now.attempts >= held.attempts
                && (now.whole || !held.whole)
        })
    };
    let is_used = |wanted: &LeasedDevice| {
        let had = find(&before.held, &wanted.device);
        let now = find(&after.held, &wanted.device);
        now.is_some_and(|now| is_claim_used(wanted, had, now))
    };
    let is_dropped = before
        .claim
        .as_ref()
        .is_some_and(|claim| before.claim != after.claim && !claim.devices.iter().all(is_used));
    !before.held.iter().all(covers) || is_dropped
}

fn find<'a>(held: &'a [LeasedDevice], device: &str) -> Option<&'a LeasedDevice> {
    held.iter().find(|held| *held.device == *device)
}

/// Whether what was wanted has become a part of what is held, so that nobody else can have
/// it. It is not enough that something is held there: that may be another task's.
fn is_claim_used(wanted: &LeasedDevice, had: Option<&LeasedDevice>, now: &LeasedDevice) -> bool {
    if wanted.whole {
        return now.whole;
    }
    let (share, memory) = had.map_or((0, 0), |had| (had.share.0, had.memory.0));
    now.share.0 >= share.saturating_add(wanted.share.0)
        && now.memory.0 >= memory.saturating_add(wanted.memory.0)
}

#[cfg(test)]
mod tests {
    use packhorse_model::{Bytes, Claim, Milli};

    use super::*;
    use crate::LeaseOwner;

    fn on_gpu(share: u32, memory: u64) -> LeasedDevice {
        LeasedDevice {
            device: "GPU-1".into(),
            memory: Bytes(memory),
            share: Milli(share),
            attempts: 1,
            whole: share == 1000,
        }
    }

    /// Holds the one, and waits for the other.
    fn lease(held: Option<LeasedDevice>, wanted: Option<LeasedDevice>) -> Lease {
        Lease {
            pid: 1,
            uid: 1,
            owner: LeaseOwner::default(),
            held: held.into_iter().collect(),
            claim: wanted.map(|wanted| Claim { since: 0, devices: vec![wanted] }),
            left: None,
        }
    }

    #[test]
    fn a_claim_that_is_made_use_of_frees_nothing() {
        let (part, all) = (on_gpu(300, 5), on_gpu(1000, 0));
        let waits = |held, wanted: &LeasedDevice| lease(held, Some(wanted.clone()));
        for (before, after) in [
            (waits(None, &all), lease(Some(all.clone()), None)),
            (waits(None, &part), lease(Some(part.clone()), None)),
            (waits(Some(part.clone()), &part), lease(Some(on_gpu(600, 10)), None)),
        ] {
            assert!(!gives_up(&before, &after), "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_claim_that_is_dropped_frees_something_whatever_else_is_held() {
        let (part, all) = (on_gpu(300, 5), on_gpu(1000, 0));
        for held in [None, Some(part.clone())] {
            for wanted in [&part, &all] {
                let before = lease(held.clone(), Some(wanted.clone()));
                let after = lease(held.clone(), None);
                assert!(gives_up(&before, &after), "{before:?} {after:?}");
                assert!(!gives_up(&before, &before));
            }
        }
    }
}
