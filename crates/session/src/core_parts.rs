//! What part of the cores a task gets if it does not say: for itself, or as a number of
//! threads to start.

use std::ffi::OsString;
use std::num::NonZero;

use packhorse_core::{CoreSpec, SchedulerState};
use packhorse_engine::{StartAttempt, first_request};
use packhorse_model::{PoolSpec, RunSpec, TaskSpec, VramRequest};
use rustc_hash::FxHashSet;

use crate::devices::{Devices, scheduler_settings};
use crate::environment::Variables;
use crate::{Notices, SessionError};

/// What libraries read to know how many threads to start.
const THREAD_CAPS: [&str; 4] =
    ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

impl Devices {
    /// How many tasks with these options fit at a time where nothing else runs.
    /// `u64::MAX`: nothing that is counted limits them.
    pub(crate) fn at_a_time(&self, pool: &PoolSpec, task: &TaskSpec) -> Result<u64, SessionError> {
        let state = SchedulerState::new(&self.pool(), scheduler_settings(pool));
        Ok(state?.at_a_time(&first_request(task, &self.info, self.slots)))
    }

    /// What holds for every task of a run that says nothing else. Who asks for an equal
    /// part of the cores gets it here.
    pub fn defaults(
        &self,
        spec: &RunSpec,
        notices: &mut Notices<'_>,
    ) -> Result<TaskSpec, SessionError> {
        let mut defaults = spec.defaults.clone();
        let is_asked_for = match spec.pool.equal_cores {
            _ if defaults.cores.is_some() => return Ok(defaults),
            Some(true) => true,
            None if spec.cores_apart => false,
            _ => return Ok(defaults),
        };
        if let Some(VramRequest::Auto | VramRequest::Measure) = defaults.vram {
            return if is_asked_for { Err(SessionError::UnknownCorePart) } else { Ok(defaults) };
        }
        let tasks = self.at_a_time(&spec.pool, &defaults)?;
        let tasks = tasks.min(spec.pool.at_most.map_or(u64::MAX, u64::from));
        let cores = self.cores.len() as u64;
        if !is_asked_for && !(1..=cores).contains(&tasks) {
            return Ok(defaults);
        }
        if tasks > cores {
            let run = match cores {
                1 => "1 task runs".to_owned(),
                many => format!("{many} tasks run"),
            };
            notices(&format!(
                "warning: {run} at a time, since each has a core to itself\n\
                 hint: without `--cores auto` tasks share the cores, and {tasks} run at a time"
            ));
        }
        defaults.cores = Some(equal_part(&self.cores, tasks));
        Ok(defaults)
    }
}

/// The part of the cores that each of so many tasks can have for itself: the threads of
/// whole physical cores where there are enough, at least one core.
fn equal_part(cores: &[CoreSpec], tasks: u64) -> u32 {
    let physical: FxHashSet<u32> = cores.iter().map(|core| core.physical).collect();
    let (all, physical) = (cores.len() as u64, physical.len() as u64);
    let part = match physical / tasks.max(1) {
        0 => all / tasks.max(1),
        whole => whole * all / physical.max(1),
    };
    u32::try_from(part.max(1)).unwrap_or(u32::MAX)
}

/// How many threads tasks are told to start.
pub(crate) struct ThreadCaps {
    /// The variables to set: those that the person has not.
    names: Vec<&'static str>,
    /// The cores of the machine that are ours.
    cores: u64,
    /// How many of them may be kept busy at a time.
    busy: u64,
    /// No more tasks than this will run.
    most: u64,
    /// Whether those that share the cores are all told the same, however few they are.
    is_same: bool,
    /// What tasks are told that ask for nothing themselves. All cores need no telling.
    usual: u64,
}

impl ThreadCaps {
    /// For at most so many tasks with these `defaults`, on so many cores.
    pub(crate) fn new(
        spec: &RunSpec,
        defaults: &TaskSpec,
        most: Option<u64>,
        cores: usize,
    ) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some() || defaults.env.contains_key(name);
        // Libraries that find nothing in their own variable look at OpenMP's.
        let names = match spec.pool.thread_caps {
            Some(false) => Vec::new(),
            _ if set(THREAD_CAPS[0]) => Vec::new(),
            _ => THREAD_CAPS.into_iter().filter(|name| !set(name)).collect(),
        };
        let is_same = spec.full_machine_caps;
        let most = most.filter(|_| !is_same).unwrap_or(u64::MAX);
        // A container may have many cores and little time on them. For one task it need not
        // be looked up.
        let allowed = (most > 1).then(std::thread::available_parallelism);
        let allowed = allowed.and_then(Result::ok).map_or(cores, NonZero::get);
        Self {
            names,
            cores: cores as u64,
            busy: cores.min(allowed) as u64,
            most,
            is_same,
            usual: defaults.cores.map_or(0, u64::from),
        }
    }

    /// If so many fit at a time that ask for nothing themselves.
    pub(crate) fn shared(mut self, at_a_time: u64) -> Self {
        if self.usual == 0 {
            self.usual = self.part(at_a_time);
        }
        self
    }

    /// The part of each of so many that fit at a time.
    fn part(&self, tasks: u64) -> u64 {
        match tasks.min(self.most) {
            // Alone, or as many as anybody likes.
            0 | 1 | u64::MAX => self.cores,
            tasks => (self.busy / tasks).max(1),
        }
    }

    /// What all tasks are told.
    pub(crate) fn usual(&self) -> Variables {
        if self.usual < self.cores { self.say(self.usual).collect() } else { Vec::new() }
    }

    /// Adds what an attempt is told, if that is something else.
    pub(crate) fn add(&self, start: &StartAttempt, variables: &mut Variables) {
        if let Some(own) = start.spec.env.get(THREAD_CAPS[0]) {
            let own = own.as_os_str();
            return variables.extend(self.names.iter().map(|name| (name.into(), own.into())));
        }
        let part = match (start.placement.cores.len(), start.at_a_time) {
            (0, None) => return,
            (0, Some(_)) if self.is_same => return,
            (0, Some(tasks)) => self.part(tasks),
            (cores, _) => cores as u64,
        };
        if part != self.usual {
            variables.extend(self.say(part));
        }
    }

    fn say(&self, part: u64) -> impl Iterator<Item = (OsString, OsString)> {
        let part = OsString::from(part.to_string());
        self.names.iter().map(move |name| (name.into(), part.clone()))
    }
}

#[cfg(test)]
mod tests {
    use packhorse_model::CoreId;

    use super::*;

    /// So many physical cores with so many threads each.
    fn cores(physical: u32, threads: u32) -> Vec<CoreSpec> {
        let core =
            |number| CoreSpec { physical: number % physical, ..CoreSpec::whole(CoreId(number)) };
        (0..physical * threads).map(core).collect()
    }

    #[test]
    fn threads_are_divided_by_the_tasks_that_run_at_a_time() {
        let caps = |own_cores, most: Option<u64>, at_a_time| {
            let caps = ThreadCaps {
                names: THREAD_CAPS.to_vec(),
                cores: 64,
                busy: 48,
                most: most.unwrap_or(u64::MAX),
                is_same: false,
                usual: own_cores,
            };
            caps.shared(at_a_time)
        };
        let usual = |caps: ThreadCaps| caps.usual().first().map(|(_, value)| value.clone());
        assert_eq!(usual(caps(0, None, 8)), Some("6".into()));
        assert_eq!(usual(caps(0, Some(3), 8)), Some("16".into()));
        assert_eq!(usual(caps(0, Some(99), 8)), Some("6".into()));
        assert_eq!(usual(caps(0, None, 99)), Some("1".into()));
        assert_eq!(usual(caps(0, None, u64::MAX)), None, "nobody knows");
        assert_eq!(usual(caps(0, Some(3), u64::MAX)), Some("16".into()));
        assert_eq!(usual(caps(0, Some(1), 8)), None, "alone");
        assert_eq!(usual(caps(0, None, 1)), None, "alone");
        assert_eq!(usual(caps(0, None, 0)), None, "nothing to divide by");
        assert_eq!(usual(caps(4, None, 8)), Some("4".into()));
        assert_eq!(usual(caps(64, None, 8)), None, "all of them");
    }

    #[test]
    fn an_equal_part_is_of_whole_physical_cores_where_there_are_enough() {
        let part = |physical, threads, tasks| equal_part(&cores(physical, threads), tasks);
        assert_eq!(part(8, 1, 2), 4);
        assert_eq!(part(8, 1, 3), 2);
        assert_eq!(part(8, 2, 4), 4);
        assert_eq!(part(8, 2, 3), 4, "not 5, half of one of which is another's");
        assert_eq!(part(2, 2, 3), 1);
        assert_eq!(part(2, 2, 9), 1);
        assert_eq!(part(2, 2, u64::MAX), 1);
        assert_eq!(part(4, 2, 1), 8);
    }
}
