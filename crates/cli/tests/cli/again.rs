//! Runs that go on after their end: `retry`, `resume`, `export`.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::machine::Machine;
use crate::support::{Done, Running, World, finish, finish_with, is_alive, receive, release};

/// A finished run on one slot of these commands.
pub fn run(world: &World, commands: &str) -> Done {
    world.packhorse_with(["run", "--slots", "1"], commands)
}

/// Interrupts a run while its only running task waits at the gate.
fn interrupt_at(gate: &std::path::Path, mut running: Running) -> Done {
    running.signal(Signal::INT);
    running.wait_for("stopping");
    release(gate);
    running.finish()
}

#[test]
fn an_exported_task_runs_in_the_same_folder_wherever_it_is_started() {
    let world = World::new();
    fs_err::create_dir(world.work().join("code")).unwrap();
    run(&world, "#packhorse folder=code\npwd\npwd\n");
    let exported = world.packhorse(["export"]).stdout;
    let tasks: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let work = world.work();
    assert_eq!(tasks[0]["folder"], work.join("code").to_str().unwrap());
    assert_eq!(tasks[1]["folder"], work.to_str().unwrap());
    let mut command = world.command(["run", "--slots", "1", "--tasks", "-"]);
    command.current_dir("/");
    assert_eq!(finish_with(command, &exported).code, 0);
    let log = world.packhorse(["logs", "1"]).stdout;
    assert_eq!(log.trim_end(), work.join("code").to_str().unwrap());
}

#[test]
fn retry_runs_the_failed_ones_again_and_what_was_skipped_for_them() {
    let world = World::new();
    let commands = "echo fine >> out\n\
         #packhorse name=a\necho a >> out; test -e fixed\n\
         #packhorse name=b after=a\necho b >> out\n\
         #packhorse after=b\necho c >> out\n";
    assert_eq!(run(&world, commands).code, 1);
    assert_eq!(world.read("out"), "fine\na\n");
    // Still broken: the same again.
    assert_eq!(world.packhorse(["retry", "1"]).code, 1);
    assert_eq!(world.read("out"), "fine\na\na\n");
    world.write("fixed", "");
    let done = world.packhorse(["retry"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "fine\na\na\na\nb\nc\n");
    let run = world.packhorse(["ls", "--json"]).json();
    assert_eq!(run[0]["succeeded"], 4);
    assert_eq!(run[0]["exit"], 0);
    let done = world.packhorse(["retry"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("nothing to do"), "{done:?}");
}

#[test]
fn attempts_and_logs_of_earlier_sessions_are_kept() {
    let world = World::new();
    let fails = "echo attempt $PACKHORSE_ATTEMPT; test -e fixed || exit $PACKHORSE_ATTEMPT\n";
    let lines = format!("{fails}#packhorse log=own.log\n{fails}");
    world.packhorse_with(["run", "--slots", "1", "--retries", "1"], lines);
    world.write("fixed", "");
    let done = world.packhorse(["retry"]);
    assert!(done.stdout.contains("1.1 started (attempt 3)"), "{done:?}");
    for task in ["1.1", "1.2"] {
        for attempt in ["1", "2", "3"] {
            let log = world.packhorse(["logs", task, "--attempt", attempt]);
            assert_eq!(log.stdout, format!("attempt {attempt}\n"), "{task}");
        }
        let task = world.packhorse(["show", task, "--json"]).json();
        let tries = task["tries"].as_array().unwrap().iter();
        let details: Vec<&Value> = tries.map(|attempt| &attempt["detail"]).collect();
        assert_eq!(details, [&Value::from(1), &Value::from(2), &Value::Null]);
    }
}

#[test]
fn a_retried_task_has_all_its_retries_again() {
    let world = World::new();
    let fails = "echo x >> tries; false\n";
    world.packhorse_with(["run", "--slots", "1", "--retries", "1"], fails);
    assert_eq!(world.packhorse(["retry"]).code, 1);
    assert_eq!(world.read("tries"), "x\nx\nx\nx\n");
}

#[test]
fn resume_runs_what_an_interrupt_kept_from_running() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write("commands.txt", "cat gate; echo 1 >> out\necho 2 >> out\nfalse\necho 4 >> out\n");
    let mut running = world.start(["run", "--slots", "1", "commands.txt"]);
    running.wait_for("1.1 started");
    assert_eq!(interrupt_at(&gate, running).code, 130);
    assert_eq!(world.read("out"), "1\n");
    let list = world.packhorse(["ls", "--json"]).json();
    assert_eq!(list[0]["state"], "interrupted");

    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.starts_with("run 1 resumed"), "{done:?}");
    assert_eq!(world.read("out"), "1\n2\n4\n");
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("nothing to resume"), "{done:?}");
    assert!(done.stderr.contains("`packhorse retry 1`"), "{done:?}");
    assert_eq!(world.read("out"), "1\n2\n4\n");
}

#[test]
fn the_summary_and_the_exit_status_are_those_of_the_whole_run() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write("tasks", "false\ncat gate\ncat gate\necho rest\n");
    let mut running = world.start(["run", "--slots", "1", "tasks"]);
    running.wait_for("1.2 started");
    interrupt_at(&gate, running);
    let mut running = world.start(["resume"]);
    running.wait_for("1.3 started");
    let resumed = interrupt_at(&gate, running);
    let closing = "run 1 ended: 2 succeeded, 1 failed in all, 1 of them now, 1 left, in ";
    assert!(resumed.stdout.contains(closing), "{}", resumed.stdout);
    let resumed = world.packhorse(["resume"]);
    assert_eq!(resumed.code, 1, "{resumed:?}");
    let closing = "1 failure:\n  1 from before (packhorse show 1 --failed)\n\
        run 1 ended: 3 succeeded, 1 failed in all, 1 of them now, in ";
    assert!(resumed.stdout.contains(closing), "{}", resumed.stdout);
    // What runs again does not count twice.
    let retried = world.packhorse(["retry"]);
    assert_eq!(retried.code, 1, "{retried:?}");
    let closing = "1 failure:\n  1.1  exit status 1: false\n\
        run 1 ended: 3 succeeded, 1 failed in all, 1 of them now, in ";
    assert!(retried.stdout.contains(closing), "{}", retried.stdout);
}

#[test]
fn resume_runs_an_attempt_again_that_was_ended() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("test -e again && exec touch done; echo > said; exec sleep 1000\n");
    receive(&said);
    running.signal(Signal::TERM);
    running.wait_for("1 left");
    assert_eq!(running.finish().code, 143);
    world.write("again", "");
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("(attempt 2)"), "{done:?}");
    assert!(world.work().join("done").exists());
}

/// A run that was interrupted before any of these commands could start.
fn interrupted(world: &World, commands: &str) {
    let gate = world.fifo("gate");
    let commands = format!("#packhorse name=first\ncat gate\n{commands}");
    world.write("commands.txt", commands);
    let mut running = world.start(["run", "--gpus", "0", "commands.txt"]);
    running.wait_for("1.1 started");
    assert_eq!(interrupt_at(&gate, running).code, 130);
}

#[test]
fn resume_keeps_what_single_commands_asked_for() {
    let world = World::new();
    interrupted(
        &world,
        "#packhorse retries=1 name=tried\necho tried >> out; false\n\
         #packhorse after=tried\necho skipped >> out\n\
         #packhorse after=first cores=1\ntest $PACKHORSE_CPU_CORES && echo on $PACKHORSE_GPUS >> out\n",
    );
    let done = world.packhorse(["resume", "1", "--gpus", "6"]);
    assert_eq!(done.code, 1, "{done:?}");
    let out = world.read("out");
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["on 6", "tried", "tried"]);
}

#[test]
fn resume_starts_with_the_most_urgent() {
    let world = World::new();
    interrupted(
        &world,
        "#packhorse priority=5\necho last >> out\n\
         echo second >> out\n\
         #packhorse priority=-5\necho first >> out\n",
    );
    assert_eq!(world.packhorse(["resume"]).code, 0);
    assert_eq!(world.read("out"), "first\nsecond\nlast\n");
}

#[test]
fn lines_that_had_arrived_are_kept_for_resume() {
    let world = World::new();
    let gate = world.fifo("gate");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("cat gate\necho 2 >> out\n");
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    // Nobody may have read this yet when the run ends.
    running.send("echo 3 >> out\necho 4 >> out\n");
    running.end_input();
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stdout.contains("3 left"), "{done:?}");
    assert_eq!(world.packhorse(["resume"]).code, 0);
    assert_eq!(world.read("out"), "2\n3\n4\n");
}

#[test]
fn lines_that_had_arrived_unread_are_kept_for_resume() {
    use std::io::Write as _;
    let world = World::new();
    let path = world.fifo("queue");
    let mut running = world.start(["run", "--slots", "1", "queue"]);
    let mut queue = fs_err::OpenOptions::new().write(true).open(path).unwrap();
    running.wait_for("run 1 started");
    // Stopped, so that it finds the signal when it has read no more than remarks.
    running.signal(Signal::STOP);
    let stopped = rustix::process::WaitOptions::UNTRACED;
    rustix::process::waitpid(Some(running.pid()), stopped).unwrap();
    rustix::pipe::fcntl_setpipe_size(queue.file(), 256 * 1024).unwrap();
    let remarks = "# a remark\n".repeat(12_000);
    write!(queue, "{remarks}echo 1 >> out\necho 2 >> out\n").unwrap();
    running.signal(Signal::INT);
    running.signal(Signal::CONT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stdout.contains("2 left"), "{done:?}");
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("had not read all of its input"), "{done:?}");
    assert_eq!(world.read("out"), "1\n2\n");
}

/// The numbers of the tasks that were reported as succeeded.
fn reported(done: &Done) -> Vec<usize> {
    let lines = done.stdout.lines();
    lines
        .filter(|line| line.contains(" succeeded in "))
        .filter_map(|line| line.strip_prefix("1.")?.split(' ').next()?.parse().ok())
        .collect()
}

#[test]
fn a_killed_run_loses_no_result_and_resume_runs_exactly_the_rest() {
    const TASKS: usize = 120;
    let world = World::new();
    // Not all may run before they are told to, or nothing would be left to kill.
    let gate = world.gate("gate");
    let command = |n| format!("read x < gate; echo {n} >> ran\n");
    let commands: Vec<_> = (1..=TASKS).map(command).collect();
    world.write("commands.txt", commands.concat());
    let mut safe = Vec::new();
    for words in ["run --slots 2 commands.txt", "resume", "resume 1"] {
        let mut running = world.start(words.split(' '));
        gate.pass(30);
        for _ in 0..20 {
            running.wait_for(" succeeded in ");
        }
        running.signal(Signal::KILL);
        let done = running.finish();
        assert_eq!(done.code, 137, "{done:?}");
        safe.extend(reported(&done));
        let list = world.packhorse(["ls", "--json"]).json();
        assert_eq!(list[0]["state"], "died");
    }

    gate.pass(TASKS);
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    safe.extend(reported(&done));
    let ran = world.read("ran");
    for number in 1..=TASKS {
        let text = number.to_string();
        let times = ran.lines().filter(|line| *line == text).count();
        assert!(times >= 1, "{number} never ran");
        let told = safe.iter().filter(|told| **told == number).count();
        assert!(told <= 1, "{number} was reported, and ran again");
    }
    // Whoever had ended is not run again, reported or not: of three runs that were
    // killed, that leaves those who were in the two slots.
    let again = ran.lines().count() - TASKS;
    assert!(again <= 6, "{again} ran again");
    let list = world.packhorse(["ls", "--json"]).json();
    assert_eq!(list[0]["state"], "finished");
    assert_eq!(list[0]["succeeded"], TASKS);
    let done = world.packhorse(["resume"]);
    assert!(done.stderr.contains("nothing to do"), "{done:?}");
}

#[test]
fn resume_ends_what_a_killed_run_left_running() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send(
        "true\ntest -e again && exit 0; setsid sleep 1000 & \
         trap '' TERM; echo $$ $! > said; exec sleep 1001\n",
    );
    // What was reported is safe, and what came with it too.
    running.wait_for("1.1 succeeded");
    let pids = receive(&said);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    let pids: Vec<_> = pids.split_whitespace().collect();
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    world.write("again", "");
    // The same folder by another name.
    let link = world.work().join("link");
    std::os::unix::fs::symlink(world.home(), &link).unwrap();
    let mut command = world.command(["resume"]);
    command.env("PACKHORSE_HOME", link);
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("still ran and were ended"), "{done:?}");
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

#[test]
fn a_run_is_stopped_from_another_terminal_and_can_go_on() {
    for (words, ignore) in [(&["stop"][..], ""), (&["stop", "1", "--now"], "trap '' TERM; ")] {
        let world = World::new();
        let said = world.fifo("said");
        world.fifo("never");
        world.write(
            "tasks",
            format!("test -e again || {{ {ignore}echo > said; cat never; }}\necho rest\n"),
        );
        let mut running = world.start(["run", "--slots", "1", "tasks"]);
        running.wait_for("1.1 started");
        receive(&said);
        let stopped = world.packhorse(words);
        assert_eq!(stopped.code, 0, "{stopped:?}");
        assert!(stopped.stderr.contains("run 1 has stopped"), "{stopped:?}");
        let done = running.finish();
        assert!(done.stdout.contains("0 succeeded, 2 left"), "{done:?}");
        let again = world.packhorse(["stop"]);
        assert!(again.stderr.contains("run 1 is not running"), "{again:?}");
        world.write("again", "");
        assert_eq!(world.packhorse(["resume", "-q"]).code, 0);
    }
}

#[test]
fn what_a_killed_run_left_running_can_be_stopped() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("true\necho $$ > said; exec sleep 1000\n");
    running.wait_for("1.1 succeeded");
    let pid = receive(&said);
    running.signal(Signal::KILL);
    running.finish();
    assert!(is_alive(pid.trim()));
    let stopped = world.packhorse(["stop", "1"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let told = "run 1 was not running; a process that it had left behind was ended";
    assert!(stopped.stderr.contains(told), "{stopped:?}");
    assert!(!is_alive(pid.trim()));
}

#[test]
fn nobody_goes_on_with_a_run_while_what_it_left_is_stopped() {
    let world = World::new();
    let [ready, said, gate] = ["ready", "said", "gate"].map(|name| world.fifo(name));
    let task = "trap 'echo asked > said; read x < gate; exit' TERM; echo > ready; \
        while :; do sleep 1000 & wait; done";
    world.write("task", task);
    world.write("tasks", "exec sh task");
    let running = world.start(["run", "--slots", "1", "tasks"]);
    receive(&ready);
    running.signal(Signal::KILL);
    running.finish();
    let stopping = world.start(["stop", "1"]);
    receive(&said);
    let resumed = world.packhorse(["resume", "1"]);
    assert!(resumed.stderr.contains("run 1 is still running"), "{resumed:?}");
    release(&gate);
    assert_eq!(stopping.finish().code, 0);
}

#[test]
fn a_run_that_is_still_running_cannot_be_resumed() {
    let world = World::new();
    let gate = world.fifo("gate");
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("true\ncat gate\n");
    running.wait_for("1.1 succeeded");
    for verb in ["resume", "retry"] {
        let done = world.packhorse([verb, "1"]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("run 1 is still running"), "{done:?}");
    }
    let shown = world.packhorse(["show", "1"]).stdout;
    assert!(shown.starts_with("run 1  running"), "{shown}");
    release(&gate);
    assert_eq!(running.finish().code, 0);
}

#[test]
fn another_session_may_use_other_gpus() {
    let world = World::new();
    let fails = "echo $CUDA_VISIBLE_DEVICES >> out; test -e fixed\n";
    world.packhorse_with(["run", "--gpus", "0"], fails);
    assert_eq!(world.packhorse(["retry", "--gpus", "GPU-5"]).code, 1);
    world.write("fixed", "");
    assert_eq!(world.packhorse(["retry"]).code, 0);
    assert_eq!(world.read("out"), "0\nGPU-5\n0\n");
}

#[test]
fn another_session_runs_in_the_folder_of_the_first() {
    let world = World::new();
    assert_eq!(run(&world, "test -e fixed && pwd > out\n").code, 1);
    world.write("fixed", "");
    let mut command = world.command(["retry", "1"]);
    command.current_dir("/");
    assert_eq!(finish(command).code, 0);
    assert_eq!(world.read("out").trim(), world.work().to_str().unwrap());
}

#[test]
fn an_interrupted_sweep_runs_every_combination_once() {
    let world = World::new();
    let gate = world.fifo("gate");
    let template = "echo {a} {b} >> out; test $PACKHORSE_TASK != 1.4 || cat gate";
    let mut running = world.start([
        "sweep", template, "-p", "a", "1..60", "-p", "b", "1..50", "-n", "30", "--run", "--slots",
        "1",
    ]);
    running.wait_for("1.4 started");
    assert_eq!(interrupt_at(&gate, running).code, 130);
    assert_eq!(world.read("out").lines().count(), 4);
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    let out = world.read("out");
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 30, "{out}");
    assert_eq!(out.lines().count(), 30, "{out}");
}

#[test]
fn a_long_sweep_that_was_killed_is_generated_on_from_where_it_was() {
    const TASKS: usize = 2100;
    let world = World::new();
    let said = world.fifo("said");
    // Most of it has not even been generated by then.
    let template =
        "echo {n} >> out; test {n} != 3 || test -e again || {{ echo > said; sleep 1000; }}";
    let mut running = world.start([
        "sweep", template, "-p", "n", "1..2100", "--order", "grid", "--run", "--slots", "1",
    ]);
    receive(&said);
    running.wait_for("1.2 succeeded");
    running.signal(Signal::KILL);
    running.finish();
    world.write("again", "");
    let done = world.packhorse(["resume", "--quiet"]);
    assert_eq!(done.code, 0, "{done:?}");
    let mut wanted = vec!["1".to_owned(), "2".into(), "3".into()];
    wanted.extend((3..=TASKS).map(|n| n.to_string()));
    let out = world.read("out");
    assert!(out.lines().eq(wanted), "not all, twice, or in disorder");
}

#[test]
fn the_state_folder_is_its_owners_alone() {
    let mode = |world: &World| fs_err::metadata(world.home()).unwrap().permissions().mode() & 0o777;
    let (fresh, open) = (World::new(), World::new());
    run(&fresh, "true\n");
    assert_eq!(mode(&fresh), 0o700);
    // One that was there, and open to others, is somebody's decision.
    fs_err::create_dir(open.home()).unwrap();
    fs_err::set_permissions(open.home(), PermissionsExt::from_mode(0o755)).unwrap();
    let done = run(&open, "touch ran\n");
    assert_eq!((done.code, mode(&open)), (2, 0o755), "{done:?}");
    let said = "is open to other users (mode 755)\nhint: `chmod 700 ";
    assert!(done.stderr.contains(said), "{done:?}");
    assert!(!open.work().join("ran").exists());
}

#[test]
fn a_state_folder_that_is_made_again_during_a_run_is_its_owners_alone() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write("tasks", "cat gate; echo late\n");
    let mut running = world.start(["run", "--slots", "1", "tasks"]);
    running.wait_for("1.1 started");
    fs_err::rename(world.home(), world.work().join("away")).unwrap();
    release(&gate);
    running.finish();
    let log = world.home().join("runs/1/logs/1.1.log");
    assert_eq!(fs_err::read_to_string(log).unwrap(), "late\n");
    let mode = fs_err::metadata(world.home()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let world = World::new();
    run(&world, "true\n");
    let database = world.database();
    let mut bytes = fs_err::read(&database).unwrap();
    // Where SQLite keeps `user_version`, the most significant byte first.
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    fs_err::write(&database, bytes).unwrap();
    for words in ["ls", "show 1", "retry 1", "run --slots 1 -- touch out"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{words}: {done:?}");
        assert!(done.stderr.contains("is of version 9999"), "{words}: {done:?}");
        assert!(done.stderr.contains("hint: use the newer packhorse"), "{words}: {done:?}");
    }
    assert!(!world.work().join("out").exists());
}

/// Interrupts a run with these options while its first task runs: `echo` is left.
fn interrupted_on(machine: &Machine, options: &[&str]) {
    let gate = machine.world.gate("gate");
    let first = "test -e over || read x < gate";
    machine.world.write("tasks", format!("{first}\necho 2 >> out"));
    let mut running = machine.start(&[&["run", "--max-per-gpu", "1", "tasks"], options].concat());
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    // If that was only its probe, it is left as well.
    machine.world.write("over", "");
}

#[test]
fn in_slots_what_was_said_of_gpus_is_left_aside() {
    for options in [
        &["-g", "0.5"][..],
        &["--gpu-model", "Fake"],
        &["--vram", "20G"],
        &["--vram", "auto", "--probe", "{} || true"],
        &["--mps", "--thread-percentage", "50", "-g", "0.5"],
        &["--mps=false", "--thread-percentage", "50"],
        &["--ignore-process", "Xorg", "--place", "spread"],
    ] {
        let machine = Machine::new(1);
        interrupted_on(&machine, options);
        let done = machine.packhorse(&["resume", "--slots", "2"]);
        assert_eq!(done.code, 0, "{options:?}: {done:?}");
        assert_eq!(machine.world.read("out"), "2\n", "{options:?}: {done:?}");
        assert!(!done.stderr.contains("--thread"), "{options:?}: {done:?}");
        let counted = options.contains(&"--vram");
        let word = done.stderr.contains("--vram");
        assert_eq!(word, counted, "{options:?}: {done:?}");
        if counted {
            assert!(done.stderr.contains("nobody counts GPU memory"), "{done:?}");
        }
    }
}

#[test]
fn on_gpus_it_is_left_aside_that_tasks_needed_none() {
    let machine = Machine::new(1);
    interrupted_on(&machine, &["--slots", "1", "-g", "0"]);
    let done = machine.packhorse(&["resume", "--gpus", "0"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("1.2 started on GPU 0"), "{done:?}");
}

#[test]
fn resume_of_a_run_that_is_settled_has_its_exit_status() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1"], "false\ntrue\n");
    assert_eq!(done.code, 1, "{done:?}");
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stderr.contains("nothing to resume"), "{done:?}");
}

#[test]
fn stop_does_not_guess_which_of_several_runs_is_meant() {
    let world = World::new();
    let gate = world.gate("gate");
    let start = || {
        let mut running = world.start(["run", "--slots", "1", "--", "sh", "-c", "read x < gate"]);
        running.wait_for("started");
        running
    };
    let (first, second) = (start(), start());
    let done = world.packhorse(["stop"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("several runs are going on: 2, 1"), "{done:?}");
    assert_eq!(world.packhorse(["stop", "2", "--now"]).code, 0);
    second.finish();
    // Now it is clear.
    let done = world.packhorse(["stop", "--now"]);
    assert!(done.stderr.contains("run 1 has stopped"), "{done:?}");
    first.finish();
    drop(gate);
}

#[test]
fn a_fifo_in_the_state_folder_is_not_waited_for() {
    for name in ["id", "runs/last"] {
        let world = World::new();
        assert_eq!(world.packhorse(["run", "--slots", "1", "--", "true"]).code, 0);
        let path = world.home().join(name);
        fs_err::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let done = world.packhorse(["run", "--slots", "1", "--", "true"]);
        assert_eq!(done.code, 0, "{name}: {done:?}");
    }
}

/// The arguments of calls are gone with the program that waits for them.
#[test]
fn a_run_of_calls_is_neither_retried_nor_resumed_and_that_is_not_suggested() {
    let world = World::new();
    // What was typed is of no use to go on with, either.
    let done = world.packhorse(["run", "--calls", "--slots", "1", "--", "false"]);
    assert!(done.code == 1 && done.stdout.contains("run 1 ended"), "{done:?}");
    let told = done.stdout + &done.stderr;
    assert!(!told.contains("packhorse retry") && !told.contains("packhorse resume"), "{told}");
    let world = World::new();
    let here = world.fifo("here");
    world.fifo("never");
    let words = ["run", "--calls", "--json", "--slots", "1", "--tasks", "-"];
    let mut running = world.start(words);
    for command in ["echo first; exit 7", "echo > here; read x < never", "true"] {
        running.send(format!("{}\n", serde_json::json!({"command": command})));
    }
    running.end_input();
    receive(&here);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    let asked = [&["show", "1"][..], &["show", "1.1", "--json"], &["logs", "1.1"], &["why", "1.3"]];
    let before = asked.map(|words| world.packhorse(words).stdout);
    assert!(before[0].contains("exit status 7") && before[2] == "first\n", "{before:?}");
    for said in &before {
        assert!(!said.contains("packhorse retry") && !said.contains("packhorse resume"), "{said}");
    }
    for verb in ["retry", "resume"] {
        let done = world.packhorse([verb, "1"]);
        assert_eq!(done.code, 2, "{done:?}");
        let refusal = "error: run 1 belongs to a `packhorse.Executor`";
        let hint = "hint: start the program again";
        assert!(done.stderr.contains(refusal) && done.stderr.contains(hint), "{done:?}");
        assert_eq!(asked.map(|words| world.packhorse(words).stdout), before, "{verb}");
    }
}
