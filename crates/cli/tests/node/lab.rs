//! A node in a real Slurm.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use packhorse_slurm_lab::{Cgroups, LabSettings, SlurmLab, SlurmVersion};

/// Users that every Debian has, and that are not root.
pub const NOBODY: (u32, &str) = (65534, "nobody");
pub const GAMES: (u32, &str) = (5, "games");

/// How many jobs are submitted at once.
const AT_A_TIME: usize = 8;

/// What the nodes of the lab are like.
pub struct NodeSettings<'a> {
    /// How many there are. All have the same state: whoever asks Slurm drops what is on others.
    pub nodes: usize,
    /// The `mps` of each. Nobody has to ask if it is 100.
    pub count: u64,
    pub version: SlurmVersion,
    pub cgroups: Cgroups,
    /// `choose` or `native`.
    pub mode: &'a str,
    /// More of the configuration, from its first section on.
    pub more: &'a str,
    /// More words for the plugin in plugstack.conf.
    pub plugin: &'a str,
    /// More lines of slurm.conf.
    pub slurm_conf: &'a [&'a str],
    /// More files beside it.
    pub files: Vec<(String, String)>,
}

impl Default for NodeSettings<'_> {
    fn default() -> Self {
        Self {
            nodes: 1,
            count: 1280,
            version: SlurmVersion::Host,
            cgroups: Cgroups::None,
            mode: "choose",
            more: "[mps]\nservers = false\n",
            plugin: "",
            slurm_conf: &[],
            files: Vec::new(),
        }
    }
}

/// A Slurm with a node `n1`, whose four GPUs have 320 `mps` each if nothing else is said.
pub struct NodeLab {
    pub slurm: SlurmLab,
    /// While it is open, jobs that wait for the end of waiting end.
    over: RefCell<Option<fs_err::File>>,
}

/// The command of a lasting job: waits until the test opens the other end of this pipe.
pub const UNTIL_OVER: &str = ": <over";

impl NodeLab {
    pub fn start(settings: NodeSettings<'_>) -> Self {
        let packhorse = env!("CARGO_BIN_EXE_packhorse");
        let script = |verb: &str| {
            format!("#!/bin/sh\nexec {packhorse} node {verb} --config {{lab}}/etc/node.toml\n")
        };
        let mut config = format!(
            "mode = \"{}\"\ncount = {}\nstate = \"{{lab}}/shared\"\n",
            settings.mode, settings.count
        );
        for index in 0..4 {
            config.push_str(&format!(
                "[[gpus]]\nfile = \"{{lab}}/dev/nvidia{index}\"\nmemory = \"24G\"\n"
            ));
        }
        // Never where a real node of this machine has its servers.
        let more = settings.more;
        config.push_str(&more.replace("[mps]\n", "[mps]\nfolder = \"{lab}/mps\"\n"));
        let mps = match settings.mode {
            "native" => "Flags=all_sharing",
            _ => "File={lab}/dev/nvidia0",
        };
        let plugin = plugin(settings.version);
        let mut files = vec![
            ("node.toml".to_owned(), config),
            ("prolog.sh".to_owned(), script("prolog")),
            ("epilog.sh".to_owned(), script("epilog")),
            (
                "plugstack.conf".to_owned(),
                format!("optional {} state={{lab}}/shared {}\n", plugin.display(), settings.plugin),
            ),
            (
                "gres.conf".to_owned(),
                format!(
                    "Name=gpu Type=titanrtx File={{lab}}/dev/nvidia[0-3]\nName=mps Count={} {mps}\n",
                    settings.count
                ),
            ),
        ];
        files.extend(settings.files);
        let mut slurm_conf = vec![
            "GresTypes=gpu,mps".to_owned(),
            "Prolog={lab}/etc/prolog.sh".to_owned(),
            "Epilog={lab}/etc/epilog.sh".to_owned(),
            "PrologFlags=Alloc".to_owned(),
            "PlugStackConfig={lab}/etc/plugstack.conf".to_owned(),
        ];
        slurm_conf.extend((1..=settings.nodes).map(|node| {
            format!(
                "NodeName=n{node} NodeHostname=n{node} NodeAddr=127.0.0.1 Port={} CPUs=96 \
                 CoresPerSocket=96 RealMemory=20000 Gres=gpu:titanrtx:4,mps:{} State=UNKNOWN",
                17000 + node,
                settings.count
            )
        }));
        slurm_conf.extend(settings.slurm_conf.iter().map(ToString::to_string));
        let slurm = SlurmLab::start(LabSettings {
            nodes: settings.nodes,
            cpus: 96,
            memory_mib: 20000,
            version: settings.version,
            cgroups: settings.cgroups,
            files,
            slurm_conf,
            ..LabSettings::default()
        });
        let out = slurm.folder().join("out");
        fs_err::create_dir(&out).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs_err::set_permissions(out, all).unwrap();
        let lab = Self { slurm, over: RefCell::default() };
        lab.pipe("over");
        lab
    }

    pub fn folder(&self) -> &Path {
        self.slurm.folder()
    }

    /// One of Slurm's commands, by this user.
    pub fn by(&self, (uid, _): (u32, &str), program: &str) -> Command {
        let mut command = self.slurm.command("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.args(["--clear-groups", program]);
        command.current_dir(self.folder().join("out"));
        command
    }

    /// Submits a job with this script, and says its number.
    pub fn submit(&self, user: (u32, &str), options: &[&str], script: &str) -> String {
        let mut command = self.by(user, "sbatch");
        command.args(["--parsable", "--mem=50"]).args(options);
        command.arg(format!("--wrap=touch started.$SLURM_JOB_ID; {script}"));
        self.slurm.output(&mut command).trim().to_owned()
    }

    /// Makes a named pipe where jobs run.
    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.folder().join("out").join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Whatever the umask is.
        rustix::fs::chmod(&path, mode).unwrap();
        path
    }

    /// Makes a named pipe where jobs run, from which they can read what is written there, now
    /// or later.
    pub fn gate(&self, name: &str) -> fs_err::File {
        let path = self.pipe(name);
        fs_err::OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    /// Submits a job that lasts until [`Self::end_lasting`].
    pub fn submit_lasting(&self, user: (u32, &str), mps: u64) -> String {
        let gres = format!("--gres=mps:{mps}");
        self.submit(user, &[&gres, "--output=/dev/null"], UNTIL_OVER)
    }

    /// Submits so many such jobs, a few at a time, and waits until all are at work.
    pub fn start_lasting(&self, user: (u32, &str), mps: u64, count: usize) -> Vec<String> {
        let mut at_work = Vec::new();
        while at_work.len() < count {
            let next = (count - at_work.len()).min(AT_A_TIME);
            let jobs: Vec<String> = (0..next).map(|_| self.submit_lasting(user, mps)).collect();
            for job in &jobs {
                self.wait_for_work(job);
            }
            at_work.extend(jobs);
        }
        at_work
    }

    fn is_at_work(&self, job: &str) -> bool {
        let started = format!("out/started.{job}");
        self.folder().join(started).exists()
    }

    /// What Slurm says of a job and of the node.
    fn shown(&self, job: &str) -> String {
        let mut scontrol = self.slurm.command("scontrol");
        let job = self.slurm.output(scontrol.args(["-o", "show", "job", job]));
        let mut scontrol = self.slurm.command("scontrol");
        job + &self.slurm.output(scontrol.args(["-o", "show", "node"]))
    }

    /// Waits until a job is at work. Slurm calls it running before its prolog has run.
    pub fn wait_for_work(&self, job: &str) {
        let seen = self.slurm.wait(|_| self.is_at_work(job).then_some(()));
        assert!(seen.is_some(), "job {job} is not at work:\n{}", self.shown(job));
    }

    /// Lets lasting jobs end, also those that begin later.
    pub fn end_lasting(&self) {
        let pipe = self.folder().join("out/over");
        // For reading too, which waits for nobody.
        let pipe = fs_err::OpenOptions::new().read(true).write(true).open(pipe);
        self.over.replace(Some(pipe.unwrap()));
    }

    /// Lasting jobs that begin from now on last.
    pub fn last_again(&self) {
        self.over.take();
    }

    /// What a job wrote to this file.
    pub fn wrote(&self, name: &str) -> String {
        fs_err::read_to_string(self.folder().join("out").join(name)).unwrap_or_default()
    }

    /// `packhorse node`, on the node.
    pub fn node(&self, words: &[&str]) -> Command {
        let mut command = self.slurm.command(env!("CARGO_BIN_EXE_packhorse"));
        command.arg("node").args(words).args(["--node", "n1"]);
        command.arg("--config").arg(self.folder().join("etc/node.toml"));
        command.stdin(Stdio::null());
        command
    }

    /// The numbers of the jobs on each GPU. From their files: `packhorse node status` puts
    /// right what an epilog has left undone.
    pub fn jobs(&self) -> Vec<Vec<u64>> {
        let mut jobs = vec![Vec::new(); 4];
        let folder = self.folder().join("shared/jobs");
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs_err::read_to_string(entry.path()).unwrap_or_default();
            let gpus = text.lines().filter_map(|line| line.strip_prefix("gpu "));
            for gpu in gpus.filter_map(|line| line.split(' ').next()) {
                let gpu: usize = gpu.parse().unwrap();
                jobs[gpu].extend(name.parse::<u64>());
            }
        }
        for gpu in &mut jobs {
            gpu.sort_unstable();
        }
        jobs
    }

    /// What went wrong on the node.
    pub fn problems(&self) -> String {
        fs_err::read_to_string(self.folder().join("shared/log")).unwrap_or_default()
    }

    /// Waits until no job has anything, and makes sure that their epilogs have done that.
    pub fn saw_every_epilog(&self) {
        let is_empty = |lab: &Self| lab.jobs().iter().all(Vec::is_empty);
        let seen = self.slurm.wait(|_| is_empty(self).then_some(()));
        assert!(seen.is_some(), "{:?}", self.jobs());
        let problems = self.problems();
        assert!(!problems.contains("without an epilog"), "{problems}");
    }

    /// Commands of a shell that say which GPUs can be opened, and what the environment says.
    pub fn look(&self, name: &str) -> String {
        let dev = self.folder().join("dev");
        format!(
            "echo {name} visible=$CUDA_VISIBLE_DEVICES threads=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE \
             opens=$(for i in 0 1 2 3; do (exec 3<{}/nvidia$i) 2>&1 | grep -q 'No such device' && \
             printf $i; done)",
            dev.display()
        )
    }
}

/// The plugin for a release of Slurm, built once.
pub fn plugin(version: SlurmVersion) -> PathBuf {
    let settings = LabSettings { nodes: 0, version, ..LabSettings::default() };
    let version = version_of(&settings);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spank").join(&version);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "-p", "packhorse-spank", "--target-dir"]);
    cargo.arg(&target);
    if Path::new("/usr/include/slurm/slurm_version.h").exists()
        && settings.version == SlurmVersion::Host
    {
        // As on a site: its headers say for which Slurm it is.
        cargo.env_remove("PACKHORSE_SLURM_VERSION");
    } else {
        cargo.env("PACKHORSE_SLURM_VERSION", &version);
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(cargo.status().unwrap().success(), "the plugin can be built");
    target.join("debug/libpackhorse_spank.so")
}

/// Such as 24.11.5.
fn version_of(settings: &LabSettings) -> String {
    let root = settings.root().unwrap_or_else(|| PathBuf::from("/"));
    let mut command = Command::new("chroot");
    let output = command.arg(root).args(["/usr/sbin/slurmd", "-V"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().last().unwrap().to_owned()
}
