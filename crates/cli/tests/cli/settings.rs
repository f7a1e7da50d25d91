//! Settings in layers: arguments, variables, the project's file, the person's file.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Done, World, finish};

/// A project with a folder `deep/down` in it, and the person's own file.
fn world(project: &str, user: &str) -> World {
    let world = World::new();
    fs_err::create_dir_all(world.work().join("deep/down")).unwrap();
    let config = user_file(&world);
    fs_err::create_dir_all(config.parent().unwrap()).unwrap();
    fs_err::write(config, user).unwrap();
    world.write("packhorse.toml", project);
    world
}

fn user_file(world: &World) -> PathBuf {
    let home = world.home();
    let home = home.parent().unwrap();
    home.join(".config/packhorse/config.toml")
}

/// Runs `packhorse` below the project, with these variables.
fn packhorse(world: &World, words: &str, variables: &[(&str, &str)]) -> Done {
    let mut command = world.command(words.split(' '));
    command.current_dir(world.work().join("deep/down")).envs(variables.iter().copied());
    finish(command)
}

/// What `packhorse config --json` says of a setting: its value and where it comes from.
fn setting(world: &World, variables: &[(&str, &str)], key: &str) -> (Value, String) {
    let done = packhorse(world, "config --json --all", variables);
    assert_eq!(done.code, 0, "{done:?}");
    let listed: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    let found = listed.iter().find(|setting| setting["setting"] == key);
    let found = found.unwrap_or_else(|| panic!("no {key} in {}", done.stdout));
    let from = found["from"].as_str().unwrap();
    (found["value"].clone(), from.to_owned())
}

#[test]
fn each_layer_outranks_those_below_it() {
    let world = world(
        "[task]\nretries = 2\nenv = { A = \"project\", B = \"project\" }\n",
        "[task]\nretries = 3\nenv = { A = \"user\", C = \"user\" }\n[pool]\nslots = 1\n",
    );
    let tries = |words: &str, variables: &[(&str, &str)]| {
        world.write("tries", "");
        let command = ["--", "sh", "-c", "echo $A $B $C >> ../../tries; false"];
        let words = words.split(' ').chain(command);
        let mut command = world.command(words);
        command.current_dir(world.work().join("deep/down")).envs(variables.iter().copied());
        let done = finish(command);
        assert_eq!(done.code, 1, "{done:?}");
        let tries = world.read("tries");
        assert!(tries.lines().all(|line| line == "project project user"));
        tries.lines().count()
    };
    let variables = [("PACKHORSE_RETRIES", "1")];
    assert_eq!(tries("run --retries 0", &variables), 1);
    assert_eq!(tries("run", &variables), 2);
    assert_eq!(tries("run", &[]), 3);
    // Nothing that is set is nothing that is said.
    assert_eq!(tries("run", &[("PACKHORSE_RETRIES", "")]), 3);
    fs_err::remove_file(world.work().join("packhorse.toml")).unwrap();
    fs_err::write(
        user_file(&world),
        "[task]\nretries = 3\nenv = {A = \"project\", B = \"project\", C = \"user\"}\n[pool]\nslots = 1\n",
    )
    .unwrap();
    assert_eq!(tries("run", &[]), 4);
}

#[test]
fn the_nearest_project_counts_and_only_that() {
    let world = world("[task]\nretries = 2\ncores = 1\n", "");
    let project = |folder: &str| world.work().join(folder).join("packhorse.toml");
    let (value, from) = setting(&world, &[], "task.retries");
    assert_eq!(value, 2);
    assert_eq!(from, project("").to_str().unwrap());
    world.write("deep/packhorse.toml", "[task]\nretries = 5\n");
    let (value, from) = setting(&world, &[], "task.retries");
    assert_eq!(value, 5);
    assert_eq!(from, project("deep").to_str().unwrap());
    let (value, from) = setting(&world, &[], "task.cores");
    assert_eq!((value, from.as_str()), (Value::Null, "default"));
}

#[test]
fn config_shows_each_length_of_time_with_its_unit() {
    let project = "[pool]\nageing = \"1h\"\nrest = \"5m\"\n[task]\ngrace = \"2.5s\"\ntimeout = \"2h\"\n\
                   [slurm]\ntask_time = \"20m\"\n";
    let world = world(project, "");
    let shown = packhorse(&world, "config", &[]).stdout;
    for (key, value) in [
        ("pool.ageing", "3600s"),
        ("pool.rest", "300s"),
        ("slurm.task_time", "1200s"),
        ("task.grace", "2.5s"),
        ("task.timeout", "7200s"),
    ] {
        let row = shown.lines().find(|row| row.starts_with(key));
        let row = row.unwrap_or_else(|| panic!("{shown}"));
        assert_eq!(row.split_whitespace().nth(1), Some(value), "{shown}");
    }
}

#[test]
fn config_shows_what_is_set_and_where() {
    let world = world(
        "[pool]\ngpus = \"0,1\"\n[task]\nvram = \"9G\"\ntimeout = \"2h\"\n",
        "store_patience = \"2s\"\n[task]\nvram = \"1G\"\n",
    );
    let variables = [("PACKHORSE_PLACE", "spread")];
    let done = packhorse(&world, "config", &variables);
    assert_eq!(done.code, 0, "{done:?}");
    let shown: Vec<Vec<&str>> =
        done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(shown[0], ["SETTING", "VALUE", "FROM"]);
    let project = world.work().join("packhorse.toml");
    let user = user_file(&world);
    for (key, from) in [
        ("pool.gpus", project.to_str().unwrap()),
        ("pool.place", "PACKHORSE_PLACE"),
        ("task.vram", project.to_str().unwrap()),
    ] {
        let row = shown.iter().find(|row| row[0] == key);
        let row = row.unwrap_or_else(|| panic!("{}", done.stdout));
        assert_eq!(*row.last().unwrap(), from, "{}", done.stdout);
    }
    // A variable that the tests set outranks it.
    let (_, from) = setting(&world, &[("PACKHORSE_STORE_PATIENCE", "")], "store_patience");
    assert_eq!(from, user.to_str().unwrap());
    assert_eq!(setting(&world, &variables, "pool.gpus").0, json!(["0,1"]));
    let (value, from) = setting(&world, &variables, "pool.ageing");
    assert_eq!((value, from.as_str()), (json!(3600.0), "default"));
    assert!(!done.stdout.contains("pool.ageing"), "{}", done.stdout);
    let all = packhorse(&world, "config --all", &[]).stdout;
    assert!(all.contains("pool.ageing"), "{all}");
    assert_eq!(setting(&world, &variables, "task.retries").0, json!(0));
    assert_eq!(setting(&world, &variables, "task.gpus").0, json!(1));
    assert_eq!(setting(&world, &variables, "task.ram").0, Value::Null);
    // Without GPUs there is no default for them.
    let slots = [("PACKHORSE_SLOTS", "2")];
    assert_eq!(setting(&world, &slots, "pool.gpus").0, Value::Null);
    assert_eq!(setting(&world, &slots, "task.gpus").0, Value::Null);
}

#[test]
fn a_mistake_names_its_file_or_variable_and_starts_nothing() {
    for (project, user, variable, said) in [
        ("[task]\nretrys = 1\n", "", "", &["/packhorse.toml", "line 2", "retrys"][..]),
        ("", "[pool]\nslots = \"many\"\n", "", &["/config.toml", "line 2"]),
        ("", "store_patience = \"soon\"\n", "", &["/config.toml", "store_patience", "soon"]),
        ("[task\n", "", "", &["/packhorse.toml", "line 1"]),
        ("", "", "many", &["PACKHORSE_RETRIES", "many"]),
        (
            "mps_control = \"./evil\"\n",
            "",
            "",
            &["/packhorse.toml", "`mps_control`", "config.toml"],
        ),
        ("", "[task]\nlog = \"all.log\"\n", "", &["/config.toml", "`task.log`"]),
        ("nvml_library = \"./evil.so\"\n", "", "", &["`nvml_library`"]),
    ] {
        let world = world(project, user);
        let variables = [("PACKHORSE_RETRIES", variable), ("PACKHORSE_STORE_PATIENCE", "")];
        for words in ["config", "run --slots 1 -- touch out"] {
            let done = packhorse(&world, words, &variables);
            assert_eq!(done.code, 2, "{project}{user}{done:?}");
            for part in said {
                assert!(done.stderr.contains(part), "{part}: {done:?}");
            }
            assert_eq!(done.stdout, "", "{done:?}");
        }
        assert!(!world.work().join("deep/down/out").exists());
    }
}

#[test]
fn a_command_that_only_looks_needs_no_settings() {
    let world = world("", "");
    assert_eq!(packhorse(&world, "run --slots 1 -- echo written", &[]).code, 0);
    world.write("packhorse.toml", "nonsense");
    for words in ["ls", "show 1", "logs 1.1", "export 1"] {
        let done = packhorse(&world, words, &[]);
        assert_eq!(done.code, 0, "{words}: {done:?}");
    }
}

#[test]
fn slots_in_a_file_and_gpus_on_the_command_line_do_not_meet() {
    let world = world("", "[pool]\nslots = 2\n[task]\nretries = 0\n");
    let done = packhorse(&world, "run --gpus 5 -- sh -c exit${CUDA_VISIBLE_DEVICES}", &[]);
    assert!(done.stdout.contains("GPU 5"), "{done:?}");
    let done = packhorse(&world, "run -- true", &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("2 tasks at a time"), "{done:?}");
    fs_err::write(user_file(&world), "[pool]\ngpus = [\"3\"]\n[task]\ngpus = 1\n").unwrap();
    let done = packhorse(&world, "run -- true", &[]);
    assert!(done.stdout.contains("GPU 3"), "{done:?}");
    let done = packhorse(&world, "run --slots 1 -- true", &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("GPU"), "{done:?}");
}

#[test]
fn another_session_keeps_the_settings_of_the_first() {
    let world = world("[pool]\ngpus = \"4\"\n[task]\nenv = { A = \"then\" }\nretries = 1\n", "");
    let command = "echo $CUDA_VISIBLE_DEVICES $A >> ../../out; test -e ../../fixed";
    let mut first = world.command(["run", "--", "sh", "-c", command]);
    first.current_dir(world.work().join("deep/down"));
    assert_eq!(finish(first).code, 1);
    world.write(
        "packhorse.toml",
        "[pool]\ngpus = \"9\"\n[task]\nenv = { A = \"now\" }\nretries = 5\n",
    );
    assert_eq!(packhorse(&world, "retry", &[("PACKHORSE_RETRIES", "7")]).code, 1);
    world.write("fixed", "");
    assert_eq!(packhorse(&world, "retry", &[]).code, 0);
    assert_eq!(world.read("out"), "4 then\n".repeat(5));
}

#[test]
fn a_time_limit_of_the_project_can_be_lifted() {
    let world = world("[pool]\nslots = 1\n[task]\ntimeout = 0.05\n", "");
    let gate = world.gate("gate");
    let words = ["run", "--timeout", "never", "--json", "--", "sh", "-c", "read x < gate"];
    let mut running = world.start(words);
    running.wait_for("\"started\"");
    let limited = world.packhorse(["run", "--", "sleep", "1000"]);
    assert_eq!(limited.code, 1, "{limited:?}");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_sweep_and_a_table_take_the_settings_too() {
    let world = world("[task]\nenv = { A = \"set\" }\n[pool]\nslots = 1\n", "");
    let words = ["sweep", "echo $A {n} >> out", "-p", "n", "1", "2", "--order", "grid", "--run"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    world.write("t.sh", "echo $A table >> out\n");
    world.write("tasks.csv", "Directory,Executable,Filename,Epochs,Priority\n.,sh,t.sh,1,1\n");
    let done = world.packhorse(["csv", "tasks.csv"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "set 1\nset 2\nset table\n");
}

#[test]
fn a_process_to_ignore_is_checked_wherever_it_is_named() {
    let wrong = "[pool]\nignore_process = [\"pid:1\", \"uid:ann\"]\n";
    let file = packhorse(&world("", wrong), "run --slots 1 -- touch out", &[]);
    assert!(file.stderr.contains("config.toml: pool.ignore_process"));
    let variable = [("PACKHORSE_IGNORE_PROCESS", "uid:ann")];
    let variable = packhorse(&world("", ""), "run --slots 1 -- touch out", &variable);
    assert!(variable.stderr.contains("PACKHORSE_IGNORE_PROCESS is wrong"));
    let words = "run --slots 1 --ignore-process uid:ann -- touch out";
    let argument = packhorse(&world("", ""), words, &[]);
    for done in [file, variable, argument] {
        assert_eq!(done.code, 2, "{done:?}");
        let said = "`ann` is not the number of a user";
        assert!(done.stderr.contains(said), "{done:?}");
    }
}

#[test]
fn a_value_for_all_tasks_that_makes_no_sense_is_refused_before_anything_starts() {
    let world = world("", "");
    let done = packhorse(&world, "run --slots 1 --signature= -- touch ran", &[]);
    assert_eq!(done.code, 2, "{done:?}");
    let said = "signature: this cannot be a signature\nhint: write a word";
    assert!(done.stderr.contains(said), "{done:?}");
    world.write("packhorse.toml", "[task]\nenv = { \"A=B\" = \"1\" }\n");
    let done = packhorse(&world, "run --slots 1 -- touch ran", &[]);
    assert_eq!(done.code, 2, "{done:?}");
    let said = "env: `A=B` cannot be the name of an environment variable";
    assert!(done.stderr.contains(said), "{done:?}");
    assert!(!world.work().join("deep/down/ran").exists());
}
