//! The fixture itself: what tests of Packhorse rely on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use packhorse_slurm_lab::{CpuBinding, LabSettings, SlurmLab, SlurmVersion};
use packhorse_test_parts::needs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, Signal, kill_process};

/// What each element of an array wrote to its file.
fn elements(lab: &SlurmLab, count: usize) -> Vec<String> {
    (0..count)
        .map(|index| fs_err::read_to_string(lab.folder().join(format!("out_{index}"))))
        .map(|text| text.expect("the element has written").trim().to_owned())
        .collect()
}

/// Runs an array that wants two GPUs for each element.
fn array_with_gpus(lab: &SlurmLab) {
    let id = lab.sbatch([
        "--array=0-3",
        "--gres=gpu:2",
        "--output=out_%a",
        "--wrap=echo $SLURMD_NODENAME $(cat /proc/sys/kernel/hostname) $CUDA_VISIBLE_DEVICES",
    ]);
    lab.wait_for_job(&id, "COMPLETED");
    let expected = ["n1 n1 0,1", "n1 n1 2,3", "n2 n2 0,1", "n2 n2 2,3"];
    assert_eq!(elements(lab, 4), expected);
}

#[test]
fn an_array_gets_gpus_on_every_node() {
    needs!(Slurm);
    let lab = SlurmLab::start(LabSettings::default());
    array_with_gpus(&lab);
}

#[test]
fn slurm_24_11_does_the_same_with_the_same_paths() {
    needs!(Slurm24);
    let settings = LabSettings { version: SlurmVersion::V24_11, ..LabSettings::default() };
    let mut lab = SlurmLab::start(settings);
    let version = lab.output(lab.command("sbatch").arg("--version"));
    assert!(version.contains(" 24.11"), "{version}");
    array_with_gpus(&lab);

    // This test itself is a program of this machine, and runs there, too.
    let exe = std::env::current_exe().unwrap();
    let listed = lab.output(lab.command(exe).arg("--list"));
    assert!(listed.contains("slurm_24_11"), "{listed}");

    let id = lab.sbatch(["--no-requeue", "--wrap=sleep infinity"]);
    lab.wait_for_job(&id, "RUNNING");
    lab.kill_node("n1");
    lab.wait_for_job(&id, "NODE_FAIL");
    lab.restart_node("n1");
}

#[test]
fn two_labs_at_once_know_nothing_of_each_other() {
    needs!(Slurm);
    let one = SlurmLab::start(LabSettings::default());
    let other = SlurmLab::start(LabSettings::default());
    let id = one.sbatch(["--hold", "--wrap=true"]);
    assert_eq!(one.job_states(&id), ["PENDING"]);
    assert!(other.job_states(&id).is_empty());
    assert_eq!(other.sbatch(["--hold", "--wrap=true"]), id);
}

#[test]
fn a_killed_node_is_down_and_its_job_runs_again_on_another() {
    needs!(Slurm);
    let mut lab = SlurmLab::start(LabSettings::default());
    // The first life goes on until the node dies; the second ends by itself.
    let id = lab.sbatch([
        "--output=out",
        "--open-mode=append",
        "--wrap=echo $SLURMD_NODENAME; test -n \"$SLURM_RESTART_COUNT\" || sleep infinity",
    ]);
    let out = lab.folder().join("out");
    let on = |node: &str| fs_err::read_to_string(&out).is_ok_and(|text| text.contains(node));
    assert!(lab.wait(|_| on("n1\n").then_some(())).is_some());

    lab.kill_node("n1");
    lab.wait_for_job(&id, "COMPLETED");
    assert_eq!(fs_err::read_to_string(&out).unwrap(), "n1\nn2\n");

    lab.restart_node("n1");
    let id = lab.sbatch(["--nodelist=n1", "--wrap=true"]);
    lab.wait_for_job(&id, "COMPLETED");
}

#[test]
fn a_job_that_slurm_lost_by_its_own_word_is_asked_for_again_and_no_other() {
    needs!(Slurm);
    let lab = SlurmLab::start(LabSettings::default());
    // A job that slurmd has lost is held, like these.
    let [lost, held] = [(); 2].map(|()| lab.sbatch(["--hold", "--wrap=sleep infinity"]));
    // What slurmd 22.05 says when it has lost one.
    let log = lab.folder().join("log/slurmd.n1.log");
    let mut log = fs_err::OpenOptions::new().append(true).open(log).unwrap();
    let told = "REQUEST_LAUNCH_PROLOG notification failed, giving up after 20 sec";
    writeln!(log, "error: Waiting for JobId={lost} {told}").unwrap();
    lab.wait_for_job(&lost, "RUNNING");
    assert_eq!(lab.job_states(&held), ["PENDING"]);
}

#[test]
fn killing_a_command_kills_the_program_in_the_lab() {
    needs!(Slurm);
    let lab = SlurmLab::start(LabSettings::default());
    let mut command = lab.command("sh");
    command.args(["-c", "trap 'exit 7' TERM; echo $$; pwd; while :; do read x; done"]);
    command.current_dir(lab.folder().join("home"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let id = Pid::from_child(&child);
    assert_eq!(lines.next().unwrap().unwrap(), id.as_raw_nonzero().to_string());
    let folder = lab.folder().join("home");
    assert_eq!(lines.next().unwrap().unwrap(), folder.to_string_lossy());
    kill_process(id, Signal::TERM).unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));

    let mut child = lab.command("sleep").arg("infinity").spawn().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
}

#[test]
fn tasks_are_kept_on_their_cpus_if_that_is_asked_for() {
    needs!(Slurm);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let settings =
        LabSettings { nodes: 1, cpus, binding: CpuBinding::Affinity, ..LabSettings::default() };
    let lab = SlurmLab::start(settings);
    let id = lab.sbatch(["--cpus-per-task=1", "--output=out", "--wrap=nproc"]);
    lab.wait_for_job(&id, "COMPLETED");
    assert_eq!(fs_err::read_to_string(lab.folder().join("out")).unwrap(), "1\n");
}

/// Not a test: what the test below kills. It says which network and folder its lab has, and
/// waits.
#[test]
#[ignore = "it is a part of another test"]
fn a_test_that_waits_for_its_end() {
    needs!(Slurm);
    let lab = SlurmLab::start(LabSettings::default());
    let id = lab.sbatch(["--wrap=sleep infinity"]);
    lab.wait_for_job(&id, "RUNNING");
    let network = lab.output(lab.command("readlink").arg("/proc/self/ns/net"));
    let mut child = lab.command("sleep").arg("infinity").spawn().unwrap();
    println!("\nlab: {} {}", network.trim(), lab.folder().display());
    child.wait().unwrap();
}

#[test]
fn nothing_is_left_behind_when_the_process_of_a_test_is_killed() {
    needs!(Slurm);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture"]);
    command.arg("a_test_that_waits_for_its_end");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.unwrap().strip_prefix("lab: ")?.to_owned()));
    let line = line.expect("it says where its lab is");
    let (network, folder) = line.split_once(' ').unwrap();
    // Holder, controller, nodes, a job and a command at least.
    assert!(processes_in(network).len() > 8);

    let changes = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&changes, folder, inotify::WatchFlags::DELETE_SELF).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut descriptors = [PollFd::new(&changes, PollFlags::IN)];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut descriptors, Some(&patience)), Ok(1), "{folder} is left");
    assert_eq!(processes_in(network), Vec::<PathBuf>::new());
}

/// The processes in a network namespace.
fn processes_in(network: &str) -> Vec<PathBuf> {
    let processes = fs_err::read_dir("/proc").expect("there are processes");
    let processes = processes.map(|entry| entry.expect("it can be listed").path());
    let is_in = |path: &PathBuf| {
        fs_err::read_link(path.join("ns/net")).is_ok_and(|link| link == Path::new(network))
    };
    processes.filter(is_in).filter(|path| !path.ends_with("self")).collect()
}
