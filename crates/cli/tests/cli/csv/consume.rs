//! `--consume`: rows that have succeeded leave their file.

use std::os::unix::fs::MetadataExt as _;

use fs_err::{File, OpenOptions};
use rustix::process::Signal;

use super::{GATED, HEADER, NOTE, epochs, one_by_one, rows, world};
use crate::support::{World, finish};

#[test]
fn the_file_is_not_touched_unless_it_is_to_be_consumed() {
    let world = world(NOTE);
    let file = world.write("tasks.csv", rows(&[(1, 1), (2, 2)]));
    let version = || {
        let metadata = fs_err::metadata(&file).unwrap();
        (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
    };
    let before = version();
    assert_eq!(one_by_one(&world, &[]).code, 0);
    assert_eq!(version(), before);
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1), (2, 2)]));
}

#[test]
fn consuming_takes_out_what_succeeded_and_nothing_else() {
    let world = world("case $1 in --epochs=2) exit 3;; esac\nread x < ../gate\n");
    let gate = world.gate("gate");
    let table = "Spring sweep,,,,,\r\n\
        Directory, Executable,Filename,Epochs,Priority,Notes\r\n\
        code,sh,train.sh,1,1,\"said \"\"fast\"\"\r\nand small\"\r\n\
        \r\n\
        code, sh ,train.sh,2,2,fails\r\n\
        code,sh,train.sh,3,3,\r\n";
    let file = world.write("tasks.csv", table);
    let words = ["csv", "tasks.csv", "--slots=1", "--header=1", "--consume"];
    let mut running = world.start(words);
    running.wait_for("1.1 started");
    let mut more = OpenOptions::new().append(true).open(&file).unwrap();
    std::io::Write::write_all(&mut more, b"code,sh,train.sh,4,4,new\r\n").unwrap();
    drop(more);
    gate.pass(1);
    running.wait_for("1.3 started");
    // What is done is out while the rest goes on.
    let first = "code,sh,train.sh,1,1,\"said \"\"fast\"\"\r\nand small\"\r\n";
    let added = format!("{table}code,sh,train.sh,4,4,new\r\n");
    let left = added.replace(first, "");
    assert_eq!(world.read("tasks.csv"), left);
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 1, "{done:?}");
    let left = left.replace("code,sh,train.sh,3,3,\r\n", "");
    assert_eq!(world.read("tasks.csv"), left);
}

#[test]
fn of_equal_rows_as_many_are_consumed_as_succeeded() {
    // The first one fails.
    let world = world("mkdir ../first 2> ../err && exit 1; exit 0\n");
    world.write("tasks.csv", rows(&[(1, 1), (1, 1), (1, 1)]));
    let done = one_by_one(&world, &["--consume"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1)]));
}

#[test]
fn rows_are_consumed_when_they_succeed_in_a_later_session() {
    let world = world("test -e ../fixed || exit 1\nread x < ../gate\n");
    let gate = world.gate("gate");
    world.write("tasks.csv", rows(&[(1, 1), (2, 2)]));
    let done = one_by_one(&world, &["--consume"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1), (2, 2)]));
    world.write("fixed", "");
    fs_err::create_dir(world.work().join("elsewhere")).unwrap();
    let mut command = world.command(["retry"]);
    command.current_dir(world.work().join("elsewhere"));
    let mut running = crate::support::Running::start(command);
    running.wait_for("1.1 started");
    running.signal(Signal::INT);
    running.wait_for("stopping");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 130, "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(2, 2)]));
    gate.pass(1);
    let done = world.packhorse(["resume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("tasks.csv"), HEADER);
}

#[test]
fn rows_that_could_not_be_consumed_before_a_kill_are_by_the_next_session() {
    let world = world(GATED);
    let gate = world.gate("gate");
    let header = HEADER.replace('\n', ",Notes\n");
    let table = format!(
        "{header}code,sh,train.sh,1,1,\"of two\nlines\"\ncode,sh,train.sh,2,2,\ncode,sh,train.sh,3,3,\n"
    );
    let file = world.write("tasks.csv", table);
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    let lock = File::open(file).unwrap();
    lock.lock().unwrap();
    gate.pass(2);
    running.wait_for("1.3 started");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    drop(lock);
    let mut running = world.start(["resume"]);
    running.wait_for("1.3 started");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(epochs(&world), ["1", "2", "3"]);
    assert_eq!(world.read("tasks.csv"), header);
}

/// Sees every time that the table is replaced.
struct Replaced(rustix::fd::OwnedFd);

impl Replaced {
    fn watch(world: &World) -> Self {
        use rustix::fs::inotify;
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        // Where the new file came from as well: of equal events in a row the
        // kernel shows one.
        inotify::add_watch(&watch, world.work(), inotify::WatchFlags::MOVE).unwrap();
        Self(watch)
    }

    /// How often it has been, after waiting until it was at least so often.
    fn count(&self, least: u32) -> u32 {
        let mut count = 0;
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        let mut events = rustix::fs::inotify::Reader::new(&self.0, &mut buffer);
        loop {
            if count == least {
                rustix::io::ioctl_fionbio(&self.0, true).unwrap();
            }
            match events.next() {
                Ok(event) => {
                    let is_table = event.file_name().is_some_and(|name| name == c"tasks.csv");
                    count += u32::from(is_table);
                }
                Err(_) => return count,
            }
        }
    }
}

#[test]
fn a_file_is_replaced_about_once_a_second_however_many_rows_are_done() {
    let world = world("exit 0\n");
    let many: Vec<(u32, i32)> = (1..=200).map(|epochs| (epochs, 1)).collect();
    world.write("tasks.csv", rows(&many));
    let replaced = Replaced::watch(&world);
    let began = std::time::Instant::now();
    let done = one_by_one(&world, &["--consume"]);
    let most = 2 + began.elapsed().as_secs();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("tasks.csv"), HEADER);
    let count = u64::from(replaced.count(1));
    assert!((1..=most).contains(&count), "{count} times, not {most}");
}

#[test]
fn a_row_that_is_done_does_not_wait_for_the_next_to_be() {
    let world = world(GATED);
    let gate = world.gate("gate");
    world.write("tasks.csv", rows(&[(1, 1), (2, 2), (3, 3)]));
    let replaced = Replaced::watch(&world);
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    gate.pass(2);
    running.wait_for("1.3 started");
    // The first at once, the second a little later, while the third goes on.
    assert_eq!(replaced.count(2), 2);
    assert_eq!(world.read("tasks.csv"), rows(&[(3, 3)]));
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn rows_that_are_done_are_taken_out_when_the_run_is_stopped() {
    let world = world(GATED);
    let gate = world.gate("gate");
    world.write("tasks.csv", rows(&[(1, 1), (2, 2), (3, 3)]));
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    gate.pass(2);
    running.wait_for("1.3 started");
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_ne!(done.code, 0, "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(3, 3)]));
}

#[test]
fn rows_that_could_not_be_consumed_before_a_kill_are_by_the_next_run_of_the_file() {
    let world = world(GATED);
    let gate = world.gate("gate");
    let file = world.write("tasks.csv", rows(&[(1, 1), (2, 2), (3, 3)]));
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    let lock = File::open(file).unwrap();
    lock.lock().unwrap();
    gate.pass(2);
    running.wait_for("1.3 started");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    drop(lock);
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1), (2, 2), (3, 3)]));
    // What is left of the killed run waits at the gate too.
    gate.pass(4);
    let done = one_by_one(&world, &["--consume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("2 rows that run 1 has"), "{done:?}");
    assert!(done.stdout.contains("--epochs=3"), "{done:?}");
    assert!(!done.stdout.contains("2.2 "), "{done:?}");
    assert_eq!(world.read("tasks.csv"), HEADER);
    // They went out once: the same rows again are for another run.
    world.write("tasks.csv", rows(&[(1, 1)]));
    gate.pass(1);
    let done = one_by_one(&world, &["--consume"]);
    assert!(done.stdout.contains("3.1 succeeded"), "{done:?}");
}

#[test]
fn rows_that_stayed_at_the_end_go_out_though_nothing_is_left_to_resume() {
    let world = world(NOTE);
    let file = world.write("tasks.csv", rows(&[(1, 1), (2, 2)]));
    let lock = File::open(file).unwrap();
    lock.lock().unwrap();
    let done = one_by_one(&world, &["--consume"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("finished rows stay in"), "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1), (2, 2)]));
    drop(lock);
    fs_err::create_dir(world.work().join("elsewhere")).unwrap();
    let mut command = world.command(["resume"]);
    command.current_dir(world.work().join("elsewhere"));
    let done = finish(command);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains("nothing to do"), "{done:?}");
    assert_eq!(world.read("tasks.csv"), HEADER);
}

#[test]
fn a_consumed_row_that_was_put_back_for_another_run_stays() {
    let world = world(GATED);
    let gate = world.gate("gate");
    world.write("tasks.csv", rows(&[(1, 1), (2, 2)]));
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    gate.pass(1);
    running.wait_for("1.2 started");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    assert_eq!(world.read("tasks.csv"), rows(&[(2, 2)]));
    world.write("tasks.csv", rows(&[(2, 2), (1, 1)]));
    let mut running = world.start(["resume"]);
    running.wait_for("1.2 started");
    gate.pass(1);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(world.read("tasks.csv"), rows(&[(1, 1)]));
}

#[test]
fn a_file_that_vanished_is_said_and_the_tasks_still_run() {
    let world = world(GATED);
    let gate = world.gate("gate");
    let file = world.write("tasks.csv", rows(&[(1, 1), (2, 2)]));
    let mut running = world.start(["csv", "tasks.csv", "--slots=1", "--consume"]);
    running.wait_for("1.1 started");
    fs_err::remove_file(&file).unwrap();
    gate.pass(2);
    let done = running.finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("tasks.csv"), "{done:?}");
    assert!(done.stdout.contains("warning"), "{done:?}");
    assert!(!file.exists());
}
