//! Runs that tasks of other runs start. The GPUs of a task are its own: whoever is inside it
//! uses them, and the run around it holds them once.

use std::cell::OnceCell;

use packhorse_engine::{LeasedDevice, OtherRun};
use packhorse_leases::Lease;
use packhorse_model::TaskId;
use packhorse_proc::ancestry;
use rustc_hash::FxHashMap;

/// Which runs are around us, and which are inside our tasks.
#[derive(Default)]
pub(super) struct Nesting {
    /// What others know the GPUs by that the environment limits us to.
    given: Vec<String>,
    /// Our process and those that it descends from, once that matters.
    descent: OnceCell<Vec<u32>>,
    /// The processes of the others that were seen last, each with the task of ours that it
    /// belongs to.
    inside: FxHashMap<u32, Option<TaskId>>,
}

impl Nesting {
    pub(super) fn new(given: Vec<String>) -> Self {
        Self { given, ..Self::default() }
    }

    /// Finds out who is inside our tasks. Each process is looked at once: that takes longer
    /// than all else that is done with its lease, and others wait meanwhile.
    pub(super) fn look<'l>(
        &mut self,
        leases: impl Iterator<Item = &'l Lease>,
        task_of: impl Fn(u32) -> Option<TaskId>,
    ) {
        let before = std::mem::take(&mut self.inside);
        self.inside = leases
            .map(|lease| {
                let known = before.get(&lease.pid).copied();
                let find = || {
                    let processes = lease.processes();
                    processes.first().and_then(|&(pid, _)| task_of(pid))
                };
                (lease.pid, known.unwrap_or_else(find))
            })
            .collect();
    }

    /// The task of ours that another run is inside of.
    pub(super) fn task_around(&self, pid: u32) -> Option<TaskId> {
        self.inside.get(&pid).copied().flatten()
    }

    /// Whether we are part of a task of this run, or of what it left running.
    fn is_around_us(&self, lease: &Lease) -> bool {
        if self.given.is_empty() {
            return false;
        }
        let descent = || ancestry(std::process::id()).collect();
        let descent = self.descent.get_or_init(descent);
        match &lease.left {
            None => descent.contains(&lease.pid),
            Some(left) => descent.iter().any(|pid| left.contains(pid)),
        }
    }

    /// What was given to us by runs around us. They wait for us to end, and nobody else has
    /// it before.
    pub(super) fn lent<'l>(&self, leases: impl Iterator<Item = &'l Lease>) -> Vec<Box<str>> {
        let around = leases.filter(|lease| self.is_around_us(lease));
        let held = around.flat_map(|lease| &lease.held);
        let held = held.map(|held| held.device.clone());
        held.filter(|device| self.is_given(device)).collect()
    }

    fn is_given(&self, device: &str) -> bool {
        self.given.iter().any(|given| given == device)
    }

    /// Leaves out of what a run holds what it has given to us, and of what it waits for all
    /// that nobody gets before we end.
    pub(super) fn leave_out_lent(&self, lease: &Lease, lent: &[Box<str>], run: &mut OtherRun) {
        if self.is_around_us(lease) {
            leave_out(run, |device| self.is_given(device));
        } else {
            leave_out_of_claim(run, |device| lent.iter().any(|lent| **lent == *device));
        }
    }
}

/// Leaves devices out of what a run holds and waits for.
pub(super) fn leave_out(run: &mut OtherRun, is_out: impl Fn(&str) -> bool) {
    run.devices.retain(|held| !is_out(&held.device));
    leave_out_of_claim(run, is_out);
}

fn leave_out_of_claim(run: &mut OtherRun, is_out: impl Fn(&str) -> bool) {
    run.claim = run.claim.take().and_then(|mut claim| {
        let stays = |wanted: &LeasedDevice| !is_out(&wanted.device);
        claim.devices.retain(stays);
        (!claim.devices.is_empty()).then_some(claim)
    });
}

#[cfg(test)]
mod tests {
    use packhorse_leases::LeaseOwner;
    use packhorse_model::{Claim, RunId};

    use super::*;

    const OUTER: u32 = 10;
    const THIRD: u32 = 20;

    fn devices(names: &[&str]) -> Vec<LeasedDevice> {
        let device =
            |name: &&str| LeasedDevice { device: (*name).into(), ..LeasedDevice::default() };
        names.iter().map(device).collect()
    }

    fn lease(pid: u32, held: &[&str], wanted: &[&str]) -> Lease {
        Lease {
            pid,
            uid: 0,
            owner: LeaseOwner::default(),
            held: devices(held),
            claim: Some(Claim { since: 1, devices: devices(wanted) }),
            left: None,
        }
    }

    /// One that descends from the outer run, whose task has GPU 0.
    fn inner() -> Nesting {
        let nesting = Nesting::new(vec!["0".to_owned()]);
        nesting.descent.set(vec![100, 99, OUTER, 1]).unwrap();
        nesting
    }

    /// What is left of what each holds and waits for.
    fn left_of(nesting: &Nesting, leases: &[Lease]) -> Vec<(String, String)> {
        let lent = nesting.lent(leases.iter());
        let names = |devices: &[LeasedDevice]| {
            let names: Vec<&str> = devices.iter().map(|held| &*held.device).collect();
            names.join(",")
        };
        let runs = leases.iter().map(|lease| {
            let mut run = OtherRun {
                pid: lease.pid,
                name: String::new(),
                is_dead: lease.left.is_some(),
                devices: lease.held.clone(),
                claim: lease.claim.clone(),
            };
            nesting.leave_out_lent(lease, &lent, &mut run);
            let claim = run.claim.map(|claim| names(&claim.devices));
            (names(&run.devices), claim.unwrap_or_default())
        });
        runs.collect()
    }

    fn text(held: &str, wanted: &str) -> (String, String) {
        (held.to_owned(), wanted.to_owned())
    }

    #[test]
    fn what_a_run_around_us_has_given_us_is_kept_for_nobody() {
        let leases = [lease(OUTER, &["0", "1"], &["0", "1"]), lease(THIRD, &["2"], &["0", "1"])];
        let left = left_of(&inner(), &leases);
        assert_eq!(left, [text("1", "1"), text("2", "1")]);
    }

    #[test]
    fn what_the_environment_names_and_nobody_around_us_holds_is_kept_for_others() {
        let leases = [lease(OUTER, &["1"], &["0"]), lease(THIRD, &["0"], &["0", "1"])];
        let left = left_of(&inner(), &leases);
        assert_eq!(left, [text("1", ""), text("0", "0,1")]);
        let unlimited = Nesting::default();
        let left = left_of(&unlimited, &leases);
        assert_eq!(left, [text("1", "0"), text("0", "0,1")]);
    }

    #[test]
    fn one_that_was_left_running_does_not_wait_for_itself() {
        for ours in [100, 99] {
            let outer = Lease { left: Some(vec![98, ours]), ..lease(OUTER, &["0", "1"], &[]) };
            let leases = [outer, lease(THIRD, &[], &["0", "1"])];
            let left = left_of(&inner(), &leases);
            assert_eq!(left, [text("1", ""), text("", "1")]);
        }
        let elsewhere = Lease { left: Some(vec![98]), ..lease(OUTER, &["0"], &[]) };
        assert_eq!(left_of(&inner(), &[elsewhere]), [text("0", "")]);
    }

    #[test]
    fn each_process_is_looked_at_once() {
        let task = TaskId::new(RunId(1), 1);
        let mut nesting = Nesting::default();
        let [one, other] = [lease(OUTER, &[], &[]), lease(THIRD, &[], &[])];
        nesting.look([&one].into_iter(), |_| Some(task));
        nesting.look([&one, &other].into_iter(), |pid| {
            assert_ne!(pid, OUTER);
            None
        });
        assert_eq!(nesting.task_around(OUTER), Some(task));
        assert_eq!(nesting.task_around(THIRD), None);
        // Who has left may come back as somebody else.
        nesting.look([].into_iter(), |_| None);
        nesting.look([&one].into_iter(), |_| None);
        assert_eq!(nesting.task_around(OUTER), None);
    }
}
