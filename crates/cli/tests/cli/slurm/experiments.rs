//! `packhorse exp --slurm` on a real Slurm.

use std::collections::BTreeSet;

use packhorse_slurm_lab::LabSettings;
use packhorse_test_parts::needs;

use super::Cluster;
use crate::cores::{core_list, our_cores};
use crate::support::{Done, Running, telling};

/// The first example of the original's manual, with its quote: half a GPU each.
pub(super) const HALF_GPU: &str = r#"---
# Slurm config
name: "SLURM"
partition: "gpu"
job-name: "half_gpu_job"
time: 20
ntasks: 1
cpus-per-task: 8  # 4 CPUs per rep!
gpus_per_rep: 0.5
sbatch_args:
  gres: "gpu:1"
---
# Default
name: DEFAULT
reps_per_job: 2
reps_in_parallel: 2
path: results
---
name: exp
repetitions: 4
"#;

/// The second: one GPU each, of four that come together.
const FOUR_GPUS: &str = r#"---
# Slurm config
name: "SLURM"
partition: "accelerated"
job-name: "single_gpu_job"
time: 20
ntasks: 1
cpus-per-task: 16 # 4 CPUs per rep!
gpus_per_rep: 1
sbatch_args:
  gres: "gpu:4"  # Note how we request 4 GPUs here!
---
# Default
name: DEFAULT
reps_per_job: 4
reps_in_parallel: 4
path: results
---
name: exp
repetitions: 8
"#;

/// What a repetition tells that it has.
const TOLD: &str = "$SLURM_ARRAY_TASK_ID $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS \
    $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status) $PACKHORSE_CPU_CORES";

/// What a repetition has told.
#[derive(Clone, Debug)]
struct TellingRep {
    job: String,
    gpu: String,
    threads: String,
    /// The cores it may run on, by the kernel.
    allowed: BTreeSet<String>,
    /// Those that are its own, by us.
    cores: BTreeSet<String>,
}

impl TellingRep {
    fn read(said: &str) -> Self {
        let mut words = said.split(' ');
        let mut word = || words.next().unwrap_or_default();
        Self {
            job: word().to_owned(),
            gpu: word().to_owned(),
            threads: word().to_owned(),
            allowed: core_list(word()),
            cores: core_list(word()),
        }
    }
}

/// The repetitions of a job that has asked for so many cores share those that it really has:
/// each has its own where there are enough.
fn check_cores(of_job: &[&TellingRep], asked: usize) {
    let all = our_cores().len().min(asked);
    let part = (all / of_job.len()).max(1);
    let (mut given, mut count) = (BTreeSet::new(), 0);
    for rep in of_job {
        assert_eq!(rep.threads, part.to_string(), "{of_job:?}");
        if all >= of_job.len() {
            assert_eq!((&rep.allowed, rep.cores.len()), (&rep.cores, part));
        }
        given.extend(rep.cores.iter().cloned());
        count += rep.cores.len();
    }
    assert_eq!(given.len(), count, "two have the same core: {of_job:?}");
}

impl Cluster {
    /// Two nodes with the partitions of the examples.
    fn of_the_manual() -> Self {
        let partition = |name| format!("PartitionName={name} Nodes=n[1-2] State=UP");
        Self::with(LabSettings {
            cpus: 16,
            slurm_conf: ["gpu", "accelerated"].map(partition).into(),
            ..LabSettings::default()
        })
    }

    fn exp(&self, file: &str, words: &[&str]) -> Done {
        self.world.write("config.yml", file);
        self.packhorse([&["exp", "config.yml", "--slurm"], words].concat())
    }

    /// Runs the file, while so many repetitions meet. Returns what each of them said, in the
    /// order in which they did.
    fn meet(&self, file: &str, tasks: usize) -> (Done, Vec<TellingRep>) {
        self.meet_each(file, &[tasks])
    }

    /// The same with several meetings, one after the other.
    fn meet_each(&self, file: &str, meetings: &[usize]) -> (Done, Vec<TellingRep>) {
        self.world.write("config.yml", file);
        let mut meeting = self.world.meeting();
        let words = ["exp", "config.yml", "-s", "--wait", "--", "sh", "-c", &telling(TOLD)];
        let running = Running::start(self.command(words));
        let met = meetings.iter().flat_map(|tasks| meeting.of(*tasks));
        let met = met.map(|said| TellingRep::read(&said)).collect();
        (running.finish(), met)
    }
}

#[test]
fn the_first_example_of_the_manual_has_two_repetitions_on_each_gpu() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    // All four at once: two jobs on two GPUs.
    let (done, said) = cluster.meet(HALF_GPU, 4);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    assert!(done.stdout.contains("4 succeeded"), "{done:?}");
    for job in ["0", "1"] {
        let of_job: Vec<_> = said.iter().filter(|rep| rep.job == job).collect();
        let [one, other] = of_job[..] else {
            panic!("{said:?}");
        };
        assert_eq!(one.gpu, other.gpu, "{said:?}");
        let gpu = one.gpu.parse::<u32>();
        assert_eq!(gpu.map(|gpu| gpu < 4), Ok(true), "{said:?}");
        check_cores(&of_job, 8);
    }
    let shown = cluster.packhorse(["exp", "config.yml", "--list"]).stdout;
    assert_eq!(shown.matches("succeeded ").count(), 4, "{shown}");
    // What is done is not submitted again.
    let done = cluster.exp(HALF_GPU, &["--", "true"]);
    assert!(done.stderr.starts_with("nothing to do: 4 repetitions are done"), "{done:?}");
}

#[test]
fn the_second_example_of_the_manual_has_a_gpu_for_each_of_four() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let (done, said) = cluster.meet(FOUR_GPUS, 8);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    for job in ["0", "1"] {
        let of_job: Vec<_> = said.iter().filter(|rep| rep.job == job).collect();
        let gpus: BTreeSet<&str> = of_job.iter().map(|rep| rep.gpu.as_str()).collect();
        assert_eq!(gpus, BTreeSet::from(["0", "1", "2", "3"]), "{said:?}");
        assert_eq!(of_job.len(), 4, "{said:?}");
        check_cores(&of_job, 16);
    }
}

#[test]
fn each_experiment_has_its_own_number_at_a_time_and_two_gpus_for_each() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let file = FOUR_GPUS.replace("gpus_per_rep: 1", "scheduler: kluster\ngpus_per_rep: 2");
    let file = file.replace("reps_in_parallel: 4\n", "");
    let file = file.replace(
        "name: exp\nrepetitions: 8\n",
        "name: two\nrepetitions: 4\nreps_in_parallel: 2\n---\n\
         name: one\nrepetitions: 2\nreps_per_job: 2\nreps_in_parallel: 1\n",
    );
    // Two of the first and one of the second at a time, in a job each.
    let (done, said) = cluster.meet_each(&file, &[3, 3]);
    assert_eq!(done.code, 0, "{done:?}");
    for said in said.chunks(3) {
        let gpus = |job: &str| -> BTreeSet<&str> {
            let of_job = said.iter().filter(|rep| rep.job == job);
            of_job.map(|rep| rep.gpu.as_str()).collect()
        };
        assert_eq!(gpus("0"), BTreeSet::from(["0,1", "2,3"]), "{said:?}");
        assert_eq!(gpus("1").len(), 1, "{said:?}");
    }
    let threads = (our_cores().len().min(16) / 2).max(1).to_string();
    let of_first = said.iter().filter(|rep| rep.job == "0");
    for rep in of_first {
        assert_eq!(rep.threads, threads, "{said:?}");
    }
}

#[test]
fn cores_of_their_own_are_cut_out_of_those_of_the_job() {
    needs!(Slurm, Cores);
    let cluster = Cluster::of_the_manual();
    let file = HALF_GPU.replace("gpus_per_rep", "scheduler: horeka\ngpus_per_rep");
    let (done, said) = cluster.meet(&file, 4);
    assert_eq!(done.code, 0, "{done:?}");
    let of_job: Vec<_> = said.iter().filter(|rep| rep.job == "0").collect();
    assert_eq!(of_job.len(), 2, "{said:?}");
    check_cores(&of_job, 8);
}

#[test]
fn a_dry_run_shows_the_script_and_leaves_nothing_behind() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let file = HALF_GPU.replace(
        "gpus_per_rep",
        "num_parallel_jobs: 1\nvenv: torch\nsh_lines: [module load cuda]\naccount: us\n\
         mem-per-cpu: 10\nslurm_log: logs\nslurm_output: script.sh\ngpus_per_rep",
    );
    let done = cluster.exp(&file, &["--dry-run", "--", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let logs = cluster.world.work().join("logs/out_%A_%a.log");
    for line in [
        "# sbatch --array=0-1%1 script.sh",
        "#SBATCH --job-name=half_gpu_job",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=us",
        "#SBATCH --time=00:20:00",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem-per-cpu=10",
        "#SBATCH --gres=gpu:1",
        "source activate torch",
        "module load cuda",
        &format!("#SBATCH --output={}", logs.display()),
    ] {
        assert!(done.stdout.lines().any(|it| it == line), "{line}\n{}", done.stdout);
    }
    // Whoever leaves half of a job idle is told.
    let idle = file.replace("reps_per_job: 2", "reps_per_job: 1");
    let done_idle = cluster.exp(&idle, &["--dry-run", "--", "true"]);
    assert!(
        done_idle.stderr.starts_with(
            "warning: reps_per_job of `exp` is 1, and 2 repetitions would fit into a job"
        ),
        "{done_idle:?}"
    );
    let left: Vec<String> = fs_err::read_dir(cluster.world.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["config.yml"]);
    // What is submitted has its folders and its script where the file says.
    let file = file.replace("venv: torch\nsh_lines: [module load cuda]\naccount: us\n", "");
    let done = cluster.exp(&file, &["--wait", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(cluster.world.read("script.sh").starts_with("#!/bin/bash\n"));
    assert_eq!(fs_err::read_dir(cluster.world.work().join("logs")).unwrap().count(), 2);
    assert!(cluster.world.work().join("results/relative_config.yml").is_file());
}

/// The original's own template.
const TEMPLATE: &str = "#!/bin/bash
#SBATCH -p %%partition%%
# #SBATCH -A %%account%%
#SBATCH -J %%job-name%%
#SBATCH --array 0-%%last_job_idx%%%%%num_parallel_jobs%%

# Please use the complete path details :
#SBATCH -D %%experiment_execution_dir%%
#SBATCH -o %%slurm_log%%/out_%A_%a.log
#SBATCH -e %%slurm_log%%/err_%A_%a.log

# Cluster Settings
#SBATCH -n %%ntasks%%         # Number of tasks
#SBATCH -c %%cpus-per-task%%  # Number of cores per task
#SBATCH -t %%time%%             # 1:00:00 Hours, minutes and seconds

%%sbatch_args%%
# -------------------------------

# Activate the virtualenv / conda environment
%%venv%%


# Export Pythonpath
%%pythonpath%%

# Additional Instructions from CONFIG.yml
%%sh_lines%%

python3 %%python_script%% %%path_to_yaml_config%% -j $SLURM_ARRAY_TASK_ID %%cw_args%%
";

#[test]
fn a_template_of_the_original_asks_for_all_that_the_file_asks_for() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    cluster.world.write("sbatch.sh", TEMPLATE);
    let file = HALF_GPU
        .replace("gpus_per_rep", "path_to_template: sbatch.sh\nslurm_log: my logs\ngpus_per_rep")
        .replace("  gres:", "  mem: 77\n  gres:");
    let task = "echo $CUDA_VISIBLE_DEVICES $SLURM_MEM_PER_NODE";
    let done = cluster.exp(&file, &["--wait", "--", "sh", "-c", task]);
    assert_eq!(done.code, 0, "{done:?}");
    for rep in 0..4 {
        let said = cluster.world.read(&format!("results/exp/log/rep_0{rep}/out.log"));
        let (gpu, memory) = said.trim().split_once(' ').unwrap_or_default();
        assert!(gpu.parse::<u32>().is_ok_and(|gpu| gpu < 4), "{said}");
        assert_eq!(memory, "77");
    }
    let logs = cluster.world.work().join("my logs");
    let logs: Vec<_> = fs_err::read_dir(logs).unwrap().collect();
    assert_eq!(logs.len(), 4, "{logs:?}");
}

#[test]
fn jobs_run_in_copies_of_the_code_and_results_stay_where_they_were() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let work = cluster.world.work();
    fs_err::create_dir(work.join("code")).unwrap();
    fs_err::write(work.join("code/main.sh"), "pwd; echo $0").unwrap();
    let file = HALF_GPU.replace(
        "gpus_per_rep",
        "experiment_copy_src: code\nexperiment_copy_dst: copies\ngpus_per_rep",
    );
    let script = work.join("code/main.sh");
    let words = ["--wait", "--multicopy", "--", "sh", script.to_str().unwrap()];
    let done = cluster.exp(&file, &words);
    assert_eq!(done.code, 0, "{done:?}");
    for (rep, job) in [(0, 0), (3, 1)] {
        let said = cluster.world.read(&format!("results/exp/log/rep_0{rep}/out.log"));
        let own = work.join(format!("copies/{job}"));
        assert_eq!(said, format!("{0}\n{0}/main.sh\n", own.display()));
    }
    // Once for all, over what is there only if that is said.
    let words = ["--wait", "-o", "--", "sh", "main.sh"];
    fs_err::write(work.join("code/main.sh"), "echo second $PWD").unwrap();
    let done = cluster.exp(&file.replace("dst: copies", "dst: copy"), &words);
    assert_eq!(done.code, 0, "{done:?}");
    let said = cluster.world.read("results/exp/log/rep_03/out.log");
    assert_eq!(said, format!("second {}\n", work.join("copy").display()));
    fs_err::remove_dir_all(work.join("results")).unwrap();
    let refused = cluster.exp(&file.replace("dst: copies", "dst: copy"), &["--", "true"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("copy is there already"), "{refused:?}");
    let done = cluster.exp(&file, &["--zip", "--wait", "--", "sh", "main.sh"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(work.join("copies.zip").is_file());
    let said = cluster.world.read("results/exp/log/rep_03/out.log");
    assert_eq!(said, format!("second {}\n", work.join("code").display()));
}

#[test]
fn code_is_copied_into_new_folders_or_not_at_all_and_large_code_only_on_request() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let work = cluster.world.work();
    fs_err::create_dir(work.join("code")).unwrap();
    fs_err::write(work.join("code/main.sh"), "echo first $PWD").unwrap();
    let said = || cluster.world.read("results/exp/log/rep_03/out.log");
    let with = |key: &str| {
        let keys = format!("experiment_copy_src: code\n{key}\ngpus_per_rep");
        HALF_GPU.replace("gpus_per_rep", &keys)
    };
    let run = |file: &str, more: &[&str]| {
        let words = [more, &["--wait", "-o", "--", "sh", "main.sh"]].concat();
        cluster.exp(file, &words)
    };
    let done = run(&with("experiment_copy_auto_dst: copies"), &[]);
    assert_eq!(done.code, 0, "{done:?}");
    let copies = fs_err::read_dir(work.join("copies")).unwrap();
    let copies: Vec<_> = copies.map(|copy| copy.unwrap().path()).collect();
    let [copy] = &copies[..] else {
        panic!("{copies:?}");
    };
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 14 && name.parse::<u64>().is_ok(), "{name}");
    assert_eq!(said(), format!("first {}\n", copy.display()));

    // The copy that is there runs, whatever has become of the code.
    fs_err::write(work.join("code/main.sh"), "echo second $PWD").unwrap();
    let file = with(&format!("experiment_copy_dst: copies/{name}"));
    let done = run(&file, &["--nocodecopy"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(said(), format!("first {}\n", copy.display()));

    let large = fs_err::File::create(work.join("code/data")).unwrap();
    large.set_len(201_000_000).unwrap();
    let refused = run(&file, &[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("is 201 MB"), "{refused:?}");
    let done = run(&file, &["--skipsizecheck"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(said(), format!("second {}\n", copy.display()));
    let length = fs_err::metadata(copy.join("data")).unwrap().len();
    assert_eq!(length, 201_000_000);
}

#[test]
fn where_nothing_says_how_many_fit_they_go_one_after_the_other() {
    needs!(Slurm);
    let cluster = Cluster::of_the_manual();
    let file = "{name: e, path: p, repetitions: 3, reps_per_job: 3}\n---\n\
        {name: SLURM, cpus-per-task: 4, time: 5}\n";
    let done = cluster.exp(file, &["--wait", "--json", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let words = done.events().into_iter().filter_map(|event| {
        let word = event["event"].as_str()?.to_owned();
        ["started", "finished"].contains(&word.as_str()).then_some(word)
    });
    let words: Vec<String> = words.collect();
    assert_eq!(words, ["started", "finished"].repeat(3), "{done:?}");
}
