//! `packhorse run --tasks`: a JSON object per line, and what each of its members does.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::machine::{Machine, holding, taking};
use crate::support::{Done, World, receive, release, wait_until};

/// The lines of these tasks.
fn lines(tasks: &[Value]) -> String {
    let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
    lines.join("\n") + "\n"
}

/// Runs these tasks from a file, one at a time.
fn run(world: &World, tasks: &[Value], options: &[&str]) -> Done {
    world.write("tasks.jsonl", lines(tasks));
    let words = ["run", "--slots", "1", "--tasks", "tasks.jsonl"];
    world.packhorse([&words[..], options].concat())
}

#[test]
fn a_string_is_for_the_shell_and_a_list_is_a_program_with_its_arguments() {
    let world = World::new();
    let shown = "printf '<%s>' \"$@\" > words";
    let done = run(
        &world,
        &[
            json!({"command": "echo $((1 + 1)) > line"}),
            json!({"command": ["sh", "-c", shown, "sh", "a b", "$HOME", "", "*"]}),
        ],
        &[],
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("line"), "2\n");
    assert_eq!(world.read("words"), "<a b><$HOME><><*>");
}

#[test]
fn a_task_runs_as_soon_as_its_line_has_arrived() {
    let world = World::new();
    let mut running = world.start(["run", "--slots", "1", "--tasks", "-"]);
    running.send("{\"command\": \"echo one >> out\"}\n\n");
    running.wait_for("1.1 succeeded");
    // Half a line is none.
    running.send("{\"command\": \"echo two >> out\", ");
    running.send("\"retries\": 1}\n");
    running.wait_for("1.2 succeeded");
    assert_eq!(world.read("out"), "one\ntwo\n");
    running.send("{\"command\": \"echo three >> out\"}");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo\nthree\n");
}

#[test]
fn a_task_comes_after_those_it_names_and_is_skipped_if_one_fails() {
    let world = World::new();
    let done = run(
        &world,
        &[
            json!({"command": "echo prep >> out", "name": "prep", "priority": 9}),
            json!({"command": "echo train >> out; exit 3", "name": "train", "after": ["prep"]}),
            json!({"command": "echo never >> out", "after": ["prep", "train"]}),
            json!({"command": "echo free >> out", "priority": 1}),
        ],
        &["--json"],
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("out"), "free\nprep\ntrain\n");
    let events = done.events();
    let skipped = events.iter().find(|event| event["outcome"] == "skipped");
    assert_eq!(skipped.unwrap()["task"], "1.3");
}

#[test]
fn a_mistake_in_a_file_starts_nothing_and_is_shown_where_it_is() {
    let world = World::new();
    let touch = |extra: &str| format!("{{\"command\": \"touch out\", {extra}}}\n");
    for (line, said) in [
        (touch("\"retires\": 2"), "did you mean `retries`?"),
        (touch("\"after\": [\"prep\"]"), "no earlier task is called"),
        (touch("\"env\": {\"A\": 1}"), "an object whose values are text"),
        (touch("\"vram\": \"9 sheep\""), "`vram`: `9 sheep`"),
        (touch("\"cores\": 1, \"cores\": 2"), "given twice"),
        ("{\"name\": \"a\"}\n".to_owned(), "has no command"),
        ("{\"command\": \"touch out\"\n".to_owned(), "not JSON"),
        ("touch out\n".to_owned(), "a JSON object"),
    ] {
        world.write("bad.jsonl", "{\"command\": \"touch out\"}\n".to_owned() + &line);
        let done = world.packhorse(["run", "--slots", "1", "--tasks", "bad.jsonl"]);
        assert_eq!(done.code, 2, "{line}{done:?}");
        assert!(done.stderr.contains(said), "{line}{done:?}");
        assert!(done.stderr.contains("bad.jsonl:2:"), "{line}{done:?}");
        assert!(done.stderr.contains("nothing was started"), "{done:?}");
    }
    assert!(!world.work().join("out").exists());
    assert_eq!(world.packhorse(["ls"]).stdout, "no runs yet\n");
}

#[test]
fn a_mistake_in_a_pipe_is_told_and_the_others_run() {
    let world = World::new();
    let input = "{\"command\": \"echo one >> out\"}\n\
                 {\"command\": \"echo bad >> out\", \"foldr\": \"x\", \"retris\": 1}\n\
                 {\"command\": \"echo two >> out\"}\n";
    let done = world.packhorse_with(["run", "--slots", "1", "--tasks", "-", "--json"], input);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo\n");
    let events = done.events();
    let warnings = events.iter().filter(|event| event["event"] == "warning");
    let warnings: String = warnings.map(|event| event["message"].to_string()).collect();
    for said in ["standard input:2:", "did you mean `folder`?", "did you mean `retries`?"] {
        assert!(warnings.contains(said), "{warnings}");
    }
    // One line, however many mistakes.
    assert_eq!(events.last().unwrap()["rejected"], 1, "{done:?}");
}

#[test]
fn what_can_never_run_in_a_file_starts_nothing() {
    let world = World::new();
    world.write(
        "tasks.jsonl",
        "{\"command\": \"touch out\"}\n{\"command\": \"touch out\", \"gpus\": 3}\n",
    );
    let done = world.packhorse(["run", "--gpus", "0,1", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("tasks.jsonl:2:"), "{done:?}");
    assert!(done.stderr.contains("3 GPUs"), "{done:?}");
    assert!(!world.work().join("out").exists());
}

#[test]
fn task_lines_and_commands_are_not_mixed() {
    let world = World::new();
    world.write("tasks.jsonl", "{\"command\": \"touch out\"}\n");
    world.write("commands.txt", "touch out\n");
    for more in [&["commands.txt"][..], &["--", "touch", "out"], &["-0"]] {
        let words = ["run", "--slots", "1", "--tasks", "tasks.jsonl"];
        let done = world.packhorse([&words[..], more].concat());
        assert_eq!(done.code, 2, "{done:?}");
    }
    assert!(!world.work().join("out").exists());
}

#[test]
fn the_folder_and_the_results_are_the_tasks_own() {
    let world = World::new();
    fs_err::create_dir(world.work().join("code")).unwrap();
    let elsewhere = world.work().join("deep/er");
    let note = "pwd > $PACKHORSE_RESULTS/pwd";
    let done = run(
        &world,
        &[
            json!({"command": note, "folder": "code", "results": "made/here"}),
            json!({"command": note, "results": elsewhere}),
            json!({"command": "echo ${PACKHORSE_RESULTS-none} > out"}),
        ],
        &[],
    );
    assert_eq!(done.code, 0, "{done:?}");
    let work = world.work().canonicalize().unwrap();
    let code = work.join("code");
    assert_eq!(world.read("code/made/here/pwd").trim(), code.to_str().unwrap());
    assert_eq!(world.read("deep/er/pwd").trim(), work.to_str().unwrap());
    assert_eq!(world.read("out"), "none\n");
}

#[test]
fn a_folder_that_is_not_there_and_results_that_cannot_be_made_fail_their_task_alone() {
    let world = World::new();
    world.write("file", "");
    let done = run(
        &world,
        &[
            json!({"command": "true", "folder": "nowhere"}),
            json!({"command": "true", "results": "file/below"}),
            json!({"command": "echo ran > out"}),
        ],
        &["--json"],
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("out"), "ran\n");
    for (task, said) in [("1.1", "nowhere"), ("1.2", "file/below")] {
        let events = done.events();
        let mut ends = events.iter().filter(|event| event["event"] == "finished");
        let end = ends.find(|event| event["task"] == task).unwrap();
        assert_eq!(end["outcome"], "not-started", "{end}");
        assert!(end["message"].as_str().unwrap().contains(said), "{end}");
    }
}

#[test]
fn parameters_reach_their_task_as_json_of_any_kind() {
    let world = World::new();
    let params =
        json!({"lr": 0.1, "layers": [1, 2], "opt": {"name": "adam"}, "x": null, "t": true});
    let command = "printf %s \"$PACKHORSE_PARAMS\" > params";
    let mut command_of = world.command(["run", "--slots", "1", "--tasks", "tasks.jsonl"]);
    world.write(
        "tasks.jsonl",
        lines(&[
            json!({"command": command, "params": params}),
            json!({"command": "printf %s \"${PACKHORSE_PARAMS-none}\" > none"}),
        ]),
    );
    // Those of a task that we run in ourselves are not handed on.
    command_of.env("PACKHORSE_PARAMS", "{}");
    let done = crate::support::finish(command_of);
    assert_eq!(done.code, 0, "{done:?}");
    let told: Value = serde_json::from_str(&world.read("params")).unwrap();
    assert_eq!(told, params);
    assert_eq!(world.read("none"), "none");
}

#[test]
fn a_variable_that_the_kernel_does_not_take_is_named() {
    let world = World::new();
    let long = "x".repeat(140_000);
    let done = run(&world, &[json!({"command": "true", "params": {"long": long}})], &[]);
    assert_eq!(done.code, 1, "{done:?}");
    let said = "bytes of the variable PACKHORSE_PARAMS are more than the kernel takes";
    assert!(done.stdout.contains(said), "{done:?}");
}

#[test]
fn a_log_goes_where_its_task_wants_it_and_later_attempts_beside_it() {
    let world = World::new();
    fs_err::create_dir(world.work().join("code")).unwrap();
    let done = run(
        &world,
        &[json!({
            "command": "echo attempt $PACKHORSE_ATTEMPT; echo oops >&2; test $PACKHORSE_ATTEMPT = 2",
            "folder": "code", "log": "logs/train.log", "retries": 1,
        })],
        &["--json"],
    );
    assert_eq!(done.code, 0, "{done:?}");
    // Two streams may arrive in either order.
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let written = |name| sorted(world.read(name));
    assert_eq!(written("code/logs/train.log"), ["attempt 1", "oops"]);
    assert_eq!(written("code/logs/train.2.log"), ["attempt 2", "oops"]);
    let second = world.work().join("code/logs/train.2.log");
    let events = done.events();
    let end = events.iter().find(|event| event["event"] == "finished");
    assert_eq!(end.unwrap()["log"], second.to_str().unwrap());

    let shown = world.packhorse(["logs", "1.1"]).stdout;
    assert_eq!(sorted(shown), ["attempt 2", "oops"]);
    let logs = world.packhorse(["logs", "1.1", "--attempt", "1", "--stdout"]);
    assert_eq!(logs.stdout, "attempt 1\n");
    let path = world.packhorse(["logs", "1.1", "--path"]).stdout;
    assert_eq!(path.trim(), second.to_str().unwrap());
    let shown = world.packhorse(["show", "1.1"]).stdout;
    for name in ["code/logs/train.log", "code/logs/train.2.log"] {
        assert!(shown.contains(name), "{shown}");
    }
}

#[test]
fn nothing_but_its_log_is_put_where_a_task_wants_it() {
    let world = World::new();
    // A line that is too long for an argument goes into a script.
    let long = format!("echo out; echo err >&2 #{}", "x".repeat(200_000));
    for name in ["train.idx", "train.sh"] {
        world.write(name, "precious");
    }
    let done = run(&world, &[json!({"command": long, "log": "train.log"})], &[]);
    assert_eq!(done.code, 0, "{done:?}");
    for name in ["train.idx", "train.sh"] {
        assert_eq!(world.read(name), "precious");
    }
    let stderr = world.packhorse(["logs", "1.1", "--stderr"]).stdout;
    assert_eq!(stderr, "err\n");
}

#[test]
fn a_log_of_its_own_can_be_followed_before_its_folder_is_there() {
    let world = World::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| world.gate(name));
    let command = "read x < second; echo one; read x < third; echo two";
    let tasks = lines(&[
        json!({"command": "read x < first"}),
        json!({"command": command, "log": "made/for/this.log"}),
    ]);
    world.write("tasks.jsonl", tasks);
    let words = "run --slots 1 --tasks tasks.jsonl";
    let mut running = world.start(words.split(' '));
    // Until it is in the store.
    wait_until(&world.home(), || world.packhorse(["show", "1.2"]).code == 0);
    let mut follower = world.start(["logs", "-f", "1.2"]);
    first.pass(1);
    running.wait_for("1.2 started");
    second.pass(1);
    follower.wait_for("one");
    third.pass(1);
    assert_eq!(follower.finish().stdout, "one\ntwo\n");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn a_task_has_a_time_limit_and_a_grace_of_its_own() {
    let world = World::new();
    let gate = world.fifo("gate");
    let said = world.fifo("said");
    // The second ignores its end, and the run would have it killed after an hour.
    world.write(
        "tasks.jsonl",
        lines(&[
            json!({"command": "cat gate; echo lasted > out", "timeout": "never"}),
            json!({"command": "trap '' TERM; exec sleep 1000", "grace": "10ms"}),
            json!({"command": "echo > said; exec sleep 1000", "timeout": 0.05}),
        ]),
    );
    let words = "run --slots 3 --timeout 200ms --grace 1h --json --tasks tasks.jsonl";
    let mut running = world.start(words.split(' '));
    receive(&said);
    // The limit of the run is over when the second has been killed.
    let mut ends = String::new();
    for _ in 0..2 {
        ends += &running.wait_for("\"event\":\"finished\"");
    }
    assert_eq!(ends.matches("timed-out").count(), 2, "{ends}");
    release(&gate);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("out"), "lasted\n");
}

#[test]
fn a_task_has_a_priority_and_retries_of_its_own() {
    let world = World::new();
    let gate = world.gate("gate");
    let note = |name: &str| format!("echo {name} >> out; false");
    world.write(
        "tasks.jsonl",
        lines(&[
            json!({"command": "read x < gate", "priority": -9}),
            json!({"command": note("late"), "priority": 5, "retries": 0}),
            json!({"command": note("usual")}),
            json!({"command": note("first"), "priority": -1, "retries": 2}),
        ]),
    );
    let words = "run --slots 1 --retries 1 --json --tasks tasks.jsonl";
    let mut running = world.start(words.split(' '));
    running.wait_for("\"complete\":true");
    gate.pass(1);
    assert_eq!(running.finish().code, 1);
    assert_eq!(world.read("out"), "first\nfirst\nfirst\nusual\nusual\nlate\n");
}

#[test]
fn a_task_has_gpus_and_cores_of_its_own() {
    let world = World::new();
    let cores =
        "echo $PACKHORSE_CPU_CORES > cores; grep Cpus_allowed_list /proc/self/status > allowed";
    world.write(
        "tasks.jsonl",
        lines(&[
            json!({"command": "echo $CUDA_VISIBLE_DEVICES > two", "gpus": 2}),
            json!({"command": "echo [$CUDA_VISIBLE_DEVICES] > none", "gpus": 0}),
            json!({"command": cores, "cores": 1, "cpu": 0.5, "ram": "1M"}),
        ]),
    );
    let done = world.packhorse(["run", "--gpus", "4,7", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("two"), "4,7\n");
    assert_eq!(world.read("none"), "[]\n");
    let allowed = world.read("allowed");
    let allowed = allowed.split(':').nth(1).unwrap();
    assert_eq!(allowed.trim(), world.read("cores").trim());
}

#[test]
fn main_memory_and_busy_cores_of_a_task_are_counted() {
    let world = World::new();
    for (key, amount) in [("ram", json!("100T")), ("cpu", json!(100_000))] {
        let mut task = json!({"command": "touch out"});
        task[key] = amount;
        let done = run(&world, &[task], &[]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("could never run"), "{done:?}");
    }
    assert!(!world.work().join("out").exists());
}

#[test]
fn gpu_memory_a_model_and_a_signature_are_the_tasks_own() {
    let machine = Machine::new(1);
    // Two of 14 GiB do not fit beside each other, though the run says that they would.
    let take = |name: &str| json!({"command": holding("2G", name), "vram": "14G"});
    let mut third = json!({"command": taking("--peak 1G --hold-looks 4"), "signature": "resnet"});
    third["gpu_model"] = json!("Fake");
    let tasks = [take("go"), take("go"), third];
    machine.world.write("tasks.jsonl", lines(&tasks));
    let words = ["run", "--vram", "1G", "--tasks", "tasks.jsonl"];
    let mut running = machine.start(&words);
    running.wait_for("1.3 succeeded");
    let why = machine.world.why("1.2");
    assert!(why.contains("14"), "{why}");
    machine.world.write("go", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let peaks = machine.world.packhorse(["peaks"]).stdout;
    assert!(peaks.contains("resnet"), "{peaks}");

    let wrong = json!({"command": "true", "gpu_model": "H100"});
    machine.world.write("tasks.jsonl", lines(&[wrong]));
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("no GPU here is called `H100`"), "{done:?}");
}

#[test]
fn a_probe_of_its_own_measures_a_task_first() {
    let machine = Machine::new(1);
    let task = json!({
        "command": taking("--peak 3G --hold-looks 4"), "vram": "auto",
        "probe": "echo probed > out; {}",
    });
    machine.world.write("tasks.jsonl", lines(&[task]));
    let done = machine.packhorse(&["run", "--json", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(machine.world.read("out"), "probed\n");
    let events = done.events();
    let started = events.iter().filter(|event| event["event"] == "started");
    let attempts: Vec<_> = started.map(|event| event["attempt"].as_u64()).collect();
    assert_eq!(attempts, [Some(0), Some(1)]);
}

#[test]
fn bytes_that_are_no_text_reach_the_command_and_survive_the_store() {
    let world = World::new();
    let show = "printf %s \"$1\" > words; printf %s \"$ODD\" > env; test -e fixed";
    let done = run(
        &world,
        &[
            json!({"command": {"bytes": r"printf %s 'caf\xe9\\' > line; test -e fixed"}}),
            json!({"command": ["sh", "-c", show, "sh", {"bytes": r"\xff\n"}],
                   "env": {"ODD": {"bytes": r"\xfe"}}}),
        ],
        &[],
    );
    assert_eq!(done.code, 1, "{done:?}");
    let check = || {
        let bytes = |name: &str| fs_err::read(world.work().join(name)).unwrap();
        assert_eq!(bytes("line"), b"caf\xe9\\");
        assert_eq!(bytes("words"), b"\xff\n");
        assert_eq!(bytes("env"), b"\xfe");
        for name in ["line", "words", "env"] {
            world.write(name, "");
        }
    };
    check();
    world.write("fixed", "");
    let done = world.packhorse(["retry"]);
    assert_eq!(done.code, 0, "{done:?}");
    check();
}

#[test]
fn a_killed_run_reads_on_when_it_is_resumed() {
    const TASKS: usize = 44;
    let world = World::new();
    let done = world.packhorse(["run", "--slots", "1", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    // No more are read while 4 MiB wait to be written, which are 17 tasks here: those may be
    // written together. After 20 nothing can be written any more.
    let database = rusqlite::Connection::open(world.database()).unwrap();
    let full = "CREATE TRIGGER full BEFORE INSERT ON task WHEN NEW.id & 0xffffffff > 20
                BEGIN SELECT RAISE(ABORT, 'full'); END";
    database.execute_batch(full).unwrap();
    let line = |n: usize| {
        let comment = "#".repeat(1 << 18);
        let command = match n {
            1 => format!("test -e again || sleep 1000 {comment}"),
            _ => format!("echo $N >> out {comment}"),
        };
        let mut task = json!({"command": command, "env": {"N": n.to_string()}});
        match n {
            2 => task["name"] = json!("second"),
            // Its name stands in the part that is passed over.
            TASKS => task["after"] = json!(["second"]),
            _ => {}
        }
        format!("{task}\n")
    };
    world.write("tasks.jsonl", (1..=TASKS).map(line).collect::<String>());
    let mut running = world.start(["run", "--slots", "1", "--tasks", "tasks.jsonl"]);
    running.wait_for("full");
    running.signal(Signal::KILL);
    running.finish();
    database.execute_batch("DROP TRIGGER full").unwrap();
    world.write("again", "");
    let known = world.packhorse(["export"]).stdout.lines().count();
    assert!((1..=20).contains(&known), "{known}");
    let done = world.packhorse(["resume", "--quiet"]);
    assert_eq!(done.code, 0, "{done:?}");
    let wanted = (2..=TASKS).map(|n| n.to_string());
    let out = world.read("out");
    assert!(out.lines().eq(wanted), "not all, twice, or in disorder: {out}");
}
