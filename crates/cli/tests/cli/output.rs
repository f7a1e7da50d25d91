//! What is printed of a run, and what becomes of the tasks' own output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{World, receive, release, wait_until};

#[test]
fn off_a_terminal_every_event_is_one_plain_line() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--gpus", "0,1"], "true\n");
    let lines: Vec<_> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{done:?}");
    assert_eq!(lines[0], "run 1 started, on GPUs 0, 1");
    assert_eq!(lines[1], "1.1 started on GPU 0: true");
    assert!(lines[2].starts_with("1.1 succeeded in "), "{done:?}");
    assert!(lines[3].starts_with("run 1 ended: 1 succeeded in "), "{done:?}");
    assert!(!done.stdout.contains('\u{1b}'), "{done:?}");
    assert_eq!(done.stderr, "");
}

#[test]
fn a_command_is_one_line_and_cannot_control_the_terminal() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1", "--null"], "true\ntrue '\u{1b}[2J'");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.lines().count(), 4, "{done:?}");
    assert!(!done.stdout.contains('\u{1b}'), "{done:?}");
}

#[test]
fn json_tells_every_event_of_every_task_in_order() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--gpus", "5", "--json", "--retries", "1", "--output", "lines"],
        "echo out; echo err >&2\necho again; exit 3\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    let events = done.events();
    assert!(events.iter().all(|event| event["time"].is_f64()), "{done:?}");
    let of = |task: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["task"] == task).collect()
    };
    let names = |events: &[&Value]| -> Vec<String> {
        let names = events.iter().map(|event| event["event"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };

    let start = &events[0];
    assert_eq!(start["event"], "run-started");
    assert_eq!(start["run"], 1);
    assert_eq!(start["gpus"], serde_json::json!(["5"]));

    let first = of("1.1");
    assert_eq!(names(&first), ["started", "output", "output", "finished"]);
    assert_eq!(first[0]["command"], "echo out; echo err >&2");
    assert_eq!(first[0]["gpus"], serde_json::json!(["5"]));
    for output in &first[1..3] {
        let line = if output["stream"] == "stdout" { "out" } else { "err" };
        assert_eq!(output["line"], line);
    }
    assert_eq!(first[3]["outcome"], "succeeded");
    assert!(first[3]["log"].as_str().is_some_and(|log| log.contains("/logs/")));

    let second = of("1.2");
    let wanted = ["started", "output", "retrying", "started", "output", "finished"];
    assert_eq!(names(&second), wanted);
    assert_eq!(second[1]["line"], "again");
    assert_eq!(second[2]["left"], 0);
    assert_eq!(second[3]["attempt"], 2);
    assert_eq!(second[5]["outcome"], "failed");
    assert_eq!(second[5]["detail"], 3);

    let end = events.last().unwrap();
    assert_eq!(end["event"], "run-ended");
    assert_eq!(end["succeeded"], 1);
    assert_eq!(end["failed"], 1);
    assert_eq!(end["exit"], 1);
}

#[test]
fn a_line_without_end_is_told_when_its_attempt_is_over() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--json", "--retries", "1", "--output", "lines"],
        "printf $PACKHORSE_ATTEMPT >&2; exit 1\n",
    );
    let events = done.events();
    let of_task = events.iter().filter(|event| event["task"] == "1.1");
    let told: Vec<_> = of_task
        .map(|event| match event["line"].as_str() {
            Some(line) => format!("{line} on {}", event["stream"]),
            None => event["event"].as_str().unwrap().to_owned(),
        })
        .collect();
    let output = ["1 on \"stderr\"", "2 on \"stderr\""];
    assert_eq!(told, ["started", output[0], "retrying", "started", output[1], "finished"]);
}

#[test]
fn quiet_says_only_what_goes_wrong_and_the_summary() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1", "--quiet"], "true\nexit 3\ntrue\n");
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.contains("started"), "{done:?}");
    assert!(!done.stdout.contains("1.1 "), "{done:?}");
    assert!(done.stdout.starts_with("1.2 failed after "), "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 2 succeeded, 1 failed"));
}

#[test]
fn lines_of_two_tasks_are_never_torn() {
    let world = World::new();
    let [a, b] = ["a", "b"].map(|name| {
        let script = format!(
            "for n in 1 2 3; do printf '{name}$n-'; printf '{name}$n=' >&2; \
             echo > {name}.said; cat {name}.go; printf '{name}$n\\n'; \
             printf '{name}$n\\n' >&2; done"
        )
        .replace("$n", "'$n'");
        world.write(name, script);
        let name = |end: &str| world.fifo(&format!("{name}.{end}"));
        (name("said"), name("go"))
    });
    let mut running = world.start(["run", "--slots", "2", "--output", "lines"]);
    running.send("sh a\nsh b\n");
    for _ in 1..=3 {
        // Both have written half a line before either may go on.
        receive(&a.0);
        receive(&b.0);
        release(&a.1);
        release(&b.1);
    }
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let mut shown: Vec<_> = done.stdout.lines().filter(|line| line.contains(" | ")).collect();
    shown.sort_unstable();
    let mut wanted: Vec<_> = [("1.1", "a"), ("1.2", "b")]
        .iter()
        .flat_map(|(task, name)| {
            (1..=3).flat_map(move |n| {
                ["-", "="].map(|mark| format!("{task} | {name}{n}{mark}{name}{n}"))
            })
        })
        .collect();
    wanted.sort_unstable();
    assert_eq!(shown, wanted);
}

#[test]
fn inherited_output_comes_straight_through_and_is_not_logged() {
    let world = World::new();
    let done = world
        .packhorse_with(["run", "--slots", "1", "--output", "inherit"], "echo out; echo err >&2\n");
    assert_eq!(done.code, 0, "{done:?}");
    // In the order in which it happened.
    let lines: Vec<_> = done.stdout.lines().take(3).collect();
    assert!(lines[0].starts_with("run 1 started"), "{done:?}");
    assert!(lines[1].starts_with("1.1 started"), "{done:?}");
    assert_eq!(lines[2], "out", "{done:?}");
    assert_eq!(done.stderr, "err\n");
    let logs = world.packhorse(["logs", "1.1"]);
    assert_eq!(logs.stdout, "");
}

#[test]
fn both_streams_are_in_the_log_and_can_be_told_apart() {
    let world = World::new();
    let done =
        world.packhorse_with(["run", "--slots", "1"], "echo one; echo two >&2; printf three\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("\none"), "only into the log: {done:?}");
    let logs = |option: &[&str]| {
        let done = world.packhorse([&["logs", "1.1"], option].concat());
        assert_eq!(done.code, 0, "{done:?}");
        done.stdout
    };
    let mut all: Vec<_> = logs(&[]).split_inclusive('\n').map(str::to_owned).collect();
    all.sort();
    assert_eq!(all.concat().len(), "one\ntwo\nthree".len(), "{all:?}");
    assert_eq!(logs(&["--stdout"]), "one\nthree");
    assert_eq!(logs(&["--stderr"]), "two\n");
}

#[test]
fn a_run_goes_on_when_nobody_reads_its_output_any_more() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write("commands.txt", "cat gate\necho two >> out\necho three >> out\n");
    let mut child = world
        .command(["run", "--slots", "1", "commands.txt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("run 1 "), "{line}");
    drop(stdout);
    release(&gate);
    let mut warnings = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut warnings).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{warnings}");
    assert_eq!(world.read("out"), "two\nthree\n");
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    assert!(warnings.contains("cannot write to standard output"), "{warnings}");
}

#[test]
fn a_task_that_writes_much_neither_blocks_others_nor_fills_the_memory() {
    const HALF: u64 = 100_000_000;
    let world = World::new();
    let [half, written, gate] = ["half", "written", "gate"].map(|name| world.fifo(name));
    let mut running = world.start(["run", "--slots", "2"]);
    running.send(format!(
        "head -c {HALF} /dev/zero; echo > half; head -c {HALF} /dev/zero; echo > written; cat gate\n"
    ));
    receive(&half);
    running.send("echo me too\n");
    running.wait_for("1.2 succeeded");
    receive(&written);
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let status = fs_err::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .and_then(|peak| peak.trim().strip_suffix(" kB"))
        .and_then(|peak| peak.parse().ok())
        .expect("the kernel tells the peak");
    assert!(peak < 40 * 1024, "{peak} kB");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let mut logs = world.command(["logs", "1.1"]).stdout(Stdio::piped()).spawn().unwrap();
    let bytes = std::io::copy(&mut logs.stdout.take().unwrap(), &mut std::io::sink());
    assert_eq!(bytes.unwrap(), 2 * HALF);
    assert!(logs.wait().unwrap().success());
    assert_eq!(world.packhorse(["logs", "1.2"]).stdout, "me too\n");
}

#[test]
fn tasks_go_on_though_nobody_reads_what_is_printed() {
    let world = World::new();
    let [flooded, end] = ["flooded", "end"].map(|name| world.fifo(name));
    let mut running = world.start(["run", "--slots", "1", "--output", "lines"]);
    // More than any pipe holds, and nobody takes it out.
    running.send(
        "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 999\necho over > flooded; cat end\n",
    );
    assert_eq!(receive(&flooded), "over\n");
    release(&end);
    let done = running.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("1.2 succeeded"));
}

/// A task that writes 30,000 lines, far more than is kept for a reader who does
/// not read; then says so, waits, and writes a last one.
const FLOOD: &str = "head -c 29970000 /dev/zero | tr '\\0' x | fold -w 999; echo; \
                     echo > flooded; cat end; echo last\n";

#[test]
fn a_slow_reader_misses_nothing_but_lines_that_are_in_the_log() {
    let world = World::new();
    let [flooded, end] = ["flooded", "end"].map(|name| world.fifo(name));
    let mut running = world.start(["run", "--slots", "1", "--output", "lines", "--json"]);
    running.send(FLOOD);
    running.end_input();
    receive(&flooded);
    // Now it reads on, until there is room again.
    for _ in 0..12_000 {
        running.wait_for("output");
    }
    release(&end);
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    let events = done.events();
    let of = |name: &str| -> Vec<&Value> {
        let of_name = events.iter().filter(|event| event["event"] == name);
        of_name.collect()
    };
    let shown = of("output");
    assert_eq!(shown.last().unwrap()["line"], "last");
    let left_out = of("warning").into_iter().map(|warning| {
        assert_eq!(warning["task"], "1.1");
        let message = warning["message"].as_str().unwrap();
        assert!(message.ends_with("packhorse logs 1.1"), "{message}");
        message.split(' ').next().unwrap().parse::<usize>().unwrap()
    });
    let left_out: usize = left_out.sum();
    assert!(left_out > 10_000, "{left_out}");
    assert_eq!(shown.len() + left_out, 30_001);
    let ends: Vec<_> = events.iter().rev().map(|event| &event["event"]).collect();
    assert_eq!(ends[..2], ["run-ended", "finished"]);
    let log = world.packhorse(["logs", "1.1"]).stdout;
    assert_eq!(log.lines().count(), 30_001);
}

#[test]
fn a_reader_who_comes_when_the_run_is_over_is_told_how_it_ended() {
    let world = World::new();
    let [flooded, end] = ["flooded", "end"].map(|name| world.fifo(name));
    let mut running = world.start(["run", "--slots", "1", "--output", "lines"]);
    running.send(FLOOD);
    running.end_input();
    receive(&flooded);
    release(&end);
    wait_until_over(&world);
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    let last: Vec<_> = done.stdout.lines().rev().take(3).collect();
    assert!(last[0].starts_with("run 1 ended: 1 succeeded in "));
    assert!(last[1].starts_with("1.1 succeeded in "));
    let warning = "lines of its output left out";
    assert!(last[2].contains(warning), "{}", last[2]);
}

#[test]
fn an_interrupt_ends_a_program_that_only_waits_for_its_reader() {
    use std::os::unix::process::ExitStatusExt as _;
    let world = World::new();
    let words = ["run", "--slots", "1", "--output", "lines", "--"];
    let mut child = world
        .command(words.into_iter().chain(["seq", "100000"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_over(&world);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// Waits until the run is over, though whoever reads of it may not know.
fn wait_until_over(world: &World) {
    wait_until(&world.home(), || world.packhorse(["ls"]).stdout.contains(" finished "));
}
