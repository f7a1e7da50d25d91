//! Python tasks that start as copies of one that has imported their modules.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::json;

use packhorse_test_parts::needs;

use crate::support::{World, is_alive, receive, release};
use crate::terminal::Terminal;

/// A module that says who imports it.
const HEAVY: &str = "\
import os
with open(os.path.dirname(__file__) + '/imports', 'a') as file:
    print(os.getpid(), file=file)
";

fn world() -> World {
    let world = World::new();
    world.write("heavy.py", HEAVY);
    world
}

fn imports(world: &World) -> usize {
    world.read("imports").lines().count()
}

#[test]
fn every_door_has_it() {
    needs!(Python);
    let world = world();
    world.write("t.py", "import sys, heavy\nprint('did', sys.argv[1:])\n");
    let task = json!({"command": ["python3", "t.py", "x"], "preload": ["heavy"]});
    world.write("tasks.jsonl", format!("{task}\n{task}\n"));
    let directive = "#packhorse preload=heavy,json\npython3 t.py a\n";
    world.write("lines.txt", directive.repeat(2));
    world.write("plain.txt", "python3 t.py a\npython3 t.py b\n");
    let table = "Directory,Executable,Filename,Epochs,Priority\n.,-1,t.py,1,1\n.,-1,t.py,2,1\n";
    world.write("t.csv", table);
    let grid = "preload: [heavy]\ncommand: python3 t.py\ntest_config: [{a: [1, 2]}]\n";
    world.write("tests.yaml", grid);
    for (run, words) in (1..).zip([
        "run --slots 2 --tasks tasks.jsonl",
        "run --slots 2 lines.txt",
        "run --slots 2 --preload heavy plain.txt",
        "csv --slots 2 --preload heavy t.csv",
        "sweep TEMPLATE --run --slots 2 --preload heavy -p a 1 2",
        "grid --slots 2 tests.yaml",
        "run --slots 2 plain.txt",
    ]) {
        if run == 7 {
            world.write("packhorse.toml", "[task]\npreload = [\"heavy\"]\n");
        }
        let mut words: Vec<&str> = words.split(' ').collect();
        if words[1] == "TEMPLATE" {
            words[1] = "python3 t.py {a}";
        }
        words.splice(1..1, ["--output", "lines"]);
        let done = world.packhorse(&words);
        assert_eq!(done.code, 0, "{words:?}: {done:?}");
        assert_eq!(done.stdout.matches("| did [").count(), 2, "{words:?}: {done:?}");
        assert_eq!(imports(&world), run, "{words:?}: {done:?}");
    }
}

#[test]
fn it_stays_with_the_task_through_export_retry_and_resume() {
    needs!(Python);
    let world = world();
    let code = "import os, sys; sys.exit(not os.path.exists('good'))";
    let words = ["run", "--slots", "1", "--preload", "heavy", "--retries", "2", "--"];
    let done = world.packhorse(words.iter().chain(&["python3", "-c", code]));
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.stdout.matches("exit status 1").count(), 4, "{done:?}");
    assert_eq!(imports(&world), 1, "three attempts");
    let exported = world.packhorse(["export", "1"]).json();
    assert_eq!(exported["preload"], json!(["heavy"]));
    world.write("good", "");
    let done = world.packhorse(["retry", "1"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(imports(&world), 2);
}

#[test]
fn a_module_that_is_missing_fails_the_task_and_its_trace_is_in_the_log() {
    needs!(Python);
    let world = world();
    let words = "run --slots 1 --preload heavy,missing_module -- python3 -c pass";
    let done = world.packhorse(words.split(' '));
    assert_eq!(done.code, 1, "{done:?}");
    let why = "cannot preload missing_module: ModuleNotFoundError: No module named";
    assert!(done.stdout.contains(why), "{done:?}");
    let log = world.packhorse(["logs", "1.1"]);
    assert!(log.stdout.contains("ModuleNotFoundError"), "{log:?}");
}

#[test]
fn what_cannot_be_a_module_is_refused_before_anything_starts() {
    needs!(Python);
    let world = world();
    let words = ["run", "--slots", "1", "--preload", "a b", "--", "touch", "ran"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 2, "{done:?}");
    let why = "preload: `a b` cannot be the name of a Python module\nhint: ";
    assert!(done.stderr.contains(why), "{done:?}");
    world.write("lines.txt", "#packhorse preload=a,,b\ntouch ran\n");
    let done = world.packhorse(["run", "--slots", "1", "lines.txt"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("lines.txt:1:20"), "{done:?}");
    assert!(!world.work().join("ran").exists());
}

#[test]
fn other_commands_of_the_run_start_as_ever() {
    needs!(Python);
    let world = world();
    let input = "echo a > out\necho b >> out\npython3 -c pass\n";
    let done = world.packhorse_with(["run", "--slots", "1", "--preload", "heavy"], input);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "a\nb\n");
    let warning = "1.1 warning: nothing is preloaded for it: its command line is the shell's";
    assert_eq!(done.stdout.matches("warning").count(), 1, "{done:?}");
    assert!(done.stdout.contains(warning), "{done:?}");
}

#[test]
fn a_time_limit_holds_for_the_import_too() {
    needs!(Python);
    let world = World::new();
    world.fifo("never");
    world.write("heavy.py", "open('never').read()\n");
    let words = "run --slots 1 --preload heavy --timeout 300ms -- python3 -c pass";
    let done = world.packhorse(words.split(' '));
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("heavy could not be preloaded in time"), "{done:?}");
}

#[test]
fn interrupting_twice_ends_what_waits_for_its_modules() {
    needs!(Python);
    let world = World::new();
    let who = world.fifo("who");
    world.fifo("never");
    let heavy = "import os\nprint(os.getpid(), file=open('who', 'w'))\nopen('never').read()\n";
    world.write("heavy.py", heavy);
    let mut running = world.start("run --slots 1 --preload heavy".split(' '));
    running.send("python3 -c pass\n");
    let python = receive(&who);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stdout.contains("0 succeeded, 1 left"), "{done:?}");
    assert!(!is_alive(&python));
}

/// A task that says who it is, and a process of its own that nothing tells from others.
const FORKS: &str = "\
import os, signal, heavy
if os.path.exists('again'):
    raise SystemExit
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writer, b'%d' % os.getpid())
        signal.pause()
    os._exit(0)
os.wait()
print(os.getpid(), os.read(reader, 9).decode(), file=open('said', 'w'))
signal.pause()
";

#[test]
fn a_run_that_is_killed_leaves_no_python_and_resume_ends_its_tasks() {
    needs!(Python);
    let world = world();
    let said = world.fifo("said");
    world.write("t.py", FORKS);
    let mut running = world.start("run --slots 1 --preload heavy".split(' '));
    running.send("true\npython3 t.py\n");
    running.wait_for("1.1 succeeded");
    let pids = receive(&said);
    let python = world.read("imports");
    let number = Pid::from_raw(python.trim().parse().unwrap()).unwrap();
    let handle = pidfd_open(number, PidfdFlags::empty()).unwrap();
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    let mut ended = [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    world.write("again", "");
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("still ran and were ended"), "{done:?}");
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

#[test]
fn ctrl_c_in_a_terminal_reaches_neither_the_python_nor_its_tasks() {
    needs!(Python);
    let world = world();
    let [said, go] = ["said", "go"].map(|name| world.fifo(name));
    let code = "import os; print(os.getpid(), file=open('said', 'w')); open('go').read()";
    world.write("t.py", code);
    world.write("lines.txt", "python3 t.py\n");
    let command = world.command("run --slots 1 --preload heavy lines.txt".split(' '));
    let mut terminal = Terminal::start_with_keys(&command, 80, 24);
    let task = receive(&said);
    terminal.press(b"\x03");
    terminal.wait_for("stopping");
    assert!(is_alive(&task) && is_alive(&world.read("imports")));
    release(&go);
    terminal.finish();
    assert!(terminal.text().contains("1 succeeded"), "{}", terminal.text());
}

#[test]
fn a_terminal_is_one_for_a_task_that_inherits_it() {
    needs!(Python);
    let world = world();
    let code = "import sys; print('is', sys.stdout.isatty(), sys.stdout.line_buffering)";
    world.write("t.py", code);
    world.write("lines.txt", "python3 t.py\n");
    let words = "run --slots 1 --output inherit --preload heavy lines.txt";
    let command = world.command(words.split(' '));
    let mut terminal = Terminal::start_with_keys(&command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.text().contains("is True True"), "{}", terminal.text());
}

#[test]
fn a_log_that_the_task_writes_itself_has_its_output() {
    needs!(Python);
    let world = world();
    let words = "run --slots 1 --output file --preload heavy -- python3 -c print(1)";
    assert_eq!(world.packhorse(words.split(' ')).code, 0);
    assert_eq!(world.packhorse(["logs", "1.1"]).stdout, "1\n");
}

#[test]
fn a_task_sees_its_gpu_and_its_cores() {
    needs!(Python);
    let world = world();
    let code = "import os\n\
        print(os.environ['CUDA_VISIBLE_DEVICES'], len(os.sched_getaffinity(0)), \
        os.environ['PACKHORSE_TASK'], os.environ['PACKHORSE_GPUS'])\n";
    world.write("t.py", code);
    let input = "python3 t.py\n".repeat(4);
    let words = "run --gpus 5,7 --cores 1 --output lines --preload heavy";
    let done = world.packhorse_with(words.split(' '), input);
    assert_eq!(done.code, 0, "{done:?}");
    for task in 1..=4 {
        let line = |gpu| format!("1.{task} | {gpu} 1 1.{task} {gpu}\n");
        let has = [5, 7].iter().any(|gpu| done.stdout.contains(&line(gpu)));
        assert!(has, "{done:?}");
    }
    assert_eq!(imports(&world), 1);
}

#[test]
fn what_a_module_started_ends_with_the_run() {
    needs!(Python);
    let world = world();
    world.fifo("never");
    let helper = "\
import subprocess
helper = subprocess.Popen(['cat', 'never'])
with open('helper', 'w') as file:
    print(helper.pid, file=file)
";
    world.write("starts.py", helper);
    let words = "run --slots 1 --preload starts -- python3 -c pass";
    let done = world.packhorse(words.split(' '));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!is_alive(&world.read("helper")));
}
