//! A private Slurm cluster.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fs_err::OpenOptions;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use packhorse_test_parts::{must_be_there, wait_for_change};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::cgroups::{cgroup_conf, prefix};
use crate::conf::{self, CONTROLLER_PORT};
use crate::keeper::Keeper;
use crate::lost_jobs::LostJobs;
use crate::node::Machine;
use crate::settings::LabSettings;

/// How long anything may usually take, on a machine that runs other tests, too.
const PATIENCE: Duration = Duration::from_mins(2);

/// The folders of a lab in which something changes with everything that Slurm does: above all
/// its logs, as it has no other way to tell of changes.
const CHANGING: [&str; 5] = ["log", "etc", "out", "shared", "mps"];

/// How much of a log is shown if a test fails.
const SHOWN_LINES: usize = 60;

/// The major number of NVIDIA's devices.
const NVIDIA: u32 = 195;

/// A private Slurm cluster, which ends with its owner. See the [crate's head](crate).
pub struct SlurmLab {
    settings: LabSettings,
    controller: Option<Machine>,
    nodes: BTreeMap<String, Machine>,
    folder: PathBuf,
    /// Where else jobs write what tests wait for.
    watched: Vec<PathBuf>,
    lost: LostJobs,
    // The last field: dropping it removes all there is.
    keeper: Keeper,
}

impl SlurmLab {
    /// Starts a cluster, and comes back when all its nodes are idle.
    ///
    /// Panics if this machine lacks what is needed.
    pub fn start(settings: LabSettings) -> Self {
        must_be_there(settings.version.part());
        let root = settings.root();
        let folder = make_folder(&settings);
        let keeper = Keeper::start(&folder, root.as_deref());
        let keeper = keeper.unwrap_or_else(|problem| panic!("{problem}"));
        let mut lab = Self {
            settings,
            controller: None,
            nodes: BTreeMap::new(),
            folder,
            watched: Vec::new(),
            lost: LostJobs::default(),
            keeper,
        };
        lab.start_controller();
        let names: Vec<_> = lab.settings.node_names().collect();
        for name in &names {
            lab.start_node(name);
        }
        for name in &names {
            lab.wait_until_idle(name);
        }
        lab
    }

    /// The folder of the lab, with the same path inside. Tests may use it, too: what is in it
    /// is gone after them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The names of its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = String> + use<> {
        self.settings.node_names()
    }

    /// A program as on a machine where users log in: in the lab, in the caller's folder (or
    /// that of `current_dir`), with nothing but `PATH`, `HOME` and `SLURM_CONF` set.
    ///
    /// Its process is the program itself, so signals, terminals and exit statuses are as usual.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.keeper.enter(program.as_ref());
        command.env("SLURM_CONF", self.folder.join("etc/slurm.conf"));
        command.env("HOME", self.folder.join("home"));
        command
    }

    /// What a command writes, which has to succeed.
    pub fn output(&self, command: &mut Command) -> String {
        let output = command.stdin(Stdio::null()).output();
        let output = output.expect("it can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Submits a job: arguments of `sbatch`. The answer is its id.
    pub fn sbatch<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let mut command = self.command("sbatch");
        command.current_dir(&self.folder).arg("--parsable").args(args);
        self.output(&mut command).trim().to_owned()
    }

    /// Waits until a job, or every element of an array, is in this state, such as `RUNNING` or
    /// `COMPLETED`. An element is called `ID_INDEX`.
    pub fn wait_for_job(&self, id: &str, state: &str) {
        let mut last = Vec::new();
        let seen = self.wait(|lab| {
            last = lab.job_states(id);
            (!last.is_empty() && last.iter().all(|other| other == state)).then_some(())
        });
        assert!(seen.is_some(), "job {id} was to be {state}, and is {last:?}");
    }

    /// The state of a job, or those of an array's elements. Nothing if Slurm knows no such job.
    pub fn job_states(&self, id: &str) -> Vec<String> {
        let mut squeue = self.command("squeue");
        squeue.args(["--noheader", "--array", "--states=all", "--format=%T"]);
        squeue.args(["--jobs", id]);
        // An unknown job is an error.
        let output = squeue.output().expect("it can be started");
        words(&output.stdout)
    }

    /// Has what is waited for be looked for after changes in this folder, too.
    pub fn watch(&mut self, folder: PathBuf) {
        self.watched.push(folder);
    }

    /// Waits until there is something to see, for as long as anything may take; it is looked
    /// for whenever Slurm has written to one of its logs, or a job where jobs write. Jobs that
    /// Slurm loses meanwhile are asked for again.
    pub fn wait<T>(&self, look: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        self.wait_at_most(PATIENCE, look)
    }

    /// The same, for something that takes long.
    pub fn wait_at_most<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        let changing = CHANGING.map(|name| self.folder.join(name));
        let folders = changing.iter().chain(&self.watched).map(PathBuf::as_path);
        wait_for_change(&folders.collect::<Vec<_>>(), Some(Instant::now() + patience), || {
            self.lost.ask_again(self);
            look(self)
        })
    }

    /// The state of a node as Slurm shows it, such as `IDLE`, `MIXED`, `DOWN` or `IDLE+DRAIN`.
    /// (It shows one that was busy when it died as `MIXED` until something else happens to a
    /// node.)
    pub fn node_state(&self, node: &str) -> String {
        // What `sinfo` shows may be as old as a second.
        let mut scontrol = self.command("scontrol");
        let shown = self.output(scontrol.args(["--oneliner", "show", "node", node]));
        let mut words = shown.split_whitespace();
        let state = words.find_map(|word| word.strip_prefix("State="));
        state.unwrap_or_default().to_owned()
    }

    /// Ends a node as a power failure would: no process on it is left, and none of them had
    /// time for anything. The controller is told at once, as if it had noticed, and may start
    /// again at once what it puts back into its queue.
    pub fn kill_node(&mut self, node: &str) {
        let mut squeue = self.command("squeue");
        squeue.args(["--noheader", "--array", "--format=%A", "--states=RUNNING,COMPLETING"]);
        let jobs = words(self.output(&mut squeue).as_bytes());

        let machine = self.nodes.get_mut(node);
        machine.unwrap_or_else(|| panic!("there is no node {node}")).kill();
        let mut scontrol = self.command("scontrol");
        scontrol.args(["update", &format!("nodename={node}"), "state=down"]);
        self.output(scontrol.arg("reason=no power"));
        for job in jobs {
            let mut scontrol = self.command("scontrol");
            scontrol.args(["update", &format!("jobid={job}"), "starttime=now"]);
            // Slurm would let it wait until its credentials have expired, lest it run twice:
            // here all of it is dead. A job that is not put back, or is on another node,
            // cannot be changed.
            let _ = scontrol.output();
        }
    }

    /// Starts a node that was killed again, and comes back when it is idle.
    pub fn restart_node(&mut self, node: &str) {
        assert!(self.nodes.contains_key(node), "there is no node {node}");
        self.start_node(node);
        // Slurm may go on showing what the node was doing when it died, until the node changes.
        let mut scontrol = self.command("scontrol");
        self.output(scontrol.args(["update", &format!("nodename={node}"), "weight=1"]));
        self.wait_until_idle(node);
    }

    /// Restarts the `slurmd` of a node, as an update of Slurm does: its jobs go on.
    pub fn restart_slurmd(&self, node: &str) {
        let machine = self.nodes.get(node);
        let again = self.folder.join(format!("etc/again.{node}"));
        fs_err::write(&again, "").expect("the folder is there");
        machine.unwrap_or_else(|| panic!("there is no node {node}")).end_daemon();
        let begun = self.wait(|_| (!again.exists()).then_some(()));
        assert!(begun.is_some(), "slurmd has not ended on {node}");
    }

    fn start_controller(&mut self) {
        let script = include_str!("controller.sh");
        let folder = self.folder.to_string_lossy();
        let daemon = ["sh", "-c", script, "controller", &folder];
        self.controller =
            Some(Machine::start(&self.keeper, &self.folder, "lab", "slurmctld", &[], &daemon));
        // Who asks before it listens tries again only after a second.
        let log = self.folder.join("log");
        let listens = wait_for_change(&[&log], Some(Instant::now() + PATIENCE), || {
            let running = self.controller.as_mut().is_some_and(Machine::is_running);
            assert!(running, "slurmctld has ended");
            self.keeper.listens(CONTROLLER_PORT).then_some(())
        });
        assert!(listens.is_some(), "slurmctld does not start");
    }

    fn start_node(&mut self, node: &str) {
        let daemon = ["slurmd", "-D", "-N", node];
        let log = format!("slurmd.{node}");
        let prefix = prefix(self.settings.cgroups, &self.folder, node);
        let machine = Machine::start(&self.keeper, &self.folder, node, &log, &prefix, &daemon);
        self.nodes.insert(node.to_owned(), machine);
    }

    fn wait_until_idle(&mut self, node: &str) {
        let log = self.folder.join("log");
        let mut state = String::new();
        let idle = wait_for_change(&[&log], Some(Instant::now() + PATIENCE), || {
            let running = self.nodes.get_mut(node).is_some_and(Machine::is_running);
            assert!(running, "slurmd has ended on {node}");
            state = self.node_state(node);
            (state == "IDLE").then_some(())
        });
        assert!(idle.is_some(), "{node} was to be IDLE, and is {state}");
    }
}

impl Drop for SlurmLab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_logs(&self.folder);
        }
        // The keeper kills the rest, and the machines too; their own parent is the one to
        // collect them.
        for machine in self.nodes.values_mut().chain(&mut self.controller) {
            machine.kill();
        }
    }
}

/// Makes the folder with what Slurm reads and where it writes.
fn make_folder(settings: &LabSettings) -> PathBuf {
    let folder = tempfile::Builder::new().prefix("slurm-lab.").tempdir();
    // The keeper removes it: this process may be killed.
    let folder = folder.expect("a temporary folder can be made").keep();
    // Slurm refuses paths that others could not use, and has no names with odd characters.
    let mode = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(&folder, mode).expect("it is our own folder");
    let make = |name: &str| {
        fs_err::create_dir(folder.join(name)).expect("the folder is writable");
    };
    for name in ["etc", "dev", "run", "log", "state", "spool", "home"] {
        make(name);
    }
    for node in settings.node_names() {
        make(&format!("spool/{node}"));
    }
    let write = |name: &str, text: &str| {
        fs_err::write(folder.join("etc").join(name), text).expect("the folder is writable");
    };
    write("slurm.conf", &conf::slurm_conf(settings, &folder));
    write("gres.conf", &conf::gres_conf(settings, &folder));
    write("hosts", &conf::hosts(settings));
    write("holder.sh", include_str!("holder.sh"));
    // Slurm would look in the folder of its configuration for the machine's own.
    write("plugstack.conf", "");
    if let Some(text) = cgroup_conf(settings.cgroups) {
        write("cgroup.conf", &text);
    }
    for (name, text) in &settings.files {
        write(name, &conf::in_lab(text, &folder.display().to_string()));
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        let mode = std::fs::Permissions::from_mode(mode);
        let file = folder.join("etc").join(name);
        fs_err::set_permissions(file, mode).expect("it is our own file");
    }

    let mut key = [0_u8; 128];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())
        .expect("there are random numbers");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o400);
    let file = options.open(folder.join("etc/munge.key"));
    let written = file.and_then(|mut file| file.write_all(&key));
    written.expect("the folder is writable");

    for index in 0..settings.gpus_per_node {
        let path = folder.join(format!("dev/nvidia{index}"));
        let minor = u32::try_from(index).expect("a few GPUs");
        let mode = Mode::from_raw_mode(0o666);
        let device = makedev(NVIDIA, minor);
        mknodat(CWD, &path, FileType::CharacterDevice, mode, device).expect("root may do that");
    }
    folder
}

/// Prints the ends of all logs.
fn show_logs(folder: &Path) {
    let mut logs: Vec<_> = fs_err::read_dir(folder.join("log"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    logs.sort();
    for log in logs {
        let bytes = fs_err::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        // A daemon in the foreground writes to both.
        let twice =
            log.extension() == Some(OsStr::new("stderr")) && log.with_extension("log").exists();
        if !lines.is_empty() && !twice {
            let from = lines.len().saturating_sub(SHOWN_LINES);
            say(&format!("── {}\n{}", log.display(), lines[from..].join("\n")));
        }
    }
}

#[expect(clippy::print_stderr, reason = "the person who runs the tests is told")]
fn say(text: &str) {
    eprintln!("{text}");
}

fn words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.split_whitespace().map(str::to_owned).collect()
}
