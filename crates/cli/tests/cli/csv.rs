//! `packhorse csv`: rows of a table as tasks, in batches, by priority.

mod consume;

use std::os::unix::fs::PermissionsExt as _;

use packhorse_fake_nvml::{fake_cuda_path, fake_mps_control_path};
use rustix::process::Signal;

use crate::machine::Machine;
use crate::support::{Done, World, finish};

const HEADER: &str = "Directory,Executable,Filename,Epochs,Priority\n";

/// Writes down the folder it runs in and what it was called with.
const NOTE: &str = "echo \"${PWD##*/} $*\" >> ../out\n";

/// Waits at the gate, and then does the same.
const GATED: &str = "read x < ../gate\necho \"${PWD##*/} $*\" >> ../out\n";

/// Puts a script into a folder below the one that commands run in.
fn script(world: &World, folder: &str, name: &str, text: &str) {
    let folder = world.work().join(folder);
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join(name), text).unwrap();
}

/// A world whose folder `code` has a script `train.sh`.
fn world(text: &str) -> World {
    let world = World::new();
    script(&world, "code", "train.sh", text);
    world
}

/// Rows for the script in `code`, each with its epochs and priority.
fn rows(rows: &[(u32, i32)]) -> String {
    let rows =
        rows.iter().map(|(epochs, priority)| format!("code,sh,train.sh,{epochs},{priority}\n"));
    HEADER.to_owned() + &rows.collect::<String>()
}

/// Runs the table one row at a time.
fn one_by_one(world: &World, options: &[&str]) -> Done {
    world.packhorse([&["csv", "tasks.csv", "--slots", "1"], options].concat())
}

/// The epochs that the script was called with, in the order of the calls.
fn epochs(world: &World) -> Vec<String> {
    let out = world.read("out");
    let epochs = out.lines().map(|line| {
        let rest = line.split("--epochs=").nth(1).unwrap();
        rest.split(' ').next().unwrap().to_owned()
    });
    epochs.collect()
}

/// The numbers that the script was called with, in the order of the calls.
fn ids(world: &World) -> Vec<u64> {
    let out = world.read("out");
    let ids = out.lines().map(|line| line.split("--id=").nth(1).unwrap());
    ids.map(|id| id.parse().unwrap()).collect()
}

#[test]
fn a_row_runs_in_its_folder_with_its_epochs_and_an_id() {
    let world = world(NOTE);
    script(&world, "other", "train.sh", NOTE);
    let other = world.work().join("other");
    let other = other.display();
    world.write(
        "tasks.csv",
        format!("{HEADER}code,sh,train.sh --lr 0.1,3,1\n{other},sh,train.sh,4,2\n"),
    );
    let done = one_by_one(&world, &["--id", "7"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("out"), "code --lr 0.1 --epochs=3 --id=7\nother --epochs=4 --id=8\n");
}

#[test]
fn columns_are_known_by_their_names_in_any_order() {
    let world = world(NOTE);
    world.write(
        "tasks.csv",
        "priority,Epochs, Filename ,EXECUTABLE,Directory\n1,5,train.sh,sh,code\n",
    );
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["5"]);
}

#[test]
fn the_header_is_where_the_person_says() {
    let world = world(NOTE);
    let table = rows(&[(5, 1), (6, 2)]);
    world.write("titled.csv", format!("tasks of this week\n{table}"));
    world.write("bare.csv", table.replace(HEADER, ""));
    for words in [["csv", "titled.csv", "--header", "1"], ["csv", "bare.csv", "--header", "None"]] {
        world.write("out", "");
        let done = world.packhorse([&words[..], &["--slots", "1"]].concat());
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(epochs(&world), ["5", "6"], "{words:?}");
    }
    // As the original has it.
    world.write("out", "");
    let words = ["csv", "--csv", "bare.csv", "--header", "none", "--slots=1"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["5", "6"]);
}

#[test]
fn an_earlier_batch_goes_first_and_within_one_the_most_urgent() {
    let world = world(NOTE);
    let table = [(1, 5), (2, 3), (3, -1), (4, 2), (5, 0)];
    world.write("tasks.csv", rows(&table));
    let done = one_by_one(&world, &["--num", "2"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["2", "1", "3", "4", "5"]);
    // All of them are one batch unless somebody says otherwise.
    world.write("out", "");
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["3", "5", "4", "2", "1"]);
}

#[test]
fn rows_of_equal_priority_keep_the_order_of_the_file() {
    let world = world(NOTE);
    world.write("tasks.csv", rows(&[(1, 1), (2, 1), (3, 0), (4, 1)]));
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["3", "1", "2", "4"]);
}

#[test]
fn the_executable_minus_one_is_python() {
    let world = world(NOTE);
    world.write("tasks.csv", format!("{HEADER}code,-1,train.sh,1,1\n"));
    let bin = world.work().join("bin");
    for name in ["python3", "mine"] {
        let text = format!("#!/bin/sh\necho \"{name} $*\" >> ../out\n");
        script(&world, "bin", name, &text);
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(bin.join(name), mode).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", bin.display());
    let run = |options: &[&str]| {
        let words = [&["csv", "tasks.csv", "--slots=1", "--id=0"], options].concat();
        let mut command = world.command(words);
        command.env("PATH", &path);
        finish(command)
    };
    for (options, wanted) in [
        (&[][..], "python3"),
        (&["--python", "mine"], "mine"),
        // It starts where the person is, not in the row's folder.
        (&["--python", "bin/mine"], "mine"),
    ] {
        world.write("out", "");
        let done = run(options);
        assert_eq!(done.code, 0, "{done:?}");
        let wanted = format!("{wanted} train.sh --epochs=1 --id=0\n");
        assert_eq!(world.read("out"), wanted, "{options:?}");
    }
}

#[test]
fn a_python_that_is_not_there_is_said_before_anything_starts() {
    let world = world(NOTE);
    world.write("tasks.csv", format!("{HEADER}code,-1,train.sh,1,1\n"));
    for missing in ["bin/none", "no-such-python"] {
        let done = one_by_one(&world, &["--python", missing]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(missing), "{done:?}");
        assert!(done.stderr.contains("--python"), "{done:?}");
        assert_eq!(done.stdout, "", "{done:?}");
    }
    // Nobody needs it where no row asks for it.
    world.write("tasks.csv", rows(&[(1, 1)]));
    let done = one_by_one(&world, &["--python", "no-such-python"]);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn ids_go_on_where_the_last_run_stopped_or_start_where_the_person_says() {
    let world = world(NOTE);
    world.write("tasks.csv", rows(&[(1, 2), (2, 1)]));
    for _ in 0..2 {
        assert_eq!(one_by_one(&world, &[]).code, 0);
    }
    let found = ids(&world);
    let wanted: Vec<u64> = (found[0]..found[0] + 4).collect();
    // The most urgent has the lowest.
    assert_eq!(found, wanted);
    world.write("out", "");
    assert_eq!(one_by_one(&world, &["--id", "100"]).code, 0);
    assert_eq!(ids(&world), [100, 101]);
}

#[test]
fn everything_that_is_wrong_with_the_file_is_said_before_anything_starts() {
    let world = world(NOTE);
    let table = format!(
        "{HEADER}code,sh,train.sh,1,1\nnowhere,sh,train.sh,two,1\ncode,no-such-shell,absent.sh,1,\n"
    );
    world.write("tasks.csv", &table);
    let done = one_by_one(&world, &["--consume"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert_eq!(done.stdout, "", "{done:?}");
    for (place, what) in [
        ("tasks.csv:3:1\n", "nowhere"),
        ("tasks.csv:3:21\n", "two"),
        ("tasks.csv:4:6\n", "no-such-shell"),
        ("tasks.csv:4:20\n", "absent.sh"),
        ("tasks.csv:4:32\n", "Priority"),
    ] {
        assert!(done.stderr.contains(place), "{place}: {}", done.stderr);
        assert!(done.stderr.contains(what), "{what}: {}", done.stderr);
    }
    assert!(done.stderr.contains("5 mistakes"), "{}", done.stderr);
    assert_eq!(world.read("out"), "");
    assert_eq!(world.read("tasks.csv"), table);
    // No number was used up, and no run was made.
    world.write("tasks.csv", rows(&[(1, 1)]));
    let done = one_by_one(&world, &[]);
    assert!(done.stdout.contains("run 1 started"), "{done:?}");
    assert!(ids(&world)[0] <= 1, "{:?}", ids(&world));
}

#[test]
fn a_column_that_is_missing_or_misspelt_is_named() {
    let world = world(NOTE);
    world.write("tasks.csv", "Directory,Executable,Filename,Epoch,Priority\n");
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("`Epochs`"), "{done:?}");
    // One that no row needs is only a warning.
    let row = "code,sh,train.sh,1,1,9G\n";
    let header = HEADER.trim_end();
    world.write("tasks.csv", format!("{header},Memroy\n{row}"));
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("did you mean `Memory`?"), "{done:?}");
}

#[test]
fn a_file_without_rows_is_nothing_to_do() {
    let world = World::new();
    world.write("tasks.csv", HEADER);
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("no rows"), "{done:?}");
}

#[test]
fn further_columns_say_what_a_row_needs() {
    let world = world(
        "case $1 in
        --epochs=1) read x < ../gate;;
        --epochs=2) echo x >> ../tries; exit 1;;
        esac\n",
    );
    let _gate = world.gate("gate");
    let header = HEADER.trim_end();
    world.write(
        "tasks.csv",
        format!(
            "{header},Name,Timeout,Retries\n\
             code,sh,train.sh,1,1,slow,100ms,\n\
             code,sh,train.sh,2,2,,,2\n\
             code,sh,train.sh,3,3,,,\n"
        ),
    );
    let done = one_by_one(&world, &[]);
    assert_eq!(done.code, 1, "{done:?}");
    let failed = done.stdout.lines().find(|line| line.starts_with("1.1 failed"));
    assert!(failed.unwrap().contains(": ran past its time limit: sh "), "{done:?}");
    assert_eq!(world.read("tries"), "x\nx\nx\n");
    assert!(done.stdout.contains("1.3 succeeded"), "{done:?}");
    let show = world.packhorse(["show", "1.1"]).stdout;
    assert!(show.contains("slow"), "{show}");
}

/// A machine whose folder `code` has a script that takes GPU memory, and writes
/// down what it was called with and what it sees.
fn machine(gpus: u32, options: &str) -> Machine {
    let machine = Machine::new(gpus);
    let program = fake_cuda_path();
    let program = program.display();
    let text = format!(
        "echo \"$* $CUDA_VISIBLE_DEVICES threads=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE \
         limit=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT\" >> ../out\nexec {program} {options}\n"
    );
    script(&machine.world, "code", "train.sh", &text);
    machine
}

/// Runs the table there, with a control program for MPS at hand.
fn under_mps(machine: &Machine, options: &[&str]) -> Done {
    let mut command = machine.command(&[&["csv", "tasks.csv"], options].concat());
    command
        .env("PACKHORSE_MPS_CONTROL", fake_mps_control_path())
        .env("CUDA_MPS_PIPE_DIRECTORY", machine.world.work().join("none"));
    finish(command)
}

#[test]
fn memory_and_gpus_of_a_row_decide_what_runs_beside_it() {
    let machine = machine(2, "--peak 1G --hold-until-exists ../end");
    let header = HEADER.trim_end();
    machine.world.write(
        "tasks.csv",
        format!(
            "{header},Memory,GPUs\n\
             code,sh,train.sh,1,1,20G,\n\
             code,sh,train.sh,2,2,20G,\n\
             code,sh,train.sh,3,3,2G,\n\
             code,sh,train.sh,4,4,,2\n"
        ),
    );
    let mut running = machine.start(&["csv", "tasks.csv", "--mps", "False"]);
    running.wait_for("1.3 started");
    machine.world.why("1.4");
    machine.world.write("end", "");
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    let out = machine.world.read("out");
    let last = out.lines().last().unwrap();
    assert!(last.contains("--epochs=4"), "{out}");
    assert!(last.contains(" 0,1 "), "{out}");
}

#[test]
fn a_shape_that_nobody_knows_is_measured_by_a_few_epochs_first() {
    let machine = machine(1, "--peak 4G --hold-looks 6");
    machine.world.write("tasks.csv", rows(&[(50, 2), (60, 1)]));
    let options = ["--id", "5", "--mps", "False"];
    let done = under_mps(&machine, &options);
    assert_eq!(done.code, 0, "{done:?}");
    let out = machine.world.read("out");
    let calls: Vec<&str> = out.lines().collect();
    assert_eq!(calls.len(), 3, "{out}");
    // The first in line is measured, and the rest learns from it.
    assert!(calls[0].starts_with("--epochs=2 --id=5 "), "{out}");
    assert!(out.contains("--epochs=50 --id=6 "), "{out}");
    assert!(out.contains("--epochs=60 --id=5 "), "{out}");
    assert_eq!(done.stdout.matches("(probe)").count(), 1, "{done:?}");
    assert!(done.stdout.contains("measured: 4.0 GiB"), "{done:?}");
    // What is known is not measured again.
    machine.world.write("out", "");
    let done = under_mps(&machine, &options);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("(probe)"), "{done:?}");
    assert_eq!(machine.world.read("out").lines().count(), 2);
}

#[test]
fn the_measure_is_as_long_as_the_person_wants() {
    let machine = machine(1, "--peak 4G --hold-looks 6");
    machine.world.write("tasks.csv", rows(&[(50, 1)]));
    let done = under_mps(&machine, &["--probe-epochs", "3"]);
    assert_eq!(done.code, 0, "{done:?}");
    let out = machine.world.read("out");
    assert!(out.starts_with("--epochs=3 "), "{out}");
    // Never longer than the task.
    machine.packhorse(&["peaks", "--forget", "--all"]);
    machine.world.write("out", "");
    let done = under_mps(&machine, &["--probe-epochs", "99"]);
    assert_eq!(done.code, 0, "{done:?}");
    let out = machine.world.read("out");
    assert!(out.starts_with("--epochs=50 "), "{out}");
    // Without one, the task itself shows what it needs.
    machine.packhorse(&["peaks", "--forget", "--all"]);
    machine.world.write("out", "");
    let done = under_mps(&machine, &["--probe-epochs", "0"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("(probe)"), "{done:?}");
    assert_eq!(machine.world.read("out").lines().count(), 1);
}

#[test]
fn a_measure_that_fails_is_not_its_tasks_failure() {
    let machine = machine(1, "--peak 4G --exit $((${1#--epochs=} == 2))");
    machine.world.write("tasks.csv", rows(&[(50, 1)]));
    let done = under_mps(&machine, &["--retries", "0"]);
    assert_eq!(done.code, 0, "{done:?}");
    let out = machine.world.read("out");
    let calls: Vec<&str> = out.lines().collect();
    assert_eq!(calls.len(), 2, "{out}");
    assert!(calls[0].starts_with("--epochs=2 "), "{out}");
    assert!(calls[1].starts_with("--epochs=50 "), "{out}");
}

#[test]
fn rows_share_a_gpu_through_mps_where_there_is_one() {
    let machine = machine(1, "--peak 1G");
    let header = HEADER.trim_end();
    machine.world.write("tasks.csv", format!("{header},Memory\ncode,sh,train.sh,1,1,2G\n"));
    for (options, threads, limit) in [
        (&[][..], "threads= ", "limit=0=2048M"),
        (&["--mps", "True"], "threads= ", "limit=0=2048M"),
        (&["--thread_percentage", "50"], "threads=50 ", "limit=0=2048M"),
        (&["--threads_percentage=150"], "threads=100 ", "limit=0=2048M"),
        // Of none at all nothing would ever be computed.
        (&["--thread-percentage", "-20"], "threads=1 ", "limit=0=2048M"),
        (&["--mps", "False", "--thread_percentage", "50"], "threads= ", "limit=\n"),
    ] {
        machine.world.write("out", "");
        let done = under_mps(&machine, options);
        assert_eq!(done.code, 0, "{done:?}");
        let out = machine.world.read("out");
        assert!(out.contains(threads), "{options:?}: {out}");
        assert!(out.contains(limit), "{options:?}: {out}");
    }
}

#[test]
fn without_a_control_program_rows_run_without_mps_and_without_a_word() {
    let machine = machine(1, "--peak 1G");
    machine.world.write("tasks.csv", rows(&[(1, 1)]));
    let mut command = machine.command(&["csv", "tasks.csv"]);
    command.env("PACKHORSE_MPS_CONTROL", machine.world.work().join("none"));
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("MPS"), "{done:?}");
    assert!(!done.stderr.contains("MPS"), "{done:?}");
}

#[test]
fn what_a_killed_run_left_is_run_in_the_order_of_the_batches() {
    let world = world(GATED);
    script(&world, "other", "train.sh", GATED);
    let gate = world.gate("gate");
    let table = rows(&[(1, 5), (2, 3), (3, 9), (4, -1), (5, -7)]);
    let table = table.replace("code,sh,train.sh,5", "other,sh,train.sh,5");
    world.write("tasks.csv", &table);
    let words = ["csv", "tasks.csv", "--slots=1", "--num=2", "--id=20"];
    let mut running = world.start(words);
    running.wait_for("1.2 started");
    gate.pass(1);
    running.wait_for("1.1 started");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    // What the file says now does not matter.
    world.write("tasks.csv", HEADER);
    let mut running = world.start(["resume"]);
    running.wait_for("1.1 started");
    gate.pass(4);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(
        world.read("out"),
        "code --epochs=2 --id=20\ncode --epochs=1 --id=21\ncode --epochs=4 --id=22\n\
         code --epochs=3 --id=23\nother --epochs=5 --id=24\n"
    );
}

#[test]
fn a_row_that_could_never_run_starts_nothing() {
    let machine = machine(1, "--peak 1G");
    let header = HEADER.trim_end();
    let rows = "code,sh,train.sh,1,1,2G\ncode,sh,train.sh,1,1,40G\n";
    machine.world.write("tasks.csv", format!("{header},Memory\n{rows}"));
    let done = under_mps(&machine, &[]);
    assert_eq!(done.code, 2, "{done:?}");
    let place = "tasks.csv:3: this task could never run: it needs 40.0 GiB";
    assert!(done.stderr.contains(place), "{done:?}");
    assert_eq!(machine.world.read("out"), "");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let done = one_by_one(&World::new(), &[]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("tasks.csv"), "{done:?}");
}

#[test]
fn a_batch_of_no_rows_and_a_header_that_is_no_number_are_refused() {
    let world = world(NOTE);
    world.write("tasks.csv", rows(&[(1, 1)]));
    for (options, what) in
        [(["--num", "0"], "--num"), (["--header", "first"], "`first` is not the number of a row")]
    {
        let done = one_by_one(&world, &options);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(what), "{done:?}");
        assert_eq!(world.read("out"), "");
    }
}

#[test]
fn a_second_file_is_refused_wherever_it_stands() {
    let world = world(NOTE);
    world.write("tasks.csv", rows(&[(1, 1)]));
    world.write("more.csv", rows(&[(2, 1)]));
    let done = world.packhorse(["csv", "tasks.csv", "--gpus", "0", "more.csv"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("one file too many"), "{done:?}");
    assert!(!world.work().join("out").exists());
}

#[test]
fn a_line_that_no_table_has_is_refused() {
    let world = World::new();
    let header = HEADER.trim_end();
    let long = "x".repeat((16 << 20) + 1);
    world.write("tasks.csv", format!("{header}\n.,sh,{long},1,1\n"));
    let done = world.packhorse(["csv", "tasks.csv", "--slots", "1"]);
    assert_eq!(done.code, 2, "{done:?}");
    assert!(
        done.stderr.contains("tasks.csv:2: this line is longer than 16 MiB"),
        "{}",
        done.stderr.len()
    );
}
