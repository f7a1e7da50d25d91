//! A run that ends with the process that drives it, and GPUs handed out as written.

use std::process::{Child, Command, Stdio};

use crate::support::{World, is_alive, receive};

/// A process that does nothing until it is killed.
struct Driver(Child);

impl Driver {
    fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn();
        Self(child.unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// When it was started: the 22nd field.
    fn start_time(&self) -> u64 {
        let stat = fs_err::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().nth(19).unwrap().parse().unwrap()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_ends_with_the_process_that_it_was_told_of_and_what_had_finished_is_on_record() {
    let world = World::new();
    let said = world.fifo("said");
    let mut driver = Driver::start();
    let process = format!("{}:{}", driver.pid(), driver.start_time());
    let words = ["run", "--slots", "1", "--tasks", "-", "--json"];
    let mut running = world.start(words.into_iter().chain(["--end-with", process.as_str()]));
    running.send("{\"command\": \"true\"}\n");
    running.wait_for("\"finished\"");
    running.send(
        "{\"command\": \"trap '' TERM; echo $$ > said; sleep 1000 & wait; wait\", \"grace\": \"50ms\"}\n",
    );
    running.send("{\"command\": \"touch never\"}\n");
    let task = receive(&said);
    driver.kill();
    // Its input is still open.
    let ended = running.wait_for("\"run-ended\"");
    assert!(ended.contains("\"succeeded\":1,\"failed\":0,\"left\":2"), "{ended}");
    let done = running.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert!(!is_alive(&task));
    assert!(!world.work().join("never").exists());
    let shown = world.packhorse(["show", "1"]).stdout;
    assert!(shown.contains("succeeded"), "{shown}");
}

#[test]
fn nothing_starts_if_the_process_is_gone_or_another() {
    let world = World::new();
    let mut driver = Driver::start();
    let other = format!("{}:{}", driver.pid(), driver.start_time() + 1);
    let gone = driver.pid();
    driver.kill();
    let another = Driver::start();
    let reused = format!("{}:1", another.pid());
    for process in [&other, &gone, &reused] {
        let words = ["run", "--slots", "1", "--end-with", process, "--", "touch", "ran"];
        let done = world.packhorse(words);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("has ended already"), "{done:?}");
    }
    assert!(!world.work().join("ran").exists());
    let done = world.packhorse(["run", "--slots", "1", "--end-with", "x", "--", "true"]);
    assert!(done.stderr.contains("no process id"), "{done:?}");
}

#[test]
fn gpus_as_written_are_handed_out_without_a_look() {
    let world = World::new();
    let words = ["run", "--json", "--as-written", "--gpus", "0,7", "cuda:x", "--", "true"];
    let done = world.packhorse(words);
    assert_eq!(done.code, 0, "{done:?}");
    let events = done.events();
    assert_eq!(events[0]["gpus"], serde_json::json!(["0,7", "cuda:x"]));
    let words = ["run", "--as-written", "--", "true"];
    assert_eq!(world.packhorse(words).code, 2);
}
