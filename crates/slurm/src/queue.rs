//! What Slurm's queue says of the elements of arrays.

use std::collections::{BTreeMap, BTreeSet};

/// What squeue is asked for, separated by bars: array, index, state, reason, node. Nothing
/// that changes while nothing happens.
pub(crate) const QUEUE_FORMAT: &str = "%F|%K|%T|%r|%N";

/// One element in Slurm's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedElement {
    /// The array.
    pub job: u32,
    /// Its index there.
    pub index: u32,
    /// Slurm's word for its state.
    pub state: String,
    /// Slurm's word for why it is pending.
    pub reason: String,
    /// The node it runs on, or ran.
    pub node: String,
}

/// How far an element has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ElementPhase {
    /// It waits in the queue.
    Pending,
    /// It is on a node.
    Running,
    /// It is over, and Slurm does not start it again.
    Over,
}

impl QueuedElement {
    /// Slurm's name for it: `12_3`.
    pub(crate) fn name(&self) -> String {
        format!("{}_{}", self.job, self.index)
    }

    /// How far it has come.
    pub fn phase(&self) -> ElementPhase {
        match self.state.as_str() {
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED"
            | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => ElementPhase::Pending,
            "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED"
            | "BOOT_FAIL" | "DEADLINE" | "OUT_OF_MEMORY" | "REVOKED" => ElementPhase::Over,
            // Whatever a later version has a word for: it is not taken for an end.
            _ => ElementPhase::Running,
        }
    }
}

/// Reads what squeue wrote. What is no element of an array is left out.
pub(crate) fn read_queue(text: &str) -> Vec<QueuedElement> {
    let read = |line: &str| {
        let mut parts = line.trim().split('|');
        let mut next = || parts.next().map(str::to_owned);
        Some(QueuedElement {
            job: next()?.parse().ok()?,
            index: next()?.parse().ok()?,
            state: next()?,
            reason: next()?,
            node: next()?,
        })
    };
    text.lines().filter_map(read).collect()
}

/// Slurm's words for why jobs wait, in words for people.
pub fn reason_in_words(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Resources" => "no node is free that has what they ask for",
        "Priority" => "others are in front of them",
        "JobArrayTaskLimit" => "as many run at a time as --jobs allows",
        "Dependency" => "they come after others",
        "DependencyNeverSatisfied" => "what they come after has failed",
        "BeginTime" => "they were put back a moment ago",
        "JobHeldUser" | "JobHeldAdmin" => "they are held; `scontrol release` lets them go",
        "Licenses" => "they wait for a licence",
        "PartitionDown" | "PartitionInactive" => "the partition is not in use",
        "PartitionTimeLimit" => "--time is longer than the partition allows",
        "PartitionNodeLimit" => "they ask for more nodes than the partition has",
        "ReqNodeNotAvail" => "the nodes that would do are down or reserved",
        "Reservation" => "they wait for a reservation",
        "BadConstraints" => "no node has what they ask for",
        reason if reason.starts_with("ReqNodeNotAvail") => {
            "the nodes that would do are down or reserved"
        }
        reason if reason.starts_with("QOS") || reason.starts_with("Assoc") => {
            "your account or quality of service has as much as it may"
        }
        _ => return None,
    })
}

/// Why elements wait: how many, by Slurm's word.
pub(crate) fn pending_reasons(queue: &[QueuedElement]) -> BTreeMap<String, u32> {
    let mut reasons = BTreeMap::new();
    let pending = queue
        .iter()
        .filter(|it| it.phase() == ElementPhase::Pending);
    for element in pending {
        *reasons.entry(element.reason.clone()).or_default() += 1;
    }
    reasons
}

/// Of at most so many elements at a time, how many more may be submitted beside these, and the
/// arrays that have to end before.
pub(crate) fn room<'q>(
    others: impl IntoIterator<Item = &'q QueuedElement>,
    most: Option<u32>,
) -> (Option<u32>, BTreeSet<u32>) {
    let Some(most) = most else {
        return (None, BTreeSet::new());
    };
    let others = others.into_iter();
    let active: Vec<_> = others
        .filter(|it| it.phase() != ElementPhase::Over)
        .collect();
    match u32::try_from(active.len()) {
        Ok(count) if count < most => (Some(most - count), BTreeSet::new()),
        _ => (Some(most), active.iter().map(|it| it.job).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_read() {
        let queue = read_queue(
            "2|2|PENDING|BeginTime|\n\
             2|1|RUNNING|None|n1\n\
             3|N/A|RUNNING|None|n1\n\
             2|3|EXPEDITING|None|n1\n\
             2|0|NODE_FAIL|None|n1\n",
        );
        let phases: Vec<_> = queue.iter().map(|it| (it.index, it.phase())).collect();
        assert_eq!(
            phases,
            [
                (2, ElementPhase::Pending),
                (1, ElementPhase::Running),
                // A word that nobody knows yet.
                (3, ElementPhase::Running),
                (0, ElementPhase::Over)
            ]
        );
        assert_eq!(queue[1].node, "n1");
        assert_eq!(
            pending_reasons(&queue),
            BTreeMap::from([("BeginTime".to_owned(), 1)])
        );
    }

    #[test]
    fn there_is_room_beside_others_or_after_them() {
        let queue = read_queue(
            "2|0|NODE_FAIL|None|n1\n2|1|RUNNING|None|n2\n2|2|PENDING|JobArrayTaskLimit|\n\
             5|3|PENDING|Dependency|\n",
        );
        assert_eq!(room(&queue, None), (None, BTreeSet::new()));
        assert_eq!(room(&queue, Some(5)), (Some(2), BTreeSet::new()));
        // Those that wait come to run, too.
        assert_eq!(room(&queue, Some(3)), (Some(3), BTreeSet::from([2, 5])));
        assert_eq!(room(&queue, Some(1)), (Some(1), BTreeSet::from([2, 5])));
    }
}
