//! What others do is known before anything is decided.

use packhorse_test_parts::needs;

use super::turns::await_wait_for_lock;
use super::{await_record, lease_files};
use crate::support::{Running, World, wait_until};

/// Has this process be a run whose lease, beside that of another, says this.
fn be_a_run(beside: &std::path::Path, lease: &str) -> std::path::PathBuf {
    let me = std::process::id();
    let stat = fs_err::read_to_string(format!("/proc/{me}/stat")).unwrap();
    let born = stat.rsplit(')').next().unwrap().split(' ').nth(20).unwrap();
    let ours = beside.with_file_name(format!("{me}-{born}"));
    let draft = beside.with_file_name("draft");
    fs_err::write(&draft, lease).unwrap();
    fs_err::rename(draft, &ours).unwrap();
    ours
}

#[test]
fn a_gpu_stays_held_when_somebody_removes_all_leases() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "0", "tasks"]);
    first.wait_for("1.1 started");
    await_record(&world, 1);
    let away = world.leases().with_extension("away");
    fs_err::rename(world.leases(), &away).unwrap();
    fs_err::remove_dir_all(&away).unwrap();
    let is_complete = |file: &std::path::PathBuf| file.extension().is_none();
    wait_until(&world.leases(), || lease_files(&world).iter().any(is_complete));
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    let why = world.why("2.1");
    assert!(why.contains("another run holds GPU 0 (run 1 of"), "{why}");
    gate.pass(1);
    let done = first.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!done.stdout.contains("lease"), "{done:?}");
    assert_eq!(second.finish().code, 0);
}

#[test]
fn whose_a_run_is_is_looked_up_before_it_is_told() {
    // It fails for a user without a name, whose number it writes all the same.
    let me = std::process::Command::new("id").arg("-un").output().unwrap();
    let me = String::from_utf8(me.stdout).unwrap();
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut command = world.command(["run", "--gpus", "0", "tasks"]);
    command.env_remove("USER").env_remove("LOGNAME");
    let mut first = Running::start(command);
    first.wait_for("1.1 started");
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    let line = second.wait_for("nothing runs");
    let told = format!("run 1 of {}, process", me.trim());
    assert!(line.contains(&told), "{line}");
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    assert_eq!(second.finish().code, 0);
}

#[test]
fn what_is_freed_while_the_lock_is_waited_for_may_be_somebody_elses_by_then() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let mut first = world.start(["run", "--gpus", "0", "tasks"]);
    first.wait_for("1.1 started");
    let mut second = world.start(["run", "--gpus", "0", "--", "true"]);
    second.wait_for("run 2 started");
    world.await_gpus("waits for it");
    let pid = first.pid().as_raw_nonzero().to_string();
    let is_its = |file: &std::path::PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.starts_with(&format!("{pid}-"))
    };
    let held = lease_files(&world).into_iter().find(is_its).unwrap();
    let text = fs_err::read_to_string(&held).unwrap();
    // Nobody decides from here on.
    let lock = fs_err::File::open(world.leases()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    gate.pass(1);
    // The GPU is free, and the second run waits for the lock to take it.
    wait_until(&world.leases(), || fs_err::read_to_string(&held).ok() != Some(text.clone()));
    await_wait_for_lock(&world, 2);
    // We are somebody else, who was faster.
    let (me, ours) = (std::process::id(), be_a_run(&held, &text));
    drop(lock);
    assert_eq!(first.finish().code, 0);
    let why = world.packhorse(["why", "2.1"]).stdout;
    assert!(why.contains("another run holds GPU 0"), "{why}");
    assert!(why.contains(&format!("process {me}")), "{why}");
    fs_err::remove_file(ours).unwrap();
    assert_eq!(second.finish().code, 0);
}

#[test]
fn one_that_waits_for_two_gpus_does_not_take_one_that_is_somebody_elses_by_then() {
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    for gpu in ["0", "1"] {
        let mut first = world.start(["run", "--gpus", gpu, "tasks"]);
        first.wait_for(".1 started");
        let held = lease_files(&world);
        let held = held.iter().find(|file| file.extension().is_none()).unwrap();
        let lease = fs_err::read_to_string(held).unwrap();
        let mut second = world.start(["run", "--gpus", "0,1", "-g", "2", "--", "true"]);
        second.wait_for("started");
        world.await_gpus("waits for it");
        // Somebody takes the other one, which is free.
        let [this, other] =
            [gpu, if gpu == "0" { "1" } else { "0" }].map(|gpu| format!(r#""device":"{gpu}""#));
        let ours = be_a_run(held, &lease.replace(&this, &other));
        gate.pass(1);
        assert_eq!(first.finish().code, 0);
        let told = format!("process {})", std::process::id());
        let run = if gpu == "0" { "2.1" } else { "4.1" };
        let why = world.packhorse(["why", run]).stdout;
        assert!(why.contains(&told), "{why}");
        fs_err::remove_file(ours).unwrap();
        assert_eq!(second.finish().code, 0);
    }
}

/// Has a command run as root of a user namespace of its own, in which so many of something
/// may be had.
fn limited(world: &World, limit: &str, words: &[&str]) -> std::process::Command {
    let script = format!("echo {limit} && exec \"$@\"");
    let shell = ["--map-root-user", "sh", "-c", &script, "sh"];
    let packhorse = [env!("CARGO_BIN_EXE_packhorse")];
    let words = shell.iter().chain(&packhorse).chain(words).copied();
    world.program("unshare", words)
}

#[test]
fn one_that_cannot_hear_what_others_do_looks_again() {
    needs!(Namespaces);
    let world = World::new();
    let gates = ["gpu", "rest"].map(|name| world.gate(name));
    world.write("tasks", "read x < gpu\n#packhorse gpus=0\nread x < rest\n");
    let first = limited(&world, "", &["run", "--gpus", "0", "tasks"]);
    let limit = "0 > /proc/sys/user/max_inotify_instances";
    let second = limited(&world, limit, &["run", "--gpus", "0", "--", "true"]);
    let mut first = Running::start(first);
    first.wait_for("1.2 started");
    let mut second = Running::start(second);
    let told = second.wait_for("warning");
    assert!(told.contains("too many folders"), "{told}");
    gates[0].pass(1);
    // The first one goes on.
    let done = second.finish();
    assert_eq!(done.code, 0, "{done:?}");
    gates[1].pass(1);
    assert_eq!(first.finish().code, 0);
}

#[test]
fn one_that_can_hear_only_some_of_what_others_do_looks_at_all() {
    needs!(Namespaces);
    let world = World::new();
    let gate = world.gate("gate");
    world.write("tasks", "read x < gate");
    let first = limited(&world, "", &["run", "--gpus", "0", "tasks"]);
    let limit = "1 > /proc/sys/user/max_inotify_watches";
    let both = ["run", "--gpus", "0,1", "-g", "2", "--", "true"];
    let second = limited(&world, limit, &both);
    let mut first = Running::start(first);
    first.wait_for("1.1 started");
    let files = lease_files(&world);
    let held = files.iter().find(|file| file.extension().is_none());
    let held = held.unwrap();
    let lease = fs_err::read_to_string(held).unwrap();
    let mut second = Running::start(second);
    let told = second.wait_for("warning");
    assert!(told.contains("too many files"), "{told}");
    // Somebody comes whom it cannot hear.
    let ours = be_a_run(held, &lease.replace(r#""device":"0""#, r#""device":"1""#));
    gate.pass(1);
    assert_eq!(first.finish().code, 0);
    let why = world.packhorse(["why", "2.1"]).stdout;
    let told = format!("process {})", std::process::id());
    assert!(why.contains(&told), "{why}");
    fs_err::remove_file(ours).unwrap();
    assert_eq!(second.finish().code, 0);
}
