//! The tables of environment variables.

use packhorse_session::variables::READ;

/// What tasks find in their environment: one or several variables per line, and their value,
/// in Markdown.
const FOR_TASKS: &str = r#"
CUDA_VISIBLE_DEVICES | the task's GPUs; empty if it has none. With AMD's driver, `ROCR_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` instead. Not changed with `--slots`
CUDA_DEVICE_ORDER | `PCI_BUS_ID`, unless you have set it. Not with AMD's driver or `--slots`
PACKHORSE_RUN | the run's number: `12`
PACKHORSE_TASK | the task: `12.3`
PACKHORSE_ATTEMPT | which attempt, from 1; 0 in a [probe](memory.md#measuring-first)
PACKHORSE_SEED | a whole number from 0 to 2^32 - 1 to seed random generators with: another one for each task of a run, the same in each of its attempts and probes, and when `retry` or `resume` runs it again. `packhorse show 12.3` shows it
PACKHORSE_GPUS | its GPUs as they were named: `0`, `0,1`, `0+1`. Not with `--slots`
PACKHORSE_CPU_CORES, PACKHORSE_CORES | the cores it is pinned to: `0,1`. Only if it has [cores for itself](cores.md#cores-of-its-own)
PACKHORSE_PARAMS | its parameters as a JSON object, if it has any: `{"bs":"32","lr":"0.1"}` with `sweep --run`
PACKHORSE_EXPERIMENT | with [`packhorse exp`](experiments.md#what-commands-get), its whole configuration, as a JSON object; `{}` if that is too long for a variable
PACKHORSE_CONFIG | the path of a file with all of its configuration, if the command of `packhorse exp` has `{config}` or the configuration is too long for a variable
PACKHORSE_RESULTS | the folder for its results as it was written, if it has one (`results`). Packhorse creates it first
CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT | with [`--mps`](sharing.md#mps); `CUDA_VISIBLE_DEVICES` is then a UUID
OMP_NUM_THREADS, MKL_NUM_THREADS, OPENBLAS_NUM_THREADS, NUMEXPR_NUM_THREADS | how many cores it has for itself, or its [part of the cores](cores.md#threads) if several tasks run at a time; not if that is all of them, and not if you have set these variables
PACKHORSE_HOME_ID | the id of the state folder. Together with the other variables it marks the processes of a task, so that none is lost: do not change it
"#;

/// What packhorse reads and what tasks find, as tables for the manual.
pub fn tables() -> (String, String) {
    let names = |names: &str| {
        let names = names.split(", ").map(|name| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut read = "| variable | setting | meaning |\n|---|---|---|\n".to_owned();
    for variable in READ {
        let setting = variable.setting.map_or_else(String::new, |of| format!("`{}`", of.key));
        let (name, meaning) = (names(variable.name), variable.meaning);
        read += &format!("| {name} | {setting} | {meaning} |\n");
    }
    let mut tasks = "| variable | value |\n|---|---|\n".to_owned();
    for (name, value) in FOR_TASKS.lines().filter_map(|line| line.split_once(" | ")) {
        tasks += &format!("| {} | {value} |\n", names(name));
    }
    (read, tasks)
}
