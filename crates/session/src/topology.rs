//! The cores that we may use, and how they belong together.

use std::path::Path;

use packhorse_core::CoreSpec;
use packhorse_gpu::parse_core_list;
use packhorse_model::CoreId;
use rustc_hash::FxHashMap;
use rustix::thread::CpuSet;

/// The cores that we may use ourselves: all of the machine's, or those that a job, a
/// container or `taskset` has left us. `sysfs` is where the kernel tells about them.
pub(crate) fn our_cores(sysfs: &Path) -> Vec<CoreSpec> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    let ours = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
    let ours = ours.filter_map(|core| u32::try_from(core).ok().map(CoreId));
    describe(sysfs, &ours.collect::<Vec<_>>())
}

/// How these cores belong together. What the kernel does not tell is as simple as can be:
/// every core is a physical one, and the machine has one part.
fn describe(sysfs: &Path, cores: &[CoreId]) -> Vec<CoreSpec> {
    let system = sysfs.join("devices/system");
    let siblings = siblings(&system.join("cpu"), cores);
    let parts = parts(&system.join("node"));
    let core = |&id: &CoreId| CoreSpec {
        physical: siblings.get(&id).copied().unwrap_or(id.0),
        numa: parts.get(&id).copied().unwrap_or(0),
        ..CoreSpec::whole(id)
    };
    cores.iter().map(core).collect()
}

/// For each core with others that are threads of the same physical one, the first of
/// those.
fn siblings(folder: &Path, cores: &[CoreId]) -> FxHashMap<CoreId, u32> {
    let mut first = FxHashMap::default();
    // Spares a file for each core of a machine without such threads.
    if read(&folder.join("smt/active")).is_some_and(|active| active.trim() == "0") {
        return first;
    }
    for core in cores {
        // Its file says the same as that of a core that was read.
        if first.contains_key(core) {
            continue;
        }
        let topology = folder.join(format!("cpu{core}/topology"));
        let names = ["core_cpus_list", "thread_siblings_list"];
        let list = names.iter().find_map(|name| read(&topology.join(name)));
        let threads = list.and_then(|list| parse_core_list(&list));
        if let Some([lowest, _, ..]) = threads.as_deref() {
            let all = threads.iter().flatten();
            first.extend(all.map(|&thread| (thread, lowest.0)));
        }
    }
    first
}

/// The NUMA node of each core, on a machine that has several.
fn parts(folder: &Path) -> FxHashMap<CoreId, u32> {
    let online = read(&folder.join("online"));
    let nodes = online.and_then(|list| parse_core_list(&list));
    let nodes = nodes.filter(|nodes| nodes.len() > 1).unwrap_or_default();
    let mut parts = FxHashMap::default();
    for node in nodes {
        let cores = read(&folder.join(format!("node{node}/cpulist")));
        let cores = cores.and_then(|list| parse_core_list(&list));
        parts.extend(cores.unwrap_or_default().iter().map(|&core| (core, node.0)));
    }
    parts
}

fn read(path: &Path) -> Option<String> {
    fs_err::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use packhorse_core::{
        Effect, NodeSpec, Now, Pool, SchedulerEvent, SchedulerSettings, SchedulerState, Submission,
        step,
    };
    use packhorse_model::{GpuRequest, NodeId, Request, RunId, TaskId};

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join("devices/system").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    /// Each of these cores as (physical, numa).
    fn told(folder: &Path, cores: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        let cores: Vec<CoreId> = cores.into_iter().map(CoreId).collect();
        let told = describe(folder, &cores);
        assert!(told.iter().map(|core| core.id).eq(cores));
        told.iter().map(|core| (core.physical, core.numa)).collect()
    }

    /// Two sockets with two physical cores each, which have two threads each: 0 and 4, 1
    /// and 5 are in the first, 2 and 6, 3 and 7 in the second.
    fn two_sockets(siblings_name: &str) -> tempfile::TempDir {
        let machine = tempfile::tempdir().unwrap();
        write(machine.path(), "cpu/smt/active", "1\n");
        for core in 0..8 {
            let name = format!("cpu/cpu{core}/topology/{siblings_name}");
            let list = format!("{},{}\n", core % 4, core % 4 + 4);
            write(machine.path(), &name, &list);
        }
        write(machine.path(), "node/online", "0-1\n");
        write(machine.path(), "node/node0/cpulist", "0-1,4-5\n");
        write(machine.path(), "node/node1/cpulist", "2-3,6-7\n");
        machine
    }

    #[test]
    fn threads_of_a_core_and_parts_of_the_machine_are_known() {
        for name in ["core_cpus_list", "thread_siblings_list"] {
            let machine = two_sockets(name);
            let first = [(0, 0), (1, 0), (2, 1), (3, 1)];
            let all = told(machine.path(), 0..8);
            assert_eq!(all, [first, first].concat(), "{name}");
        }
    }

    #[test]
    fn a_job_with_some_of_the_cores_sees_how_those_belong_together() {
        let machine = two_sockets("core_cpus_list");
        let some = told(machine.path(), [1, 5, 6]);
        assert_eq!(some, [(1, 0), (1, 0), (2, 1)]);
    }

    /// The cores that so many tasks get which each want so many of these.
    fn given(folder: &Path, cores: &[u32], wanted: u32, tasks: u32) -> Vec<Vec<u32>> {
        let cores: Vec<CoreId> = cores.iter().copied().map(CoreId).collect();
        let node = NodeSpec {
            id: NodeId(0),
            devices: Vec::new(),
            cores: describe(folder, &cores),
            cpu: None,
            ram: None,
        };
        let (nodes, slots) = (vec![node], None);
        let settings = SchedulerSettings::default();
        let mut state = SchedulerState::new(&Pool { nodes, slots }, settings).unwrap();
        let request = Request { gpus: GpuRequest::None, cores: wanted, ..Request::default() };
        let mut effects = Vec::new();
        let mut feed = |event| step(&mut state, event, Now::default(), &mut effects);
        feed(SchedulerEvent::Hold);
        for number in 1..=tasks {
            let id = TaskId::new(RunId(1), number);
            feed(SchedulerEvent::Submit(Submission::new(id, request.clone())));
        }
        feed(SchedulerEvent::Unhold);
        let starts = effects.into_iter().filter_map(|effect| match effect {
            Effect::Start { placement, .. } => Some(placement.cores),
            _ => None,
        });
        starts.map(|cores| cores.iter().map(|core| core.0).collect()).collect()
    }

    #[test]
    fn tasks_get_whole_cores_of_one_part_of_such_a_machine() {
        let machine = two_sockets("core_cpus_list");
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        let two = given(machine.path(), &all, 2, 2);
        assert_eq!(two, [[0, 1], [2, 3]], "a whole core for each of them");
        let four = given(machine.path(), &all, 2, 4);
        assert_eq!(four, [[0, 4], [1, 5], [2, 6], [3, 7]]);
        // A job that may use some of them: 1 and 5 are one core, 2 and 3 are of the other
        // part.
        assert_eq!(given(machine.path(), &[1, 2, 3, 5], 2, 1), [[2, 3]]);
        let three = given(machine.path(), &[1, 2, 5], 1, 3);
        assert_eq!(three, [[1], [2], [5]], "the second thread comes last");
    }

    #[test]
    fn a_machine_that_tells_nothing_has_plain_cores() {
        let machine = tempfile::tempdir().unwrap();
        assert_eq!(told(machine.path(), [0, 3]), [(0, 0), (3, 0)]);
        // Nor does one whose files make no sense.
        write(machine.path(), "cpu/cpu0/topology/core_cpus_list", "many");
        write(machine.path(), "node/online", "0-1");
        write(machine.path(), "node/node0/cpulist", "-");
        assert_eq!(told(machine.path(), [0, 3]), [(0, 0), (3, 0)]);
    }

    #[test]
    fn where_threads_are_switched_off_their_files_are_not_read() {
        let machine = two_sockets("core_cpus_list");
        write(machine.path(), "cpu/smt/active", "0\n");
        assert_eq!(told(machine.path(), [0, 4]), [(0, 0), (4, 0)]);
    }
}
