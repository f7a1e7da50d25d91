//! `packhorse run`: what is run, with which surroundings, and how it is told.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{tcgetwinsize, tcsetwinsize};

use crate::support::{Done, World, finish, release};

/// Runs one command through a shell, on these GPUs or slots.
fn shell(world: &World, place: [&str; 2], script: &str) -> Done {
    world.packhorse(["run", place[0], place[1], "--", "sh", "-c", script])
}

#[test]
fn commands_of_a_file_run_in_its_order_on_one_slot() {
    let world = World::new();
    world.write("commands.txt", "echo one >> out\necho two >> out\n");
    let done = world.packhorse(["run", "--slots", "1", "commands.txt"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo\n");
}

#[test]
fn commands_come_from_standard_input_if_no_file_is_named() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1"], "echo one >> out\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\n");
}

#[test]
fn several_files_and_standard_input_are_read_one_after_the_other() {
    let world = World::new();
    world.write("first", "echo first >> out");
    world.write("last", "echo last >> out");
    let done =
        world.packhorse_with(["run", "--slots", "1", "first", "-", "last"], "echo stdin >> out");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "first\nstdin\nlast\n");
}

#[test]
fn a_file_may_follow_the_gpu_ids() {
    let world = World::new();
    world.write("commands.txt", "echo $CUDA_VISIBLE_DEVICES >> out");
    let done = world.packhorse(["run", "--gpus", "3", "commands.txt"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "3\n");
}

#[test]
fn the_words_of_one_command_are_kept_exactly() {
    let words = ["a  b", "$HOME", "it's", "\"quoted\"", "*", "", "a\\b", "#c", "x\ny"];
    let world = World::new();
    let script = r#"for word; do printf '<%s>' "$word" >> out; done"#;
    let mut all = vec!["run", "--slots", "1", "--", "sh", "-c", script, "sh"];
    all.extend(words);
    let done = world.packhorse(all);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), format!("<{}>", words.join("><")));
}

#[test]
fn a_task_sees_its_gpu_and_who_it_is() {
    let world = World::new();
    let done = shell(&world, ["--gpus", "GPU-5c2,7"], "env > out");
    assert_eq!(done.code, 0, "{done:?}");
    let environment = world.read("out");
    for variable in [
        "CUDA_VISIBLE_DEVICES=GPU-5c2",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "PACKHORSE_GPUS=GPU-5c2",
        "PACKHORSE_RUN=1",
        "PACKHORSE_TASK=1.1",
        "PACKHORSE_ATTEMPT=1",
    ] {
        assert!(
            environment.lines().any(|line| line == variable),
            "no {variable} in:\n{environment}"
        );
    }
}

#[test]
fn a_device_order_that_the_person_chose_is_kept() {
    let world = World::new();
    let words = ["run", "--gpus", "0", "--"];
    let mut command = world.command(words);
    command
        .args(["sh", "-c", "echo $CUDA_DEVICE_ORDER > out"])
        .env("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
    assert_eq!(finish(command).code, 0);
    assert_eq!(world.read("out"), "FASTEST_FIRST\n");
}

#[test]
fn slots_set_no_gpu_variables() {
    let world = World::new();
    let done = shell(&world, ["--slots", "1"], "env > out");
    assert_eq!(done.code, 0, "{done:?}");
    let environment = world.read("out");
    assert!(environment.contains("PACKHORSE_TASK=1.1"), "{environment}");
    assert!(!environment.contains("CUDA"), "{environment}");
    assert!(!environment.contains("PACKHORSE_GPUS"), "{environment}");
}

#[test]
fn slots_leave_the_persons_own_gpu_variables_alone() {
    let world = World::new();
    let mut command = world.command(["run", "--slots", "1", "--"]);
    command.args(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES > out"]).env("CUDA_VISIBLE_DEVICES", "4");
    assert_eq!(finish(command).code, 0);
    assert_eq!(world.read("out"), "4\n");
}

#[test]
fn a_packhorse_inside_a_task_gives_its_own_tasks_one_set_of_marks() {
    let world = World::new();
    let inner =
        ["run", "--slots", "1", "--", env!("CARGO_BIN_EXE_packhorse"), "run", "--slots", "1", "--"];
    let mut words = inner.to_vec();
    words.extend(["sh", "-c", "tr '\\0' '\\n' < /proc/$$/environ > out"]);
    let done = world.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    let environment = world.read("out");
    let id = fs_err::read_to_string(world.home().join("id")).unwrap();
    for (name, value) in [
        ("PACKHORSE_RUN", "2"),
        ("PACKHORSE_TASK", "2.1"),
        ("PACKHORSE_ATTEMPT", "1"),
        ("PACKHORSE_HOME_ID", id.trim()),
    ] {
        let start = format!("{name}=");
        let values: Vec<_> =
            environment.lines().filter_map(|line| line.strip_prefix(&start)).collect();
        assert_eq!(values, [value], "{name}");
    }
}

#[test]
fn failures_are_listed_at_the_end_and_in_the_exit_status() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "1"],
        "exit 3\ntrue\nexec sh -c 'kill -SEGV $$'\ntrue\n",
    );
    assert_eq!(done.code, 1);
    let end = done.stdout.split("2 failures:\n").nth(1).expect("the list");
    let lines: Vec<_> = end.lines().collect();
    assert_eq!(lines[0], "  1.1  exit status 3: exit 3");
    assert_eq!(lines[1], "  1.3  killed by SIGSEGV: exec sh -c 'kill -SEGV $$'");
    assert!(lines[2].starts_with("run 1 ended: 2 succeeded, 2 failed in "), "{end}");
    assert!(lines[3].contains("`packhorse retry 1`"), "{end}");
}

#[test]
fn a_task_is_tried_again_until_it_succeeds() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--retries", "5"],
        "echo $PACKHORSE_ATTEMPT >> tries; test $PACKHORSE_ATTEMPT = 3",
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("tries"), "1\n2\n3\n");
    assert!(
        done.stdout
            .contains("1.1 attempt 2 failed: exit status 1; trying again, 3 more after that"),
        "{done:?}"
    );
}

#[test]
fn a_task_is_tried_no_more_often_than_was_said() {
    let world = World::new();
    let done =
        world.packhorse_with(["run", "--slots", "1", "--retries", "2"], "echo x >> tries; exit 4");
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("tries"), "x\nx\nx\n");
    assert!(done.stdout.contains("trying a last time"), "{done:?}");
    assert!(done.stdout.contains("1 failure:"), "{done:?}");
}

#[test]
fn a_task_past_its_time_limit_is_ended_even_if_it_ignores_sigterm() {
    let world = World::new();
    world.fifo("never");
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--grace", "100ms"],
        "#packhorse timeout=500ms\ntrap '' TERM; cat never\necho next > out\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("  1.1  ran past its time limit: "), "{done:?}");
    assert_eq!(world.read("out"), "next\n");
}

#[test]
fn a_task_past_its_time_limit_may_clean_up() {
    let world = World::new();
    world.fifo("never");
    // It sets its trap long before its time is over.
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--timeout", "3s", "--grace", "1h"],
        "trap 'echo cleaned > out; exit 0' TERM; cat never & wait\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("ran past its time limit"), "{done:?}");
    assert_eq!(world.read("out"), "cleaned\n");
}

#[test]
fn what_cannot_be_started_is_said_and_the_others_go_on() {
    let world = World::new();
    world.write("plain.txt", "no program");
    let done = world.packhorse_with(
        ["run", "--slots", "1", "--retries", "3"],
        "no-such-command a\n./no-such-file\n./plain.txt\necho on > out\n",
    );
    assert_eq!(done.code, 1, "{done:?}");
    for line in [
        "  1.1  command not found: no-such-command: no-such-command a\n",
        "  1.2  no such file: ./no-such-file\n",
        "  1.3  cannot start ./plain.txt: Permission denied",
    ] {
        assert!(done.stdout.contains(line), "no `{line}` in {done:?}");
    }
    assert!(!done.stdout.contains("trying"), "{done:?}");
    assert_eq!(world.read("out"), "on\n");
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_a_shell() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let script = world.write("script", "echo \"$1\" > out\n");
    fs_err::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = world.packhorse(["run", "--slots", "1", "--", "./script", "a  b"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "a  b\n");
}

#[test]
fn a_writer_whose_reader_has_gone_ends_quietly() {
    let world = World::new();
    let done =
        world.packhorse_with(["run", "--slots", "1", "--output", "lines"], "yes | head -1\n");
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<_> = done
        .stdout
        .lines()
        .filter(|line| line.contains(" | "))
        .filter(|line| !line.contains("started"))
        .collect();
    assert_eq!(lines, ["1.1 | y"], "{done:?}");
}

#[test]
fn tasks_cannot_eat_the_list_of_commands() {
    let world = World::new();
    let done = world.packhorse_with(
        ["run", "--slots", "1"],
        "cat > eaten; readlink /proc/self/fd/0 > stdin\necho two > out\n",
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("eaten"), "");
    assert_eq!(world.read("stdin"), "/dev/null\n");
    assert_eq!(world.read("out"), "two\n");
}

#[test]
fn as_many_run_at_a_time_as_there_are_slots() {
    let world = World::new();
    let gates = [world.fifo("a"), world.fifo("b")];
    let mut running = world.start(["run", "--slots", "2"]);
    running.send("cat a\ncat b\ntrue\n");
    running.wait_for("1.1 started");
    // Both gates are open at the same time, so both tasks run.
    let second = running.wait_for("started");
    assert!(second.starts_with("1.2 "), "{second}");
    release(&gates[1]);
    running.wait_for("1.3 started");
    release(&gates[0]);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn wrong_usage_starts_nothing_and_makes_no_run() {
    let world = World::new();
    world.write("ok.txt", "echo ran > out\n");
    fs_err::create_dir(world.work().join("folder")).unwrap();
    for (words, wanted) in [
        ("run -g 3 --gpus 0,1 -- touch out", "it needs 3 GPUs"),
        ("run --slots 2 -g 1 -- touch out", "hint: leave out one"),
        ("run --slots 2 --gpus 0 -- touch out", "cannot be used with"),
        ("run --slots 0 -- touch out", "invalid value '0'"),
        ("run --gpus 0 -g some -- touch out", "is not an amount of GPUs"),
        ("run --gpus 0 -g -1 -- touch out", "-1"),
        ("run --gpus 0,0 -- touch out", "0"),
        ("run --gpus 0 --timeout soon -- touch out", "a length of time"),
        ("run -- touch out", "hint: name them with --gpus 0,1"),
        ("run ok.txt", "hint: name them with --gpus 0,1"),
        ("run --slots 1 ok.txt missing.txt", "`missing.txt`"),
        ("run --slots 1 ok.txt folder", "folder is a folder"),
        ("run --slots 1 ok.txt -- touch out", "cannot be used with"),
        ("run --gpus 0 ok.txt -- touch out", "`ok.txt` stands before the command"),
        ("run ok.txt --gpus 0 -- touch out", "cannot be used with"),
    ] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{words}: {done:?}");
        assert!(done.stderr.contains(wanted), "{words}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{words}");
    }
    assert!(!world.work().join("out").exists());
    let runs = fs_err::read_dir(world.home().join("runs"));
    assert_eq!(runs.map_or(0, Iterator::count), 0, "a run was made");
    assert_eq!(world.packhorse(["ls"]).stdout, "no runs yet\n");
}

#[test]
fn nothing_to_do_is_success() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1"], "# only a remark\n\n");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("0 succeeded"), "{done:?}");
    assert_eq!(done.stderr, "warning: there were no commands in the input\n");
    let done = world.packhorse_with(["run", "--slots", "1"], "true\n");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn a_line_that_came_as_one_word_is_recognised() {
    let world = World::new();
    let advice = "(this is one word: leave out its quotes, or put `sh -c` before it)";
    for (word, what, advised) in [
        ("no-such-program --lr 1", "command not found", true),
        ("./no-such-program --lr 1", "no such file", true),
        ("no-such-program", "command not found", false),
    ] {
        let done = world.packhorse(["run", "--slots", "1", "--", word]);
        assert_eq!(done.code, 1, "{done:?}");
        let wanted = format!("not started: {what}: {word}");
        let line = done.stdout.lines().find(|line| line.contains(&wanted));
        let line = line.unwrap_or_else(|| panic!("{done:?}"));
        assert_eq!(line.contains(advice), advised, "{line}");
    }
}

#[test]
fn a_program_with_a_blank_in_its_name_runs() {
    let world = World::new();
    let program = world.write("my program", "#!/bin/sh\necho ran > out\n");
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = world.packhorse(["run", "--slots", "1", "--", "./my program"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "ran\n");
}

#[test]
fn an_empty_command_is_called_so() {
    let done = World::new().packhorse(["run", "--slots", "1", "--", ""]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("1.1 not started: the command is empty: ''\n"), "{done:?}");
}

#[test]
fn more_gpus_than_there_are_is_refused_with_what_to_do() {
    let world = World::new();
    let done = world.packhorse(["run", "--gpus", "0", "-g", "3", "--", "true"]);
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    assert!(done.stderr.contains("it needs 3 GPUs"), "{done:?}");
    assert!(done.stderr.contains("\nhint: ask for fewer with -g"), "{done:?}");
}

#[test]
fn the_list_of_runs_says_how_many_it_leaves_out() {
    let world = World::new();
    for _ in 0..22 {
        world.packhorse(["run", "--slots", "1", "-q", "--", "true"]);
    }
    for (words, shown, more) in [
        (&["ls"][..], 20, "and 2 more (packhorse ls --all)\n"),
        (&["ls", "-n", "3"], 3, "and 19 more (packhorse ls --all)\n"),
        (&["ls", "-n", "22"], 22, ""),
        (&["ls", "--all"], 22, ""),
    ] {
        let done = world.packhorse(words);
        assert_eq!((done.code, done.stderr.as_str()), (0, more), "{words:?}");
        assert_eq!(done.stdout.lines().count(), 1 + shown, "{words:?}");
    }
    for (words, shown) in [
        (&["ls", "--json"][..], 22),
        (&["ls", "--json", "-n", "3"], 3),
        (&["ls", "--json", "--all"], 22),
    ] {
        let done = world.packhorse(words);
        let runs: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!((runs.len(), done.stderr.as_str()), (shown, ""), "{words:?}");
    }
}

#[test]
fn the_list_of_runs_is_cut_only_by_the_width_of_a_terminal() {
    let world = World::new();
    let long = "x".repeat(200);
    world.packhorse(["run", "--slots", "1", "-q", "--", "true", &long]);
    let list = world.packhorse(["ls"]).stdout;
    assert!(list.ends_with(&format!("true {long}\n")), "{list}");

    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    let mut size = tcgetwinsize(&terminal).unwrap();
    size.ws_col = 100;
    tcsetwinsize(&terminal, size).unwrap();
    let mut command = world.command(["ls"]);
    command.env("TERM", "xterm").stdout(terminal);
    assert!(command.status().unwrap().success());
    // What is short enough waits in the terminal until somebody reads it, and comes in
    // pieces: a heading and a row.
    let mut seen = Vec::new();
    while seen.split(|&byte| byte == b'\n').count() < 3 {
        let mut piece = [0; 4096];
        let length = rustix::io::read(&master, &mut piece).unwrap();
        seen.extend_from_slice(&piece[..length]);
    }
    let seen = String::from_utf8_lossy(&seen);
    let run = seen.lines().last().unwrap();
    assert_eq!(run.chars().count(), 100, "{seen}");
    assert!(run.ends_with("xx…"), "{seen}");
}
