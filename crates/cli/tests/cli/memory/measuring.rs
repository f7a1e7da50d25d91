//! How much tasks need, as it is measured, learned and remembered.

use packhorse_fake_nvml::fake_cuda_path;
use rustix::process::Signal;

use super::{GIB, started_together};
use crate::machine::{Machine, holding, taking};
use crate::terminal::Terminal;

#[test]
fn a_task_that_nothing_is_known_of_is_alone_until_it_was_measured() {
    let machine = Machine::new(1);
    let task = taking("--peak 5G --steps 2 --step-looks 3 --hold-looks 6");
    machine.world.write("tasks", format!("{task}\n").repeat(4));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(started_together(&done.stdout), 1, "{}", done.stdout);
    // The three others fit beside each other by what the first one showed.
    let rest = done.stdout.split_once("1.1 succeeded").unwrap().1;
    assert_eq!(started_together(rest), 3, "{rest}");
    let peaks = machine.packhorse(&["peaks", "--json"]);
    let peaks: serde_json::Value = serde_json::from_str(&peaks.stdout).unwrap();
    assert_eq!(peaks[0]["peak"], 5 * GIB);
    assert_eq!(peaks[0]["samples"], 4);
    assert_eq!(peaks[0]["model"], "NVIDIA Fake 24GB");
    // What was learned holds for the next run from its first task on.
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 4, "{}", done.stdout);
    // Unless it is forgotten.
    machine.packhorse(&["peaks", "--forget", "--all"]);
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 1, "{}", done.stdout);
}

#[test]
fn memory_of_child_processes_counts() {
    let machine = Machine::new(1);
    let task = taking("--peak 7G --child --hold-looks 6");
    let words: Vec<&str> = task.split(' ').collect();
    let done = machine.packhorse(&[&["probe", "--json", "--"], &words[..]].concat());
    let probe: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(probe["peak"], 7 * GIB, "{done:?}");
}

#[test]
fn a_probe_is_remembered_and_shows_how_well_it_looked() {
    let machine = Machine::new(1);
    let task = taking("--peak 3G --hold-looks 6 --utilisation 60");
    let words: Vec<&str> = task.split(' ').collect();
    let done = machine.packhorse(&[&["probe", "--"], &words[..]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("peak memory   3.0 GiB"), "{done:?}");
    assert!(done.stdout.contains("apart"), "{done:?}");
    assert!(done.stdout.contains("60 % at most"), "{done:?}");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(started_together(&done.stdout), 2, "{}", done.stdout);
}

#[test]
fn the_persons_own_probe_runs_first_and_once_for_each_shape() {
    let machine = Machine::new(1);
    let program = fake_cuda_path();
    let task = format!("{} --peak 4G --hold-looks", program.display());
    machine.world.write("tasks", format!("{task} 5\n{task} 6\n"));
    let words = ["run", "--vram", "auto", "--probe", "{} --utilisation 7", "tasks"];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 1, "{}", done.stdout);
    assert!(done.stdout.contains("1.1 probe: measured: 4.0 GiB"), "{}", done.stdout);
    let rest = done.stdout.split_once("probe: measured").unwrap().1;
    assert_eq!(started_together(rest), 2, "{rest}");
    let show = machine.packhorse(&["show", "1.1"]).stdout;
    assert!(show.contains("  probe\n"), "{show}");
    let log = machine.packhorse(&["logs", "1.1", "--attempt", "1"]);
    assert_eq!(log.code, 0, "{log:?}");
}

#[test]
fn a_probe_does_not_make_its_test_look_done() {
    let machine = Machine::new(1);
    let command = taking("--peak 4G --hold-looks 5");
    let task = serde_json::json!({"command": command, "results": "out"});
    machine.world.write("tasks.jsonl", format!("{task}\n"));
    let marker = || {
        let text = machine.world.read("out/.packhorse.json");
        let marker: serde_json::Value = serde_json::from_str(&text).unwrap();
        (marker["outcome"].clone(), marker["attempts"].clone())
    };
    let probe = "{} --hold-until-exists gate";
    let words = ["run", "--vram", "auto", "--probe", probe, "--tasks"];
    let mut running = machine.start(&[&words[..], &["tasks.jsonl"]].concat());
    running.wait_for("1.1 started on GPU 0 (probe)");
    assert_eq!(marker(), ("running".into(), 0.into()));
    // The probe may end, and well, but what it is for does not start any more.
    running.signal(Signal::INT);
    running.wait_for("stopping");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(marker(), ("interrupted".into(), 0.into()));
    let results = machine.packhorse(&["results", "out", "--json"]).json();
    assert_eq!(results[0]["outcome"], "interrupted", "{results}");
    let done = machine.packhorse(&["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(marker(), ("succeeded".into(), 1.into()));
}

#[test]
fn one_of_a_shape_is_measured_while_those_like_it_wait_and_others_do_not() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G");
    machine.world.write(
        "tasks",
        format!("#packhorse signature=one\n{task}\n").repeat(2)
            + &format!("#packhorse signature=other\n{task}\n"),
    );
    let probe = "{} --hold-until-exists gate";
    let mut running = machine.start(&["run", "--vram", "auto", "--probe", probe, "tasks"]);
    running.wait_for("1.1 started on GPU ");
    let why = machine.world.why("1.2");
    assert_eq!(why, "1.2 waits until one like it has been measured\n");
    running.wait_for("1.3 started on GPU ");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn if_a_probe_fails_the_next_of_its_shape_is_measured() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G --hold-looks 6");
    machine.world.write("tasks", format!("{task}\n").repeat(3));
    let probe = "if mkdir first; then exit 1; fi; {}";
    let done = machine.packhorse(&["run", "--vram", "auto", "--probe", probe, "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 2, "{}", done.stdout);
    assert!(done.stdout.contains("1.2 probe: measured: 4.0 GiB"), "{}", done.stdout);
}

#[test]
fn the_most_urgent_of_a_shape_is_the_one_that_is_measured() {
    let machine = Machine::new(2);
    let task = taking("--peak 4G --hold-looks 6");
    machine.world.write("tasks", format!("#packhorse priority=1\n{task}\n{task}\n{task}\n"));
    let done = machine.packhorse(&["run", "--vram", "auto", "--probe", "{}", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.matches("(probe)").count(), 1, "{}", done.stdout);
    assert!(done.stdout.contains("1.2 probe: measured"), "{done:?}");
}

#[test]
fn probes_share_a_gpu_if_somebody_said_how_much_they_take_at_most() {
    let machine = Machine::new(1);
    let task = taking("--peak 4G");
    let line = |kind: &str| format!("#packhorse signature={kind}\n{task}\n");
    machine.world.write("tasks", ["a", "b", "c"].map(line).concat());
    let probe = "{} --hold-until-exists gate";
    let mut running = machine.start(&["run", "--vram", "9G", "--probe", probe, "tasks"]);
    running.wait_for("1.1 started on GPU 0 (probe)");
    running.wait_for("1.2 started on GPU 0 (probe)");
    let why = machine.world.why("1.3");
    assert!(why.contains("waits for 9.0 GiB"), "{why}");
    machine.world.write("gate", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn what_a_task_gets_is_what_was_seen_on_the_models_it_may_run_on() {
    let machine = Machine::new(2);
    machine.state.change(1, |device| {
        device.memory_total = 80 * GIB;
        device.name = "NVIDIA Fake 80GB".to_owned();
    });
    let run = |gpu: &str, peak: &str| {
        let task = taking(&format!("--peak {peak} --hold-looks 6"));
        machine.world.write("tasks", task);
        let words = ["run", "tasks", "--vram=auto", "--signature=s", "--gpus"];
        let done = machine.packhorse(&[&words[..], &[gpu]].concat());
        assert_eq!(done.code, 0, "{done:?}");
    };
    run("0", "5G");
    run("1", "20G");
    // Two fit beside each other by what was seen on this model.
    let task = holding("5G", "gate");
    machine.world.write("tasks", format!("{task}\n").repeat(2));
    let words = ["run", "tasks", "--vram=auto", "--signature=s"];
    let mut running = machine.start(&[&words[..], &["--gpu-model", "24GB"]].concat());
    running.wait_for("3.2 started on GPU 0");
    machine.world.write("gate", "");
    assert_eq!(running.finish().code, 0);
}

#[test]
fn what_went_wrong_with_a_probe_is_said() {
    for (probe, said) in [
        (
            "exit 3 # {}",
            "1.1 probe: failed, so it does not tell how much memory is needed: exit status 3",
        ),
        ("no-such-program {}", "command not found: no-such-program"),
        ("true {}", "1.1 probe: it ended before its memory could be measured"),
    ] {
        let machine = Machine::new(1);
        let task = taking("--peak 4G --hold-looks 6");
        machine.world.write("tasks", task);
        let words = ["run", "--vram", "auto", "--probe", probe, "tasks"];
        let done = machine.packhorse(&words);
        assert_eq!(done.code, 0, "{probe}: {done:?}");
        let line = done.stdout.lines().find(|line| line.contains("probe: "));
        // The task itself was measured instead.
        let peaks = machine.packhorse(&["peaks"]).stdout;
        assert!(peaks.contains("4.0 GiB"), "{probe}: {peaks}");
        assert!(line.is_some_and(|line| line.contains(said)), "{probe}: {done:?}");
    }
}

#[test]
fn on_a_terminal_of_80_columns_what_was_learned_is_on_whole_lines() {
    let machine = Machine::new(1);
    let name = "NVIDIA A100-SXM4-80GB";
    machine.state.change(0, |device| device.name = name.to_owned());
    let words = "--a-word-that-is-long ".repeat(4);
    let task = taking("--peak 4G --hold-looks 6");
    machine.world.write("tasks", format!("{task} # {words}\n"));
    let done = machine.packhorse(&["run", "--vram", "auto", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    let database = rusqlite::Connection::open(machine.world.database()).unwrap();
    let grew_late = "UPDATE sample SET whence = 4";
    assert_eq!(database.execute(grew_late, []).unwrap(), 1);
    let mut command = machine.command(&["peaks"]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(command, 80, 24);
    assert_eq!(terminal.finish(), 0);
    let text = terminal.text();
    let lines: Vec<&str> = text.lines().collect();
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
    let [header, command, numbers, late] = lines.as_slice() else {
        panic!("{text}");
    };
    assert!(header.starts_with("  GPU"), "{text}");
    assert!(command.contains("fake-cuda"), "{text}");
    assert!(numbers.starts_with("  NVIDIA A100-SXM4-80GB"), "{text}");
    let date = numbers.trim_end().rsplit(' ').next().unwrap();
    assert!(date.matches(':').count() == 2, "{text}");
    assert!(late.starts_with("grew late"), "{text}");
}
