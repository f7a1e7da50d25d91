//! Tasks that share a GPU through NVIDIA's Multi-Process Service, against a
//! stand-in for its control program.
//!
//! Killing a client does no harm to the stand-in's server, as it may to a real
//! one. So that a client is taken out first is seen by its last words.

mod by_hand;

use std::process::{Command, Stdio};

use packhorse_fake_nvml::{FakeDevice, fake_mps_control_path};
use rustix::process::Signal;
use serde_json::Value;

use crate::machine::{Machine, holding, taking};
use crate::support::{Done, Running, finish, is_alive, wait_until_some};

/// What CUDA says to a client that was taken out.
const TAKEN_OUT: &str = "the MPS client has been terminated by the server";

/// A machine with a control program for MPS.
struct Shared {
    machine: Machine,
}

impl Shared {
    fn new(gpus: u32) -> Self {
        Self { machine: Machine::new(gpus) }
    }

    fn command(&self, words: &[&str]) -> Command {
        // Whatever runs on the real machine is not to be seen.
        let nobodys = self.machine.world.work().join("none");
        let mut command = self.machine.command(words);
        command
            .env("PACKHORSE_MPS_CONTROL", fake_mps_control_path())
            .env("CUDA_MPS_PIPE_DIRECTORY", nobodys);
        command
    }

    fn packhorse(&self, words: &[&str]) -> Done {
        finish(self.command(words))
    }

    fn start(&self, words: &[&str]) -> Running {
        Running::start(self.command(words))
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        self.machine.world.write(name, text);
    }

    fn read(&self, name: &str) -> String {
        self.machine.world.read(name)
    }

    fn status(&self) -> Value {
        let done = self.packhorse(&["mps", "status", "--json"]);
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Waits until so many clients are there in all, and says how it is then.
    fn await_clients(&self, count: usize) -> Value {
        // A client takes its memory when its server knows it.
        wait_until_some(&[&self.machine.state.path().join("processes")], || {
            // A server may go between two questions about it.
            let done = self.packhorse(&["mps", "status", "--json"]);
            let status: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
            let daemons = status.as_array().into_iter().flatten();
            let servers = daemons.flat_map(|daemon| daemon["servers"].as_array().unwrap());
            let clients = servers.map(|server| server["clients"].as_array().unwrap().len());
            (clients.sum::<usize>() == count).then_some(status)
        })
    }

    /// A daemon of somebody else's, for all GPUs. It ends with its folder.
    fn daemon_of_somebody_else(&self, folder: &str) -> String {
        let pipes = self.machine.world.work().join(folder);
        fs_err::create_dir(&pipes).unwrap();
        let status =
            self.control(&pipes.display().to_string()).arg("-d").stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
        pipes.display().to_string()
    }

    /// The control program itself.
    fn control(&self, pipes: &str) -> Command {
        let no_words: [&str; 0] = [];
        let world = &self.machine.world;
        let mut command = world.program(fake_mps_control_path(), no_words);
        command
            .env("FAKE_NVML_STATE", self.machine.state.path())
            .env("CUDA_MPS_PIPE_DIRECTORY", pipes);
        command
    }
}

fn daemon_pid(pipes: &str) -> String {
    let file = format!("{pipes}/nvidia-cuda-mps-control.pid");
    fs_err::read_to_string(file).unwrap()
}

/// A line of a task's that writes down what it sees.
const SEEN: &str = "echo \"$CUDA_VISIBLE_DEVICES|$CUDA_MPS_PIPE_DIRECTORY|\
                    $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE|$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT\" >> seen";

#[test]
fn a_task_is_told_its_daemon_its_threads_and_its_memory() {
    let shared = Shared::new(2);
    shared.write("tasks", SEEN);
    let uuid = FakeDevice::new(1).uuid;
    let pipes = shared.machine.world.home().join("mps").join("GPU-00000001");
    let pipes = pipes.join("pipe").display().to_string();
    for (options, wanted) in [
        (&["--vram", "9G"][..], format!("{uuid}|{pipes}||0=9216M")),
        (&["-g", "0.25"], format!("{uuid}|{pipes}|25|")),
        (&["-g", "0.25", "--vram", "512M"], format!("{uuid}|{pipes}|25|0=512M")),
        (&["-g", "0.25", "--thread-percentage", "60"], format!("{uuid}|{pipes}|60|")),
        (&["--thread_percentage=40"], format!("{uuid}|{pipes}|40|")),
    ] {
        shared.write("seen", "");
        let words = [&["run", "--mps", "--gpus", "1"], options, &["tasks"]].concat();
        let done = shared.packhorse(&words);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(shared.read("seen").trim_end(), wanted, "{options:?}");
    }
}

#[test]
fn what_the_person_has_set_for_mps_gives_way_to_what_a_task_is_told() {
    let shared = Shared::new(1);
    // Some programs take the first of two variables of a name, some the last.
    let all = "tr '\\0' '\\n' < /proc/$$/environ | grep ^CUDA_MPS_ > all";
    shared.write("tasks", format!("{SEEN}; {all}\n"));
    let words = ["run", "--mps", "-g", "0.25", "--vram", "2G", "tasks"];
    let mut command = shared.command(&words);
    command
        .env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "77")
        .env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1M");
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    let seen = shared.read("seen");
    let pipes = shared.machine.world.home().join("mps");
    assert!(seen.contains(&*pipes.to_string_lossy()), "{seen}");
    assert!(seen.ends_with("|25|0=2048M\n"), "{seen}");
    let all = shared.read("all");
    assert_eq!(all.lines().count(), 3, "{all}");
}

#[test]
fn a_task_without_mps_is_told_nothing_of_it() {
    let shared = Shared::new(2);
    shared.write("tasks", SEEN);
    for (options, devices) in [
        (&["--mps", "false", "-g", "0.5"][..], "0"),
        (&["-g", "0.5"], "0"),
        // A program can talk to one daemon only.
        (&["--mps", "-g", "2"], "0,1"),
    ] {
        shared.write("seen", "");
        let done = shared.packhorse(&[&["run"], options, &["tasks"]].concat());
        assert_eq!(done.code, 0, "{done:?}");
        let seen = shared.read("seen");
        let seen: Vec<&str> = seen.trim_end().split('|').collect();
        assert_eq!(seen[0], devices, "{options:?}: {seen:?}");
        assert_eq!(seen[2..], ["", ""], "{options:?}: {seen:?}");
    }
    assert!(!shared.machine.world.home().join("mps").exists());
}

#[test]
fn that_tasks_on_several_gpus_go_without_mps_is_said_once() {
    let shared = Shared::new(2);
    shared.write("tasks", "true\n".repeat(3));
    for (options, times) in [(&["-g", "2"][..], 1), (&["--gpus", "0+1"], 1), (&["-g", "1"], 0)] {
        let done = shared.packhorse(&[&["run", "--mps"], options, &["tasks"]].concat());
        assert_eq!(done.code, 0, "{done:?}");
        let warning = "warning: tasks on several GPUs go without MPS";
        assert_eq!(done.stdout.matches(warning).count(), times, "{done:?}");
    }
}

#[test]
fn options_that_would_have_no_effect_are_refused() {
    let shared = Shared::new(1);
    for (options, wanted) in [
        (&["--thread-percentage", "50"][..], "hint: add --mps"),
        (
            &["--slots", "2", "--thread-percentage", "50"],
            "--thread-percentage has no effect without MPS",
        ),
        (&["--vram", "9G", "-g", "0"], "--vram is for tasks on GPUs"),
    ] {
        let words = [&["run"], options, &["--", "touch", "started"]].concat();
        let done = shared.packhorse(&words);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
        assert!(done.stderr.contains(wanted), "{done:?}");
    }
    assert!(!shared.machine.world.work().join("started").exists());
    // Whoever has said that there is to be no MPS has only left something over.
    let words = ["run", "--mps", "no", "--thread-percentage", "50", "--", "true"];
    let done = shared.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    let warning = "warning: --thread-percentage has no effect";
    assert!(done.stderr.contains(warning), "{done:?}");
}

#[test]
fn only_the_daemon_of_its_own_gpu_is_asked_for_a_task_that_is_ended() {
    let shared = Shared::new(2);
    // Writes down what is asked, and asks.
    let control = fake_mps_control_path();
    let asking = shared.machine.world.write(
        "control",
        format!(
            "#!/bin/sh\n\
             [ $# = 0 ] || exec {0} \"$@\"\n\
             line=$(cat); echo \"$line\" >> asked; echo \"$line\" | {0}\n",
            control.display()
        ),
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(&asking, mode).unwrap();
    let task = holding("1G", "gate");
    shared.write("tasks", format!("{task}\n{task}\n#packhorse gpus=0\nread x < never\n"));
    let _never = shared.machine.world.gate("never");
    let mut command = shared.command(&["run", "--mps", "--vram", "20G", "tasks"]);
    command.env("PACKHORSE_MPS_CONTROL", &asking);
    let mut running = Running::start(command);
    running.wait_for("1.3 started");
    shared.await_clients(2);
    shared.write("asked", "");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    let asked = shared.read("asked");
    let asked = |what: &str| asked.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(asked("get_client_list"), 2);
    assert_eq!(asked("terminate_client"), 2);
}

#[test]
fn one_that_takes_more_than_it_was_promised_gets_more_and_its_neighbour_is_unharmed() {
    let shared = Shared::new(1);
    let neighbour = holding("10G", "gate");
    let greedy = taking("--peak 8G");
    shared.write(
        "tasks",
        format!(
            "#packhorse vram=10G\n{neighbour}\n\
             #packhorse vram=4G\necho $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT >> limits; {greedy}\n"
        ),
    );
    let mut running = shared.start(&["run", "--mps", "--retries", "0", "tasks"]);
    let line = running.wait_for("1.2 attempt 1: ");
    assert!(line.contains("out of GPU memory"), "{line}");
    running.wait_for("1.2 succeeded");
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("1.1 succeeded"), "{done:?}");
    assert!(!done.stdout.contains("1.1 attempt"), "{done:?}");
    // There was room for all that beside the neighbour: it need not be alone.
    let limits = shared.read("limits");
    let limits: Vec<&str> = limits.lines().collect();
    assert_eq!(limits.first(), Some(&"0=4096M"), "{limits:?}");
    assert!(limits.len() > 1, "{limits:?}");
    let before = done.stdout.split("1.1 succeeded").next().unwrap();
    assert!(before.contains("1.2 succeeded"), "{done:?}");
}

#[test]
fn what_a_task_could_not_get_under_its_limit_is_the_least_it_is_given_next() {
    let shared = Shared::new(1);
    let limit = "echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT >> limits";
    for (peak, limits) in [("8G", "0=1024M 0=10240M"), ("20G", "0=1024M 0=24064M")] {
        let task = taking(&format!("--peak {peak}"));
        shared.write("tasks", format!("{limit}; {task}\n"));
        let words = ["run", "--mps", "--vram", "1G", "--retries", "0", "tasks"];
        let done = shared.packhorse(&words);
        assert_eq!(done.code, 0, "{done:?}");
        let seen = shared.read("limits");
        let seen: Vec<&str> = seen.lines().collect();
        assert_eq!(seen.join(" "), limits);
        shared.write("limits", "");
    }
}

#[test]
fn what_a_server_holds_for_itself_is_left_by_nobody() {
    let shared = Shared::new(1);
    let mut running = shared.start(&["run", "--mps", "-g", "1"]);
    // Long enough to be looked at. The second one waits for what the first has left.
    running.send(format!("{}\ntrue\n", taking("--peak 4G --hold 1100ms")));
    running.end_input();
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("warning"), "{done:?}");
    let words = ["run", "--mps", "--vram", "20G", "tasks"];
    let task = taking("--peak 20G --hold-looks 6");
    shared.write("tasks", format!("{task}\n").repeat(2));
    let done = shared.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("warning"), "{done:?}");
}

#[test]
fn a_daemon_comes_with_the_first_task_and_goes_with_the_run() {
    let shared = Shared::new(2);
    let mut running = shared.start(&["run", "--mps", "--vram", "2G"]);
    running.wait_for("run 1 started");
    assert_eq!(shared.status(), serde_json::json!([]));
    running.send(holding("1G", "gate") + "\n");
    let status = shared.await_clients(1);
    // The other GPU has no task, and no daemon.
    assert_eq!(status.as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status[0]["owner"], "packhorse", "{status}");
    let daemon = status[0]["pid"].to_string();
    let server = status[0]["servers"][0]["pid"].to_string();
    assert!(is_alive(&daemon) && is_alive(&server), "{status}");
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!is_alive(&daemon) && !is_alive(&server));
    let done = shared.packhorse(&["mps", "status"]);
    assert_eq!(done.stdout, "no MPS daemon is running\n", "{done:?}");
}

#[test]
fn each_gpu_has_a_daemon_of_its_own() {
    let shared = Shared::new(2);
    let task = holding("1G", "gate");
    shared.write("tasks", format!("{task}\n").repeat(2));
    let running = shared.start(&["run", "--mps", "--vram", "20G", "tasks"]);
    let status = shared.await_clients(2);
    let daemons = status.as_array().unwrap();
    assert_eq!(daemons.len(), 2, "{status}");
    assert_ne!(daemons[0]["pid"], daemons[1]["pid"], "{status}");
    assert_ne!(daemons[0]["pipes"], daemons[1]["pipes"], "{status}");
    shared.write("gate", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_daemon_that_somebody_else_runs_is_used_and_not_stopped() {
    let shared = Shared::new(2);
    let theirs = shared.daemon_of_somebody_else("theirs");
    let pid = daemon_pid(&theirs);
    let task = holding("1G", "gate");
    shared.write("tasks", format!("{SEEN}; {task}\n"));
    let words = ["run", "--mps", "--gpus", "1", "--vram", "2G", "tasks"];
    let with_theirs = |words: &[&str]| {
        let mut command = shared.command(words);
        command.env("CUDA_MPS_PIPE_DIRECTORY", &theirs);
        command
    };
    let mut running = Running::start(with_theirs(&words));
    running.wait_for("1.1 started");
    let status = finish(with_theirs(&["mps", "status"])).stdout;
    assert!(status.contains("somebody else"), "{status}");
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let seen = shared.read("seen");
    assert!(seen.contains(&format!("|{theirs}||0=2048M")), "{seen}");
    // Of its devices the task sees its own.
    let log = shared.packhorse(&["logs", "1.1"]).stdout;
    let uuid = FakeDevice::new(1).uuid;
    assert!(log.contains(&format!("device 0: {uuid}")), "{log}");
    assert!(!log.contains("device 1"), "{log}");
    assert!(!shared.machine.world.home().join("mps").exists());
    assert!(is_alive(&pid));

    let done = finish(with_theirs(&["mps", "start"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains(&theirs), "{done:?}");
    let done = finish(with_theirs(&["mps", "stop"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(is_alive(&pid));
}

#[test]
fn the_time_limit_takes_a_client_out_before_it_is_killed() {
    let shared = Shared::new(1);
    let task = holding("1G", "gate");
    let mut running = shared.start(&["run", "--mps", "--vram", "2G", "--grace", "20s"]);
    running.send(format!("{task}\n"));
    shared.await_clients(1);
    // It heeds nobody but its server.
    running.send(format!("#packhorse timeout=3s\ntrap '' TERM; exec {task}\n"));
    running.end_input();
    let line = running.wait_for("1.2 failed");
    assert!(line.contains("time limit"), "{line}");
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("1.1 succeeded"), "{done:?}");
    assert!(!done.stdout.contains("attempt"), "{done:?}");
    let log = shared.packhorse(&["logs", "1.2"]).stdout;
    assert!(log.contains(TAKEN_OUT), "{log}");
}

#[test]
fn ctrl_c_takes_clients_out_before_they_are_killed() {
    let shared = Shared::new(1);
    let task = holding("1G", "gate");
    // The client may be a child of the task.
    let child = format!("{task} --child");
    shared.write("tasks", format!("trap '' TERM; exec {task}\ntrap '' TERM; {child}; exit 1\n"));
    let words = ["run", "--mps", "--vram", "2G", "--grace", "20s", "tasks"];
    let mut running = shared.start(&words);
    shared.await_clients(2);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    for task in ["1.1", "1.2"] {
        let log = shared.packhorse(&["logs", task]).stdout;
        assert!(log.contains(TAKEN_OUT), "{task}: {log}");
        let interrupted = format!("{task} interrupted");
        assert!(done.stdout.contains(&interrupted), "{done:?}");
    }
    let done = shared.packhorse(&["mps", "status"]);
    assert_eq!(done.stdout, "no MPS daemon is running\n", "{done:?}");
}

#[test]
fn when_a_server_dies_its_tasks_run_again_and_use_up_no_retry() {
    for options in [&["--vram", "2G"][..], &["-g", "0.5"]] {
        let shared = Shared::new(1);
        let task = holding("1G", "gate");
        shared.write("tasks", format!("{task}\n").repeat(2));
        let mut words = vec!["run", "--mps", "--retries", "0", "tasks"];
        words.extend(options);
        let mut running = shared.start(&words);
        let before = shared.await_clients(2);
        shared.machine.state.end_mps_server(0);
        for _ in 0..2 {
            let line = running.wait_for("attempt 1: ");
            assert!(line.contains("MPS server died"), "{line}");
            assert!(line.contains("no retry is used up"), "{line}");
        }
        let after = shared.await_clients(2);
        assert_eq!(before[0]["pid"], after[0]["pid"]);
        let server = |status: &Value| status[0]["servers"][0]["pid"].to_string();
        assert_ne!(server(&before), server(&after));
        shared.write("gate", "");
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stdout.contains("2 succeeded"), "{done:?}");
        let show = shared.packhorse(&["show", "1.1"]).stdout;
        assert!(show.contains("MPS server died"), "{show}");
    }
}

#[test]
fn a_failure_of_its_own_under_mps_uses_up_retries() {
    let shared = Shared::new(1);
    shared.write("tasks", "echo x >> tries; echo my own fault; exit 1");
    let done = shared.packhorse(&["run", "--mps", "-g", "0.5", "--retries", "1", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(shared.read("tries"), "x\nx\n");
}

#[test]
fn the_clients_of_a_run_are_shown() {
    let shared = Shared::new(1);
    shared.write("tasks", holding("1G", "gate"));
    let running = shared.start(&["run", "--mps", "--vram", "2G", "tasks"]);
    let status = shared.await_clients(1);
    let server = &status[0]["servers"][0];
    assert_eq!(server["state"], "active", "{status}");
    assert!(is_alive(&server["clients"][0].to_string()), "{status}");
    let table = shared.packhorse(&["mps", "status"]).stdout;
    assert!(table.contains("active, 1 client"), "{table}");
    shared.write("gate", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn without_a_control_program_tasks_run_without_mps() {
    let shared = Shared::new(1);
    shared.write("tasks", format!("{SEEN}\n").repeat(2));
    let mut command = shared.command(&["run", "--mps", "--vram", "2G", "tasks"]);
    let missing = shared.machine.world.work().join("missing");
    command.env("PACKHORSE_MPS_CONTROL", missing);
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    // It is said once, not for every task.
    let warning = "GPU 0 is shared without MPS";
    assert_eq!(done.stdout.matches(warning).count(), 1, "{done:?}");
    let seen = shared.read("seen");
    assert_eq!(seen.lines().count(), 2, "{seen}");
    for line in seen.lines() {
        assert!(line.starts_with("0|") && line.ends_with("||"), "{seen}");
    }
}

#[test]
fn a_daemon_that_a_killed_run_left_is_taken_over_and_ended() {
    let shared = Shared::new(1);
    shared.write("tasks", holding("1G", "gate"));
    let mut running = shared.start(&["run", "--mps", "--vram", "2G", "tasks"]);
    // Only what is told is certain to be remembered.
    running.wait_for("1.1 started");
    let left = shared.await_clients(1);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    let daemon = left[0]["pid"].to_string();
    assert!(is_alive(&daemon));
    let mut running = shared.start(&["resume"]);
    running.wait_for("1.1 started");
    let now = shared.await_clients(1);
    assert_eq!(now[0]["pid"], left[0]["pid"]);
    shared.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!is_alive(&daemon));
}

#[test]
fn a_run_that_ends_leaves_the_daemon_to_another_run() {
    let shared = Shared::new(1);
    let quick = taking("--peak 1G");
    let mut first = shared.start(&["run", "--mps", "--vram", "2G"]);
    first.send(format!("{quick}\n"));
    first.wait_for("1.1 succeeded");
    // It comes and goes while the first has nothing to do.
    shared.write("tasks", &quick);
    let second = shared.packhorse(&["run", "--mps", "--vram", "2G", "tasks"]);
    assert_eq!(second.code, 0, "{second:?}");
    let holding = holding("1G", "gate");
    first.send(format!("{SEEN}; {holding}\n"));
    first.wait_for("1.2 started");
    let pipes = wait_until_some(&[&shared.machine.world.work()], || {
        let seen = shared.read("seen");
        seen.ends_with('\n').then(|| seen.split('|').nth(1).unwrap().to_owned())
    });
    let mut ask = shared.control(&pipes);
    let answer = finish_with_line(&mut ask, "get_server_list\n");
    shared.write("gate", "");
    let done = first.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!answer.contains("Cannot find"), "{answer}");
    // It goes with the last of them.
    assert_eq!(shared.status(), serde_json::json!([]));
}

#[test]
fn a_task_that_is_alone_with_its_server_whenever_that_dies_is_to_blame() {
    let shared = Shared::new(1);
    shared.write("tasks", holding("1G", "gate"));
    let mut running = shared.start(&["run", "--mps", "--vram", "2G", "--retries", "0", "tasks"]);
    shared.await_clients(1);
    shared.machine.state.end_mps_server(0);
    let line = running.wait_for("attempt 1: ");
    assert!(line.contains("no retry is used up"), "{line}");
    shared.await_clients(1);
    shared.machine.state.end_mps_server(0);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("it was alone there"), "{done:?}");
}

/// What a program answers to a line.
fn finish_with_line(command: &mut Command, line: &str) -> String {
    use std::io::Write as _;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(line.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn mps_takes_no_file_for_its_answer() {
    let machine = Machine::new(1);
    machine.world.write("tasks", "true");
    let done = machine.packhorse(&["run", "--mps", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = machine.packhorse(&["run", "--mps", "false", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
}
