//! When the surroundings are not as they should be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Done, Running, World, finish, finish_with, receive, release, wait_until};

/// `packhorse` by way of a shell, which changes what it is given first.
/// `"$@"` in the script is the command.
fn through_shell(world: &World, script: &str, words: &[&str]) -> Command {
    let fixed = ["-c", script, "sh", env!("CARGO_BIN_EXE_packhorse")];
    world.program("sh", [&fixed[..], words].concat())
}

/// Files can grow to so many blocks of 512 bytes; then writing fails, as it
/// does on a disk that is full.
fn full_after(blocks: u32) -> String {
    format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"")
}

#[test]
fn a_log_that_cannot_grow_is_told_and_the_tasks_go_on() {
    let world = World::new();
    world.write("tasks", "head -c 2000000 /dev/zero; echo > one\nfalse\necho small\n");
    let words = ["run", "--slots", "1", "tasks"];
    let done = finish(through_shell(&world, &full_after(1000), &words));
    assert_eq!(done.code, 1, "{done:?}");
    let warning = done.stdout.lines().find(|line| line.contains("warning"));
    let warning = warning.expect("it is told");
    assert!(warning.starts_with("1.1 warning: the rest of its output is lost"), "{warning}");
    assert!(warning.contains("1.1.log"), "{warning}");
    assert_eq!(done.stdout.matches("warning").count(), 1, "{}", done.stdout);
    assert!(done.stdout.contains("2 succeeded, 1 failed"), "{}", done.stdout);
    assert!(world.work().join("one").exists());
    assert_eq!(world.packhorse(["logs", "3"]).stdout, "small\n");
    // What was written before is there.
    let log = world.packhorse(["logs", "1"]).stdout;
    assert!((100_000..1_000_000).contains(&log.len()), "{}", log.len());
}

#[test]
fn results_that_cannot_be_stored_are_told_and_the_tasks_go_on() {
    let world = World::new();
    world.write("tasks", "echo >> out\n".repeat(499) + "echo >> out; false\n");
    let words = ["run", "--slots", "1", "-q", "tasks"];
    let done = finish(through_shell(&world, &full_after(100), &words));
    assert_eq!(world.read("out").len(), 500);
    assert!(done.stdout.contains("499 succeeded, 1 failed"), "{}", done.stdout);
    // Either as soon as it was noticed, or with what is lost at the end.
    assert!(done.stdout.contains("the database"), "{}", done.stdout);
    assert!(done.stdout.contains("could not be written"), "{}", done.stdout);
    // Nothing is promised that would need what is lost.
    assert!(!done.stdout.contains("packhorse retry"), "{}", done.stdout);
    assert_eq!(done.code, 1);
}

#[test]
fn with_few_descriptors_fewer_run_at_a_time_and_no_output_is_lost() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "echo mine; read x < gate\n".repeat(60));
    let words = ["run", "--slots", "60", "tasks"];
    let script = "ulimit -n 256; exec \"$@\"";
    let mut running = Running::start(through_shell(&world, script, &words));
    running.wait_for("no more than");
    gate.pass(60);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("60 succeeded"), "{done:?}");
    for task in 1..=60 {
        let log = world.home().join(format!("runs/1/logs/{task}.1.log"));
        assert_eq!(fs_err::read_to_string(log).unwrap(), "mine\n");
    }
}

#[test]
fn whoever_insists_need_not_wait_for_what_cannot_be_written() {
    let world = World::new();
    assert_eq!(world.packhorse(["run", "--slots", "1", "--", "true"]).code, 0);
    let somebody = rusqlite::Connection::open(world.database()).unwrap();
    somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut command = world.command(["run", "--slots", "1", "--", "true"]);
    command.env("PACKHORSE_STORE_PATIENCE", "50ms");
    let mut running = Running::start(command);
    running.wait_for("the last results are not written yet");
    // Two of one kind would count once if the first was not read yet.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        running.signal(signal);
    }
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("could not be written"), "{done:?}");
}

#[test]
fn a_run_that_is_killed_before_anything_is_written_is_known_and_none_of_its_ends_was_told() {
    let world = World::new();
    let done = world.packhorse(["run", "--slots", "1", "--", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
    world.write("tasks", "echo done >> ran\necho done >> ran\n");
    let somebody = rusqlite::Connection::open(world.database()).unwrap();
    somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut command = world.command(["run", "--slots", "1", "tasks"]);
    command.env("PACKHORSE_STORE_PATIENCE", "50ms");
    let mut running = Running::start(command);
    running.wait_for("the last results are not written yet");
    running.signal(Signal::KILL);
    let told = running.finish().stdout;
    assert!(!told.contains("succeeded"), "{told}");
    assert_eq!(world.read("ran").lines().count(), 2);
    drop(somebody);
    let runs = world.packhorse(["ls", "--json"]).json();
    assert_eq!(runs[0]["run"], 2, "{runs}");
    assert_eq!(runs[0]["state"], "died", "{runs}");
    // What nobody was told of runs again.
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2.2 succeeded"), "{done:?}");
    assert_eq!(world.read("ran").lines().count(), 4);
}

/// What the database says of run 1: its state and exit status.
fn state_of_run_1(world: &World) -> (String, serde_json::Value) {
    let run = world.packhorse(["ls", "--json"]).json()[0].take();
    (run["state"].as_str().unwrap().to_owned(), run["exit"].clone())
}

#[test]
fn a_run_whose_end_could_not_be_written_is_known_to_have_ended_later() {
    for (last, exit) in [("true", 0), ("false", 1)] {
        let world = World::new();
        let gate = world.gate("gate");
        world.write("tasks", format!("true\nread x < gate; {last}\n"));
        let mut command = world.command(["run", "--slots", "2", "tasks"]);
        command.env("PACKHORSE_STORE_PATIENCE", "50ms");
        let mut running = Running::start(command);
        // By then the store has both tasks.
        running.wait_for("1.1 succeeded");
        let somebody = rusqlite::Connection::open(world.database()).unwrap();
        somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
        gate.pass(1);
        running.wait_for("the last results are not written yet");
        running.signal(Signal::KILL);
        running.finish();
        drop(somebody);
        assert_eq!(state_of_run_1(&world), ("finished".to_owned(), exit.into()));
        let show = world.packhorse(["show", "1"]).stdout;
        assert!(!show.contains("packhorse resume"), "{show}");
    }
}

#[test]
fn resume_settles_a_run_that_only_lacks_the_record_of_its_end() {
    for (input_complete, before) in [(1, "finished"), (0, "died")] {
        let world = World::new();
        let done = world.packhorse_with(["run", "--slots", "1"], "true\nfalse\n");
        assert_eq!(done.code, 1, "{done:?}");
        let database = rusqlite::Connection::open(world.database()).unwrap();
        let sql = "UPDATE run SET ended = NULL, exit = NULL, input_complete = ?1";
        database.execute(sql, [input_complete]).unwrap();
        drop(database);
        assert_eq!(state_of_run_1(&world), (before.to_owned(), ().into()));
        let done = world.packhorse(["resume"]);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(done.stderr.contains("nothing to resume"), "{done:?}");
        let lost = done.stderr.contains("had not read all of its input");
        assert_eq!(lost, input_complete == 0, "{done:?}");
        assert_eq!(state_of_run_1(&world), ("finished".to_owned(), 1.into()));
        // It took as long as its tasks did.
        let run = &world.packhorse(["ls", "--json"]).json()[0];
        let took = run["ended"].as_f64().unwrap() - run["started"].as_f64().unwrap();
        assert!((0.0..60.0).contains(&took), "{took}");
    }
}

#[test]
fn what_cannot_be_written_for_long_is_told_all_the_same() {
    let world = World::new();
    assert_eq!(world.packhorse(["run", "--slots", "1", "--", "true"]).code, 0);
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate; false\n");
    let mut command = world.command(["run", "--slots", "1", "tasks"]);
    command.env("PACKHORSE_STORE_PATIENCE", "50ms");
    let mut running = Running::start(command);
    running.wait_for("2.1 started");
    wait_until(&world.home(), || world.packhorse(["show", "2.1"]).code == 0);
    let somebody = rusqlite::Connection::open(world.database()).unwrap();
    somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
    gate.pass(1);
    running.wait_for("2.1 failed");
    running.wait_for("the last results are not written yet");
    let show = world.packhorse(["show", "2.1"]).stdout;
    assert!(!show.contains("exit status"), "{show}");
    somebody.execute_batch("ROLLBACK").unwrap();
    assert_eq!(running.finish().code, 1);
    let show = world.packhorse(["show", "2"]).stdout;
    assert!(show.contains("exit status 1"), "{show}");
    // It has to be a length of time.
    let mut command = world.command(["run", "--slots", "1", "--", "true"]);
    command.env("PACKHORSE_STORE_PATIENCE", "soon");
    let done = finish(command);
    assert_eq!(done.code, 2, "{done:?}");
    let named = done.stderr.contains("PACKHORSE_STORE_PATIENCE");
    assert!(named && done.stderr.contains("`soon`"), "{done:?}");
    assert!(!world.home().join("runs/3").exists());
}

/// Takes something away while a task runs that writes after that, and another
/// comes later.
fn lose(what: impl FnOnce(&World)) -> (World, Done) {
    let world = World::new();
    let gate = world.gate("gate");
    let absolute = world.work().join("gate");
    let first = format!("read x < {}; echo late", absolute.display());
    world.write("tasks", format!("{first}\necho next\nfalse\n"));
    let mut running = world.start(["run", "--slots", "1", "tasks"]);
    running.wait_for("1.1 started");
    what(&world);
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("2 succeeded, 1 failed"), "{}", done.stdout);
    (world, done)
}

#[test]
fn a_log_folder_that_vanishes_is_made_again() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "echo early\nread x < gate; echo late\necho next\n");
    let mut running = world.start(["run", "--slots", "1", "tasks"]);
    running.wait_for("1.2 started");
    fs_err::remove_dir_all(world.home().join("runs/1/logs")).unwrap();
    gate.pass(1);
    assert_eq!(running.finish().code, 0);
    for (task, text) in [("2", "late\n"), ("3", "next\n")] {
        assert_eq!(world.packhorse(["logs", task]).stdout, text);
    }
}

#[test]
fn tasks_go_on_in_a_folder_that_was_removed() {
    lose(|world| {
        // It stays the running tasks' folder, though nobody can find it.
        fs_err::rename(world.work(), world.home().join("elsewhere")).unwrap();
        fs_err::create_dir(world.work()).unwrap();
        fs_err::rename(world.home().join("elsewhere/gate"), world.work().join("gate")).unwrap();
        fs_err::remove_dir_all(world.home().join("elsewhere")).unwrap();
    });
}

#[test]
fn a_run_cannot_begin_in_a_folder_that_was_removed() {
    let world = World::new();
    let script = "mkdir gone; cd gone; rmdir ../gone; exec \"$@\"";
    let words = ["run", "--slots", "1", "--", "touch", "/dev/null"];
    let done = finish(through_shell(&world, script, &words));
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    assert!(done.stderr.contains("current folder"), "{done:?}");
}

#[test]
fn a_state_folder_that_cannot_be_made_is_named() {
    let world = World::new();
    let file = world.write("file", "");
    let below = file.join("below");
    // Nobody can make folders there, not even root.
    for home in [file.as_path(), &below, "/proc/packhorse".as_ref()] {
        for words in [&["run", "--slots", "1", "--", "touch", "started"][..], &["ls"]] {
            let mut command = world.command(words);
            command.env("PACKHORSE_HOME", home);
            let done = finish(command);
            if words[0] == "ls" && done.code == 0 {
                // Nothing to list is as good as no folder.
                assert_eq!(done.stdout, "no runs yet\n", "{done:?}");
                continue;
            }
            assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
            let named = home.to_str().unwrap();
            assert!(done.stderr.contains(named), "{named}: {}", done.stderr);
        }
    }
    assert!(!world.work().join("started").exists());
}

#[test]
fn the_state_folder_is_where_the_environment_says_and_its_owners_alone() {
    for (variables, place) in [
        (&[("PACKHORSE_HOME", "own"), ("XDG_STATE_HOME", "xdg")][..], "own"),
        (&[("XDG_STATE_HOME", "xdg"), ("HOME", "me")], "xdg/packhorse"),
        (&[("XDG_STATE_HOME", ""), ("HOME", "me")], "me/.local/state/packhorse"),
        (&[("HOME", "me")], "me/.local/state/packhorse"),
    ] {
        let world = World::new();
        let mut command = world.command(["run", "--slots", "1", "--", "true"]);
        command.env_remove("PACKHORSE_HOME").env_remove("HOME");
        for (name, folder) in variables {
            let folder = match *folder {
                "" => String::new(),
                folder => world.work().join(folder).to_str().unwrap().to_owned(),
            };
            command.env(name, folder);
        }
        assert_eq!(finish(command).code, 0);
        let folder = world.work().join(place);
        let mode = fs_err::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{place}");
        assert!(folder.join("packhorse.db").exists(), "{place}");
    }
}

#[test]
fn a_closed_standard_input_is_an_empty_one() {
    let world = World::new();
    let closed = "exec \"$@\" <&-";
    let done = finish(through_shell(&world, closed, &["run", "--slots", "1"]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("0 succeeded"), "{done:?}");
    // What is started must not get our files for its standard input.
    let words = ["run", "--slots", "1", "--", "sh", "-c", "cat > got; echo ok >> got"];
    let done = finish(through_shell(&world, closed, &words));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("got"), "ok\n");
}

#[test]
fn a_closed_standard_output_does_not_stop_a_run() {
    for script in ["exec \"$@\" >&-", "exec \"$@\" >&- 2>&-", "exec \"$@\" > /dev/full"] {
        let world = World::new();
        let command = through_shell(&world, script, &["run", "--slots", "1"]);
        let done = finish_with(command, "echo text\necho done > out\n");
        assert_eq!(done.code, 0, "{script}: {done:?}");
        assert_eq!(world.read("out"), "done\n");
        // Nor does any output end up in one of our own files.
        assert_eq!(world.packhorse(["logs", "1"]).stdout, "text\n");
    }
}

#[test]
fn thousands_of_blank_lines_and_comments_are_no_tasks() {
    let world = World::new();
    let nothing = "\n# nothing\n".repeat(10_000);
    let input = format!("{nothing}true\n{nothing}true\ntrue\n{nothing}");
    let done = world.packhorse_with(["run", "--slots", "1"], input);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("run 1 ended: 3 succeeded"), "{done:?}");
}

#[test]
fn a_command_cannot_control_the_terminal() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1"], "false '\x1b[2J\x07\x08'\n");
    let shown = world.packhorse(["show", "1"]);
    let listed = world.packhorse(["run", "--slots", "1", "--", "true", "\x1b[2J"]);
    let runs = world.packhorse(["ls"]);
    for output in [&done.stdout, &shown.stdout, &listed.stdout, &runs.stdout] {
        let dangerous = output.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(dangerous, None, "{output}");
    }
    assert!(shown.stdout.contains("false '␛[2J"), "{shown:?}");
    // Programs get it as it is.
    let json = |words: [&str; 3]| world.packhorse(words).stdout;
    assert!(json(["show", "1", "--json"]).contains("false '\\u001b[2J\\u0007"));
    assert!(json(["ls", "--json", "-n1"]).contains("true '\\u001b[2J'"));
}

/// What a program on a terminal would be made to do by this.
const EVIL: &str = "\x1b]0;owned\x07\u{9b}2J";

#[test]
fn no_name_can_control_the_terminal() {
    let world = World::new();
    let folder = format!("f{EVIL}");
    fs_err::create_dir(world.work().join(&folder)).unwrap();
    let input = serde_json::json!({
        "command": [format!("no-such-{EVIL}")],
        "folder": &folder,
        "log": format!("l{EVIL}"),
    });
    world.write("tasks", input.to_string());
    let nowhere = format!("{folder}/none");
    let long = "x".repeat(5000);
    for words in [
        &["run", "--slots", "1", "--tasks", "tasks"][..],
        &["show"],
        &["show", "1.1"],
        &["ls"],
        &["logs", "1"],
        &["why", "1"],
        &["run", "--slots", "1", &folder],
        &["run", "--slots", "1", &nowhere],
        &["run", "--slots", "1", &long],
        &["run", "--slots", EVIL],
        &["run", "--gpus", EVIL, "--", "true"],
        &["show", EVIL],
        &["logs", EVIL],
        &["peaks", EVIL],
        &["csv", &nowhere],
        &["plan", &nowhere],
        &["sweep", EVIL, "--run", "--slots", "1"],
        &[EVIL],
    ] {
        let done = world.packhorse(words);
        let said = done.stdout + &done.stderr;
        assert!(!said.is_empty(), "{words:?}");
        let dangerous = said.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(dangerous, None, "{words:?}: {said}");
        assert!(said.len() < 4000, "{words:?}: {said}");
    }
    let long = "x ".repeat(50_000);
    let done = world.packhorse(["run", "--slots", "1", "--", "false", &long]);
    assert!(done.stdout.len() < 4000, "{}", done.stdout.len());
    let show = world.packhorse(["show", "1.1"]).stdout;
    assert!(show.contains("command not found: no-such-␛]0;owned␇"), "{show}");
    let mut command = world.command(["config"]);
    command.env("PACKHORSE_VRAM", EVIL);
    assert!(!finish(command).stderr.contains('\x1b'));
}

#[test]
fn variables_that_are_no_text_reach_the_tasks() {
    let world = World::new();
    let mut command =
        world.command(["run", "--slots", "1", "--", "sh", "-c", "printenv ODD > out"]);
    command.env("ODD", OsStr::from_bytes(b"\xff=\xfe"));
    assert_eq!(finish(command).code, 0);
    assert_eq!(fs_err::read(world.work().join("out")).unwrap(), b"\xff=\xfe\n");
}

#[test]
fn thousands_of_gpus_can_be_named() {
    let world = World::new();
    let uuids: Vec<String> =
        (0..2000).map(|number| format!("GPU-5c2f0000-0000-4000-8000-{number:012}")).collect();
    for values in [vec![uuids.join(",")], uuids.clone()] {
        let mut command = world.command(["run", "--gpus"]);
        command.args(values).args(["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES > out"]);
        assert_eq!(finish(command).code, 0);
        assert!(uuids.contains(&world.read("out").trim_end().to_owned()));
    }
}

/// A program of the person's own, in the folder where runs begin.
fn own_program(world: &World, name: &str, text: &str) {
    world.write(name, text);
    let file = world.work().join(name);
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_program_that_is_taken_away_while_others_use_it_is_missed_by_name() {
    let world = World::new();
    own_program(&world, "prog", "#!/bin/sh\nexit 0\n");
    world.write("tasks", "./prog\n./prog\nrm prog\n./prog\ntrue\n");
    let done = world.packhorse(["run", "--slots", "1", "tasks"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("4 succeeded, 1 failed"), "{}", done.stdout);
    assert!(done.stdout.contains("no such file: ./prog"), "{}", done.stdout);
    let shown = world.packhorse(["show", "1"]).stdout;
    assert!(shown.contains("no such file: ./prog"), "{shown}");
}

#[test]
fn a_program_that_becomes_a_script_without_a_first_line_goes_on_in_a_shell() {
    let world = World::new();
    own_program(&world, "prog", "#!/bin/sh\necho one >> out\n");
    own_program(&world, "other", "echo two $1 $PACKHORSE_TASK >> out\n");
    world.write("tasks", "./prog a\nmv other prog\n./prog b\n");
    let done = world.packhorse(["run", "--slots", "1", "tasks"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "one\ntwo b 1.3\n");
}

#[test]
fn programs_that_move_on_the_path_are_found_again() {
    let world = World::new();
    for folder in ["a", "b"] {
        fs_err::create_dir(world.work().join(folder)).unwrap();
        own_program(
            &world,
            &format!("{folder}/prog"),
            &format!("#!/bin/sh\necho {folder} >> out\n"),
        );
    }
    world.write("tasks", "prog\nrm a/prog\nprog\nrm b/prog\nprog\n");
    let path = std::env::var("PATH").unwrap_or_default();
    let here = world.work().display().to_string();
    let mut command = world.command(["run", "--slots", "1", "tasks"]);
    command.env("PATH", format!("{here}/a:{here}/b:{path}"));
    let done = finish(command);
    assert_eq!(world.read("out"), "a\nb\n");
    assert!(done.stdout.contains("command not found: prog"), "{}", done.stdout);
    assert!(done.stdout.contains("4 succeeded, 1 failed"), "{}", done.stdout);
}

#[test]
fn a_fifo_in_the_databases_place_holds_nobody_up() {
    let world = World::new();
    world.make_home();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = world.home().join("packhorse.db");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for words in [&["ls"][..], &["run", "--slots", "1", "--", "touch", "out"]] {
        let done = world.packhorse(words);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("packhorse.db"), "{done:?}");
    }
    assert!(!world.work().join("out").exists());
}

#[test]
fn a_file_that_is_no_database_is_told_by_whoever_meets_it() {
    let world = World::new();
    world.make_home();
    fs_err::write(world.home().join("packhorse.db"), "no database at all\n").unwrap();
    for words in ["ls", "show", "logs 1", "peaks", "run --slots 1 -- touch out"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{words}");
        assert!(
            done.stderr.contains("packhorse.db` is not a database\nhint: "),
            "{words}: {}",
            done.stderr
        );
    }
    assert!(!world.work().join("out").exists());
}

#[test]
fn whoever_meets_a_damaged_database_is_told_how_to_go_on() {
    let world = World::new();
    let done = world.packhorse_with(["run", "--slots", "1", "-q"], "echo one\n".repeat(200));
    assert_eq!(done.code, 0, "{done:?}");
    let database = rusqlite::Connection::open(world.database()).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'run'";
    let root: u32 = database.query_one(root, [], |row| row.get(0)).unwrap();
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(database);
    let path = world.database();
    let mut bytes = fs_err::read(&path).unwrap();
    let page = usize::try_from((root - 1) * 4096).unwrap();
    bytes[page..page + 4096].fill(0x5a);
    fs_err::write(&path, bytes).unwrap();
    for words in ["ls", "show", "resume", "logs 1", "export"] {
        let done = world.packhorse(words.split(' '));
        assert_eq!(done.code, 2, "{words}: {done:?}");
        let lines: Vec<&str> = done.stderr.lines().collect();
        let [what, hint] = lines.as_slice() else {
            panic!("{words}: {}", done.stderr);
        };
        assert!(what.ends_with("malformed"), "{what}");
        assert!(hint.starts_with("hint: it is damaged: move it"), "{hint}");
    }
    // As it says.
    fs_err::create_dir(world.work().join("old")).unwrap();
    for end in ["", "-wal", "-shm"] {
        let name = format!("packhorse.db{end}");
        let _ = fs_err::rename(world.home().join(&name), world.work().join("old").join(&name));
    }
    let done = world.packhorse(["run", "--slots", "1", "--", "echo", "two"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.packhorse(["logs", "2.1"]).stdout, "two\n");
    assert!(world.home().join("runs/1/logs/1.1.log").exists());
}

#[test]
fn a_reader_on_a_full_disk_says_where_to_look() {
    let world = World::new();
    let run = ["run", "--slots", "1", "--", "true"];
    assert_eq!(world.packhorse(run).code, 0);
    // What processes share is made anew, and is larger than this.
    let _ = fs_err::remove_file(world.home().join("packhorse.db-shm"));
    let done = finish(through_shell(&world, &full_after(8), &["ls"]));
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    let lines: Vec<&str> = done.stderr.lines().collect();
    let [what, hint] = lines.as_slice() else {
        panic!("{}", done.stderr);
    };
    assert!(what.starts_with("error: the database `"), "{what}");
    assert!(what.ends_with("`: disk I/O error"), "{what}");
    assert!(hint.starts_with("hint: see whether its disk is full"), "{hint}");
}

#[test]
fn on_a_full_disk_no_end_is_told_that_a_crash_would_lose() {
    let world = World::new();
    let said = world.fifo("said");
    let gate = world.fifo("gate");
    world.write("tasks", "true\necho > said; read x < gate\n");
    let words = ["run", "--slots", "1", "tasks"];
    let mut running = Running::start(through_shell(&world, &full_after(20), &words));
    running.wait_for("what a crash could lose is told later");
    // By then the first has ended.
    receive(&said);
    running.signal(Signal::KILL);
    let told = running.finish().stdout;
    assert!(!told.contains("1.1 succeeded"), "{told}");
    release(&gate);
}
