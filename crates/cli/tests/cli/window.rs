//! More tasks than are kept in memory: the order holds, and none is lost or run
//! twice.

use crate::support::World;

/// Together with [`padding`] more than is kept in memory.
const MANY: usize = 450;

/// Makes commands long: few of them are kept in memory.
fn padding() -> String {
    "x".repeat(10_000)
}

#[test]
fn tasks_that_never_start_leave_room_for_others() {
    let world = World::new();
    let long = format!("#packhorse after=bad\ntrue {}\n", "x".repeat(100_000));
    let commands = format!("#packhorse name=bad\nfalse\n{}true\ntrue\n", long.repeat(50));
    let done = world.packhorse_with(["run", "--slots", "2", "-q"], commands);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.stdout.contains("ended: 2 succeeded, 51 failed"), "{}", done.stdout);
}

#[test]
fn plain_tasks_are_not_overtaken_by_less_urgent_ones() {
    let world = World::new();
    // All of it is read at once, so that the order is known.
    let less = "#packhorse priority=5\ntrue less\n".repeat(MANY);
    let plain = format!("true plain {}\n", padding()).repeat(MANY);
    let file = world.write("commands.txt", less + &plain);
    let done =
        world.packhorse(["run".as_ref(), "--slots".as_ref(), "1".as_ref(), file.as_os_str()]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let started: Vec<&str> =
        done.stdout.lines().filter(|line| line.contains(" started: ")).collect();
    assert_eq!(started.len(), 2 * MANY);
    let first_less = started.iter().position(|line| line.ends_with("less"));
    assert_eq!(first_less, Some(MANY));
}

#[test]
fn a_sweep_that_is_retried_runs_each_of_its_tasks_once() {
    let world = World::new();
    let gate = world.gate("gate");
    let template = format!("test {{n}} -ne 200 || read x < gate; false # {}", padding());
    let values = format!("1..{}", 2 * MANY);
    let words = ["sweep", &template, "-p", "n", &values, "--order", "grid"];
    let mut running = world.start(words.into_iter().chain(["--run", "--slots", "1"]));
    running.wait_for("1.200 started");
    running.signal(rustix::process::Signal::INT);
    gate.pass(1);
    assert_eq!(running.finish().code, 130);
    let mut command = world.command(["retry", "-q"]);
    // The gate stands open for the second time round.
    command.stdin(std::process::Stdio::null());
    let again = std::thread::spawn(move || crate::support::finish(command));
    gate.pass(1);
    let done = again.join().unwrap();
    assert_eq!(done.code, 1, "{}", done.stderr);
    let wanted = format!("ended: 0 succeeded, {} failed in", 2 * MANY);
    assert!(done.stdout.contains(&wanted), "{}", done.stdout);
    assert!(!done.stdout.contains("before"), "{}", done.stdout);
}

#[test]
fn a_file_that_was_not_read_to_its_end_is_read_on() {
    let world = World::new();
    let gate = world.gate("gate");
    // Reading over so many comments takes longer than the first task, usually; and
    // nothing behind them comes to its turn before the second.
    let comments = format!("# {}\n", "-".repeat(98)).repeat(320_000);
    let commands = format!(
        "#packhorse name=prep\necho prep >> ran\nread x < gate\n\
         {comments}#packhorse after=prep\necho last >> ran\n"
    );
    let file = world.write("commands.txt", commands);
    let mut running =
        world.start(["run".as_ref(), "--slots".as_ref(), "1".as_ref(), file.as_os_str()]);
    running.wait_for("1.1 succeeded");
    running.signal(rustix::process::Signal::KILL);
    running.finish();
    assert_eq!(world.read("ran"), "prep\n");
    gate.pass(2);
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("ran"), "prep\nlast\n", "{done:?}");
}
