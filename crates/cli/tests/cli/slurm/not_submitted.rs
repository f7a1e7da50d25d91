//! What is decided before Slurm is given anything: against stand-ins for its commands, which
//! take every job and keep none.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::experiments::HALF_GPU;
use super::lines;
use crate::support::{Done, World, finish, finish_with};

/// A machine where users log in to a cluster that is not there.
struct LoginNode {
    world: World,
}

impl LoginNode {
    fn new() -> Self {
        let node = Self { world: World::new() };
        fs_err::create_dir(node.bin()).unwrap();
        node.stand_in("sbatch", "case \"$*\" in *--test-only*) ;; *) echo 1;; esac");
        node.stand_in(
            "scontrol",
            "case \"$*\" in 'show config') echo 'ClusterName = pretended'; \
             echo 'MaxArraySize = 1001';; esac",
        );
        for program in ["squeue", "sinfo", "scancel"] {
            node.stand_in(program, "");
        }
        node
    }

    /// Beside the folder of work, in which nothing is to be left.
    fn bin(&self) -> std::path::PathBuf {
        self.world.work().with_file_name("bin")
    }

    fn stand_in(&self, program: &str, script: &str) {
        let file = self.bin().join(program);
        let asked = self.bin().join("asked");
        let text = format!("#!/bin/sh\necho \"{program} $*\" >>{}\n{script}\n", asked.display());
        fs_err::write(&file, text).unwrap();
        fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The jobs that Slurm was given.
    fn submitted(&self) -> Vec<String> {
        let asked = fs_err::read_to_string(self.bin().join("asked")).unwrap_or_default();
        let asked = asked.lines().filter(|line| line.starts_with("sbatch "));
        asked.filter(|line| !line.contains("--test-only")).map(str::to_owned).collect()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()));
        command
    }

    fn packhorse(&self, words: &[&str]) -> Done {
        finish(self.command(words))
    }

    fn packhorse_with(&self, words: &[&str], input: impl AsRef<[u8]>) -> Done {
        finish_with(self.command(words), input)
    }
}

#[test]
fn what_slurm_refuses_only_when_it_is_submitted_leaves_nothing_either() {
    let node = LoginNode::new();
    node.stand_in(
        "sbatch",
        "case \"$*\" in *--test-only*) exit 0;; esac\n\
         echo 'sbatch: error: over quota' >&2; exit 1",
    );
    let done = node.packhorse_with(&["run", "--slurm"], lines("true", 3));
    assert_eq!(done.code, 2, "{done:?}");
    assert_eq!(done.stderr, "error: Slurm did not take the job: over quota\n");
    assert_eq!(node.packhorse(&["ls"]).stdout, "no runs yet\n");
    assert!(!node.world.work().join("packhorse-slurm").exists());
}

#[test]
fn what_could_never_run_is_refused_before_anything_is_submitted() {
    let node = LoginNode::new();
    let refused = |words: &[&str], tasks: &str| {
        let done = node.packhorse_with(&[&["run", "--slurm"], words].concat(), tasks);
        assert_eq!(done.code, 2, "{done:?}");
        done.stderr
    };
    let told = refused(&["-g", "1"], "true\n");
    assert!(told.contains("tasks ask for GPUs, and nothing asks Slurm for any"), "{told}");
    let told = refused(&["-g", "2", "--gres", "gpu:1"], "true\n");
    assert!(told.contains("a task asks for 2 GPUs, and a job has 1"), "{told}");
    let file = node.world.write("c.txt", "true\n#packhorse gpus=3\ntrue\n");
    let file = file.to_str().unwrap();
    let told = refused(&["--gres", "gpu:2", file], "");
    assert!(told.contains("c.txt:3: this task could never run: a task asks for 3"), "{told}");
    let told = refused(&["--gpus", "0"], "true\n");
    assert!(told.contains("--gpus"), "{told}");
    // Two minutes and five seconds of two minutes.
    let told = refused(&["--time", "2", "--grace", "2m"], "true\n");
    assert!(
        told.contains("a job ends after 00:02:00, and its tasks are ended 00:02:05 before that"),
        "{told}"
    );
    let told = refused(&["--slurm-folder", "a\nb"], "true\n");
    assert!(told.contains("it has a line break"), "{told}");
    node.world.write("packhorse.toml", "[slurm]\nvenv = \"a\\nb\"\n");
    let told = refused(&[], "true\n");
    assert!(told.contains("`a…` has a line break"), "{told}");
    let told = node.packhorse(&["run", "--partition", "main", "--", "true"]);
    assert!(told.stderr.contains("without --slurm"), "{told:?}");
    assert!(node.submitted().is_empty());
}

#[test]
fn without_slurms_commands_there_is_one_clear_error() {
    let world = World::new();
    let mut command = world.command(["run", "--slurm", "--", "true"]);
    command.env("PATH", world.work());
    let done = finish(command);
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.starts_with("error: there is no `sbatch` on the PATH\nhint: "),
        "{}",
        done.stderr
    );
}

#[test]
fn a_dry_run_shows_the_script_and_submits_nothing() {
    let node = LoginNode::new();
    let template = "#!/bin/sh\n#SBATCH -p %%partition%%\n%%sh_lines%%\nexec %%command%%\n";
    node.world.write("template.sh", template);
    let settings = "[slurm]\ntemplate = \"template.sh\"\nsh_lines = [\"export A=b\"]\n";
    node.world.write("packhorse.toml", settings);
    let words = ["--slurm", "--dry-run", "--partition", "main", "--jobs", "2", "--time", "1h"];
    let door = ["sweep", "--run", "echo {a}", "-p", "a", "1", "2", "3"];
    let shown = node.packhorse(&[&door[..], &words].concat());
    let lines: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(
        lines[..6],
        [
            "#!/bin/sh",
            "# sbatch --array=0-1%2 script.sh",
            "# 3 tasks in 2 jobs, at most 2 in one, each for at most 01:00:00, at most 2 at a time",
            "#SBATCH -p main",
            "export A=b",
            lines[5],
        ],
        "{shown:?}"
    );
    assert!(lines[5].starts_with("exec /") && lines[5].contains(" slurm element "), "{shown:?}");
    assert!(node.submitted().is_empty());
    assert!(!node.world.work().join("packhorse-slurm").exists());
    // The same with a template that cannot work.
    node.world.write("template.sh", "#!/bin/sh\n#SBATCH -p %%partitoin%%\n");
    let shown = node.packhorse(&[&door[..], &words].concat());
    assert!(shown.stderr.contains("template.sh: line 2: there is no placeholder"), "{shown:?}");
}

#[test]
fn a_dependency_chain_longer_than_a_jobs_time_is_warned_of() {
    let node = LoginNode::new();
    let tasks = "#packhorse name=prepare\ntrue\n".to_owned()
        + &lines("#packhorse after=prepare\ntrue", 100);
    let words = ["run", "--slurm", "--dry-run", "--time", "1h", "--jobs", "8"];
    let done = node.packhorse_with(&words, &tasks);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stderr.starts_with(
            "warning: 101 tasks come after each other, so one job runs them all, which takes about 16:50:00\n"
        ),
        "{done:?}"
    );
    let words = ["run", "--slurm", "--dry-run", "--time", "1h", "--slots=200"];
    let done = node.packhorse_with(&words, &tasks);
    assert_eq!(done.stderr, "", "{done:?}");
}

#[test]
fn what_makes_no_sense_on_a_cluster_is_refused() {
    let node = LoginNode::new();
    let work = "gpus_per_rep";
    for (change, words, said) in [
        ("", vec!["-t"], "-t is for runs on this machine"),
        ("experiment_copy_src: .\n", vec![], "and no experiment_copy_dst"),
        ("experiment_copy_dst: x\n", vec![], "experiment_copy_src is missing"),
        ("", vec!["--multicopy"], "--multicopy needs experiment_copy_src"),
    ] {
        let file = HALF_GPU.replace(work, &format!("{change}{work}"));
        node.world.write("config.yml", file);
        let exp = ["exp", "config.yml", "--slurm"];
        let done = node.packhorse(&[&exp[..], words.as_slice(), &["--", "true"]].concat());
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(said), "{said}: {done:?}");
    }
    assert!(!node.world.work().join("results").exists());
    assert!(node.submitted().is_empty());
}
