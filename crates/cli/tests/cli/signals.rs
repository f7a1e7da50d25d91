//! Ctrl-C once, twice, thrice, and the other signals.

use rustix::process::Signal;

use crate::support::{Running, World, finish, is_alive, receive, release};
use crate::terminal::Terminal;

/// A run on one slot whose first task is this, with another behind it.
fn start(world: &World, options: &[&str], first: &str) -> Running {
    world.write("commands.txt", format!("{first}\necho ran >> out\n"));
    let words = [&["run", "--slots", "1"], options, &["commands.txt"]].concat();
    world.start(words)
}

#[test]
fn the_first_interrupt_lets_running_tasks_finish_and_starts_no_others() {
    let world = World::new();
    let gate = world.fifo("gate");
    let mut running = start(&world, &[], "cat gate; echo finished >> out");
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    let line = running.wait_for("stopping");
    assert!(line.contains("1 running task may finish"), "{line}");
    assert!(line.contains("Ctrl-C again"), "{line}");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(world.read("out"), "finished\n");
    assert!(done.stdout.contains("1.1 succeeded"), "{done:?}");
    assert!(done.stdout.contains("1 succeeded, 1 left"), "{done:?}");
    assert!(done.stdout.contains("hint: `packhorse resume 1` runs the rest"), "{done:?}");
}

#[test]
fn a_failure_while_stopping_is_not_tried_again() {
    let world = World::new();
    let gate = world.fifo("gate");
    let mut running = start(&world, &["--retries", "3"], "echo x >> tries; cat gate; false");
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(world.read("tries"), "x\n");
    assert_eq!(world.read("out"), "");
}

#[test]
fn the_second_interrupt_terminates_running_tasks() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running = start(
        &world,
        &["--grace", "1h"],
        "trap 'echo terminated >> out; exit 0' TERM; echo > said; sleep 1000 & wait",
    );
    receive(&said);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    let line = running.wait_for("ending");
    assert!(line.contains("ending 1 running task"), "{line}");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(world.read("out"), "terminated\n");
    // Whatever its exit status: it was not allowed to finish.
    assert!(done.stdout.contains("0 succeeded, 2 left"), "{done:?}");
}

#[test]
fn the_third_interrupt_kills() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running =
        start(&world, &["--grace", "1h"], "trap '' TERM; echo $$ > said; exec sleep 1000");
    let pid = receive(&said);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    running.wait_for("ending");
    assert!(is_alive(&pid));
    running.signal(Signal::INT);
    running.wait_for("killing 1 running task");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(!is_alive(&pid));
    assert_eq!(world.read("out"), "");
}

#[test]
fn a_quit_kills_at_once_and_leaves_nobody_running() {
    let world = World::new();
    let said = world.fifo("said");
    let mut running = start(
        &world,
        &["--grace", "1h"],
        "trap 'echo asked >> out' TERM; echo $$ > said; sleep 1000 & wait",
    );
    let pid = receive(&said);
    running.signal(Signal::QUIT);
    running.wait_for("killing 1 running task");
    let done = running.finish();
    assert_eq!(done.code, 131, "{done:?}");
    assert!(!is_alive(&pid));
    assert_eq!(world.read("out"), "");
    assert!(done.stdout.contains("`packhorse resume 1`"), "{done:?}");
}

#[test]
fn a_task_that_ignores_its_end_is_killed_when_its_grace_is_over() {
    let world = World::new();
    let said = world.fifo("said");
    let running =
        start(&world, &["--grace", "100ms"], "trap '' TERM; echo $$ > said; exec sleep 1000");
    let pid = receive(&said);
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert!(!is_alive(&pid));
}

#[test]
fn sigterm_and_sighup_end_tasks_at_once_and_show_in_the_exit_status() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let world = World::new();
        let said = world.fifo("said");
        let running = start(
            &world,
            &["--grace", "1h"],
            "trap 'echo asked >> out; exit 0' TERM; echo > said; sleep 1000 & wait",
        );
        receive(&said);
        running.signal(signal);
        let done = running.finish();
        assert_eq!(done.code, code, "{done:?}");
        assert_eq!(world.read("out"), "asked\n");
        assert!(done.stdout.contains("`packhorse resume 1`"), "{done:?}");
    }
}

#[test]
fn under_nohup_a_hangup_changes_nothing() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write("commands.txt", "cat gate\necho ran >> out\n");
    let script = r#"trap '' HUP; exec "$@""#;
    let mut command = world.program("sh", ["-c", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_packhorse"));
    command.args(["run", "--slots", "1", "commands.txt"]);
    let mut running = Running::start(command);
    running.wait_for("1.1 started");
    running.signal(Signal::HUP);
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "ran\n");
}

#[test]
fn an_interrupt_when_nothing_is_left_to_start_is_no_interruption() {
    for (command, code) in [("cat gate", 0), ("cat gate; false", 1)] {
        let world = World::new();
        let gate = world.fifo("gate");
        world.write("commands.txt", command);
        let mut running = world.start(["run", "--slots", "1", "commands.txt"]);
        running.wait_for("1.1 started");
        running.signal(Signal::INT);
        running.wait_for("stopping");
        release(&gate);
        let done = running.finish();
        assert_eq!(done.code, code, "{done:?}");
        assert!(!done.stdout.contains("resume"), "{done:?}");
    }
}

#[test]
fn an_interrupt_ends_a_run_that_waits_for_input() {
    let world = World::new();
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("true\n");
    running.wait_for("1.1 succeeded");
    running.signal(Signal::INT);
    running.wait_for("run 1 ended");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
}

#[test]
fn a_tasks_whole_process_group_ends_with_it() {
    let world = World::new();
    let said = world.fifo("said");
    let running = start(
        &world,
        &[],
        "sleep 1000 & first=$!; (sleep 1001; :) & echo $$ $first $! > said; wait",
    );
    let pids = receive(&said);
    assert_eq!(pids.split_whitespace().count(), 3, "{pids}");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    for pid in pids.split_whitespace() {
        assert!(!is_alive(pid), "{pid} of {pids}");
    }
}

#[test]
fn every_process_of_the_group_is_asked_to_end() {
    let world = World::new();
    let said = world.fifo("said");
    world.write("child", "trap 'echo child >> out; exit' TERM; echo > said; sleep 1000 & wait");
    // It goes on only when its child has ended.
    let leader = "trap : TERM; sh child; echo leader >> out";
    let running = start(&world, &["--grace", "1h"], leader);
    receive(&said);
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    assert_eq!(world.read("out"), "child\nleader\n");
}

#[test]
fn a_stopped_task_is_woken_to_be_terminated() {
    let world = World::new();
    let said = world.fifo("said");
    world.fifo("never");
    let running = start(
        &world,
        &["--grace", "1h"],
        "trap 'echo woken >> out; exit 0' TERM; echo $$ > said; cat never & wait",
    );
    // It has stopped, or does so before it does anything else.
    let task = rustix::process::Pid::from_raw(receive(&said).trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(task, Signal::STOP).unwrap();
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert_eq!(world.read("out"), "woken\n");
}

#[test]
fn tasks_get_the_signals_that_packhorse_was_started_with() {
    let world = World::new();
    let grep = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let here = finish(world.program(grep[0], &grep[1..]));
    let task = [&["run", "--slots", "1", "--output", "inherit", "--"], &grep[..]].concat();
    let done = world.packhorse(task);
    assert_eq!(done.code, 0, "{done:?}");
    let (here, task) = (ordinary(&here.stdout), ordinary(&done.stdout));
    assert_eq!(here.len(), 2);
    assert_eq!(here, task);
}

/// Of lists of signals, those up to 31: the C library keeps the next for itself.
fn ordinary(status: &str) -> Vec<u64> {
    let sets = status.lines().filter(|line| line.starts_with("Sig"));
    sets.map(|line| {
        let digits = line.split_whitespace().last();
        let set = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        set.expect("the kernel's hexadecimal") & 0x7fff_ffff
    })
    .collect()
}

#[test]
fn whoever_ignores_the_ends_of_children_does_not_keep_us_from_seeing_them() {
    let world = World::new();
    let binary = env!("CARGO_BIN_EXE_packhorse");
    let words = ["--ignore-signal=CHLD", binary, "run", "--slots", "1", "--", "true"];
    let done = finish(world.program("env", words));
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn somebody_who_never_stops_writing_cannot_keep_a_run_from_ending() {
    let world = World::new();
    // The pipe may be empty for a moment, if this is a slow machine: then there is
    // no need to leave anything.
    while !ends_although_somebody_writes(&world).contains("the rest is left") {}
}

/// What a run says that ends while somebody writes commands for it all the time.
fn ends_although_somebody_writes(world: &World) -> String {
    use std::io::Write as _;
    let fifo = world.work().join("commands");
    if !fifo.exists() {
        world.fifo("commands");
    }
    let mut running = world.start(["run", "--slots", "1", "commands"]);
    let writer = std::thread::spawn(move || {
        let mut pipe = fs_err::OpenOptions::new().write(true).open(fifo).unwrap();
        // So much that it is never empty, however slow we are.
        rustix::pipe::fcntl_setpipe_size(pipe.file(), 1 << 20).unwrap();
        let lines = "sleep 1000\n".repeat(10_000);
        // Until nobody reads any more.
        while pipe.write_all(lines.as_bytes()).is_ok() {}
    });
    running.wait_for(".1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    let done = running.finish();
    writer.join().unwrap();
    assert_eq!(done.code, 130, "{done:?}");
    done.stdout
}

/// A terminal sends Ctrl-C to everybody in the foreground, and a task that was just started
/// may be there still.
#[test]
fn an_interrupt_never_reaches_a_task_that_is_just_starting() {
    for trial in 0..8 {
        let world = World::new();
        world.write("commands.txt", "true\n".repeat(20_000));
        let mut command = world.command(["run", "--slots", "8", "commands.txt"]);
        command.env("TERM", "xterm");
        let mut terminal = Terminal::start_with_keys(&command, 80, 24);
        terminal.wait_for("/20000 done");
        terminal.press(b"\x03");
        assert_eq!(terminal.finish(), 130, "{}", terminal.text());
        let text = terminal.text();
        assert!(text.contains("stopping: "), "{text}");
        assert!(!text.contains("SIGINT"), "trial {trial}: {text}");
        let counts = world.packhorse(["ls", "--json"]).stdout;
        let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
        assert_eq!(counts[0]["failed"], 0, "trial {trial}: {counts}");
    }
}
