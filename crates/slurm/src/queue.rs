//! What Slurm's queue says of the elements of arrays.

use std::collections::BTreeMap;

use crate::folder::SubmittedJob;

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

    /// Whether it does not begin before somebody lets it go.
    pub(crate) fn is_held(&self) -> bool {
        let held_states = ["REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"];
        held_states.contains(&self.state.as_str())
            || (self.phase() == ElementPhase::Pending && is_hold(&self.reason))
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

/// What Slurm says of each element, by its number: of the latest array that it is in. `known` is
/// what was said before, as far as that is still so.
pub(crate) fn latest_rows(
    mut known: BTreeMap<u32, QueuedElement>,
    jobs: &[SubmittedJob],
    queue: &[QueuedElement],
) -> BTreeMap<u32, QueuedElement> {
    for job in jobs {
        for row in queue.iter().filter(|row| row.job == job.job) {
            let element = job.base.saturating_add(row.index);
            // Slurm may have forgotten the later one, and still tell of the earlier.
            if known.get(&element).is_none_or(|known| known.job <= row.job) {
                known.insert(element, row.clone());
            }
        }
    }
    known
}

/// Whether a reason means that jobs are held: `JobHeldUser`, `JobHoldMaxRequeue`, `launch failed
/// requeued held`. Some commands write such with `_`.
fn is_hold(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    reason.contains("held") || reason.contains("jobhold")
}

/// Slurm's words for why jobs wait, in words for people. `JOB` in it stands for their names.
pub fn reason_in_words(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Resources" => "no node is free that has what they ask for",
        "Priority" => "others are in front of them",
        "JobArrayTaskLimit" => "as many run at a time as --jobs allows",
        "Dependency" => "they come after others",
        "DependencyNeverSatisfied" => "what they come after has failed",
        "BeginTime" => "they were put back a moment ago",
        "JobHoldMaxRequeue" => {
            "Slurm has started them too often, and holds them; `scontrol release JOB` lets them go"
        }
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
        reason if reason.to_lowercase().starts_with("launch") && is_hold(reason) => {
            "the node could not start them (a full disk, a prolog that failed), so Slurm holds \
             them; `scontrol release JOB` lets them go"
        }
        reason if is_hold(reason) => "they are held; `scontrol release JOB` lets them go",
        reason if reason.starts_with("QOS") || reason.starts_with("Assoc") => {
            "your account or quality of service has as much as it may"
        }
        _ => return None,
    })
}

/// Why elements wait: which, by Slurm's word.
pub(crate) fn pending_reasons(queue: &[QueuedElement]) -> BTreeMap<String, Vec<&QueuedElement>> {
    let mut reasons: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let pending = queue.iter().filter(|it| it.phase() == ElementPhase::Pending);
    for element in pending {
        let of_reason = reasons.entry(element.reason.clone()).or_default();
        of_reason.push(element);
    }
    reasons
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
            BTreeMap::from([("BeginTime".to_owned(), vec![&queue[0]])])
        );
    }

    #[test]
    fn the_latest_array_of_an_element_counts() {
        let job = |job, base, elements| SubmittedJob {
            job,
            base,
            elements,
            at: packhorse_model::Timestamp(5),
            cluster: None,
        };
        let jobs = [job(10, 100, vec![(100, 2)]), job(11, 100, vec![(101, 1)])];
        let both = read_queue("11|1|PENDING|x|\n10|0|RUNNING|x|n1\n10|1|PREEMPTED|x|n1\n");
        let rows = latest_rows(BTreeMap::new(), &jobs, &both);
        let names = |rows: &BTreeMap<u32, QueuedElement>| {
            let rows = rows.iter();
            rows.map(|(element, row)| format!("{element} {} {}", row.name(), row.state))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&rows), ["100 10_0 RUNNING", "101 11_1 PENDING"]);
        // It has ended, and is forgotten.
        let ended = read_queue("11|1|COMPLETED|x|n1\n").remove(0);
        let known = BTreeMap::from([(101, ended)]);
        let rows = latest_rows(known, &jobs, &both[1..]);
        assert_eq!(names(&rows), ["100 10_0 RUNNING", "101 11_1 COMPLETED"]);
    }
}
