//! Runs that know of each other.

mod claims;
mod inside;
mod news;
mod turns;

use packhorse_test_parts::needs;
use rustix::process::Signal;

use crate::machine::{Machine, holding, taking};
use crate::support::{Running, World, finish, is_alive, receive, wait_until};

#[test]
fn two_runs_never_promise_the_same_memory() {
    let machine = Machine::new(1);
    let task = holding("1G", "gate");
    machine.world.write("tasks", &task);
    let mut first = machine.start(&["run", "--vram", "15G", "tasks"]);
    first.wait_for("1.1 started");
    let gpus = machine.packhorse(&["gpus"]).stdout;
    assert!(gpus.contains("TAKEN") && gpus.contains("15.0 GiB"), "{gpus}");
    let mut second = machine.start(&["run", "--vram", "15G", "tasks"]);
    second.wait_for("run 2 started");
    // What it was promised and what it was seen to hold of that is told once.
    let why = machine.world.why("2.1");
    let told = "(8.5 GiB free): other runs hold 15.0 GiB of GPU 0 (run 1 of ";
    assert!(why.contains(told), "{why}");
    // A third one that fits beside the first does start.
    machine.world.write("small", taking("--peak 1G"));
    let done = machine.packhorse(&["run", "--vram", "5G", "small"]);
    assert_eq!(done.code, 0, "{done:?}");
    machine.world.write("gate", "");
    let first = first.finish();
    assert_eq!(first.code, 0, "{first:?}");
    let second = second.finish();
    assert_eq!(second.code, 0, "{second:?}");
}

/// Kills a run, and waits until nothing else is left of it than what its tasks are.
fn kill(running: Running) {
    running.signal(Signal::KILL);
    running.finish();
}

/// What is said of what a run has left.
fn left_by(run: u32) -> String {
    format!("left by run {run}, which was killed; `packhorse stop {run}` ends them")
}

#[test]
fn what_a_killed_run_left_running_holds_its_gpu_until_it_ends() {
    for driver in [true, false] {
        let machine = Machine::new(1);
        let world = &machine.world;
        let command = |words: &[&str]| {
            if driver { machine.command(words) } else { world.command(words) }
        };
        let start = |words: &[&str]| Running::start(command(words));
        let gate = world.gate("gate");
        world.write("tasks", "read x < gate");
        let mut first = start(&["run", "--gpus", "0", "tasks"]);
        first.wait_for("1.1 started");
        let mut second = start(&["run", "--gpus", "0", "--", "true"]);
        second.wait_for("run 2 started");
        assert!(world.why("2.1").contains("(run 1 of "));
        kill(first);
        // Also for one that comes later.
        let mut third = start(&["run", "--gpus", "0", "--", "true"]);
        third.wait_for("run 3 started");
        for task in ["2.1", "3.1"] {
            let left = format!("holds GPU 0 ({})", left_by(1));
            let why = world.why(task);
            assert!(why.contains(&left), "{why}");
        }
        let shown = finish(command(&["gpus"])).stdout;
        assert!(shown.contains(&format!("GPU 0: {}", left_by(1))), "{shown}");
        gate.pass(1);
        assert_eq!(second.finish().code, 0);
        assert_eq!(third.finish().code, 0);
        let shown = finish(command(&["gpus"])).stdout;
        assert!(!shown.contains("left by"), "{shown}");
    }
}

#[test]
fn what_a_killed_run_left_is_ended_by_hand() {
    let world = World::new();
    let never = world.fifo("never");
    world.write("tasks", format!("cat {}", never.display()));
    let mut first = world.start(["run", "--gpus", "0", "tasks"]);
    first.wait_for("1.1 started");
    kill(first);
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    assert!(world.why("2.1").contains(&left_by(1)));
    assert_eq!(world.packhorse(["stop", "1"]).code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn memory_that_a_killed_run_was_promised_counts_while_its_tasks_live() {
    let machine = Machine::new(1);
    let world = &machine.world;
    world.write("tasks", holding("1G", "gate"));
    let mut first = machine.start(&["run", "--vram", "15G", "tasks"]);
    first.wait_for("1.1 started");
    machine.await_memory(0, 1 << 30);
    kill(first);
    let mut second = machine.start(&["run", "--vram", "15G", "--", "true"]);
    second.wait_for("run 2 started");
    let left = format!("other runs hold 15.0 GiB of GPU 0 ({})", left_by(1));
    let why = world.why("2.1");
    assert!(why.contains(&left), "{why}");
    world.write("gate", "");
    assert_eq!(second.finish().code, 0);
}

/// Waits until a run has its leaders on record.
fn await_record(world: &World, run: u32) {
    let record = world.home().join(format!("runs/{run}/leaders"));
    wait_until(&world.home(), || record.exists());
}

#[test]
fn what_cleared_its_environment_holds_its_gpu_too_and_is_found_by_stop() {
    let world = World::new();
    let said = ["said-1", "said-2"].map(|name| world.fifo(name));
    world.fifo("never");
    world.write("stray", "echo $$ > said-$1; exec cat never");
    world.write("tasks", "exec env -i PATH=\"$PATH\" sh -c 'setsid sh stray 1 & sh stray 2'");
    let mut first = world.start(["run", "--gpus", "0", "tasks"]);
    first.wait_for("1.1 started");
    let pids = said.map(|said| receive(&said));
    await_record(&world, 1);
    kill(first);
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    assert!(world.why("2.1").contains(&left_by(1)));
    assert!(pids.iter().all(|pid| is_alive(pid)));
    let stopped = world.packhorse(["stop", "1"]);
    assert!(stopped.stderr.contains("3 processes"), "{stopped:?}");
    assert!(!pids.iter().any(|pid| is_alive(pid)));
    assert_eq!(second.finish().code, 0);
}

#[test]
fn without_leases_runs_do_not_wait_for_each_other() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    machine.world.write("tasks", "read x < gate");
    let mut first = machine.start(&["run", "tasks"]);
    first.wait_for("1.1 started");
    let done = machine.packhorse(&["run", "--no-leases", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn leases_need_no_driver() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "7", "tasks"]);
    first.wait_for("1.1 started");
    let done = world.packhorse(["run", "--gpus", "8", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    let mut second = world.start(["run", "--gpus", "7", "--", "true"]);
    second.wait_for("run 3 started");
    let why = world.why("3.1");
    assert!(why.contains("GPU 7"), "{why}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn however_many_runs_there_are_no_gpu_goes_to_two_of_them() {
    let world = World::new();
    // A folder for each GPU that is in use: it can be made only once.
    let task = "mkdir gpu-$CUDA_VISIBLE_DEVICES || echo twice >> overlaps; /bin/true; \
        /bin/true; rmdir gpu-$CUDA_VISIBLE_DEVICES\n";
    world.write("tasks", task.repeat(4));
    let start = |_| world.start(["run", "--gpus", "0,1", "-q", "tasks"]);
    let runs: Vec<_> = (0..60).map(start).collect();
    for run in runs {
        let done = run.finish();
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert!(!world.work().join("overlaps").exists());
}

#[test]
fn a_device_whose_share_is_given_out_still_has_memory_that_others_may_take() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut first = machine.start(&["run"]);
    // One that counts memory, so that its own look at the GPU is fresh.
    let half = "#packhorse gpus=0.5\nread x < gate\n".repeat(2);
    let counting = holding("1G", "go");
    let text = format!("{half}#packhorse vram=1G\n{counting}\n");
    first.send(text);
    first.wait_for("1.3 started");
    machine.world.write("second", holding("1G", "go"));
    let mut second = machine.start(&["run", "--vram", "15G", "second"]);
    second.wait_for("2.1 started");
    first.send("#packhorse vram=15G\ntrue\n");
    first.end_input();
    let why = machine.world.why("1.4");
    assert!(why.contains("other runs hold 15.0 GiB"), "{why}");
    machine.world.write("go", "");
    assert_eq!(second.finish().code, 0);
    gate.pass(2);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn what_others_could_not_be_told_is_told_again() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut running = machine.start(&["run"]);
    running.wait_for("run 1 started");
    // Something stands where the lease would be written.
    let pid = running.pid().as_raw_nonzero();
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let born = stat.split(' ').nth(21).unwrap();
    let user = rustix::process::getuid().as_raw();
    let folder = machine.world.leases().join(format!("{user}-0123456789abcdef"));
    let obstacle = folder.join(format!("{pid}-{born}.new"));
    fs_err::create_dir_all(&obstacle).unwrap();
    running.send("read x < gate\n");
    running.wait_for("warning");
    fs_err::remove_dir(&obstacle).unwrap();
    wait_until(&machine.world.leases(), || machine.packhorse(&["gpus"]).stdout.contains("TAKEN"));
    running.end_input();
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn whose_run_it_is_is_looked_up_where_no_variable_says() {
    let machine = Machine::new(1);
    let gate = machine.world.gate("gate");
    let mut command = machine.command(&["run", "--", "sh", "-c", "read x < gate"]);
    command.env_remove("USER").env_remove("LOGNAME");
    let mut running = Running::start(command);
    running.wait_for("1.1 started");
    let name = finish(machine.world.program("id", ["-un"])).stdout;
    let gpus = machine.packhorse(&["gpus", "--json"]).json();
    assert_eq!(gpus[0]["held_by"][0]["user"], name.trim_end(), "{gpus}");
    // A run does not wait for the answer.
    let mut second = machine.start(&["run", "--", "true"]);
    second.wait_for("run 2 started");
    let whose = format!("(run 1 of {}, process ", name.trim_end());
    while !machine.world.why("2.1").contains(&whose) {}
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

/// The leases of all runs.
fn lease_files(world: &World) -> Vec<std::path::PathBuf> {
    let list = |path: &std::path::Path| -> Vec<std::path::PathBuf> {
        let entries = fs_err::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let folders = list(&world.leases());
    folders.iter().flat_map(|folder| list(folder)).collect()
}

#[test]
fn a_lease_that_is_removed_comes_back_while_its_run_lives() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "0", "tasks"]);
    first.wait_for("1.1 started");
    await_record(&world, 1);
    let file = || {
        let mut files = lease_files(&world).into_iter();
        files.find(|file| file.extension().is_none())
    };
    // It sleeps, and waits for nobody: nothing else would wake it.
    wait_until(&world.leases(), || {
        let text = file().and_then(|file| fs_err::read_to_string(file).ok());
        text.is_some_and(|text| text.contains("\"leaders\":[["))
    });
    for folder in [false, true] {
        let gone = file().unwrap();
        if folder {
            // Where it does not come back before all is gone.
            let away = world.work().join("away");
            fs_err::rename(gone.parent().unwrap(), &away).unwrap();
            fs_err::remove_dir_all(away).unwrap();
        } else {
            fs_err::remove_file(&gone).unwrap();
        }
        wait_until(&world.leases(), || file().is_some());
    }
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    assert!(world.why("2.1").contains("another run holds GPU 0"));
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn runs_in_a_namespace_know_of_each_other_although_their_group_is_outside() {
    needs!(Root);
    let world = World::new();
    let (_there, gate) = (world.gate("there"), world.gate("gate"));
    // What begins a pid namespace and stays in the group of its starter has the group 0 there.
    let packhorse = env!("CARGO_BIN_EXE_packhorse");
    let script = format!(
        "{packhorse} run --gpus 0 -- sh -c 'echo > there; read x < gate' & \
         read x < there; {packhorse} run --gpus 0 -- true && wait"
    );
    let words = ["--pid", "--fork", "--mount-proc", "sh", "-c", &script];
    let mut both = Running::start(world.program("unshare", words));
    both.wait_for("2.1 waits");
    gate.pass(1);
    let done = both.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2.1 succeeded"), "{done:?}");
}
