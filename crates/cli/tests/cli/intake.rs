//! How commands are read: as they arrive, in every form they come in.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use crate::support::{Done, World, finish, release};

/// Runs this standard input on one slot.
fn run(world: &World, input: impl AsRef<[u8]>) -> Done {
    world.packhorse_with(["run", "--slots", "1"], input)
}

/// The names of events about one task, in order.
fn told(events: &[Value], task: &str) -> Vec<String> {
    events
        .iter()
        .filter(|event| event["task"] == task)
        .map(|event| match event["outcome"].as_str() {
            Some(outcome) => outcome.to_owned(),
            None => event["event"].as_str().expect("a name").to_owned(),
        })
        .collect()
}

/// Where the first such event of a task stands among all events.
fn place(events: &[Value], task: &str, name: &str) -> usize {
    events
        .iter()
        .position(|event| event["task"] == task && event["event"] == name)
        .unwrap_or_else(|| panic!("{task} was never {name}"))
}

#[test]
fn a_line_runs_as_soon_as_it_has_arrived() {
    let world = World::new();
    let mut running = world.start(["run", "--slots", "1"]);
    running.send("echo one >> out\n");
    running.wait_for("1.1 succeeded");
    assert_eq!(world.read("out"), "one\n");
    // Half a line is none.
    running.send("echo tw");
    running.send("o >> out\n");
    running.wait_for("1.2 succeeded");
    assert_eq!(world.read("out"), "one\ntwo\n");
    running.send("echo three >> out");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo\nthree\n");
}

#[test]
fn a_named_pipe_is_read_as_it_comes() {
    let world = World::new();
    let queue = world.fifo("queue");
    let mut running = world.start(["run", "--slots", "1", "queue"]);
    let mut writer = fs_err::OpenOptions::new().write(true).open(queue).unwrap();
    for number in 1..=3 {
        use std::io::Write as _;
        writeln!(writer, "echo {number} >> out").unwrap();
        running.wait_for(&format!("1.{number} succeeded"));
    }
    drop(writer);
    assert_eq!(running.finish().code, 0);
    assert_eq!(world.read("out"), "1\n2\n3\n");
}

#[test]
fn blank_lines_and_remarks_are_skipped() {
    let world = World::new();
    let done = run(
        &world,
        "\n   \n\t\n# a remark\n  # another\necho one >> out # not a line of its own\n\n#",
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("1 succeeded"), "{done:?}");
    assert_eq!(world.read("out"), "one\n");
}

#[test]
fn a_backslash_continues_the_line() {
    let world = World::new();
    let done = run(&world, "echo one \\\n  two \\\n  three >> out\necho four >> out\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one two three\nfour\n");
}

#[test]
fn windows_line_ends_are_no_part_of_the_command() {
    let world = World::new();
    let done = run(&world, "echo one >> out\r\n\r\n# x\r\necho two >> out\r\ntouch plain\r\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo\n");
    assert!(world.work().join("plain").exists());
}

#[test]
fn commands_between_nul_bytes_may_have_several_lines() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--null"],
        "for n in 1 2; do\n  echo $n >> out\ndone\0\0# a remark in a script\necho 3 >> out\0echo 4 >> out",
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("3 succeeded"), "{done:?}");
    assert_eq!(world.read("out"), "1\n2\n3\n4\n");
}

#[test]
fn a_directive_sets_gpus_for_the_next_command_only() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--gpus", "4,5"],
        "#packhorse gpus=2\necho $CUDA_VISIBLE_DEVICES > both\n\
         echo $CUDA_VISIBLE_DEVICES > one\n",
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("both"), "4,5\n");
    assert_eq!(world.read("one").trim().len(), 1);
}

#[test]
fn a_directive_pins_a_task_to_cores() {
    let world = World::new();
    let done = run(
        &world,
        "#packhorse cores=1\n\
         echo $PACKHORSE_CPU_CORES > given; grep Cpus_allowed_list /proc/self/status > allowed\n",
    );
    assert_eq!(done.code, 0, "{done:?}");
    let given = world.read("given");
    assert!(given.trim().parse::<u32>().is_ok(), "one core: {given}");
    assert_eq!(world.read("allowed"), format!("Cpus_allowed_list:\t{given}"));
}

#[test]
fn the_lower_priority_number_goes_first_and_equals_keep_their_order() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write(
        "commands.txt",
        "cat gate\n\
         #packhorse priority=9\necho last >> out\n\
         echo third >> out\n\
         #packhorse priority=-7\necho first >> out\n\
         #packhorse priority=-7\necho second >> out\n\
         echo fourth >> out\n",
    );
    let mut running = world.start(["run", "--slots", "1", "--json", "commands.txt"]);
    running.wait_for("\"complete\":true");
    release(&gate);
    assert_eq!(running.finish().code, 0);
    assert_eq!(world.read("out"), "first\nsecond\nthird\nfourth\nlast\n");
}

#[test]
fn a_directive_sets_retries() {
    let world = World::new();
    let done = run(&world, "#packhorse retries=2\necho x >> often; false\necho x >> once; false\n");
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("often"), "x\nx\nx\n");
    assert_eq!(world.read("once"), "x\n");
}

#[test]
fn a_directive_sets_a_time_limit() {
    let world = World::new();
    world.fifo("never");
    let done = run(&world, "#packhorse timeout=100ms\ncat never\n");
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("1.1  ran past its time limit: cat never"), "{done:?}");
}

#[test]
fn a_task_starts_only_after_those_it_comes_after() {
    let world = World::new();
    let gate = world.fifo("gate");
    world.write(
        "commands.txt",
        "#packhorse name=prep\ncat gate\n\
         #packhorse name=train after=prep\ntrue\n\
         #packhorse after=train\n#packhorse after=prep\ntrue\n\
         true\n",
    );
    let mut running = world.start(["run", "--slots", "2", "--json", "commands.txt"]);
    // The last one has overtaken those that wait.
    running.wait_for("\"task\":\"1.4\"");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let events = done.events();
    let prepared = place(&events, "1.1", "finished");
    let trained = place(&events, "1.2", "finished");
    assert!(place(&events, "1.4", "started") < prepared);
    assert!(prepared < place(&events, "1.2", "started"));
    assert!(trained < place(&events, "1.3", "started"));
    let shown = world.packhorse(["show", "1"]).stdout;
    assert!(shown.contains("[train] true"), "{shown}");
}

#[test]
fn what_comes_after_a_failure_is_skipped() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "2", "--json"],
        "#packhorse name=a\nfalse\n\
         #packhorse name=b after=a\ntouch out\n\
         #packhorse after=b\ntouch out\n\
         touch independent\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    let events = done.events();
    assert_eq!(told(&events, "1.1"), ["started", "failed"]);
    assert_eq!(told(&events, "1.2"), ["skipped"]);
    assert_eq!(told(&events, "1.3"), ["skipped"]);
    assert_eq!(told(&events, "1.4"), ["started", "succeeded"]);
    assert!(!world.work().join("out").exists());
    assert!(world.work().join("independent").exists());
}

#[test]
fn a_mistake_in_a_file_starts_nothing() {
    let world = World::new();
    world.write("good.txt", "touch out\n");
    world.write("bad.txt", "touch out\n\n#packhorse prioriti=3\ntouch out\n");
    let done = world.packhorse(["run", "--slots", "1", "good.txt", "bad.txt"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("there is no option `prioriti`"), "{done:?}");
    assert!(done.stderr.contains("bad.txt:3:12"), "{done:?}");
    assert!(done.stderr.contains("did you mean `priority`?"), "{done:?}");
    assert!(done.stderr.contains("nothing was started"), "{done:?}");
    assert!(!world.work().join("out").exists());
    assert_eq!(world.packhorse(["ls"]).stdout, "no runs yet\n");
}

#[test]
fn a_wish_in_a_file_that_can_never_be_met_starts_nothing() {
    let world = World::new();
    world.write("big.txt", "touch out\n#packhorse gpus=3\ntouch out\n");
    let done = world.packhorse(["run", "--gpus", "0,1", "big.txt"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("3 GPUs"), "{done:?}");
    assert!(!world.work().join("out").exists());
}

#[test]
fn a_mistake_in_a_pipe_is_said_and_the_others_run() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--gpus", "0,1"],
        "echo one >> out\n\
         #packhorse retries=many\necho bad >> out\n\
         #packhorse gpus=2\necho two >> out\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    let mut lines: Vec<_> = world.read("out").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "two"], "{done:?}");
    assert!(done.stdout.contains("a line was not run"), "{done:?}");
    assert!(done.stdout.contains("standard input:2:20"), "{done:?}");
    assert!(!done.stdout.contains("failure"), "no task failed: {done:?}");
}

#[test]
fn a_wish_in_a_pipe_that_can_never_be_met_fails_and_the_others_run() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--gpus", "0,1"],
        "#packhorse gpus=3\necho too much >> out\necho one >> out\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("out"), "one\n");
    assert!(done.stdout.contains("1.1  it needs 3 GPUs"), "{done:?}");
}

#[test]
fn bytes_that_are_no_text_reach_the_command() {
    let world = World::new();
    let done = run(&world, b"printf %s '\xff\xc3(' > shell\ntouch plain-\xfe\n");
    assert_eq!(done.code, 0, "{done:?}");
    let bytes = fs_err::read(world.work().join("shell")).unwrap();
    assert_eq!(bytes, b"\xff\xc3(");
    let name = std::ffi::OsStr::from_bytes(b"plain-\xfe");
    assert!(world.work().join(name).exists());
}

#[test]
fn bytes_that_are_no_text_survive_the_store() {
    let world = World::new();
    let words = [&b"run"[..], b"--slots", b"1", b"--", b"cp", b"from-\xff", b"to"];
    let words = words.map(std::ffi::OsStr::from_bytes);
    assert_eq!(world.packhorse(words).code, 1);
    let from = world.work().join(words[5]);
    fs_err::write(from, "found").unwrap();
    let done = world.packhorse(["retry"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("to"), "found");
}

#[test]
fn folders_that_are_no_text_are_listed_as_bytes() {
    let world = World::new();
    let folder = world.work().join(std::ffi::OsStr::from_bytes(b"f-\xff"));
    let home = folder.join("home");
    fs_err::create_dir_all(&folder).unwrap();
    let packhorse = |words: &str| {
        let mut command = world.command(words.split(' '));
        command.current_dir(&folder).env("PACKHORSE_HOME", &home);
        let done = finish(command);
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str::<Value>(&done.stdout).unwrap_or_default()
    };
    packhorse("run --slots 1 -q -- printf here");
    let named = |value: &Value| value["bytes"].as_str().unwrap().to_owned();
    assert!(named(&packhorse("ls --json")[0]["folder"]).ends_with(r"f-\xff"));
    let task = packhorse("show 1.1 --json");
    assert!(named(&task["tries"][0]["log"]).contains(r"f-\xff/home"));
}

#[test]
fn a_line_of_a_megabyte_runs() {
    const LENGTH: usize = 1 << 20;
    let world = World::new();
    let long = "x".repeat(LENGTH);
    let done = run(&world, format!("printf %s '{long}' | wc -c > out\ntrue\n"));
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(world.read("out").trim(), LENGTH.to_string());
}

#[test]
fn more_lines_than_are_kept_in_memory_run_once_each_and_in_order() {
    const LINES: u32 = 450;
    let world = World::new();
    let gate = world.fifo("gate");
    // Long ones: a few MiB of them are kept.
    let padding = "x".repeat(10_000);
    let command = |n| format!("echo {n} >> out # {padding}\n");
    let commands: Vec<_> = (1..=LINES).map(command).collect();
    world.write("commands.txt", "cat gate\n".to_owned() + &commands.concat());
    let mut running = world.start(["run", "--slots", "1", "--json", "commands.txt"]);
    // All are known before the second one can start.
    running.wait_for("\"complete\":true");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 0, "{}", done.stderr);
    let ran = world.read("out");
    let wanted = (1..=LINES).map(|n| n.to_string());
    assert!(ran.lines().eq(wanted), "not all, twice, or in disorder");
}

#[test]
fn of_hundreds_of_mistakes_the_first_are_shown_and_the_rest_counted() {
    let world = World::new();
    for (mistakes, shown, more) in [(10, 10, None), (617, 10, Some("and 607 more"))] {
        world.write("commands", "a\0b\n".repeat(mistakes));
        for verb in ["run", "plan"] {
            let done = world.packhorse([verb, "--gpus", "0,1", "commands"]);
            assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{verb}");
            let errors = done.stderr.matches("contain a NUL byte").count();
            assert_eq!(errors, shown, "{verb}: {}", done.stderr);
            let line = done.stderr.lines().find(|line| line.contains(" more"));
            assert_eq!(line, more, "{verb}");
            let all = format!("because of {mistakes} mistakes");
            assert!(done.stderr.contains(&all), "{verb}: {}", done.stderr);
        }
    }
}

#[test]
fn a_line_that_is_longer_than_any_command_is_refused() {
    let world = World::new();
    let long = "x".repeat(16 << 20);
    let lines = format!("echo first >> out\ntrue {long}\necho last >> out\n");
    world.write("commands", &lines);
    let told = "this line is longer than 16 MiB";
    let done = world.packhorse(["run", "--slots", "1", "commands"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains(told), "{}", done.stderr);
    assert!(done.stderr.contains("commands:2:1"), "{}", done.stderr);
    assert!(!world.work().join("out").exists(), "nothing was started");
    // From a pipe, the others run.
    let done = world.packhorse_with(["run", "--slots", "1"], lines);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stdout.contains(told), "{}", done.stdout);
    assert!(done.stdout.len() < 10_000, "most of it is left out");
    assert_eq!(world.read("out"), "first\nlast\n");
}
