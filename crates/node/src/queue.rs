//! What Slurm says of the jobs on this node: one answer for all who ask at about the same time.
//!
//! A question takes `slurmctld` some milliseconds, or ten seconds if it is busy. When many
//! jobs start at once, the first prolog asks, and the others find their job in its answer,
//! which is kept in the state folder with the boot and the time since then. That Slurm did
//! not answer is kept as well: whoever waited for it does not ask again.
//!
//! Nothing in an answer is text of users: numbers, a state, and what `slurmctld` has made of
//! `--gres`. (`scontrol show job` has the job's name in its lines, which can say anything.)

use crate::share::Share;
use crate::slurm::Slurm;
use crate::state::{State, now_ms};

/// For how long an answer holds for a job that is in it.
const FOR_A_JOB: u64 = 5_000;

/// For how long nobody asks just to see which jobs there are.
const BETWEEN_QUESTIONS: u64 = 60_000;

/// Which jobs are on this node, by Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeQueue {
    pub jobs: Vec<QueuedJob>,
}

/// A job that is on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    pub job: u32,
    /// Whose it is.
    pub uid: u32,
    /// Its array and its number in that, if it is an element of one.
    pub element: Option<(u32, u32)>,
    /// Whether it has its node: it may be waiting for its prologs.
    pub has_node: bool,
    /// Whether it has begun and not ended.
    pub is_running: bool,
    /// The `mps` it has on each of its nodes, if that is how it asked for them.
    pub mps: Option<u64>,
}

/// How new an answer has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerNeed {
    /// It says how much this job has, and that can be true.
    Job(u32, Share),
    /// It is of the last minute.
    Recent,
    /// It is of now: there is no room, or somebody is looking.
    Fresh,
}

/// A question and its answer, as they are kept.
struct Kept {
    began: u64,
    ended: u64,
    queue: Option<NodeQueue>,
}

impl Kept {
    fn parse(text: &str, boot: &str) -> Option<Self> {
        let (head, answer) = text.split_once('\n')?;
        let mut words = head.split(' ');
        if words.next() != Some(boot) {
            return None;
        }
        let mut number = || words.next()?.parse().ok();
        let (began, ended) = (number()?, number()?);
        let queue = match words.next()? {
            "answered" => Some(NodeQueue::parse(answer)?),
            _ => None,
        };
        Some(Self { began, ended, queue })
    }

    /// Whether it will do for somebody who wants to know since `start`.
    fn is_enough(&self, need: AnswerNeed, start: u64) -> bool {
        if self.began >= start {
            // Unless it is of a time that has yet to come.
            return self.ended <= now_ms();
        }
        let age = start - self.began;
        match (need, &self.queue) {
            (AnswerNeed::Recent, _) => age < BETWEEN_QUESTIONS,
            (_, None) => self.ended >= start && self.ended <= now_ms(),
            (AnswerNeed::Job(job, share), Some(queue)) => {
                let mps = queue.job(job).and_then(|job| job.mps);
                age < FOR_A_JOB && share.settled(mps).exact().is_some()
            }
            (AnswerNeed::Fresh, Some(_)) => false,
        }
    }
}

/// What Slurm says, or what somebody else was told. `None`: it does not answer.
///
/// Whoever asks calls `put_right` with a new answer, after looking how it is `before`. Only then
/// is it there for others: they go on from a state that it has put right. `put_right` says
/// whether it did.
pub fn ask<B>(
    state: &State,
    slurm: &Slurm,
    node: &str,
    need: AnswerNeed,
    before: impl FnOnce() -> B,
    put_right: impl FnOnce(&NodeQueue, B) -> bool,
) -> Option<NodeQueue> {
    let start = now_ms();
    let kept = || {
        let kept = Kept::parse(&state.kept_answer()?, state.boot())?;
        kept.is_enough(need, start).then_some(kept.queue)
    };
    if let Some(queue) = kept() {
        return queue;
    }
    // Without the lock, several ask at once.
    let _asking = state.lock_question();
    if let Some(queue) = kept() {
        return queue;
    }
    let before = before();
    let began = now_ms();
    let answer = slurm.queue(node);
    let ended = now_ms();
    let queue = answer.as_deref().and_then(NodeQueue::parse);
    let (word, is_right) = match &queue {
        Some(queue) => ("answered", put_right(queue, before)),
        None => ("silent", true),
    };
    if is_right {
        let (boot, answer) = (state.boot(), answer.unwrap_or_default());
        state.keep_answer(&format!("{boot} {began} {ended} {word}\n{answer}"));
    }
    queue
}

impl NodeQueue {
    /// What `squeue` says, as [`Slurm::queue`] asks it. An answer that cannot be understood
    /// is none.
    pub fn parse(answer: &str) -> Option<Self> {
        let lines = answer.lines().filter(|line| !line.trim().is_empty());
        let jobs: Option<Vec<QueuedJob>> = lines.map(QueuedJob::parse).collect();
        Some(Self { jobs: jobs? })
    }

    /// What is known of a job.
    pub fn job(&self, job: u32) -> Option<&QueuedJob> {
        self.jobs.iter().find(|other| other.job == job)
    }
}

impl QueuedJob {
    /// What Slurm's commands call it. An element that has the number of its array would be the
    /// whole array to them.
    pub fn name(&self) -> String {
        match self.element {
            Some((array, index)) => format!("{array}_{index}"),
            None => self.job.to_string(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('|').map(str::trim);
        let (job, uid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let state = fields.next()?;
        let is_running = matches!(state, "RUNNING" | "SUSPENDED" | "STOPPED");
        let gres = fields.next()?;
        let amounts = gres.split(',').filter_map(amount);
        let mut number = || fields.next()?.parse().ok();
        let element = number().zip(number());
        Some(Self {
            job,
            uid,
            element,
            has_node: is_running || state == "CONFIGURING",
            is_running,
            mps: amounts.reduce(u64::saturating_add),
        })
    }
}

/// The amount of `mps` in `gres:mps:64`, `gres/mps:titanrtx:2K` (from 24.05 on), or
/// `gres:mps`, which is one.
fn amount(part: &str) -> Option<u64> {
    let named = part.strip_prefix("gres:").or_else(|| part.strip_prefix("gres/"));
    let part = named.unwrap_or(part);
    let rest = part.strip_prefix("mps")?;
    let last = match rest.strip_prefix(':') {
        Some(rest) => rest.rsplit(':').next()?,
        None if rest.is_empty() => return Some(1),
        None => return None,
    };
    if !last.starts_with(|first: char| first.is_ascii_digit()) {
        // The name of a model.
        return Some(1);
    }
    let digits = last.trim_end_matches(['K', 'k', 'M', 'm']);
    let number: u64 = digits.parse().ok()?;
    let factor = match &last[digits.len()..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        _ => return None,
    };
    Some(number.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_22_05_and_24_11_write_them() {
        for (gres, mps) in [
            ("gres:mps:64", Some(64)),
            ("gres/mps:64", Some(64)),
            ("gres:gpu:titanrtx:0,gres:mps:20", Some(20)),
            ("gres/mps:titanrtx:30", Some(30)),
            ("gres:mps:2K", Some(2048)),
            ("gres:mps", Some(1)),
            ("gres/mps:titanrtx", Some(1)),
            ("gres/mpsx:5", None),
            ("gres", None),
            ("gres:gpu:2", None),
            ("N/A", None),
        ] {
            let queue = NodeQueue::parse(&format!("7|1000|RUNNING|{gres}\n")).unwrap();
            assert_eq!(queue.job(7).unwrap().mps, mps, "{gres}");
        }
        assert_eq!(NodeQueue::parse("\n"), Some(NodeQueue::default()));
        assert_eq!(NodeQueue::parse("slurm_load_jobs error: Invalid"), None);
    }

    #[test]
    fn an_element_is_not_called_by_the_number_of_its_array() {
        let queue = "7|0|RUNNING|gres:mps:64|7|N/A\n8|0|CONFIGURING|gres:mps:64|8|3\n\
                     9|0|PENDING|gres:mps:64|8|0\n10|0|RUNNING|gres:mps:64\n";
        let queue = NodeQueue::parse(queue).unwrap();
        let seen = |job: u32| {
            let job = queue.job(job).unwrap();
            (job.name(), job.has_node, job.is_running)
        };
        assert_eq!(seen(7), ("7".to_owned(), true, true));
        assert_eq!(seen(8), ("8_3".to_owned(), true, false));
        assert_eq!(seen(9), ("8_0".to_owned(), false, false));
        assert_eq!(seen(10), ("10".to_owned(), true, true));
    }

    #[test]
    fn an_answer_does_for_those_who_could_have_asked_it_themselves() {
        let now = now_ms();
        let enough = |began: u64, ended: u64, word: &str, need: AnswerNeed, start: u64| {
            let text = format!("boot {began} {ended} {word}\n7|0|RUNNING|gres:mps:20\n");
            Kept::parse(&text, "boot").unwrap().is_enough(need, start)
        };
        let answered = |need, age: u64| enough(now - age, now - age + 1, "answered", need, now);
        let job = |job| AnswerNeed::Job(job, Share::of(1, 1280));
        assert!(answered(job(7), 100));
        assert!(!answered(job(8), 100), "it is not in it");
        assert!(!answered(AnswerNeed::Job(7, Share::of(5, 1280)), 100), "it was another");
        assert!(!answered(job(7), 6_000), "it may be another by now");
        assert!(answered(AnswerNeed::Recent, 6_000));
        assert!(!answered(AnswerNeed::Recent, 60_001));
        assert!(!answered(AnswerNeed::Fresh, 1));
        // Asked after we began to wait.
        assert!(enough(now - 1, now, "answered", job(8), now - 2));
        assert!(enough(now - 1, now, "answered", AnswerNeed::Fresh, now - 2));
        // We waited for Slurm together.
        assert!(enough(now - 10_000, now - 1, "silent", job(7), now - 5));
        assert!(!enough(now - 10_000, now - 6, "silent", job(7), now - 5));
        // What cannot be.
        assert!(!enough(now + 10_000, now + 10_001, "answered", AnswerNeed::Recent, now));
        assert!(Kept::parse("other 1 2 answered\n", "boot").is_none());
    }
}
