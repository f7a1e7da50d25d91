//! `packhorse export`: a run's tasks as `packhorse run --tasks` reads them.

use serde_json::{Value, json};

use crate::support::{Done, World, finish_with};

/// Exports a run, and runs that as another one.
fn again(world: &World, run: &str, options: &[&str]) -> Done {
    let exported = export(world, &[run]);
    // Elsewhere: what is exported stands for itself.
    let words = [&["run", "--tasks", "-"], options].concat();
    let mut command = world.command(words);
    command.current_dir("/");
    finish_with(command, exported)
}

fn export(world: &World, words: &[&str]) -> String {
    let done = world.packhorse([&["export"], words].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stderr, "", "{done:?}");
    done.stdout
}

fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Everything in the folder `name` by its name, and takes it away.
fn take(world: &World, name: &str) -> Vec<(String, String)> {
    let folder = world.work().join(name);
    let mut found: Vec<_> = fs_err::read_dir(&folder)
        .unwrap()
        .map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            let text = fs_err::read_to_string(folder.join(&name)).unwrap();
            (name, text)
        })
        .collect();
    found.sort();
    fs_err::remove_dir_all(&folder).unwrap();
    fs_err::create_dir(&folder).unwrap();
    assert!(!found.is_empty(), "nothing was written");
    found
}

/// A run and the run of its export write the same.
fn round_trip(world: &World, first: &Done, options: &[&str]) {
    let wrote = take(world, "out");
    let second = again(world, "1", options);
    assert_eq!(second.code, first.code, "{first:?} {second:?}");
    assert_eq!(take(world, "out"), wrote);
    // What is exported of the second is what was exported of the first.
    assert_eq!(export(world, &["2"]), export(world, &["1"]));
}

fn world() -> World {
    let world = World::new();
    fs_err::create_dir(world.work().join("out")).unwrap();
    world
}

#[test]
fn lines_with_directives_do_the_same_again() {
    let world = world();
    let note = "echo $PACKHORSE_ATTEMPT $CUDA_VISIBLE_DEVICES $SEED > out";
    let commands = format!(
        "{note}/plain\n\
         #packhorse name=a gpus=2 priority=-1 cores=1 ram=1M cpu=0.5\n{note}/a\n\
         #packhorse after=a retries=2 timeout=1h signature=b\n{note}/b; test $PACKHORSE_ATTEMPT = 3\n\
         #packhorse gpus=0.5\nfalse\n"
    );
    let words = "run --gpus 4,5 -g 2 --retries 1 --grace 3s --env SEED=7";
    let first = world.packhorse_with(words.split(' '), commands);
    assert_eq!(first.code, 1, "{first:?}");
    round_trip(&world, &first, &["--gpus", "4,5"]);
    let exported = objects(&export(&world, &["1"]));
    assert_eq!(exported.len(), 4);
    let work = world.work().canonicalize().unwrap();
    assert_eq!(
        exported[1],
        json!({
            "command": format!("{note}/a"), "name": "a", "env": {"SEED": "7"},
            "folder": work, "gpus": 2, "cores": 1, "cpu": 0.5, "ram": 1 << 20,
            "priority": -1, "retries": 1, "grace": 3.0,
        })
    );
    assert_eq!(exported[2]["after"], json!(["a"]));
}

#[test]
fn rows_of_a_table_do_the_same_again() {
    let world = world();
    fs_err::create_dir(world.work().join("code")).unwrap();
    world.write("code/t.sh", "pwd > \"../out/$1-$2\"\n");
    world.write(
        "tasks.csv",
        "Directory,Executable,Filename,Epochs,Priority\n\
         code,sh,t.sh,3,1\ncode,sh,t.sh,4,0\n",
    );
    let first = world.packhorse("csv tasks.csv --slots 1 --id 7".split(' '));
    assert_eq!(first.code, 0, "{first:?}");
    round_trip(&world, &first, &["--slots", "1"]);
}

#[test]
fn a_sweep_does_the_same_again_with_its_parameters() {
    let world = world();
    let template = "echo {lr} $PACKHORSE_PARAMS > out/{bs}";
    let words = ["sweep", template, "-p", "lr", "0.1", "0.2", "-p", "bs", "8", "16"];
    let options = ["--zip", "lr,bs", "--run", "--slots", "2"];
    let first = world.packhorse([&words[..], &options].concat());
    assert_eq!(first.code, 0, "{first:?}");
    round_trip(&world, &first, &["--slots", "2"]);
    let exported = objects(&export(&world, &["1"]));
    assert_eq!(exported[0]["params"].as_object().unwrap().len(), 2);
}

#[test]
fn words_and_bytes_that_are_no_text_do_the_same_again() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = world();
    let script = "printf '<%s>' \"$@\" | od -c > out/words";
    let words = [
        &b"run"[..],
        b"--slots",
        b"1",
        b"--",
        b"sh",
        b"-c",
        script.as_bytes(),
        b"sh",
        b"a b",
        b"",
        b"caf\xe9",
    ];
    let first = world.packhorse(words.map(std::ffi::OsStr::from_bytes));
    assert_eq!(first.code, 0, "{first:?}");
    round_trip(&world, &first, &["--slots", "1"]);
}

#[test]
fn tasks_that_failed_can_be_had_alone() {
    let world = world();
    let commands = "echo one >> ran\n\
                    #packhorse name=bad\nexit 3\n\
                    #packhorse name=good\necho two >> ran\n\
                    #packhorse after=good\nexit 4\n\
                    #packhorse after=bad\necho skipped >> ran\n";
    let done = world.packhorse_with(["run", "--slots", "1"], commands);
    assert_eq!(done.code, 1, "{done:?}");
    let exported = export(&world, &["--failed"]);
    let commands: Vec<_> = objects(&exported)
        .iter()
        .map(|task| task["command"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(commands, ["exit 3", "exit 4", "echo skipped >> ran"]);
    world.write("ran", "");
    // What came after a task that has succeeded may start at once.
    let done = world.packhorse_with(["run", "--slots", "1", "--tasks", "-"], exported);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("0 succeeded, 3 failed"), "{done:?}");
    assert!(!done.stdout.contains("was not run"), "{done:?}");
    assert_eq!(world.read("ran"), "");
}

#[test]
fn a_run_that_is_not_there_is_said_and_a_reader_may_have_seen_enough() {
    let world = World::new();
    let done = world.packhorse(["export"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("there is no run yet"), "{done:?}");
    let tasks = format!(": {}\n", "x".repeat(10_000)).repeat(20);
    world.packhorse_with(["run", "--slots", "8", "-q"], tasks);
    let done = crate::support::cut_short(world.command(["export"]));
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
}

#[test]
fn what_the_run_says_of_gpus_is_nothing_for_tasks_without_one() {
    let machine = crate::machine::Machine::new(1);
    let world = &machine.world;
    world.write("commands", "true\n#packhorse gpus=0\ntrue\n");
    let words = ["run", "--vram", "1G", "--gpu-model", "Fake", "commands"];
    let done = machine.packhorse(&words);
    assert_eq!(done.code, 0, "{done:?}");
    world.write("tasks.jsonl", export(world, &[]));
    let done = machine.packhorse(&["run", "--tasks", "tasks.jsonl"]);
    assert_eq!(done.code, 0, "{done:?}");
}
